"""The whole E-step over many short chains, a round of many of them at a time.

A chain's rounds wait for each other; rounds of different chains do not. Chains come longest first, so that those still
running in round t are the first ones. They stand side by side, for vector instructions: round t of chain i is in column
t * SIDE_BY_SIDE + i. The recursions are those of ``seachange.kernels.chain``.
"""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled, fused, reordered
from seachange.kernels.emission import (
    HALF_LOG_2_PI,
    click_block,
    click_rate,
    gaussian_block,
    n_missing,
    total_of,
    weighed_sum,
)
from seachange.kernels.regression import add_products
from seachange.kernels.rows import SIDE_BY_SIDE, columns_for

# Rounds whose products are summed at a time.
ROUNDS_TOGETHER = 4
# Chains whose rounds are read at a time.
READ_TOGETHER = 8


@compiled
def run_groups(
    rows, actions, rewards, firsts, widths, plain, even, coefs, halves, log_deviations, initial, transition, arrivals,
    features, seen, evidence, filtered, inverses, scores, own, posteriors, first_states, pairs, sums, totals,
):  # fmt: skip
    """The E-step over groups of ``SIDE_BY_SIDE`` chains: adds to the last four, returns the log-likelihood.

    ``widths`` (m, longest) says how many chains of a group have a round t. ``posteriors`` (n, L) receives
    p(z_t | all rewards), or nothing where it is (0, L). What comes between is room for a group.
    """
    likelihood = 0.0
    for g in range(even.size):
        n_rounds = 0
        while n_rounds < widths.shape[1] and widths[g, n_rounds] > 0:
            n_rounds += 1
        own_widths = widths[g, :n_rounds]
        heads = firsts[g * SIDE_BY_SIDE : g * SIDE_BY_SIDE + own_widths[0]]
        gather_chains(rows, actions, rewards, heads, own_widths, features, seen)
        likelihood += forward_group(
            features, seen, own_widths, coefs, halves, log_deviations, initial, arrivals, evidence, filtered, inverses,
            scores,
        )  # fmt: skip
        backward_group(own_widths, transition, evidence, filtered, inverses, first_states, pairs)
        for t in range(n_rounds if posteriors.shape[0] > 0 else 0):
            for i in range(own_widths[t]):
                for z in range(initial.size):
                    posteriors[heads[i] + t, z] = filtered[z, t * SIDE_BY_SIDE + i]
        sum_group(features, seen, own_widths, filtered, scores, plain[g], even[g], own, sums, totals)
    return likelihood


@compiled
def gather_chains(rows, actions, rewards, firsts, widths, features, seen):
    """f(x_t, a_t) and r_t of every round of the chains into its column of ``features`` and ``seen``."""
    many, own_row = rows.shape[0] > 1, rows.shape[1] > 1
    # A few chains are read at a time: what they write lies side by side.
    for start in range(0, firsts.size, READ_TOGETHER):
        for t in range(widths.size):
            for i in range(start, min(start + READ_TOGETHER, widths[t])):
                place, column = firsts[i] + t, t * SIDE_BY_SIDE + i
                k, r = place if many else 0, actions[place] if own_row else 0
                seen[column] = rewards[place]
                for j in range(rows.shape[2]):
                    features[j, column] = rows[k, r, j]


@fused
def forward_group(
    features, seen, widths, coefs, halves, log_deviations, initial, arrivals, evidence, filtered, inverses, scores
):
    """``evidence``, ``filtered``, ``inverses`` and, of clicks, ``scores``, by round; returns the log-likelihood.

    ``widths`` says how many chains have a round t. ``halves`` and ``log_deviations`` are 1 / 2σ² and log σ of states,
    empty where rewards are clicks; ``arrivals`` is Φ'.
    """
    n_states, clicks, belief = initial.size, halves.size == 0, columns_for(initial.size)
    for z in range(n_states):
        belief[z] = initial[z]
    nearest, products = np.empty(SIDE_BY_SIDE), np.empty(SIDE_BY_SIDE)
    products[:] = 1.0
    likelihood = 0.0
    n_observed = 0
    for t in range(widths.size):
        width = widths[t]
        columns = slice(t * SIDE_BY_SIDE, t * SIDE_BY_SIDE + width)
        block, rewards = evidence[t], seen[columns]
        n_observed += width - n_missing(rewards, width)
        for z in range(n_states):
            weighed_sum(features, columns, coefs[z, 0], block[z])
        if clicks:
            for z in range(n_states):
                for i in range(width):
                    scores[t, z, i] = block[z, i]
            likelihood += click_block(block, rewards, width, nearest)
        else:
            likelihood += gaussian_block(block, rewards, width, halves, log_deviations, nearest)
        total = inverses[t]
        total[:width] = 0.0
        for z in range(n_states):
            weighed, before, emitted = filtered[z, columns], belief[z], block[z]
            for i in range(width):
                weighed[i] = before[i] * emitted[i]
                total[i] += weighed[i]
        for i in range(width):
            products[i] *= total[i]
            total[i] = 1.0 / total[i]
        for z in range(n_states):
            weighed = filtered[z, columns]
            for i in range(width):
                weighed[i] *= total[i]
        for z in range(n_states):
            weighed_sum(filtered, columns, arrivals[z], belief[z])
        # Logarithms are dear: one serves the product of a few scales, none of which can be very small.
        if t % 4 == 3:
            for i in range(products.size):
                if products[i] < 1e-150:
                    likelihood += np.log(products[i])
                    products[i] = 1.0
    for i in range(products.size):
        likelihood += np.log(products[i])
    return likelihood if clicks else likelihood - n_observed * HALF_LOG_2_PI


