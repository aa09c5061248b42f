"""Dynamax's side of cold_fit.py: fit from its own starts until convergence, in processor time.

    dynamax_fit.py PROBLEM.npz N_STATES TOLERANCE MOST_ITERATIONS SECONDS

Prints JSON. ``fit_em`` has no stopping rule, so it runs in batches of iterations until the last iteration of a batch
gains less than the tolerance, relative to the log-likelihood.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dynamax.hidden_markov_model import LinearRegressionHMM

BATCH = 10  # iterations
METHODS = ("prior", "kmeans")  # of dynamax's initialize


def main(path: str, n_states: int, tolerance: float, most_iterations: int, patience: float) -> None:
    """Run each start once; compilation is timed separately."""
    with np.load(path) as file:
        features, rewards = jnp.asarray(file["features"]), jnp.asarray(file["rewards"])
    model = LinearRegressionHMM(n_states, features.shape[2], 1)
    props = model.initialize(jax.random.PRNGKey(0))[1]
    batch = jax.jit(lambda params: model.fit_em(params, props, rewards, features, num_iters=BATCH, verbose=False))
    log_probs = jax.jit(jax.vmap(model.marginal_log_prob, in_axes=(None, 0, 0)))

    before = time.process_time()
    cold = model.initialize(jax.random.PRNGKey(0))[0]
    compiled = batch.lower(cold).compile()
    compiling = time.process_time() - before
    rows = []
    for method in METHODS:
        before = time.process_time()
        params: Any = model.initialize(jax.random.PRNGKey(0), method=method, emissions=rewards)[0]
        iterations, converged = 0, False
        while not converged and iterations < most_iterations and time.process_time() - before < patience:
            params, path_of_logs = compiled(params)
            last = np.asarray(path_of_logs)
            iterations += BATCH
            converged = bool(last[-1] - last[-2] <= tolerance * abs(last[-1]))
        seconds = time.process_time() - before
        rows.append(
            {
                "start": method,
                "seconds": seconds,
                "iterations": iterations,
                "converged": converged,
                "log_likelihood": float(log_probs(params, rewards, features).sum()),
            }
        )
    print(json.dumps({"compiling": compiling, "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
