"""Feature rows, grouped by block of coefficients and transposed into columns for vector instructions."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled

# Rounds processed at a time; their features should fit into the fastest cache.
LANES = 128


@compiled
def without_contexts(rows):
    """Whether there are no contexts: the only feature is a constant, and counting is enough."""
    return rows.shape[0] == 1 and rows.shape[1] == 1 and rows.shape[2] == 1


@compiled
def group_by_block(actions, n_blocks):
    """Rounds sorted by block of coefficients, and the (B + 1,) bounds of the blocks."""
    order, bounds = np.empty(actions.size, np.int64), np.zeros(n_blocks + 1, np.int64)
    if n_blocks == 1:
        for t in range(actions.size):
            order[t] = t
        bounds[1] = actions.size
        return order, bounds
    for t in range(actions.size):
        bounds[actions[t] + 1] += 1
    for b in range(n_blocks):
        bounds[b + 1] += bounds[b]
    next_index = bounds.copy()
    for t in range(actions.size):
        order[next_index[actions[t]]] = t
        next_index[actions[t]] += 1
    return order, bounds


@compiled
def column_buffer(n_rows, n_times=1):
    """Buffer for ``n_times`` times ``LANES`` columns, padded so that rows do not compete for the same cache lines."""
    return np.empty((n_rows, n_times * LANES + 8))


@compiled
def gather(rows, actions, rounds, features):
    """Write f(x_t, a_t) of ``rounds`` to the columns of ``features``."""
    many, own_row = rows.shape[0] > 1, rows.shape[1] > 1
    for i in range(rounds.size):
        t = rounds[i]
        k, r = t if many else 0, actions[t] if own_row else 0
        for j in range(features.shape[0]):
            features[j, i] = rows[k, r, j]


def action_rows(rows, actions, rounds):
    """f(x_t, a_t) of ``rounds``, (m, D)."""
    return rows[rounds if rows.shape[0] > 1 else 0, actions[rounds] if rows.shape[1] > 1 else 0].reshape(
        -1, rows.shape[2]
    )
