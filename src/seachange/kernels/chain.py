"""Hidden Markov chains over a log: scaled forward and backward recursions for Gaussian regression emissions."""

from __future__ import annotations

import numpy as np
from numba import njit

from seachange.kernels.belief import gaussian_evidence, move, weigh
from seachange.kernels.regression import state_means


@njit(cache=True, nogil=True)
def forward(rows, actions, rewards, starts, coefs, variance, initial, transition, belief, filtered, evidence, scales):
    """p(z_t | r_1:t) into ``filtered``, the rounds' likelihoods into ``evidence``, their sums into ``scales``.

    ``belief`` comes in as p(z | rewards before this chunk) and goes out as the same for the next chunk; where
    ``starts`` is true a new chain begins from ``initial``. Rounds without a reward (NaN) are unobserved. Returns the
    log-likelihood.
    """
    log_likelihood = 0.0
    means = np.empty(belief.size)
    for t in range(actions.size):
        if starts[t]:
            belief[:] = initial
        if np.isnan(rewards[t]):
            evidence[t] = 1.0
        else:
            state_means(rows[t if rows.shape[0] > 1 else 0], actions[t], coefs, means)
            log_likelihood += gaussian_evidence(means, rewards[t], variance, evidence[t])
        scales[t] = weigh(belief, evidence[t], filtered[t])
        log_likelihood += np.log(scales[t])
        move(filtered[t], transition, belief)
    return log_likelihood


@njit(cache=True, nogil=True)
def backward(filtered, evidence, scales, next_starts, transition, future, posteriors, pairs):
    """p(z_t | all rewards) into ``posteriors``; Σ_t p(z_t = i, z_t+1 = j | all rewards) / Φ(i, j) added to ``pairs``.

    ``future`` comes in as evidence(z) p(later rewards | z) of the round after this chunk, up to its scale (ones where
    there is none), and goes out as the same for the chunk before. ``next_starts[t]`` is true where no transition leads
    from t to t + 1.
    """
    n_states = transition.shape[0]
    ahead = np.empty(n_states)
    for t in range(filtered.shape[0] - 1, -1, -1):
        if next_starts[t]:
            ahead[:] = 1.0
        else:
            for i in range(n_states):
                total = 0.0
                for j in range(n_states):
                    total += transition[i, j] * future[j]
                    pairs[i, j] += filtered[t, i] * future[j]
                ahead[i] = total
        for i in range(n_states):
            posteriors[t, i] = filtered[t, i] * ahead[i]
            future[i] = evidence[t, i] * ahead[i] / scales[t]
