"""Weighted sums over rounds that regressions of the reward are solved from: f = f(x_t, a_t), the action's own features.

All of them add up over chunks of rounds.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Weights below this, of at most 1, move no sum: posteriors are almost always 0 or 1.
NEGLIGIBLE = 1e-13
# Up to this many features all states are summed at once, side by side; beyond, each where its weight is not negligible.
FEW_FEATURES = 16
# Rounds whose sums are kept together by ``block_sums``.
BLOCK = 256


@njit(cache=True, nogil=True)
def regression_sums(rows, actions, rewards, weights, n_blocks):
    """Σ_t u_t(z) [f f', f r, r², 1] for every weight column z; rounds without a reward (NaN) are left out.

    Returns Gram matrices (L, B, D, D), moments (L, B, D) and totals (L, 2) of r² and 1.
    """
    slopes = np.empty(weights.shape)
    totals = np.zeros((weights.shape[1], 2))
    if tabled(rows):
        counts, sums = table_sums(actions, rewards, weights, n_blocks, totals)
        return table_grams(rows, counts, sums, counts, totals)
    seen = np.empty(weights.shape)
    for t in range(rewards.size):
        observed = not np.isnan(rewards[t])
        for z in range(weights.shape[1]):
            seen[t, z] = weights[t, z] if observed else 0.0
            slopes[t, z] = weights[t, z] * rewards[t] if observed else 0.0
            totals[z, 0] += slopes[t, z] * rewards[t] if observed else 0.0
            totals[z, 1] += seen[t, z]
    grams, moments = curved_sums(rows, actions, seen, slopes, n_blocks)
    return grams, moments, totals


@njit(cache=True, nogil=True)
def logistic_sums(rows, actions, rewards, weights, scores, n_blocks):
    """Σ_t u_t(z) [p (1 - p) f f', (r - p) f], p = 1 / (1 + exp(-score)): curvature and slope of the log-likelihood.

    Returns them with totals (L, 2) of r and 1; rounds without a reward (NaN) are left out.
    """
    totals = np.zeros((weights.shape[1], 2))
    if tabled(rows):
        counts, sums = table_sums(actions, rewards, weights, n_blocks, totals)
        levels = np.zeros((weights.shape[1], n_blocks))
        for t in range(actions.size):
            for z in range(weights.shape[1]):
                levels[z, actions[t] if n_blocks > 1 else 0] = scores[t, z]
        curvatures = np.empty(counts.shape)
        for z in range(counts.shape[0]):
            for b in range(n_blocks):
                p = 1.0 / (1.0 + np.exp(-levels[z, b]))
                curvatures[z, b] = counts[z, b] * p * (1.0 - p)
                sums[z, b] -= counts[z, b] * p
        return table_grams(rows, curvatures, sums, counts, totals)
    curvatures, slopes = np.zeros(weights.shape), np.zeros(weights.shape)
    for t in range(rewards.size):
        if np.isnan(rewards[t]):
            continue
        for z in range(weights.shape[1]):
            p = 1.0 / (1.0 + np.exp(-scores[t, z]))
            curvatures[t, z] = weights[t, z] * p * (1.0 - p)
            slopes[t, z] = weights[t, z] * (rewards[t] - p)
            totals[z, 0] += weights[t, z] * rewards[t]
            totals[z, 1] += weights[t, z]
    grams, moments = curved_sums(rows, actions, curvatures, slopes, n_blocks)
    return grams, moments, totals


@njit(cache=True, nogil=True)
def tabled(rows):
    """Whether there are no contexts: features are the action alone, and counting is enough."""
    return rows.shape[0] == 1 and rows.shape[1] == 1 and rows.shape[2] == 1


@njit(cache=True, nogil=True)
def table_sums(actions, rewards, weights, n_blocks, totals):
    """(L, B) sums of weights and of weighted rewards by action; ``totals`` (L, 2) gains Σ u r² and Σ u."""
    n_columns = weights.shape[1]
    counts, sums, squares = np.zeros((n_blocks, n_columns)), np.zeros((n_blocks, n_columns)), np.zeros(n_columns)
    for t in range(actions.size):
        reward = rewards[t]
        if np.isnan(reward):
            continue
        b = actions[t] if n_blocks > 1 else 0
        for z in range(n_columns):
            weighted = weights[t, z] * reward
            counts[b, z] += weights[t, z]
            sums[b, z] += weighted
            squares[z] += weighted * reward
    for z in range(n_columns):
        totals[z, 0] += squares[z]
        for b in range(n_blocks):
            totals[z, 1] += counts[b, z]
    return counts.T.copy(), sums.T.copy()


@njit(cache=True, nogil=True)
def table_grams(rows, curvatures, slopes, counts, totals):
    """The sums of a log without contexts in the shapes of all others."""
    n_columns, n_blocks = counts.shape
    grams, moments = np.zeros((n_columns, n_blocks, 1, 1)), np.zeros((n_columns, n_blocks, 1))
    for z in range(n_columns):
        for b in range(n_blocks):
            grams[z, b, 0, 0] = curvatures[z, b] * rows[0, 0, 0] * rows[0, 0, 0]
            moments[z, b, 0] = slopes[z, b] * rows[0, 0, 0]
    return grams, moments, totals


@njit(cache=True, nogil=True)
def curved_sums(rows, actions, curvatures, slopes, n_blocks):
    """Gram matrices Σ_t c_t(z) f f' (L, B, D, D) and moments Σ_t s_t(z) f (L, B, D)."""
    n_columns, n_features = curvatures.shape[1], rows.shape[2]
    many, own_row = rows.shape[0] > 1, rows.shape[1] > 1
    n_pairs = n_features * (n_features + 1) // 2
    if n_features <= FEW_FEATURES:
        # The innermost loop is over states, for vector instructions.
        side_by_side = np.zeros((n_blocks, n_pairs + n_features, n_columns))
        for t in range(actions.size):
            k, r, b = t if many else 0, actions[t] if own_row else 0, actions[t] if n_blocks > 1 else 0
            pair = 0
            for i in range(n_features):
                for j in range(i + 1):
                    product = rows[k, r, i] * rows[k, r, j]
                    for z in range(n_columns):
                        side_by_side[b, pair, z] += product * curvatures[t, z]
                    pair += 1
            for i in range(n_features):
                for z in range(n_columns):
                    side_by_side[b, n_pairs + i, z] += rows[k, r, i] * slopes[t, z]
        packed = np.empty((n_columns, n_blocks, n_pairs))
        moments = np.empty((n_columns, n_blocks, n_features))
        for z in range(n_columns):
            packed[z] = side_by_side[:, :n_pairs, z]
            moments[z] = side_by_side[:, n_pairs:, z]
        return unpacked(packed, n_features), moments
    packed = np.zeros((n_columns, n_blocks, n_pairs))
    moments = np.zeros((n_columns, n_blocks, n_features))
    for t in range(actions.size):
        k, r, b = t if many else 0, actions[t] if own_row else 0, actions[t] if n_blocks > 1 else 0
        for z in range(n_columns):
            if abs(curvatures[t, z]) + abs(slopes[t, z]) > NEGLIGIBLE:
                add_outer(rows[k, r], curvatures[t, z], packed[z, b])
                for i in range(n_features):
                    moments[z, b, i] += slopes[t, z] * rows[k, r, i]
    return unpacked(packed, n_features), moments


@njit(cache=True, nogil=True)
def add_outer(row, weight, packed):
    """The lower triangle of weight f f' is added to ``packed``, row by row."""
    place = 0
    for i in range(row.size):
        scaled = weight * row[i]
        for j in range(i + 1):
            packed[place + j] += scaled * row[j]
        place += i + 1


@njit(cache=True, nogil=True)
def unpacked(packed, n_features):
    """Lower triangles (L, B, D (D + 1) / 2) as symmetric matrices (L, B, D, D)."""
    n_columns, n_blocks = packed.shape[0], packed.shape[1]
    grams = np.empty((n_columns, n_blocks, n_features, n_features))
    for z in range(n_columns):
        for b in range(n_blocks):
            pair = 0
            for i in range(n_features):
                for j in range(i + 1):
                    grams[z, b, i, j] = packed[z, b, pair]
                    grams[z, b, j, i] = packed[z, b, pair]
                    pair += 1
    return grams


@njit(cache=True, nogil=True)
def block_sums(rows, actions, rewards):
    """Lower triangles of Σ f f', (m, D (D + 1) / 2), and Σ f r, (m, D), of every ``BLOCK`` rounds, unweighted.

    For features in one block (B = 1). They are summed once and serve every later E-step (``blocked_sums``).
    """
    n, n_features = actions.size, rows.shape[2]
    n_parts = (n + BLOCK - 1) // BLOCK
    packed, moments = np.zeros((n_parts, n_features * (n_features + 1) // 2)), np.zeros((n_parts, n_features))
    for t in range(n):
        if not np.isnan(rewards[t]):
            row = rows[t, actions[t] if rows.shape[1] > 1 else 0]
            add_outer(row, 1.0, packed[t // BLOCK])
            for i in range(n_features):
                moments[t // BLOCK, i] += rewards[t] * row[i]
    return packed, moments


@njit(cache=True, nogil=True)
def blocked_sums(rows, actions, rewards, weights, block_grams, block_moments):
    """``regression_sums`` of posteriors, with the help of ``block_sums``.

    Weights of a round add up to 1, and mostly one state has it all: the state that dominates a block is given all of
    it, and only what other states have of a round is moved to them.
    """
    n, n_columns, n_features = actions.size, weights.shape[1], rows.shape[2]
    packed, moments = np.zeros((n_columns, 1, block_grams.shape[1])), np.zeros((n_columns, 1, n_features))
    totals, shares = np.zeros((n_columns, 2)), np.empty(n_columns)
    for part in range(block_grams.shape[0]):
        start, stop = part * BLOCK, min((part + 1) * BLOCK, n)
        shares[:] = 0.0
        for t in range(start, stop):
            if not np.isnan(rewards[t]):
                for z in range(n_columns):
                    shares[z] += weights[t, z]
                    totals[z, 0] += weights[t, z] * rewards[t] * rewards[t]
                    totals[z, 1] += weights[t, z]
        dominant = int(np.argmax(shares))
        # Where most rounds are shared it is cheaper to sum them as they are.
        whole = shares[dominant] > 0.5 * shares.sum()
        if whole:
            packed[dominant, 0] += block_grams[part]
            moments[dominant, 0] += block_moments[part]
        for t in range(start, stop):
            if np.isnan(rewards[t]):
                continue
            row = rows[t, actions[t] if rows.shape[1] > 1 else 0]
            moved = 0.0
            for z in range(n_columns):
                weight = weights[t, z]
                if weight > NEGLIGIBLE and not (whole and z == dominant):
                    add_outer(row, weight, packed[z, 0])
                    for i in range(n_features):
                        moments[z, 0, i] += weight * rewards[t] * row[i]
                    moved += weight
            if whole and moved > 0.0:
                add_outer(row, -moved, packed[dominant, 0])
                for i in range(n_features):
                    moments[dominant, 0, i] -= moved * rewards[t] * row[i]
    return unpacked(packed, n_features), moments, totals


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
