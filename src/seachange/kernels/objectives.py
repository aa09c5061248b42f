"""Off-policy objectives of a softmax policy: value and gradient in one pass over tiles of rounds.

A tile holds ``SIDE_BY_SIDE`` rounds in columns, for vector instructions; columns that fill up the last tile have no
weight. Arithmetic within a tile is that of the features, in single precision or double; sums over tiles are in double.
"""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import fused
from seachange.kernels.exponential import exp_of, exp_of_single
from seachange.kernels.rows import SIDE_BY_SIDE
from seachange.kernels.short_chains import add_dots

# What a round counts for: its clipped weight, or the logarithm of the chosen action's probability.
VALUE, CROSS_ENTROPY = 0, 1
# What is summed beside that: nothing, its square, or the clipped weights themselves.
ALONE, SQUARES, WEIGHTS = 0, 1, 2
# The least probability whose logarithm is taken.
LEAST = 1e-300


@fused
def objective_sums(
    features, allowed, chosen, residuals, inverses, limits, weights, modelled, coefs, goal, beside, entropies, sums,
    gradients,
):  # fmt: skip
    """Adds Σ u y, Σ u v and Σ u H to ``sums`` (3,), and their gradients to ``gradients`` (3, B, D).

    VALUE          y = Σ_a π(a) m(a) + e min{π(a_t), l} / p
    CROSS_ENTROPY  y = e log π(a_t) / p

    v is y² (SQUARES), min{π(a_t), l} / p (WEIGHTS) or 0 (ALONE); H = -Σ_a π(a) log π(a) where ``entropies`` asks for
    it. By tile: ``features`` (D, R S), ``allowed`` and ``modelled`` m (K, S), the ``chosen`` actions, ``residuals`` e,
    ``inverses`` 1 / p, ``limits`` l and ``weights`` u (S,). Without a mask or a model there are no tiles of them.
    """
    n_blocks, n_sides, kind = coefs.shape[0], features.shape[2], features.dtype
    n_actions = n_blocks * n_sides // SIDE_BY_SIDE
    odds, slopes = np.empty((n_actions, SIDE_BY_SIDE), kind), np.empty((n_actions, SIDE_BY_SIDE), kind)
    # Actions that share their coefficients lie side by side.
    wide_odds, wide_slopes = odds.reshape(n_blocks, n_sides), slopes.reshape(n_blocks, n_sides)
    room = np.zeros((10, SIDE_BY_SIDE), kind)
    summed, values, seconds, entropy, shares, direct = room[:3], room[0], room[1], room[2], room[3], room[4]
    own, pushes, factors, levels, pushed = room[5], room[6], room[7], room[8], room[9]
    for tile in range(chosen.shape[0]):
        taken, counts, model = chosen[tile], weights[tile], modelled[tile : tile + 1]
        for b in range(n_blocks):
            scores_of(features[tile], coefs[b], wide_odds[b])
        odds_of(odds, allowed[tile : tile + 1], model, levels, shares, direct)
        for i in range(SIDE_BY_SIDE):
            own[i] = odds[taken[i], i]
        round_values(shares, direct, own, residuals[tile], inverses[tile], limits[tile], goal, values, pushes)
        slope_parts(shares, direct, pushes, counts, factors, levels, pushed)
        value_slopes(odds, model, factors, levels, taken, pushed, slopes)
        add_gradients(features[tile], wide_slopes, gradients[0])
        if beside == SQUARES:
            for i in range(SIDE_BY_SIDE):
                seconds[i] = values[i] * values[i]
            for i in range(SIDE_BY_SIDE):
                factors[i] *= values[i] + values[i]
                pushed[i] *= values[i] + values[i]
            value_slopes(odds, model, factors, levels, taken, pushed, slopes)
            add_gradients(features[tile], wide_slopes, gradients[1])
        elif beside == WEIGHTS:
            clipped_weights(own, inverses[tile], limits[tile], seconds, pushes)
            direct[:] = 0.0
            slope_parts(shares, direct, pushes, counts, factors, levels, pushed)
            value_slopes(odds, model[:0], factors, levels, taken, pushed, slopes)
            add_gradients(features[tile], wide_slopes, gradients[1])
        if entropies:
            entropy_slopes(odds, shares, counts, entropy, slopes)
            add_gradients(features[tile], wide_slopes, gradients[2])
        add_dots(summed, slice(0, SIDE_BY_SIDE), counts, sums)


@fused
def scores_of(features, coefs, scores):
    """Σ_j θ(j) features(j) into ``scores``.

    Features of one action, which others share, are in the fastest memory and are taken by four; features of many come a
    row at a time, in the order in which memory has them.
    """
    fours = coefs.size // 4 * 4 if features.shape[1] == SIDE_BY_SIDE else 0
    if fours > 0:
        scores[:] = 0.0
    for j in range(0, fours, 4):
        first, second, third, fourth = features[j], features[j + 1], features[j + 2], features[j + 3]
        a, b, c, d = coefs[j], coefs[j + 1], coefs[j + 2], coefs[j + 3]
        for i in range(scores.size):
            scores[i] += first[i] * a + second[i] * b + third[i] * c + fourth[i] * d
    for j in range(fours, coefs.size):
        row, coef = features[j], coefs[j]
        if j == 0:
            for i in range(scores.size):
                scores[i] = row[i] * coef
        else:
            for i in range(scores.size):
                scores[i] += row[i] * coef


