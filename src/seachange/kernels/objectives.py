"""Off-policy objectives of a softmax policy: value and gradient in one pass over tiles of rounds.

A tile holds ``SIDE_BY_SIDE`` rounds in columns, for vector instructions; columns that fill up the last tile have no
weight. Sums add up over tiles.
"""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import fused
from seachange.kernels.exponential import exp_of
from seachange.kernels.rows import SIDE_BY_SIDE, columns_for
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
    it. By tile: ``features`` (R, D, S), ``allowed`` and ``modelled`` m (K, S), the ``chosen`` actions, ``residuals`` e,
    ``inverses`` 1 / p, ``limits`` l and ``weights`` u (S,). Without a mask or a model there are no tiles of them.
    """
    n_actions = max(features.shape[1], coefs.shape[0])
    own_row, own_block, known = features.shape[1] > 1, coefs.shape[0] > 1, modelled.shape[0] > 0
    probs, slopes, room, everywhere = (
        columns_for(n_actions),
        columns_for(n_actions),
        columns_for(7),
        slice(0, SIDE_BY_SIDE),
    )
    summed, values, seconds, entropy = room[:3], room[0], room[1], room[2]
    direct, own, pushes, clipped = room[3], room[4], room[5], room[6]
    for tile in range(chosen.shape[0]):
        taken, counts = chosen[tile], weights[tile]
        for a in range(n_actions):
            scores_of(features[tile, a if own_row else 0], coefs[a if own_block else 0], probs[a])
        softmax_columns(probs, allowed[tile : tile + 1], direct, own)
        for i in range(SIDE_BY_SIDE):
            direct[i], seconds[i], entropy[i], own[i] = 0.0, 0.0, 0.0, probs[taken[i], i]
        for a in range(n_actions if known else 0):
            for i in range(SIDE_BY_SIDE):
                direct[i] += probs[a, i] * modelled[tile, a, i]
        round_values(
            own, direct, residuals[tile], inverses[tile], limits[tile], goal, beside, values, seconds, pushes, clipped
        )
        for what in range(3):
            if (what == 1 and beside == ALONE) or (what == 2 and not entropies):
                continue
            if what == 2:
                entropy_slopes(probs, counts, entropy, slopes)
            elif what == 1 and beside == WEIGHTS:
                value_slopes(probs, modelled[:0], direct, clipped, taken, counts, slopes)
            else:
                value_slopes(probs, modelled[tile : tile + 1], direct, pushes, taken, counts, slopes)
            for a in range(n_actions):
                slope = slopes[a]
                if what == 1 and beside == SQUARES:
                    for i in range(SIDE_BY_SIDE):
                        slope[i] *= 2.0 * values[i]
                add_dots(features[tile, a if own_row else 0], everywhere, slope, gradients[what, a if own_block else 0])
        add_dots(summed, everywhere, counts, sums)


@fused
def round_values(own, direct, residuals, inverses, limits, goal, beside, values, seconds, pushes, clipped):
    """y and v of a tile's rounds, and by how much they move with log π(a_t): ``pushes`` for y, ``clipped`` for v."""
    for i in range(SIDE_BY_SIDE):
        # A clipped weight no longer moves with the policy.
        clipped[i] = own[i] * inverses[i] if own[i] < limits[i] else 0.0
        pushes[i] = clipped[i] * residuals[i]
        values[i] = direct[i] + residuals[i] * inverses[i] * min(own[i], limits[i])
    if goal == CROSS_ENTROPY:
        for i in range(SIDE_BY_SIDE):
            pushes[i] = residuals[i] * inverses[i]
            values[i] = pushes[i] * np.log(max(own[i], LEAST))
    for i in range(SIDE_BY_SIDE if beside != ALONE else 0):
        seconds[i] = values[i] * values[i] if beside == SQUARES else min(own[i], limits[i]) * inverses[i]


@fused
def scores_of(features, coefs, scores):
    """Σ_j θ(j) features(j) into ``scores`` (S,): a feature at a time, in the order in which memory has them."""
    for j in range(coefs.size):
        row, coef = features[j], coefs[j]
        if j == 0:
            for i in range(SIDE_BY_SIDE):
                scores[i] = row[i] * coef
        else:
            for i in range(SIDE_BY_SIDE):
                scores[i] += row[i] * coef


@fused
def softmax_columns(logits, allowed, highest, totals):
    """exp(logit - max) / Σ in place of the logits (K, S), 0 where ``allowed`` (1 or 0, K, S) is false."""
    masked = allowed.shape[0] > 0
    for i in range(SIDE_BY_SIDE):
        highest[i], totals[i] = -np.inf, 0.0
    for a in range(logits.shape[0]):
        row = logits[a]
        for i in range(SIDE_BY_SIDE):
            if not masked or allowed[0, a, i]:
                highest[i] = max(highest[i], row[i])
    for a in range(logits.shape[0]):
        row = logits[a]
        for i in range(SIDE_BY_SIDE):
            row[i] = exp_of(min(row[i] - highest[i], 0.0))
        if masked:
            for i in range(SIDE_BY_SIDE):
                if not allowed[0, a, i]:
                    row[i] = 0.0
        for i in range(SIDE_BY_SIDE):
            totals[i] += row[i]
    for i in range(SIDE_BY_SIDE):
        totals[i] = 1.0 / totals[i]
    for a in range(logits.shape[0]):
        row = logits[a]
        for i in range(SIDE_BY_SIDE):
            row[i] *= totals[i]


@fused
def value_slopes(probs, modelled, direct, pushes, taken, counts, slopes):
    """u [π(a) (m(a) - Σ π m - push) + push 1{a = a_t}] into ``slopes`` (K, S): what y gains with each logit."""
    known = modelled.shape[0] > 0
    for a in range(probs.shape[0]):
        prob, slope = probs[a], slopes[a]
        if known:
            for i in range(SIDE_BY_SIDE):
                slope[i] = counts[i] * prob[i] * (modelled[0, a, i] - direct[i] - pushes[i])
        else:
            for i in range(SIDE_BY_SIDE):
                slope[i] = -counts[i] * prob[i] * pushes[i]
    for i in range(SIDE_BY_SIDE):
        slopes[taken[i], i] += counts[i] * pushes[i]


@fused
def entropy_slopes(probs, counts, entropy, slopes):
    """H into ``entropy``, and what u H gains with each logit, -u π(a) (log π(a) + H), into ``slopes`` (K, S)."""
    for a in range(probs.shape[0]):
        for i in range(SIDE_BY_SIDE):
            slopes[a, i] = np.log(max(probs[a, i], LEAST))
            entropy[i] -= probs[a, i] * slopes[a, i]
    for a in range(probs.shape[0]):
        for i in range(SIDE_BY_SIDE):
            slopes[a, i] = -counts[i] * probs[a, i] * (slopes[a, i] + entropy[i])
