"""Off-policy objectives of a softmax policy: value and gradient in one pass over tiles of rounds.

A tile holds ``LANES`` rounds in columns, for vector instructions; padding columns of the last tile have weight 0.
Arithmetic within a tile has the precision of the features, single or double; sums over tiles are in double.
"""

import numpy as np

from seachange.kernels.compiler import fused
from seachange.kernels.lanes import LANES, add_dots, exp_of, exp_of_single, weighted_sum

# Value of a round: its clipped weight, or the log probability of the logged action.
VALUE, CROSS_ENTROPY = 0, 1
# Second sum: none, the squared values, or the clipped weights.
ALONE, SQUARES, WEIGHTS = 0, 1, 2
# Smaller probabilities are replaced by this before taking logarithms.
LEAST = 1e-300


@fused
def objective_sums(
    features, allowed, chosen, residuals, inverses, limits, weights, modeled, coefs, goal, second, entropies, sums,
    gradients,
):  # fmt: skip
    """Add Σ u y, Σ u v and Σ u H to ``sums`` (3,), and their gradients to ``gradients`` (3, B, D).

    VALUE          y = Σ_a π(a) m(a) + e min{π(a_t), l} / p
    CROSS_ENTROPY  y = e log π(a_t) / p

    v is y² (SQUARES), min{π(a_t), l} / p (WEIGHTS) or 0 (ALONE); H = -Σ_a π(a) log π(a) if ``entropies`` is true, else
    0. By tile: ``features`` (D, R S), ``allowed`` and ``modeled`` m (K, S), the ``chosen`` actions, ``residuals`` e,
    ``inverses`` 1 / p, ``limits`` l and ``weights`` u (S,). Without a mask or model, its tile axis has length 0.
    """
    n_blocks, n_columns, kind = coefs.shape[0], features.shape[2], features.dtype
    n_actions = n_blocks * n_columns // LANES
    odds, slopes = np.empty((n_actions, LANES), kind), np.empty((n_actions, LANES), kind)
    # Actions with shared coefficients are adjacent.
    wide_odds, wide_slopes = odds.reshape(n_blocks, n_columns), slopes.reshape(n_blocks, n_columns)
    buffers = np.zeros((10, LANES), kind)
    summed, values, seconds, entropy = buffers[:3], buffers[0], buffers[1], buffers[2]
    shares, direct = buffers[3], buffers[4]
    own, own_slopes, factors, levels, logged_slopes = buffers[5], buffers[6], buffers[7], buffers[8], buffers[9]
    for tile in range(chosen.shape[0]):
        logged, counts, model = chosen[tile], weights[tile], modeled[tile : tile + 1]
        for b in range(n_blocks):
            weighted_sum(features[tile], slice(0, n_columns), coefs[b], wide_odds[b])
        odds_of(odds, allowed[tile : tile + 1], model, levels, shares, direct)
        for i in range(LANES):
            own[i] = odds[logged[i], i]
        round_values(shares, direct, own, residuals[tile], inverses[tile], limits[tile], goal, values, own_slopes)
        slope_parts(shares, direct, own_slopes, counts, factors, levels, logged_slopes)
        value_slopes(odds, model, factors, levels, logged, logged_slopes, slopes)
        add_gradients(features[tile], wide_slopes, gradients[0])
        if second == SQUARES:
            for i in range(LANES):
                seconds[i] = values[i] * values[i]
            for i in range(LANES):
                factors[i] *= values[i] + values[i]
                logged_slopes[i] *= values[i] + values[i]
            value_slopes(odds, model, factors, levels, logged, logged_slopes, slopes)
            add_gradients(features[tile], wide_slopes, gradients[1])
        elif second == WEIGHTS:
            clipped_weights(own, inverses[tile], limits[tile], seconds, own_slopes)
            direct[:] = 0.0
            slope_parts(shares, direct, own_slopes, counts, factors, levels, logged_slopes)
            value_slopes(odds, model[:0], factors, levels, logged, logged_slopes, slopes)
            add_gradients(features[tile], wide_slopes, gradients[1])
        if entropies:
            entropy_slopes(odds, shares, counts, entropy, slopes)
            add_gradients(features[tile], wide_slopes, gradients[2])
        add_dots(summed, slice(0, LANES), counts, sums)


