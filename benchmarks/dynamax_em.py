"""Dynamax's side of em_iteration.py, for an interpreter that has dynamax: time EM every way it runs, keep the best.

    dynamax_em.py PROBLEM.npz ITERATIONS REPEATS shipped|all

prints json. JAX_ENABLE_X64 decides the precision; "all" tries a smoother that dynamax has but does not use for EM.
"""

from __future__ import annotations

import json
import sys
import timeit
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dynamax.hidden_markov_model import LinearRegressionHMM, hmm_smoother


class Problem(NamedTuple):
    """The data, (T, M) and (T, 1), and the start."""

    features: jax.Array
    rewards: jax.Array
    params: Any
    props: Any


class OneFilterHMM(LinearRegressionHMM):
    """The same model with dynamax's other smoother in the E-step, which can be the faster one."""

    def e_step(self, params: Any, emissions: jax.Array, inputs: jax.Array | None = None) -> tuple[Any, jax.Array]:
        """Expected sufficient statistics and log-likelihood, as the parent's."""
        posterior = hmm_smoother(*self._inference_args(params, emissions, inputs))
        statistics = (
            self.initial_component.collect_suff_stats(params.initial, posterior, inputs),
            self.transition_component.collect_suff_stats(params.transitions, posterior, inputs),
            self.emission_component.collect_suff_stats(params.emissions, posterior, emissions, inputs),
        )
        return statistics, posterior.marginal_loglik


SMOOTHERS = {"hmm_two_filter_smoother": LinearRegressionHMM, "hmm_smoother": OneFilterHMM}
BRIEF_REPEATS = 5  # enough to tell which way is the fastest


def main(path: str, iterations: int, repeats: int, smoothers: list[str]) -> None:
    """Time every way briefly and the fastest at length; print that and what one iteration gave."""
    runs = dict(ways(path, iterations, smoothers))
    brief = {way: median_seconds(run, BRIEF_REPEATS) for way, run in runs.items()}
    fastest = min(brief, key=brief.__getitem__)
    seconds = median_seconds(runs[fastest], repeats) / iterations
    model, problem = load(path, SMOOTHERS[fastest.split(", ")[1]])
    after, log_likelihood = one_step(model, problem)(problem.params)
    side = {
        "way": fastest,
        "seconds": seconds,
        "log_likelihood": float(log_likelihood),
        "initial_probs": after.initial.probs.tolist(),
        "transition_matrix": after.transitions.transition_matrix.tolist(),
        "weights": after.emissions.weights[:, 0].tolist(),
        "biases": after.emissions.biases[:, 0].tolist(),
    }
    print(json.dumps({"side": side, "versions": {name: version(name) for name in ("dynamax", "jax")}}))


def ways(path: str, iterations: int, smoothers: list[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    """Ways to run ``iterations`` of EM: one program by dynamax's own loop, or one compiled step after another."""
    for smoother in smoothers:
        model, problem = load(path, SMOOTHERS[smoother])
        yield f"fit_em, {smoother}", all_at_once(model, problem, iterations)
        yield f"jitted step, {smoother}", step_by_step(model, problem, iterations)


def load(path: str, model_class: type[LinearRegressionHMM]) -> tuple[LinearRegressionHMM, Problem]:
    """The model with the problem's priors (dynamax's mode is at counts + concentration - 1), and its start."""
    arrays = {name: jnp.asarray(array) for name, array in np.load(path).items()}
    n_states, n_features = arrays["weights"].shape
    model = model_class(
        n_states,
        n_features,
        1,
        initial_probs_concentration=1.0 + arrays["first_counts"],
        transition_matrix_concentration=1.0 + arrays["transition_counts"],
    )
    params, props = model.initialize(
        initial_probs=arrays["initial_probs"],
        transition_matrix=arrays["transition_matrix"],
        emission_weights=arrays["weights"][:, None, :],
        emission_biases=arrays["biases"][:, None],
        emission_covariances=jnp.full((n_states, 1, 1), arrays["noise_variance"]),
    )
    return model, Problem(arrays["features"], arrays["rewards"][:, None], params, props)


def all_at_once(model: LinearRegressionHMM, problem: Problem, iterations: int) -> Callable[[], object]:
    """``fit_em``, compiled from outside since it compiles afresh at each call otherwise."""
    run = jax.jit(
        lambda params, rewards, features: model.fit_em(
            params, problem.props, rewards, features, num_iters=iterations, verbose=False
        )
    )
    return lambda: jax.block_until_ready(run(problem.params, problem.rewards, problem.features))


def step_by_step(model: LinearRegressionHMM, problem: Problem, iterations: int) -> Callable[[], object]:
    """E-step and M-step as one compiled program, called ``iterations`` times."""
    step = one_step(model, problem)

    def run() -> object:
        params = problem.params
        for _ in range(iterations):
            params, log_likelihood = step(params)
        return jax.block_until_ready((params, log_likelihood))

    return run


def one_step(model: LinearRegressionHMM, problem: Problem) -> Callable[[Any], tuple[Any, jax.Array]]:
    """params → params after one EM iteration, and the log-likelihood before it."""
    state = model.initialize_m_step_state(problem.params, problem.props)

    @jax.jit
    def step(params: Any) -> tuple[Any, jax.Array]:
        statistics, log_likelihood = model.e_step(params, problem.rewards, problem.features)
        batch = jax.tree.map(lambda array: array[None], statistics)
        return model.m_step(params, problem.props, batch, state)[0], log_likelihood

    return step


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    """Seconds a run takes, after a warm-up that compiles it."""
    run()
    return float(np.median(timeit.repeat(run, repeat=repeats, number=1)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), list(SMOOTHERS)[: 1 if sys.argv[4] == "shipped" else None])
