"""hmmlearn's side of em_iteration.py: only the forward-backward pass on given likelihoods, without regression.

hmmlearn_em.py PROBLEM.npz ITERATIONS
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
from hmmlearn import _hmmc
from hmmlearn.base import BaseHMM

from peers import fastest, serve


class Supplied(BaseHMM):
    """An HMM whose observations are (log-)likelihoods."""

    def _compute_likelihood(self, X: np.ndarray) -> np.ndarray:
        return X

    def _compute_log_likelihood(self, X: np.ndarray) -> np.ndarray:
        return X


def main(path: str, iterations: int) -> None:
    """Find the fastest variant, send its result, then measure on request."""
    arrays = dict(np.load(path))
    ways = {
        "fit's E-step, log": own_e_step(arrays, "log"),
        "fit's E-step, scaling": own_e_step(arrays, "scaling"),
        "its C calls, scaling": c_calls(arrays),
    }
    way = fastest(ways)
    log_likelihood, first_states, transitions = ways[way]()
    answer = {
        "way": way,
        "log_likelihood": float(log_likelihood),
        "initial_probs": normalized(first_states + arrays["first_counts"]).tolist(),
        "transition_matrix": normalized(transitions + arrays["transition_counts"]).tolist(),
        "versions": {"hmmlearn": version("hmmlearn")},
    }

    def run() -> None:
        for _ in range(iterations):
            ways[way]()

    serve(answer, run)


def own_e_step(arrays: dict[str, np.ndarray], implementation: str) -> Callable[[], tuple[Any, ...]]:
    """The E-step as ``fit`` runs it, one chain after another."""
    model = Supplied(len(arrays["initial_probs"]), implementation=implementation)
    model.n_features = model.n_components
    model.startprob_, model.transmat_ = arrays["initial_probs"], arrays["transition_matrix"]
    n_chains, length = arrays["rewards"].shape[:2]
    given = arrays["log_likelihoods"] if implementation == "log" else np.exp(arrays["log_likelihoods"])

    def run() -> tuple[Any, ...]:
        statistics, log_likelihood = model._do_estep(given, [length] * n_chains)
        return log_likelihood, statistics["start"], statistics["trans"]

    return run


def c_calls(arrays: dict[str, np.ndarray]) -> Callable[[], tuple[Any, ...]]:
    """The same with direct calls to the C code, computing posteriors for all chains at once."""
    initial, transition = arrays["initial_probs"], arrays["transition_matrix"]
    n_chains, length = arrays["rewards"].shape[:2]
    chains = list(np.exp(arrays["log_likelihoods"]).reshape(n_chains, length, -1))

    def run() -> tuple[Any, ...]:
        log_likelihood, transitions, lattices = 0.0, np.zeros_like(transition), []
        for likelihoods in chains:
            chain_likelihood, forward, scales = _hmmc.forward_scaling(initial, transition, likelihoods)
            backward = _hmmc.backward_scaling(initial, transition, likelihoods, scales)
            transitions += _hmmc.compute_scaling_xi_sum(forward, transition, backward, likelihoods)
            log_likelihood += chain_likelihood
            lattices.append((forward, backward))
        posteriors = np.stack([forward for forward, _ in lattices])
        posteriors *= np.stack([backward for _, backward in lattices])
        posteriors /= posteriors.sum(axis=2, keepdims=True)
        return log_likelihood, posteriors[:, 0].sum(axis=0), transitions

    return run


def normalized(counts: np.ndarray) -> np.ndarray:
    """Convert counts to probabilities."""
    return counts / counts.sum(axis=-1, keepdims=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
