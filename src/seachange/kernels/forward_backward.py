"""Hidden Markov chains over a log: scaled forward and backward recursions.

``filter_rounds`` has the arithmetic of a live filter and agrees with it to the bit. ``forward`` and ``backward`` agree
up to rounding: they normalize one round late, so that no round waits for the division of the previous one. Rows are
indexed in place because creating a view would cost more than using the row.
"""

import numpy as np

from seachange.kernels.belief_updates import draw_action, move, weigh
from seachange.kernels.compiler import compiled


@compiled
def filter_rounds(evidence, starts, initial, transition, belief, filtered):
    """Write p(z_t | r_1:t) to ``filtered``, round by round as in a deployment.

    ``belief`` is p(z | rewards before this chunk) and is updated for the next chunk. A new chain begins from
    ``initial`` in every round with ``starts``.
    """
    for t in range(evidence.shape[0]):
        if starts[t]:
            belief[:] = initial
        weigh(belief, evidence[t], filtered[t])
        move(filtered[t], transition, belief)


@compiled
def forward(evidence, starts, initial, transition, belief, filtered, inverses):
    """Write p(z_t | r_1:t) to ``filtered`` and 1 / S_t to ``inverses``; return Σ_t log S_t.

    S_t = Σ_z p(z_t = z | r_1:t-1) evidence(z). ``belief`` and ``starts`` are as in ``filter_rounds``. Inside the loop,
    belief is S_t-1 p(z_t | r_1:t-1); it is divided by S_t-1 one round later, when the division has finished.
    """
    n_states = belief.size
    log_likelihood, product, before = 0.0, 1.0, 1.0
    for t in range(evidence.shape[0]):
        if starts[t]:
            before = 1.0
            belief[:] = initial
        total = 0.0
        for z in range(n_states):
            weighted = belief[z] * evidence[t, z]
            filtered[t, z] = weighted
            total += weighted
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
        # Logarithms are expensive: take one of the product of many scales.
        product *= scale
        if product < 1e-150:
            log_likelihood += np.log(product)
            product = 1.0
    for z in range(n_states):
        belief[z] *= before
    return log_likelihood + np.log(product)


@compiled
def backward(filtered, evidence, inverses, next_starts, transition, future, posteriors, pairs):
    """Write p(z_t | all rewards) to ``posteriors``; add Σ_t p(z_t = i, z_t+1 = j | all rewards) / Φ(i, j) to ``pairs``.

    ``future`` is evidence(z) p(later rewards | z) of the round after this chunk, up to its scale (ones at the end), and
    is updated for the previous chunk. ``next_starts[t]`` is true if round t + 1 starts a new chain. ``posteriors`` may
    be the same array as ``filtered``.
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
def sample_path(filtered, next_starts, transition, uniforms, path):
    """Draw z_1:n given all rewards, from the last round back: p(z_t | z_t+1, r_1:t) ∝ p(z_t | r_1:t) Φ(z_t, z_t+1)."""
    n, n_states = filtered.shape
    probs = np.empty(n_states)
    for t in range(n - 1, -1, -1):
        total = 0.0
        for z in range(n_states):
            probs[z] = filtered[t, z] * (1.0 if next_starts[t] else transition[z, path[t + 1]])
            total += probs[z]
        for z in range(n_states):
            probs[z] /= total
        path[t] = draw_action(probs, uniforms[t])
