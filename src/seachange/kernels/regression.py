"""Weighted sums over rounds that regressions of the reward are solved from: f = f(x_t, a_t), the action's own features.

All of them add up over chunks of rounds.
"""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled, reordered
from seachange.kernels.emission import click_rate
from seachange.kernels.rows import SIDE_BY_SIDE, columns_for, gather, grouped, tabled

# Weights below this, of at most 1, move no sum: posteriors are almost always 0 or 1.
NEGLIGIBLE = 1e-15
# What a state has of a round, where that is less than this, is taken as spread evenly over the round's block.
UNSHARED = 1e-6
# Rounds are even where no square of a feature is more than so many times its mean: sums can then be had by subtraction.
EVEN = 64.0
# Rounds whose sums are kept together by ``block_sums``.
BLOCK = 256
# A feature whose squares sum up to less was not seen.
NOTHING = 1e-200


def regression_sums(rows, actions, rewards, weights, n_blocks):
    """Σ_t u_t(z) [f f', f r, r², 1] for every weight column z; rounds without a reward (NaN) are left out.

    Returns Gram matrices (L, B, D, D), moments (L, B, D) and totals (L, 2) of r² and 1.
    """
    if tabled(rows):
        counts, sums, totals = table_sums(actions, rewards, weights, n_blocks)
        return *table_grams(rows, counts, sums), totals
    curvatures, slopes, totals = gaussian_curves(rewards, weights)
    return *curved_sums(rows, actions, curvatures, slopes, n_blocks), totals


def logistic_sums(rows, actions, rewards, weights, scores, n_blocks):
    """Σ_t u_t(z) [p (1 - p) f f', (r - p) f], p = 1 / (1 + exp(-score)): curvature and slope of the log-likelihood.

    Returns them with totals (L, 2) of r² and 1; rounds without a reward (NaN) are left out.
    """
    if tabled(rows):
        counts, sums, totals = table_sums(actions, rewards, weights, n_blocks)
        return *table_grams(rows, *table_curves(actions, scores, counts, sums)), totals
    curvatures, slopes, totals = click_curves(rewards, weights, scores)
    return *curved_sums(rows, actions, curvatures, slopes, n_blocks), totals


@compiled
def gaussian_curves(rewards, weights):
    """Curvatures u and slopes u r of every round, (n, L), and totals (L, 2) of u r² and u."""
    curvatures, slopes, totals = np.empty(weights.shape), np.empty(weights.shape), np.zeros((weights.shape[1], 2))
    for t in range(rewards.size):
        observed = not np.isnan(rewards[t])
        for z in range(weights.shape[1]):
            curvatures[t, z] = weights[t, z] if observed else 0.0
            slopes[t, z] = weights[t, z] * rewards[t] if observed else 0.0
            totals[z, 0] += slopes[t, z] * rewards[t] if observed else 0.0
            totals[z, 1] += curvatures[t, z]
    return curvatures, slopes, totals


@compiled
def click_curves(rewards, weights, scores):
    """Curvatures u p (1 - p) and slopes u (r - p) of every round, (n, L), and totals (L, 2) of u r² and u."""
    curvatures, slopes, totals = np.zeros(weights.shape), np.zeros(weights.shape), np.zeros((weights.shape[1], 2))
    for t in range(rewards.size):
        if np.isnan(rewards[t]):
            continue
        for z in range(weights.shape[1]):
            p = click_rate(scores[t, z])
            curvatures[t, z] = weights[t, z] * p * (1.0 - p)
            slopes[t, z] = weights[t, z] * (rewards[t] - p)
            totals[z, 0] += weights[t, z] * rewards[t] * rewards[t]
            totals[z, 1] += weights[t, z]
    return curvatures, slopes, totals


