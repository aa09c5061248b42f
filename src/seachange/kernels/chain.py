"""Hidden Markov chains over a log: Gaussian regression emissions, scaled forward and backward recursions.

The arithmetic of a round is that of ``seachange.kernels.belief``, written out so that no view is made of a row: a live
filter agrees with these to the bit.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from seachange.kernels.belief import LARGEST
from seachange.kernels.exponential import exp_in_place


@njit(cache=True, nogil=True)
def gaussian_evidences(rows, actions, rewards, coefs, variance, evidence):
    """N(r_t; β_z · f(x_t, a_t), σ²) into ``evidence``, each round up to a factor; returns the factors' log-product.

    Rounds without a reward (NaN) are unobserved: all ones.
    """
    many, own_row, own_block = rows.shape[0] > 1, rows.shape[1] > 1, coefs.shape[1] > 1
    n_states, n_features = coefs.shape[0], coefs.shape[2]
    halved = 0.5 / variance
    log_factor = 0.0
    n_observed = 0
    for t in range(actions.size):
        if np.isnan(rewards[t]):
            evidence[t] = 0.0
            continue
        i, r, b = t if many else 0, actions[t] if own_row else 0, actions[t] if own_block else 0
        nearest = np.inf
        for z in range(n_states):
            mean = 0.0
            for j in range(n_features):
                mean += coefs[z, b, j] * rows[i, r, j]
            evidence[t, z] = min((rewards[t] - mean) * (rewards[t] - mean), LARGEST)
            nearest = min(nearest, evidence[t, z])
        for z in range(n_states):
            evidence[t, z] = (nearest - evidence[t, z]) * halved
        log_factor -= nearest * halved
        n_observed += 1
    exp_in_place(evidence.reshape(-1))
    return log_factor - 0.5 * n_observed * np.log(2.0 * np.pi * variance)


@njit(cache=True, nogil=True)
def forward(evidence, starts, initial, transition, belief, filtered, scales):
    """p(z_t | r_1:t) into ``filtered``, Σ_z p(z_t | r_1:t-1) evidence(z) into ``scales``; returns Σ_t log scales.

    ``belief`` comes in as p(z | rewards before this chunk) and goes out as the same for the next chunk; where
    ``starts`` is true a new chain begins from ``initial``.
    """
    n_states = belief.size
    log_likelihood = 0.0
    product = 1.0
    for t in range(evidence.shape[0]):
        if starts[t]:
            for z in range(n_states):
                belief[z] = initial[z]
        total = 0.0
        for z in range(n_states):
            weighed = belief[z] * evidence[t, z]
            filtered[t, z] = weighed
            total += weighed
        inverse = 1.0 / total
        for z in range(n_states):
            filtered[t, z] *= inverse
        for j in range(n_states):
            moved = 0.0
            for i in range(n_states):
                moved += filtered[t, i] * transition[i, j]
            belief[j] = moved
        scales[t] = total
        # Logarithms are dear: one serves the product of many scales.
        product *= total
        if product < 1e-150:
            log_likelihood += np.log(product)
            product = 1.0
    return log_likelihood + np.log(product)


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
