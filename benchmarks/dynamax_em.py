"""Dynamax's side of em_iteration.py: try every variant of EM and time the fastest.

    dynamax_em.py PROBLEM.npz ITERATIONS shipped|all

JAX_ENABLE_X64 sets the precision; "all" includes our own improvements.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dynamax.hidden_markov_model import LinearRegressionHMM, hmm_smoother
from dynamax.hidden_markov_model.models.linreg_hmm import LinearRegressionHMMEmissions

from peers import fastest, serve

CHUNK = 512  # rounds


class Problem(NamedTuple):
    """Features (N, T, M), rewards (N, T, 1), and the start."""

    features: jax.Array
    rewards: jax.Array
    params: Any
    props: Any


class WideSums(LinearRegressionHMMEmissions):
    """Compute the sums over rounds as one wide product per chunk; the parent leaves their order to XLA."""

    def collect_suff_stats(
        self, params: Any, posterior: Any, emissions: jax.Array, inputs: jax.Array | None = None
    ) -> dict[str, jax.Array]:
        """Expected sufficient statistics, as in the parent."""
        both = jnp.concatenate([inputs, jnp.ones_like(emissions), emissions], axis=1)
        n, width = both.shape
        pieces = -(-n // CHUNK)
        rows, probs = (
            jnp.pad(array, ((0, pieces * CHUNK - n if pieces > 1 else 0), (0, 0))).reshape(pieces, -1, array.shape[1])
            for array in (both, posterior.smoothed_probs)
        )

        def add(sums: jax.Array, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            weighted = (chunk[1][:, :, None] * chunk[0][:, None, :]).reshape(len(chunk[0]), -1)
            return sums + weighted.T @ chunk[0], None

        sums = jax.lax.scan(add, jnp.zeros((probs.shape[2] * width, width), both.dtype), (rows, probs))[0]
        sums, m = sums.reshape(-1, width, width), self.input_dim
        return {
            "sum_w": sums[:, m, m],
            "sum_x": sums[:, :m, m],
            "sum_y": sums[:, m + 1 :, m],
            "sum_xxT": sums[:, :m, :m],
            "sum_xyT": sums[:, :m, m + 1 :],
            "sum_yyT": sums[:, m + 1 :, m + 1 :],
        }


class WideSumsHMM(LinearRegressionHMM):
    """The same model with ``WideSums``."""

    def __init__(self, num_states: int, input_dim: int, emission_dim: int, **priors: Any) -> None:
        super().__init__(num_states, input_dim, emission_dim, **priors)
        self.emission_component = WideSums(num_states, input_dim, emission_dim)


class OneFilterHMM(LinearRegressionHMM):
    """The same model with dynamax's other smoother in the E-step, which can be faster."""

    def e_step(self, params: Any, emissions: jax.Array, inputs: jax.Array | None = None) -> tuple[Any, jax.Array]:
        """Expected sufficient statistics and log-likelihood, as in the parent."""
        posterior = hmm_smoother(*self._inference_args(params, emissions, inputs))
        statistics = (
            self.initial_component.collect_suff_stats(params.initial, posterior, inputs),
            self.transition_component.collect_suff_stats(params.transitions, posterior, inputs),
            self.emission_component.collect_suff_stats(params.emissions, posterior, emissions, inputs),
        )
        return statistics, posterior.marginal_loglik


class OneFilterWideSumsHMM(OneFilterHMM, WideSumsHMM):
    """Both changes."""


MODELS = {
    "as shipped": LinearRegressionHMM,
    "hmm_smoother": OneFilterHMM,
    "wide sums": WideSumsHMM,
    "hmm_smoother and wide sums": OneFilterWideSumsHMM,
}


def main(path: str, iterations: int, models: list[str]) -> None:
    """Find the fastest variant, send its result, then measure on request."""
    ways = dict(ways_to_run(path, iterations, models))
    way = fastest(ways)
    model, problem = load(path, MODELS[way.split(", ")[1]])
    after, log_likelihood = one_step(model, problem)(problem.params)
    answer = {
        "way": way,
        "log_likelihood": float(log_likelihood),
        "initial_probs": after.initial.probs.tolist(),
        "transition_matrix": after.transitions.transition_matrix.tolist(),
        "weights": after.emissions.weights[:, 0].tolist(),
        "biases": after.emissions.biases[:, 0].tolist(),
        "versions": {name: version(name) for name in ("dynamax", "jax")},
    }
    serve(answer, ways[way])


def ways_to_run(path: str, iterations: int, models: list[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    """Variants of running ``iterations`` of EM: dynamax's own loop as one program, or a compiled step in a loop."""
    for name in models:
        model, problem = load(path, MODELS[name])
        yield f"fit_em, {name}", all_at_once(model, problem, iterations)
        if name == "as shipped":
            yield f"jitted step, {name}", step_by_step(model, problem, iterations)


def load(path: str, model_class: type[LinearRegressionHMM]) -> tuple[LinearRegressionHMM, Problem]:
    """The model with the problem's priors (dynamax's mode is counts + concentration - 1) and its start."""
    with np.load(path) as file:
        arrays = {name: jnp.asarray(file[name]) for name in file.files if name != "log_likelihoods"}
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
        emission_covariances=arrays["noise_variances"][:, None, None],
    )
    return model, Problem(arrays["features"], arrays["rewards"], params, props)


def all_at_once(model: LinearRegressionHMM, problem: Problem, iterations: int) -> Callable[[], object]:
    """``fit_em`` inside one jit, because it recompiles at every call otherwise."""
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
    def step(params: Any, rewards: jax.Array, features: jax.Array) -> tuple[Any, jax.Array]:
        if len(rewards) == 1:  # one chain is faster without vmap
            statistics, log_likelihood = model.e_step(params, rewards[0], features[0])
            batch = jax.tree.map(lambda array: array[None], statistics)
        else:
            batch, log_likelihood = jax.vmap(partial(model.e_step, params))(rewards, features)
        return model.m_step(params, problem.props, batch, state)[0], log_likelihood.sum()

    return lambda params: step(params, problem.rewards, problem.features)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), list(MODELS)[: 1 if sys.argv[3] == "shipped" else None])
