"""Hidden Markov chains over a log: scaled forward and backward recursions, and the likeliest path.

``filter_rounds`` has the arithmetic of ``seachange.kernels.belief``: a live filter agrees with it to the bit. The
E-step's ``forward`` and ``backward`` agree to rounding: they normalise one round late, so that a round need not wait
for the division of the one before. No view is made of a row: that would cost more than the row.
"""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled


@compiled
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


@compiled
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


@compiled
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


@compiled
def likeliest_forward(evidence, starts, next_starts, initial, transition, best, origins, path):
    """max over paths of log p(z_1:t, r_1:t) into ``best``; where the best path to z came from into ``origins``.

    ``best`` comes in as that of the round before this chunk and goes out as that of its last round. The last round of
    every chain gets its state of the likeliest path in ``path``.
    """
    n_states = best.size
    log_initial, log_transition, before = np.log(initial), np.log(transition), np.empty(n_states)
    for t in range(evidence.shape[0]):
        for i in range(n_states):
            before[i] = best[i]
        for j in range(n_states):
            if starts[t]:
                best[j] = log_initial[j]
            else:
                origin = 0
                for i in range(1, n_states):
                    if before[i] + log_transition[i, j] > before[origin] + log_transition[origin, j]:
                        origin = i
                origins[t, j] = origin
                best[j] = before[origin] + log_transition[origin, j]
            best[j] += np.log(evidence[t, j])
        if next_starts[t]:
            path[t] = 0
            for i in range(1, n_states):
                if best[i] > best[path[t]]:
                    path[t] = i


@compiled
def likeliest_backward(origins, next_starts, path):
    """Fill ``path`` from the last rounds of its chains."""
    for t in range(path.size - 2, -1, -1):
        if not next_starts[t]:
            path[t] = origins[t + 1, path[t + 1]]
