"""Rows of features, brought together: rounds whose coefficients are the same, side by side."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled

# Rounds that are worked on at a time; their features should fit into the fastest memory.
SIDE_BY_SIDE = 128


@compiled
def tabled(rows):
    """Whether there are no contexts: features are the action alone, and counting is enough."""
    return rows.shape[0] == 1 and rows.shape[1] == 1 and rows.shape[2] == 1


@compiled
def grouped(actions, n_blocks):
    """Rounds in the order of their blocks of coefficients, and where each block begins and the last ends."""
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
    place = bounds.copy()
    for t in range(actions.size):
        order[place[actions[t]]] = t
        place[actions[t]] += 1
    return order, bounds


@compiled
def columns_for(n_rows, n_sides=1):
    """Room for ``SIDE_BY_SIDE`` columns, ``n_sides`` times; a few more keep rows from sharing a place in the cache."""
    return np.empty((n_rows, n_sides * SIDE_BY_SIDE + 8))


@compiled
def gather(rows, actions, rounds, features):
    """f(x_t, a_t) of these rounds into the columns of ``features`` (D, at least as many)."""
    many, own_row = rows.shape[0] > 1, rows.shape[1] > 1
    for i in range(rounds.size):
        t = rounds[i]
        k, r = t if many else 0, actions[t] if own_row else 0
        for j in range(features.shape[0]):
            features[j, i] = rows[k, r, j]


def own_rows(rows, actions, rounds):
    """f(x_t, a_t) of rounds in these places, (n, D)."""
    return rows[rounds if rows.shape[0] > 1 else 0, actions[rounds] if rows.shape[1] > 1 else 0].reshape(
        -1, rows.shape[2]
    )