@fused
def odds_of(scores, allowed, modeled, highest, totals, direct):
    """Replace scores (K, S) by odds exp(score - max), nearly 0 if not ``allowed``; write their sum and Σ odds m."""
    masked, known = allowed.shape[0] > 0, modeled.shape[0] > 0
    highest[:], totals[:], direct[:] = -np.inf, 0.0, 0.0
    for a in range(scores.shape[0]):
        row = scores[a]
        if masked:
            for i in range(LANES):
                row[i] = row[i] if allowed[0, a, i] else -np.inf
        for i in range(LANES):
            highest[i] = max(highest[i], row[i])
    for a in range(scores.shape[0]):
        row = scores[a]
        exp_below(row, highest)
        for i in range(LANES):
            totals[i] += row[i]
        if known:
            model = modeled[0, a]
            for i in range(LANES):
                direct[i] += row[i] * model[i]


@fused
def exp_below(row, highest):
    """Replace ``row`` by exp(min{row - highest, 0}), in its own precision."""
    if row.itemsize == 4:
        for i in range(LANES):
            row[i] = exp_of_single(min(row[i] - highest[i], np.float32(0)))
    else:
        for i in range(LANES):
            row[i] = exp_of(min(row[i] - highest[i], 0.0))


@fused
def round_values(totals, direct, own, residuals, inverses, limits, goal, values, own_slopes):
    """Write y and ∂y / ∂log π(a_t) of a tile's rounds to ``values`` and ``own_slopes``.

    In place, ``own`` becomes π(a_t), ``direct`` Σ π m, and ``totals`` 1 / Σ odds.
    """
    for i in range(LANES):
        totals[i] = 1 / totals[i]
    for i in range(LANES):
        own[i] *= totals[i]
        direct[i] *= totals[i]
    if goal == CROSS_ENTROPY:
        for i in range(LANES):
            own_slopes[i] = residuals[i] * inverses[i]
            values[i] = own_slopes[i] * np.log(max(own[i], LEAST))
    else:
        clipped_weights(own, inverses, limits, values, own_slopes)
        for i in range(LANES):
            own_slopes[i] *= residuals[i]
            values[i] = values[i] * residuals[i] + direct[i]


@fused
def clipped_weights(own, inverses, limits, weights, own_slopes):
    """min{π(a_t), l} / p, and its derivative by log π(a_t), which is 0 if it is clipped."""
    for i in range(LANES):
        weights[i] = min(own[i], limits[i]) * inverses[i]
    for i in range(LANES):
        own_slopes[i] = weights[i] if own[i] < limits[i] else 0.0


@fused
def slope_parts(shares, direct, own_slopes, counts, factors, levels, logged_slopes):
    """u / Σ odds, Σ π m + s and u s, with s = ∂y / ∂log π(a_t): the inputs of ``value_slopes``."""
    for i in range(LANES):
        factors[i] = counts[i] * shares[i]
    for i in range(LANES):
        levels[i] = direct[i] + own_slopes[i]
    for i in range(LANES):
        logged_slopes[i] = counts[i] * own_slopes[i]


@fused
def value_slopes(odds, modeled, factors, levels, logged, logged_slopes, slopes):
    """Write the derivative of u y by each logit, u [π(a) (m(a) - Σ π m - s) + s 1{a = a_t}], to ``slopes`` (K, S)."""
    known, zero = modeled.shape[0] > 0, odds.dtype.type(0)
    for a in range(odds.shape[0]):
        row_odds, slope = odds[a], slopes[a]
        if known:
            model = modeled[0, a]
            for i in range(LANES):
                own = logged_slopes[i] if logged[i] == a else zero
                slope[i] = row_odds[i] * factors[i] * (model[i] - levels[i]) + own
        else:
            for i in range(LANES):
                own = logged_slopes[i] if logged[i] == a else zero
                slope[i] = own - row_odds[i] * factors[i] * levels[i]


@fused
def entropy_slopes(odds, shares, counts, entropy, slopes):
    """Write H to ``entropy`` and the derivative of u H by each logit, -u π(a) (log π(a) + H), to ``slopes`` (K, S)."""
    entropy[:] = 0.0
    for a in range(odds.shape[0]):
        for i in range(LANES):
            slopes[a, i] = np.log(max(odds[a, i] * shares[i], LEAST))
            entropy[i] -= odds[a, i] * shares[i] * slopes[a, i]
    for a in range(odds.shape[0]):
        for i in range(LANES):
            slopes[a, i] = -counts[i] * odds[a, i] * shares[i] * (slopes[a, i] + entropy[i])


@fused
def add_gradients(features, slopes, gradients):
    """Add the gradient by the coefficients (B, D), given ``slopes`` (B, R S) by the scores."""
    for b in range(slopes.shape[0]):
        add_dots(features, slice(0, features.shape[1]), slopes[b], gradients[b])