@fused
def backward_group(widths, transition, evidence, filtered, inverses, first_states, pairs):
    """Posteriors take the place of ``filtered``; those of first rounds are added to ``first_states``, and ``pairs``."""
    n_states = transition.shape[0]
    future, ahead = columns_for(n_states), columns_for(n_states)
    following = 0
    for t in range(widths.size - 1, -1, -1):
        width, scale = widths[t], inverses[t]
        columns, going_on = slice(t * SIDE_BY_SIDE, t * SIDE_BY_SIDE + width), slice(0, following)
        for k in range(n_states):
            # Chains whose last round this is have nothing ahead.
            ahead[k] = 1.0
            weighed_sum(future, going_on, transition[k], ahead[k])
            add_dots(future, going_on, filtered[k, columns], pairs[k])
        for k in range(n_states):
            coming, known, later, emitted = ahead[k], filtered[k, columns], future[k], evidence[t, k]
            for i in range(width):
                known[i] *= coming[i]
                later[i] = emitted[i] * coming[i] * scale[i]
        following = widths[t]
    for k in range(n_states):
        first_states[k] += total_of(filtered[k], following)


@reordered
def add_dots(rows, columns, weights, totals):
    """Σ_i weights(i) rows(j, i) of these columns is added to totals(j)."""
    size, fours, zero = columns.stop - columns.start, totals.size // 4 * 4, weights.dtype.type(0)
    for j in range(0, fours, 4):
        first, second, third, fourth = (
            rows[j, columns],
            rows[j + 1, columns],
            rows[j + 2, columns],
            rows[j + 3, columns],
        )
        a, b, c, d = zero, zero, zero, zero
        for i in range(size):
            a += first[i] * weights[i]
            b += second[i] * weights[i]
            c += third[i] * weights[i]
            d += fourth[i] * weights[i]
        totals[j] += a
        totals[j + 1] += b
        totals[j + 2] += c
        totals[j + 3] += d
    for j in range(fours, totals.size):
        row, a = rows[j, columns], zero
        for i in range(size):
            a += row[i] * weights[i]
        totals[j] += a


@compiled
def sum_group(features, seen, widths, posteriors, scores, plain, even, own, sums, totals):
    """What ``regression_sums`` or ``logistic_sums`` has of the group, weighed by ``posteriors``; both are used up.

    Lower triangles of Gram matrices and, beside them, moments are added to ``sums`` (L, D (D + 3) / 2), ``own`` being
    room for them. There are ``scores`` where rewards are clicks. Weights of a round add up to 1: of other rewards,
    where rounds are ``even``, the state with most of the group has what the others leave of the ``plain`` sums.
    """
    n_states, n_features = posteriors.shape[0], features.shape[0]
    slope, n_pairs = np.empty(ROUNDS_TOGETHER * SIDE_BY_SIDE), sums.shape[1] - n_features
    for z in range(n_states):
        for pair in range(sums.shape[1]):
            own[z, pair] = 0.0
    clicks, rest, most = scores.shape[0] > 0, -1, -1.0
    for z in range(n_states if even and not clicks else 0):
        mass = 0.0
        for t in range(widths.size):
            mass += total_of(posteriors[z, t * SIDE_BY_SIDE :], widths[t])
        if mass > most:
            rest, most = z, mass
    t = 0
    while t < widths.size:
        # Sums are quicker over more columns: those of the next rounds follow where all chains are in this one.
        start, size, together = t * SIDE_BY_SIDE, widths[t], 1
        while together < ROUNDS_TOGETHER and size == together * SIDE_BY_SIDE and t + together < widths.size:
            size += widths[t + together]
            together += 1
        columns = slice(start, start + size)
        rewards = seen[columns]
        for i in range(size):
            if np.isnan(rewards[i]):
                rewards[i] = 0.0
                for z in range(n_states):
                    posteriors[z, start + i] = 0.0
        for z in range(n_states):
            weights = posteriors[z, columns]
            if clicks:
                for i in range(size):
                    slope[i] = scores[t + i // SIDE_BY_SIDE, z, i % SIDE_BY_SIDE]
                click_slopes(weights, rewards, size, slope, totals[z])
            else:
                gaussian_slopes(weights, rewards, size, slope, totals[z])
            if z != rest:
                add_products(features, columns, weights, slope, own[z, :n_pairs], own[z, n_pairs:])
        t += together
    for z in range(n_states):
        for pair in range(sums.shape[1]):
            sums[z, pair] += own[z, pair]
            if rest >= 0:
                sums[rest, pair] -= own[z, pair]
    if rest >= 0:
        for pair in range(sums.shape[1]):
            sums[rest, pair] += plain[pair]


@reordered
def gaussian_slopes(weights, rewards, size, slope, totals):
    """u r into ``slope``, Σ u r² and Σ u are added to ``totals``."""
    square, total = 0.0, 0.0
    for i in range(size):
        slope[i] = weights[i] * rewards[i]
        square += slope[i] * rewards[i]
        total += weights[i]
    totals[0] += square
    totals[1] += total


@compiled
def click_slopes(weights, rewards, size, slope, totals):
    """u (r - p) in place of the score in ``slope``, u p (1 - p) into ``weights``; adds Σ u r and Σ u to ``totals``."""
    for i in range(size):
        p = click_rate(slope[i])
        totals[0] += weights[i] * rewards[i]
        totals[1] += weights[i]
        slope[i] = weights[i] * (rewards[i] - p)
        weights[i] *= p * (1.0 - p)