@compiled
def table_sums(actions, rewards, weights, n_blocks):
    """(L, B) sums of weights and of weighted rewards by action, and totals (L, 2) of u r² and u."""
    n_columns = weights.shape[1]
    counts, sums, totals = np.zeros((n_blocks, n_columns)), np.zeros((n_blocks, n_columns)), np.zeros((n_columns, 2))
    squares = np.zeros(n_columns)
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
        totals[z, 0] = squares[z]
        for b in range(n_blocks):
            totals[z, 1] += counts[b, z]
    return counts.T.copy(), sums.T.copy(), totals


@compiled
def table_curves(actions, scores, counts, sums):
    """Curvatures and slopes (L, B) of clicks, from the sums of a log without contexts and its scores (n, L)."""
    levels, curvatures, slopes = np.zeros(counts.shape), np.empty(counts.shape), np.empty(counts.shape)
    for t in range(actions.size):
        for z in range(counts.shape[0]):
            levels[z, actions[t] if counts.shape[1] > 1 else 0] = scores[t, z]
    for z in range(counts.shape[0]):
        for b in range(counts.shape[1]):
            p = click_rate(levels[z, b])
            curvatures[z, b] = counts[z, b] * p * (1.0 - p)
            slopes[z, b] = sums[z, b] - counts[z, b] * p
    return curvatures, slopes


def table_grams(rows, curvatures, slopes):
    """Sums (L, B) of a log without contexts in the shapes of all others."""
    feature = rows[0, 0, 0]
    return curvatures[:, :, None, None] * feature**2, slopes[:, :, None] * feature


