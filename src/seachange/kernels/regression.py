"""Weighted least squares of the reward on the joint features of the action that was taken."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def regression_sums(rows, actions, rewards, weights, n_blocks):
    """Σ_t u_t(z) [f f', f r, r², 1] for every weight column z; rounds without a reward (NaN) are left out.

    Returns Gram matrices (L, B, D, D), moments (L, B, D) and totals (L, 2) of r² and 1.
    """
    n_columns, n_features = weights.shape[1], rows.shape[2]
    grams = np.zeros((n_columns, n_blocks, n_features, n_features))
    moments = np.zeros((n_columns, n_blocks, n_features))
    totals = np.zeros((n_columns, 2))
    many, own_row = rows.shape[0] > 1, rows.shape[1] > 1
    # Without contexts the features are the action alone: counting is enough.
    tabled = not many and not own_row and n_features == 1
    counts, sums = np.zeros((n_columns, n_blocks)), np.zeros((n_columns, n_blocks))
    for t in range(actions.size):
        reward = rewards[t]
        if np.isnan(reward):
            continue
        k, r, b = t if many else 0, actions[t] if own_row else 0, actions[t] if n_blocks > 1 else 0
        for z in range(n_columns):
            weight = weights[t, z]
            # Posteriors are almost always 0 or 1; what is smaller than this moves no sum.
            if weight < 1e-15:
                continue
            totals[z, 0] += weight * reward * reward
            if tabled:
                counts[z, b] += weight
                sums[z, b] += weight * reward
                continue
            totals[z, 1] += weight
            for i in range(n_features):
                scaled = weight * rows[k, r, i]
                moments[z, b, i] += scaled * reward
                for j in range(i + 1):
                    grams[z, b, i, j] += scaled * rows[k, r, j]
    if tabled:
        for z in range(n_columns):
            for b in range(n_blocks):
                grams[z, b, 0, 0] = counts[z, b] * rows[0, 0, 0] * rows[0, 0, 0]
                moments[z, b, 0] = sums[z, b] * rows[0, 0, 0]
                totals[z, 1] += counts[z, b]
    for z in range(n_columns):
        for b in range(n_blocks):
            for i in range(n_features):
                for j in range(i):
                    grams[z, b, j, i] = grams[z, b, i, j]
    return grams, moments, totals


@njit(cache=True, nogil=True)
def window_sums(rows, actions, rewards, windows, grams, moments):
    """Σ f f' over the rounds of each window is added to ``grams`` (W, B, D, D), Σ f r to ``moments`` (W, B, D).

    Rounds whose window is negative are left out.
    """
    n_blocks, n_features = moments.shape[1], moments.shape[2]
    for t in range(actions.size):
        reward = rewards[t]
        if np.isnan(reward):
            continue
        row = rows[t if rows.shape[0] > 1 else 0, actions[t] if rows.shape[1] > 1 else 0]
        b, w = actions[t] if n_blocks > 1 else 0, windows[t]
        if w < 0:
            continue
        for i in range(n_features):
            moments[w, b, i] += row[i] * reward
            for j in range(n_features):
                grams[w, b, i, j] += row[i] * row[j]


@njit(cache=True, nogil=True)
def state_means(row, action, coefs, means):
    """means(z) = β_z · f(x, a), for coefs (L, B, D) and one round's row (R, D)."""
    r, b = action if row.shape[0] > 1 else 0, action if coefs.shape[1] > 1 else 0
    for z in range(means.size):
        total = 0.0
        for j in range(row.shape[1]):
            total += coefs[z, b, j] * row[r, j]
        means[z] = total


def modelled_rewards(rows, coefs):
    """c_a · f(x_t, a) for every round and action, (n, K) or (1, K), for one coefficient set (B, D)."""
    return rows @ coefs[0] if rows.shape[1] > 1 else rows[:, 0] @ coefs.T


def penalised_gram(grams, penalties):
    """G + diag(penalties), for penalties (D,)."""
    return grams + np.diag(penalties)


def solve_ridge(grams, moments, penalties):
    """c = (G + diag(penalties))⁻¹ m for every leading index; least norm where that is singular."""
    penalised = penalised_gram(grams, penalties)
    if (penalties > 0.0).all():
        return np.linalg.solve(penalised, moments[..., None])[..., 0]
    return (np.linalg.pinv(penalised, hermitian=True) @ moments[..., None])[..., 0]