@fused
def odds_of(scores, allowed, modelled, highest, totals, direct):
    """Odds exp(score - max) in place of scores (K, S), 0 where not ``allowed``; their sum and Σ odds m are written."""
    masked, known = allowed.shape[0] > 0, modelled.shape[0] > 0
    highest[:], totals[:], direct[:] = -np.inf, 0.0, 0.0
    for a in range(scores.shape[0]):
        row = scores[a]
        if masked:
            for i in range(SIDE_BY_SIDE):
                if allowed[0, a, i]:
                    highest[i] = max(highest[i], row[i])
        else:
            for i in range(SIDE_BY_SIDE):
                highest[i] = max(highest[i], row[i])
    for a in range(scores.shape[0]):
        row = scores[a]
        exp_below(row, highest)
        if masked:
            for i in range(SIDE_BY_SIDE):
                if not allowed[0, a, i]:
                    row[i] = 0.0
        if known:
            model = modelled[0, a]
            for i in range(SIDE_BY_SIDE):
                totals[i] += row[i]
                direct[i] += row[i] * model[i]
        else:
            for i in range(SIDE_BY_SIDE):
                totals[i] += row[i]


@fused
def exp_below(row, highest):
    """exp(min{row - highest, 0}) in place of ``row``, as exactly as its numbers are."""
    if row.itemsize == 4:
        for i in range(SIDE_BY_SIDE):
            row[i] = exp_of_single(min(row[i] - highest[i], np.float32(0)))
    else:
        for i in range(SIDE_BY_SIDE):
            row[i] = exp_of(min(row[i] - highest[i], 0.0))


@fused
def round_values(totals, direct, own, residuals, inverses, limits, goal, values, pushes):
    """y of a tile's rounds, and by how much it moves with log π(a_t): ``pushes``.

    Of odds ``own`` and Σ odds m ``direct`` become π(a_t) and Σ π m; ``totals`` become 1 / Σ odds.
    """
    for i in range(SIDE_BY_SIDE):
        totals[i] = 1 / totals[i]
    for i in range(SIDE_BY_SIDE):
        own[i] *= totals[i]
        direct[i] *= totals[i]
    if goal == CROSS_ENTROPY:
        for i in range(SIDE_BY_SIDE):
            pushes[i] = residuals[i] * inverses[i]
            values[i] = pushes[i] * np.log(max(own[i], LEAST))
    else:
        clipped_weights(own, inverses, limits, values, pushes)
        for i in range(SIDE_BY_SIDE):
            pushes[i] *= residuals[i]
            values[i] = values[i] * residuals[i] + direct[i]


@fused
def clipped_weights(own, inverses, limits, weights, pushes):
    """min{π(a_t), l} / p, and by how much it moves with log π(a_t): not at all where it is clipped."""
    for i in range(SIDE_BY_SIDE):
        weights[i] = min(own[i], limits[i]) * inverses[i]
    for i in range(SIDE_BY_SIDE):
        pushes[i] = weights[i] if own[i] < limits[i] else 0.0


@fused
def slope_parts(shares, direct, pushes, counts, factors, levels, pushed):
    """u / Σ odds, Σ π m + push and u push: what ``value_slopes`` is made of."""
    for i in range(SIDE_BY_SIDE):
        factors[i] = counts[i] * shares[i]
    for i in range(SIDE_BY_SIDE):
        levels[i] = direct[i] + pushes[i]
    for i in range(SIDE_BY_SIDE):
        pushed[i] = counts[i] * pushes[i]


@fused
def value_slopes(odds, modelled, factors, levels, taken, pushed, slopes):
    """u [π(a) (m(a) - Σ π m - push) + push 1{a = a_t}] into ``slopes`` (K, S): what y gains with each logit."""
    known, zero = modelled.shape[0] > 0, odds.dtype.type(0)
    for a in range(odds.shape[0]):
        odd, slope = odds[a], slopes[a]
        if known:
            model = modelled[0, a]
            for i in range(SIDE_BY_SIDE):
                own = pushed[i] if taken[i] == a else zero
                slope[i] = odd[i] * factors[i] * (model[i] - levels[i]) + own
        else:
            for i in range(SIDE_BY_SIDE):
                own = pushed[i] if taken[i] == a else zero
                slope[i] = own - odd[i] * factors[i] * levels[i]


@fused
def entropy_slopes(odds, shares, counts, entropy, slopes):
    """H into ``entropy``, and what u H gains with each logit, -u π(a) (log π(a) + H), into ``slopes`` (K, S)."""
    entropy[:] = 0.0
    for a in range(odds.shape[0]):
        for i in range(SIDE_BY_SIDE):
            slopes[a, i] = np.log(max(odds[a, i] * shares[i], LEAST))
            entropy[i] -= odds[a, i] * shares[i] * slopes[a, i]
    for a in range(odds.shape[0]):
        for i in range(SIDE_BY_SIDE):
            slopes[a, i] = -counts[i] * odds[a, i] * shares[i] * (slopes[a, i] + entropy[i])


@fused
def add_gradients(features, slopes, gradients):
    """What coefficients (B, D) gain by ``slopes`` (B, R S) of the scores."""
    for b in range(slopes.shape[0]):
        add_dots(features, slice(0, features.shape[1]), slopes[b], gradients[b])
