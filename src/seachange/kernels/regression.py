"""Weighted sums for regressions of the reward on f = f(x_t, a_t); all of them are additive over chunks of rounds."""

from functools import cache

import numpy as np
from scipy.special import expit

from seachange.kernels.compiler import compiled, reordered
from seachange.kernels.emission import click_rate
from seachange.kernels.lanes import LANES, action_rows, column_buffer, gather, group_by_block, without_contexts

# Weights below this do not change a sum. Posteriors are almost always 0 or 1.
NEGLIGIBLE = 1e-15
# Posteriors below this are spread evenly over the rounds of their block.
UNSHARED = 1e-6
# Sums may be obtained by subtraction if no squared feature exceeds this many times its mean.
MAX_SQUARE_RATIO = 64.0
# Rounds per block of precomputed sums, and blocks processed at a time.
BLOCK, BLOCKS_PER_PASS = 256, 8
# A feature with a smaller sum of squares counts as unobserved.
NOTHING = 1e-200
NO_SCORES = np.empty((0, 0))


def regression_sums(rows, actions, rewards, weights, n_blocks, scores=NO_SCORES):
    """Σ_t u_t(z) [f f', f r, r², 1] for each weight column z; rounds without a reward (NaN) are skipped.

    Returns Gram matrices (L, B, D, D), moments (L, B, D) and totals (L, 2) of r² and 1. With ``scores`` (n, L), rewards
    are clicks, and the first two are the negative Hessian and gradient of log p(r): Σ_t u_t(z) [p (1 - p) f f', (r - p)
    f], p = 1 / (1 + exp(-score)).
    """
    if without_contexts(rows):
        curvatures, slopes, squares = np.swapaxes(table_sums(actions, rewards, weights, n_blocks), 1, 2)
        totals = np.stack([squares.sum(axis=1), curvatures.sum(axis=1)], axis=1)
        if scores.size:
            # Every round of an action has the same scores.
            levels = np.zeros((n_blocks, weights.shape[1]))
            levels[np.minimum(actions, n_blocks - 1)] = scores
            rates = expit(levels.T)
            curvatures, slopes = curvatures * rates * (1 - rates), slopes - curvatures * rates
        feature = rows[0, 0, 0]
        return curvatures[:, :, None, None] * feature**2, slopes[:, :, None] * feature, totals
    curvatures, slopes, totals = round_terms(rewards, weights, scores)
    n_columns, n_features = weights.shape[1], rows.shape[2]
    sums = np.zeros((n_columns, n_blocks, n_features * (n_features + 3) // 2))
    add_rounds(rows, actions, *group_by_block(actions, n_blocks), curvatures, slopes, sums)
    return *unpacked(sums, n_features), totals


@compiled
def round_terms(rewards, weights, scores):
    """Curvatures and slopes of each round, (n, L), and totals (L, 2) of u r² and u.

    They are u and u r, or for clicks, if there are ``scores``, u p (1 - p) and u (r - p).
    """
    n, n_columns = weights.shape
    curvatures, slopes, totals = np.zeros((n, n_columns)), np.zeros((n, n_columns)), np.zeros((n_columns, 2))
    for t in range(n):
        if np.isnan(rewards[t]):
            continue
        for z in range(n_columns):
            weight = weights[t, z]
            if scores.size > 0:
                p = click_rate(scores[t, z])
                curvatures[t, z], slopes[t, z] = weight * p * (1.0 - p), weight * (rewards[t] - p)
            else:
                curvatures[t, z], slopes[t, z] = weight, weight * rewards[t]
            totals[z, 0] += weight * rewards[t] * rewards[t]
            totals[z, 1] += weight
    return curvatures, slopes, totals


@compiled
def table_sums(actions, rewards, weights, n_blocks):
    """(3, B, L) sums of u, u r and u r² by action, for a log without contexts."""
    n_columns = weights.shape[1]
    totals = np.zeros((3, n_blocks, n_columns))
    counts, sums, squares = totals[0], totals[1], totals[2]
    for t in range(actions.size):
        reward, b = rewards[t], actions[t] if n_blocks > 1 else 0
        if not np.isnan(reward):
            for z in range(n_columns):
                weighted = weights[t, z] * reward
                counts[b, z] += weights[t, z]
                sums[b, z] += weighted
                squares[b, z] += weighted * reward
    return totals


@compiled
def add_rounds(rows, actions, order, bounds, curvatures, slopes, sums):
    """Add the lower triangles of Σ_t c_t(z) f f', followed by Σ_t s_t(z) f, to ``sums`` (L, B, D (D + 3) / 2)."""
    n_columns, n_features = curvatures.shape[1], rows.shape[2]
    n_pairs = sums.shape[2] - n_features
    features, few = column_buffer(n_features), column_buffer(n_features)
    curvature, slope, rounds = np.empty(LANES), np.empty(LANES), np.empty(LANES, np.int64)
    for b in range(bounds.size - 1):
        for first in range(bounds[b], bounds[b + 1], LANES):
            members = order[first : min(first + LANES, bounds[b + 1])]
            gathered = False
            for z in range(n_columns):
                size = 0
                for i in range(members.size):
                    curvature[i], slope[i] = curvatures[members[i], z], slopes[members[i], z]
                    size += abs(curvature[i]) + abs(slope[i]) > NEGLIGIBLE
                if size == 0:
                    continue
                many = 2 * size > members.size
                if not many:
                    # Few of the rounds belong to the state: gather only those.
                    size = 0
                    for i in range(members.size):
                        if abs(curvature[i]) + abs(slope[i]) > NEGLIGIBLE:
                            rounds[size], curvature[size], slope[size] = members[i], curvature[i], slope[i]
                            size += 1
                    gather(rows, actions, rounds[:size], few)
                else:
                    size = members.size
                    if not gathered:
                        gather(rows, actions, members, features)
                        gathered = True
                own = features if many else few
                add_products(own, slice(0, size), curvature, slope, sums[z, b, :n_pairs], sums[z, b, n_pairs:])


@reordered
def add_products(features, columns, curvature, slope, packed, moments):
    """Add the lower triangle of Σ_i c_i f_i f_i', row by row, to ``packed``, and Σ_i s_i f_i to ``moments``.

    Rounds are the ``columns`` of ``features`` (D, n). The compiler may reorder the sums. Two rows and four columns of
    the triangle are summed at a time, so that each loaded number is used often.
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
        offset, next_offset = j * (j + 1) // 2, (j + 1) * (j + 2) // 2
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
            packed[offset + k] += a
            packed[offset + k + 1] += b
            packed[offset + k + 2] += c
            packed[offset + k + 3] += d
            packed[next_offset + k] += e
            packed[next_offset + k + 1] += f
            packed[next_offset + k + 2] += g
            packed[next_offset + k + 3] += h
        for k in range(done, j + 1):
            column = features[k, columns]
            a, b = 0.0, 0.0
            for i in range(size):
                a += upper[i] * column[i]
                b += lower[i] * column[i]
            packed[offset + k] += a
            if both:
                packed[next_offset + k] += b
        if both:
            a = 0.0
            for i in range(size):
                a += lower[i] * next_row[i]
            packed[next_offset + j + 1] += a


def unpacked(sums, n_features):
    """Packed lower triangles and moments, (..., D (D + 3) / 2), as matrices (..., D, D) and moments (..., D)."""
    pairs = _pairs(n_features)
    return sums[..., pairs], sums[..., sums.shape[-1] - n_features :]


@cache
def _pairs(n_features):
    """(D, D) index of each product of two features in the packed lower triangle."""
    first, second = np.ogrid[:n_features, :n_features]
    larger, smaller = np.maximum(first, second), np.minimum(first, second)
    return larger * (larger + 1) // 2 + smaller


def unweighted_sums(rows, actions, rewards, segments):
    """Packed Σ f f' and Σ f r of each segment, (m, D (D + 3) / 2), and whether they may be subtracted from (m,).

    Segments are arrays of rounds. Only for features in one block (B = 1). Computed once and used by every E-step.
    """
    n_features = rows.shape[2]
    curvatures, slopes, _ = round_terms(rewards, np.ones((rewards.size, 1)), NO_SCORES)
    sums = np.zeros((len(segments), n_features * (n_features + 3) // 2))
    subtractable = np.empty(len(segments), dtype=bool)
    for p, segment in enumerate(segments):
        bounds = np.array([0, segment.size])
        add_rounds(rows, actions, segment, bounds, curvatures, slopes, sums[p].reshape(1, 1, -1))
        largest = np.abs(action_rows(rows, actions, segment)).max(axis=0) ** 2
        squares = sums[p, np.arange(n_features) * (np.arange(n_features) + 3) // 2]
        subtractable[p] = (largest * curvatures[segment].sum() <= MAX_SQUARE_RATIO * squares).all()
    return sums, subtractable


def blocks_of(n):
    """Blocks of ``BLOCK`` consecutive rounds."""
    return [np.arange(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)]


def blocked_sums(rows, actions, rewards, weights, block_sums, subtractable):
    """``regression_sums`` of posteriors, using the ``unweighted_sums`` of ``blocks_of`` the rounds.

    The weights of a round sum to 1 and mostly belong to one state. So the dominant state of a block gets the sums of
    the whole block, and the weights of other states are moved from it round by round; weights below ``UNSHARED`` move
    shares of the block's sums instead. Blocks that are not ``subtractable`` are summed directly.
    """
    n, n_columns = weights.shape
    sums, totals = np.zeros((n_columns, 1, block_sums.shape[1])), np.zeros((n_columns, 2))
    for start in range(0, n, BLOCKS_PER_PASS * BLOCK):
        rounds = slice(start, start + BLOCKS_PER_PASS * BLOCK)
        blocks = slice(start // BLOCK, start // BLOCK + BLOCKS_PER_PASS)
        curvatures, slopes, shares, squares = split_weights(rewards[rounds], weights[rounds], subtractable[blocks])
        sums[:, 0] += shares.T @ block_sums[blocks]
        own = rows if len(rows) == 1 else rows[rounds]
        add_rounds(own, actions[rounds], *group_by_block(actions[rounds], 1), curvatures, slopes, sums)
        totals += squares
    return *unpacked(sums, rows.shape[2]), totals


def split_weights(rewards, weights, subtractable):
    """Split weights into shares of whole blocks (m, L) and weights of single rounds (n, L), u and u r.

    Returns curvatures, slopes, shares, and totals (L, 2) of u r² and u.
    """
    firsts, blocks = np.arange(0, len(rewards), BLOCK), np.arange(len(rewards)) // BLOCK
    filled, weights = np.nan_to_num(rewards), weights * np.isfinite(rewards)[:, None]
    masses = np.add.reduceat(weights, firsts)
    totals = np.stack([np.square(filled) @ weights, masses.sum(axis=0)], axis=1)
    dominant, mass = masses.argmax(axis=1), masses.sum(axis=1)
    # If no state dominates the block, direct sums are cheaper.
    whole = subtractable & (masses.max(axis=1) > 0.5 * mass)
    rounds, parts = np.flatnonzero(whole[blocks]), np.flatnonzero(whole)
    traces = np.where(whole[blocks, None] & (weights <= UNSHARED), weights, 0.0)
    traces[rounds, dominant[blocks[rounds]]] = 0.0
    shares = np.add.reduceat(traces, firsts) / np.maximum(mass, NOTHING)[:, None]
    shares[parts, dominant[parts]] = 1.0 - shares[parts].sum(axis=1)
    curvatures = weights - traces
    curvatures[rounds, dominant[blocks[rounds]]] = 0.0
    curvatures[rounds, dominant[blocks[rounds]]] = -(curvatures @ np.ones(weights.shape[1]))[rounds]
    return curvatures, curvatures * filled[:, None], shares, totals


def modeled_rewards(rows, coefs):
    """c_a · f(x_t, a) for each round and action, (n, K) or (1, K), given coefficients (B, D)."""
    return rows @ coefs[0] if rows.shape[1] > 1 else rows[:, 0] @ coefs.T


def solve_ridge(grams, moments, ridge):
    """c = (G + ridge)⁻¹ m for each leading index; if singular, the minimum-norm solution."""
    if ridge > 0.0:
        return np.linalg.solve(grams + ridge * np.eye(grams.shape[-1]), moments[..., None])[..., 0]
    return (scaled_inverse(grams) @ moments[..., None])[..., 0]


def scaled_inverse(grams):
    """Pseudo-inverses of Gram matrices (..., D, D) of features of any scale."""
    squares = np.einsum("...ii->...i", grams)
    known = squares > NOTHING
    scales = np.sqrt(np.where(known, squares, 1.0))
    units = scales[..., :, None] * scales[..., None, :]
    correlations = np.where(known[..., :, None] & known[..., None, :], grams / units, 0.0)
    return np.linalg.pinv(correlations, rcond=1e-12, hermitian=True) / units
