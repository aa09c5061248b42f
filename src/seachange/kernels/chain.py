"""Hidden Markov chains over a log: Gaussian regression emissions, scaled forward and backward recursions.

``filter_rounds`` has the arithmetic of ``seachange.kernels.belief``: a live filter agrees with it to the bit. The
E-step's ``forward`` and ``backward`` agree to rounding: they normalise one round late, so that a round need not wait
for the division of the one before. No view is made of a row: that would cost more than the row.
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
    # Without contexts a mean depends on the action alone.
    tabled = not many and not own_row and n_features == 1
    table = np.empty((coefs.shape[1], n_states))
    for b in range(coefs.shape[1] if tabled else 0):
        for z in range(n_states):
            table[b, z] = coefs[z, b, 0] * rows[0, 0, 0]
    halved = 0.5 / variance
    log_factor = 0.0
    n_observed = 0
    for t in range(actions.size):
        if np.isnan(rewards[t]):
            evidence[t] = 0.0
            continue
        k, r, b = t if many else 0, actions[t] if own_row else 0, actions[t] if own_block else 0
        nearest = np.inf
        for z in range(n_states):
            mean = table[b, z]
            if not tabled:
                mean = 0.0
                for j in range(n_features):
                    mean += coefs[z, b, j] * rows[k, r, j]
            evidence[t, z] = min((rewards[t] - mean) * (rewards[t] - mean), LARGEST)
            nearest = min(nearest, evidence[t, z])
        for z in range(n_states):
            evidence[t, z] = (nearest - evidence[t, z]) * halved
        log_factor -= nearest * halved
        n_observed += 1
    exp_in_place(evidence.reshape(-1))
    return log_factor - 0.5 * n_observed * np.log(2.0 * np.pi * variance)


@njit(cache=True, nogil=True)
def filter_rounds(evidence, starts, initial, transition, belief, filtered):
    """p(z_t | r_1:t) into ``filtered``, round by round as a deployment would.

    ``belief`` comes in as p(z | rewards before this chunk) and goes out as the same for the next chunk; where
    ``starts`` is true a new chain begins from ``initial``.
    """
    n_states = belief.size
    for t in range(evidence.shape[0]):
        if starts[t]:
            for z in range(n_states):
                belief[z] = initial[z]
        total = 0.0
        for z in range(n_states):
            filtered[t, z] = belief[z] * evidence[t, z]
            total += filtered[t, z]
        inverse = 1.0 / total
        for z in range(n_states):
            filtered[t, z] *= inverse
        for j in range(n_states):
            moved = 0.0
            for i in range(n_states):
                moved += filtered[t, i] * transition[i, j]
            belief[j] = moved


@njit(cache=True, nogil=True)
def forward(evidence, starts, initial, transition, belief, filtered, inverses):
    """p(z_t | r_1:t) into ``filtered``, 1 / S_t into ``inverses``; returns Σ_t log S_t.

    S_t = Σ_z p(z_t = z | r_1:t-1) evidence(z). ``belief`` and ``starts`` are those of ``filter_rounds``; inside, belief
    is S_t-1 p(z_t | r_1:t-1): it is divided by S_t-1 on its way to the next round, by which time that division is done.
    """
    n_states = belief.size
    log_likelihood = 0.0
    product = 1.0
    before = 1.0
    for t in range(evidence.shape[0]):
        if starts[t]:
            before = 1.0
            for z in range(n_states):
                belief[z] = initial[z]
        total = 0.0
        for z in range(n_states):
            weighed = belief[z] * evidence[t, z]
            filtered[t, z] = weighed
            total += weighed
        for j in range(n_states):
            moved = 0.0
            for i in range(n_states):
                moved += filtered[t, i] * transition[i, j]
            belief[j] = moved * before
        scale = total * before
        inverse = 1.0 / scale
        for z in range(n_states):
            filtered[t, z] *= before * inverse
        inverses[t] = inverse
        before = inverse
        # Logarithms are dear: one serves the product of many scales.
        product *= scale
        if product < 1e-150:
            log_likelihood += np.log(product)
            product = 1.0
    for z in range(n_states):
        belief[z] *= before
    return log_likelihood + np.log(product)


@njit(cache=True, nogil=True)
def backward(filtered, evidence, inverses, next_starts, transition, future, posteriors, pairs):
    """p(z_t | all rewards) into ``posteriors``; Σ_t p(z_t = i, z_t+1 = j | all rewards) / Φ(i, j) added to ``pairs``.

    ``future`` comes in as evidence(z) p(later rewards | z) of the round after this chunk, up to its scale (ones where
    there is none), and goes out as the same for the chunk before. ``next_starts[t]`` is true where no transition leads
    from t to t + 1. ``posteriors`` may be ``filtered``.
    """
    n_states = transition.shape[0]
    ahead = np.empty(n_states)
    for t in range(filtered.shape[0] - 1, -1, -1):
        if next_starts[t]:
            for i in range(n_states):
                ahead[i] = 1.0
        else:
            for i in range(n_states):
                total = 0.0
                for j in range(n_states):
                    total += transition[i, j] * future[j]
                    pairs[i, j] += filtered[t, i] * future[j]
                ahead[i] = total
        for i in range(n_states):
            posteriors[t, i] = filtered[t, i] * ahead[i]
            future[i] = evidence[t, i] * ahead[i] * inverses[t]