@compiled
def curved_sums(rows, actions, curvatures, slopes, n_blocks):
    """Gram matrices Σ_t c_t(z) f f' (L, B, D, D) and moments Σ_t s_t(z) f (L, B, D)."""
    n_columns, n_features = curvatures.shape[1], rows.shape[2]
    packed = np.zeros((n_columns, n_blocks, n_features * (n_features + 1) // 2))
    moments = np.zeros((n_columns, n_blocks, n_features))
    order, bounds = grouped(actions, n_blocks)
    features, few = columns_for(n_features), columns_for(n_features)
    curvature, slope = np.empty(SIDE_BY_SIDE), np.empty(SIDE_BY_SIDE)
    for b in range(n_blocks):
        for first in range(bounds[b], bounds[b + 1], SIDE_BY_SIDE):
            members = order[first : min(first + SIDE_BY_SIDE, bounds[b + 1])]
            gather(rows, actions, members, features)
            for z in range(n_columns):
                size = 0
                for i in range(members.size):
                    curvature[i], slope[i] = curvatures[members[i], z], slopes[members[i], z]
                    size += abs(curvature[i]) + abs(slope[i]) > NEGLIGIBLE
                if 2 * size > members.size:
                    add_products(features, slice(0, members.size), curvature, slope, packed[z, b], moments[z, b])
                elif size > 0:
                    # Only a few of the rounds belong to the state: those are brought together.
                    size = 0
                    for i in range(members.size):
                        if abs(curvature[i]) + abs(slope[i]) > NEGLIGIBLE:
                            curvature[size], slope[size] = curvature[i], slope[i]
                            for j in range(n_features):
                                few[j, size] = features[j, i]
                            size += 1
                    add_products(few, slice(0, size), curvature, slope, packed[z, b], moments[z, b])
    return unpacked(packed, n_features), moments


@reordered
def add_products(features, columns, curvature, slope, packed, moments):
    """Σ_i c_i f_i f_i', its lower triangle row by row, is added to ``packed``, Σ_i s_i f_i to ``moments``.

    Rounds stand in these columns of ``features`` (D, n). The order of the sums is the compiler's. Two rows of the
    triangle and four of its columns are summed at a time, so that a number that was loaded is used often.
    """
    n_features, size = features.shape[0], columns.stop - columns.start
    upper, lower = np.empty(size), np.empty(size)
    for j in range(0, n_features, 2):
        both = j + 1 < n_features
        row, next_row = features[j, columns], features[j + 1 if both else j, columns]
        moment, next_moment = 0.0, 0.0
        for i in range(size):
            upper[i] = curvature[i] * row[i]
            lower[i] = curvature[i] * next_row[i]
            moment += slope[i] * row[i]
            next_moment += slope[i] * next_row[i]
        moments[j] += moment
        place, next_place = j * (j + 1) // 2, (j + 1) * (j + 2) // 2
        if both:
            moments[j + 1] += next_moment
        done = j // 4 * 4 if both else 0
        for k in range(0, done, 4):
            first, second = features[k, columns], features[k + 1, columns]
            third, fourth = features[k + 2, columns], features[k + 3, columns]
            a, b, c, d, e, f, g, h = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for i in range(size):
                a += upper[i] * first[i]
                b += upper[i] * second[i]
                c += upper[i] * third[i]
                d += upper[i] * fourth[i]
                e += lower[i] * first[i]
                f += lower[i] * second[i]
                g += lower[i] * third[i]
                h += lower[i] * fourth[i]
            packed[place + k] += a
            packed[place + k + 1] += b
            packed[place + k + 2] += c
            packed[place + k + 3] += d
            packed[next_place + k] += e
            packed[next_place + k + 1] += f
            packed[next_place + k + 2] += g
            packed[next_place + k + 3] += h
        for k in range(done, j + 1):
            column = features[k, columns]
            a, b = 0.0, 0.0
            for i in range(size):
                a += upper[i] * column[i]
                b += lower[i] * column[i]
            packed[place + k] += a
            if both:
                packed[next_place + k] += b
        if both:
            a = 0.0
            for i in range(size):
                a += lower[i] * next_row[i]
            packed[next_place + j + 1] += a


@compiled
def add_scaled(totals, scale, values):
    """totals ← totals + scale · values."""
    for i in range(totals.size):
        totals[i] += scale * values[i]


@compiled
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


@compiled
def block_sums(rows, actions, rewards):
    """Lower triangles of Σ f f', (m, D (D + 1) / 2), and Σ f r, (m, D), of every ``BLOCK`` rounds, unweighted.

    Beside them whether a block is even (m,). For features in one block (B = 1). They are summed once and serve every
    later E-step (``blocked_sums``).
    """
    n, n_features = actions.size, rows.shape[2]
    n_parts = (n + BLOCK - 1) // BLOCK
    largest, counts, even = np.zeros((n_parts, n_features)), np.zeros(n_parts), np.empty(n_parts, np.bool_)
    packed, moments = np.zeros((n_parts, n_features * (n_features + 1) // 2)), np.zeros((n_parts, n_features))
    features, ones, slope = columns_for(n_features), np.ones(SIDE_BY_SIDE), np.empty(SIDE_BY_SIDE)
    rounds = np.empty(SIDE_BY_SIDE, np.int64)
    size = 0
    for t in range(n):
        if not np.isnan(rewards[t]):
            rounds[size], slope[size] = t, rewards[t]
            size += 1
        if size == SIDE_BY_SIDE or (size > 0 and ((t + 1) % BLOCK == 0 or t == n - 1)):
            gather(rows, actions, rounds[:size], features)
            add_products(features, slice(0, size), ones, slope, packed[t // BLOCK], moments[t // BLOCK])
            counts[t // BLOCK] += size
            for j in range(n_features):
                for i in range(size):
                    largest[t // BLOCK, j] = max(largest[t // BLOCK, j], features[j, i] * features[j, i])
            size = 0
    for part in range(n_parts):
        even[part] = is_even(packed[part], largest[part], counts[part])
    return packed, moments, even


@compiled
def is_even(packed, largest, count):
    """Whether no square of a feature is far above its mean over ``count`` rounds; ``packed`` has their sums."""
    even = True
    for j in range(largest.size):
        even &= largest[j] * count <= EVEN * packed[j * (j + 1) // 2 + j]
    return even


@compiled
def blocked_sums(rows, actions, rewards, weights, block_grams, block_moments, even):
    """``regression_sums`` of posteriors, with the help of ``block_sums``.

    Weights of a round add up to 1, and mostly one state has it all: the state that dominates a block is given all of
    it, and only what other states have of a round is moved to them. (Each round counts with the weight it has; where
    only traces of a round are elsewhere, it is the block's mean that is moved.) Blocks that are not even are summed as
    they are.
    """
    n, n_columns, n_features = actions.size, weights.shape[1], rows.shape[2]
    packed, moments = np.zeros((n_columns, 1, block_grams.shape[1])), np.zeros((n_columns, 1, n_features))
    totals, shares, spread = np.zeros((n_columns, 2)), np.empty(n_columns), np.empty(n_columns)
    features, rounds = columns_for(n_features), np.empty(SIDE_BY_SIDE, np.int64)
    curvature, slope = np.empty(SIDE_BY_SIDE), np.empty(SIDE_BY_SIDE)
    for part in range(block_grams.shape[0]):
        start, stop = part * BLOCK, min((part + 1) * BLOCK, n)
        shares[:], spread[:] = 0.0, 0.0
        for t in range(start, stop):
            if not np.isnan(rewards[t]):
                for z in range(n_columns):
                    shares[z] += weights[t, z]
                    spread[z] += weights[t, z] if weights[t, z] <= UNSHARED else 0.0
                    totals[z, 0] += weights[t, z] * rewards[t] * rewards[t]
                    totals[z, 1] += weights[t, z]
        dominant = int(np.argmax(shares))
        # Where most rounds are shared it is cheaper to sum them as they are.
        whole = even[part] and shares[dominant] > 0.5 * shares.sum()
        for z in range(n_columns if whole else 0):
            part_of_z = spread[z]
            if z == dominant:
                part_of_z = shares.sum() - spread.sum() + spread[z]
            if part_of_z > 0.0:
                share = part_of_z / shares.sum()
                add_scaled(packed[z, 0], share, block_grams[part])
                add_scaled(moments[z, 0], share, block_moments[part])
        for z in range(n_columns):
            size = 0
            for t in range(start, stop):
                weight = weights[t, z]
                if whole and z == dominant:
                    # What all other states have of the round is taken away.
                    weight = 0.0
                    for other in range(n_columns):
                        if other != dominant and weights[t, other] > UNSHARED:
                            weight -= weights[t, other]
                if abs(weight) > (UNSHARED if whole else NEGLIGIBLE) and not np.isnan(rewards[t]):
                    rounds[size], curvature[size], slope[size] = t, weight, weight * rewards[t]
                    size += 1
                if size == SIDE_BY_SIDE or (size > 0 and t == stop - 1):
                    gather(rows, actions, rounds[:size], features)
                    add_products(features, slice(0, size), curvature, slope, packed[z, 0], moments[z, 0])
                    size = 0
    return unpacked(packed, n_features), moments, totals


def modelled_rewards(rows, coefs):
    """c_a · f(x_t, a) for every round and action, (n, K) or (1, K), for one coefficient set (B, D)."""
    return rows @ coefs[0] if rows.shape[1] > 1 else rows[:, 0] @ coefs.T


def penalised_gram(grams, penalties):
    """G + diag(penalties), for penalties (D,)."""
    return grams + np.diag(penalties)


def solve_ridge(grams, moments, penalties):
    """c = (G + diag(penalties))⁻¹ m for every leading index; least norm, in units of the features, where singular."""
    penalised = penalised_gram(grams, penalties)
    if (penalties > 0.0).all():
        return np.linalg.solve(penalised, moments[..., None])[..., 0]
    return (scaled_inverse(penalised) @ moments[..., None])[..., 0]


def scaled_inverse(grams):
    """Pseudo-inverses of Gram matrices (..., D, D) of features of any scale."""
    squares = np.einsum("...ii->...i", grams)
    known = squares > NOTHING
    scales = np.sqrt(np.where(known, squares, 1.0))
    units = scales[..., :, None] * scales[..., None, :]
    correlations = np.where(known[..., :, None] & known[..., None, :], grams / units, 0.0)
    return np.linalg.pinv(correlations, rcond=1e-12, hermitian=True) / units
