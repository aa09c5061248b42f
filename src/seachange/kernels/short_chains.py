"""The whole E-step over many short chains, a round of many of them at a time.

A chain's rounds wait for each other; rounds of different chains do not. Chains come longest first, so that those still
running in round t are the first ones. Everything between the features and the sums stays in fast memory, with chains
side by side for vector instructions. The recursions are those of ``seachange.kernels.chain``.
"""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled, fused, reordered
from seachange.kernels.emission import click_block, click_rate, gaussian_block, n_missing, total_of, weighed_sum
from seachange.kernels.regression import add_products, add_scaled, is_even, unpacked
from seachange.kernels.rows import SIDE_BY_SIDE, columns_for

# Rounds whose products are summed at a time.
ROUNDS_TOGETHER = 4
HALF_LOG_2_PI = 0.5 * np.log(2.0 * np.pi)


@compiled
def short_chains(
    rows, actions, rewards, firsts, lengths, whole, even, coefs, variances, initial, transition, posteriors
):
    """Log-likelihood, first states (L,), pairs (L, L), Gram matrices, moments and totals of whole chains.

    ``firsts`` and ``lengths`` are where chains start and how long they are, longest first; ``whole`` and ``even`` are
    their ``whole_sums``. For features in one block (B = 1). ``posteriors`` (n, L) receives p(z_t | all rewards), or
    nothing where it is (0, L).
    """
    n_states, n_features = coefs.shape[0], coefs.shape[2]
    first_states, pairs = np.zeros(n_states), np.zeros((n_states, n_states))
    packed = np.zeros((n_states, n_features * (n_features + 1) // 2))
    moments, totals = np.zeros((n_states, n_features)), np.zeros((n_states, 2))
    longest = lengths[0]
    evidence = np.empty((longest, n_states, SIDE_BY_SIDE))
    scores = np.empty((longest if variances.size == 0 else 0, n_states, SIDE_BY_SIDE))
    # The round t of chain i is in column t * SIDE_BY_SIDE + i.
    filtered, features, seen = (
        columns_for(n_states, longest),
        columns_for(n_features, longest),
        columns_for(1, longest)[0],
    )
    inverses, widths = np.empty((longest, SIDE_BY_SIDE)), np.empty(longest, np.int64)
    likelihood = 0.0
    for group in range(0, firsts.size, SIDE_BY_SIDE):
        heads = firsts[group : min(group + SIDE_BY_SIDE, firsts.size)]
        running = heads.size
        for t in range(lengths[group]):
            while lengths[group + running - 1] <= t:
                running -= 1
            widths[t] = running
        common = widths[: lengths[group]]
        gather_chains(rows, actions, rewards, heads, lengths[group:], features, seen)
        likelihood += forward_group(
            features, seen, common, coefs, variances, initial, transition, evidence, filtered, inverses, scores
        )
        backward_group(common, transition, evidence, filtered, inverses, pairs)
        for z in range(n_states):
            for i in range(heads.size):
                first_states[z] += filtered[z, i]
        for t in range(common.size if posteriors.shape[0] > 0 else 0):
            for i in range(common[t]):
                for z in range(n_states):
                    posteriors[heads[i] + t, z] = filtered[z, t * SIDE_BY_SIDE + i]
        place = group // SIDE_BY_SIDE
        sum_group(features, seen, common, filtered, scores, whole[place], even[place], packed, moments, totals)
    grams = unpacked(packed.reshape((n_states, 1, packed.shape[1])), n_features)
    return likelihood, first_states, pairs, grams, moments.reshape((n_states, 1, n_features)), totals


@compiled
def gather_chains(rows, actions, rewards, heads, lengths, features, seen):
    """f(x_t, a_t) and r_t of every round of the chains into its column of ``features`` and ``seen``."""
    many, own_row = rows.shape[0] > 1, rows.shape[1] > 1
    for i in range(heads.size):
        for t in range(lengths[i]):
            place, column = heads[i] + t, t * SIDE_BY_SIDE + i
            k, r = place if many else 0, actions[place] if own_row else 0
            seen[column] = rewards[place]
            for j in range(rows.shape[2]):
                features[j, column] = rows[k, r, j]


@fused
def forward_group(features, seen, widths, coefs, variances, initial, transition, evidence, filtered, inverses, scores):
    """``evidence``, ``filtered``, ``inverses`` and, of clicks, ``scores``, by round; returns the log-likelihood."""
    n_states = initial.size
    nearest = np.empty(SIDE_BY_SIDE)
    halves, log_deviations = 0.5 / variances, 0.5 * np.log(variances)
    belief, arrivals = np.empty((n_states, SIDE_BY_SIDE)), transition.T.copy()
    products = np.ones(SIDE_BY_SIDE)
    likelihood = 0.0
    n_observed = 0
    for z in range(n_states):
        belief[z] = initial[z]
    for t in range(widths.size):
        width = widths[t]
        columns = slice(t * SIDE_BY_SIDE, t * SIDE_BY_SIDE + width)
        block, rewards = evidence[t], seen[columns]
        n_observed += width - n_missing(rewards, width)
        for z in range(n_states):
            weighed_sum(features, columns, coefs[z, 0], block[z])
        if variances.size == 0:
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
    return likelihood if variances.size == 0 else likelihood - n_observed * HALF_LOG_2_PI


@fused
def backward_group(widths, transition, evidence, filtered, inverses, pairs):
    """Posteriors take the place of ``filtered``; what ``backward`` adds to ``pairs`` is added."""
    n_states = transition.shape[0]
    future, ahead = np.empty((n_states, SIDE_BY_SIDE)), np.empty((n_states, SIDE_BY_SIDE))
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


@reordered
def add_dots(rows, columns, weights, totals):
    """Σ_i weights(i) rows(j, i) of these columns is added to totals(j)."""
    size, fours = columns.stop - columns.start, totals.size // 4 * 4
    for j in range(0, fours, 4):
        first, second, third, fourth = (
            rows[j, columns],
            rows[j + 1, columns],
            rows[j + 2, columns],
            rows[j + 3, columns],
        )
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
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
        row = rows[j, columns]
        a = 0.0
        for i in range(size):
            a += row[i] * weights[i]
        totals[j] += a


@compiled
def sum_group(features, seen, widths, posteriors, scores, whole, even, packed, moments, totals):
    """Sums of ``regression_sums`` or ``logistic_sums``, weighed by ``posteriors`` in columns; uses both up.

    There are ``scores`` where rewards are clicks. ``whole`` holds the sums of other rewards with all weights 1: weights
    of a round add up to 1, so that the state with most of the group has what the others leave, if rounds are ``even``.
    """
    n_states, n_pairs = posteriors.shape[0], packed.shape[1]
    slope, masses = np.empty(ROUNDS_TOGETHER * SIDE_BY_SIDE), np.zeros(n_states)
    for t in range(widths.size):
        for z in range(n_states):
            masses[z] += total_of(posteriors[z, t * SIDE_BY_SIDE :], widths[t])
    clicks = scores.shape[0] > 0
    rest = int(np.argmax(masses)) if even and not clicks else -1
    own_packed, own_moments = np.zeros(packed.shape), np.zeros(moments.shape)
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
                posteriors[:, start + i] = 0.0
        for z in range(n_states):
            weights = posteriors[z, columns]
            if clicks:
                for i in range(size):
                    slope[i] = scores[t + i // SIDE_BY_SIDE, z, i % SIDE_BY_SIDE]
                click_slopes(weights, rewards, size, slope, totals[z])
            else:
                gaussian_slopes(weights, rewards, size, slope, totals[z])
            if z != rest:
                add_products(features, columns, weights, slope, own_packed[z], own_moments[z])
        t += together
    for z in range(n_states):
        if rest < 0 or z == rest:
            continue
        add_scaled(own_packed[rest], -1.0, own_packed[z])
        add_scaled(own_moments[rest], -1.0, own_moments[z])
    if rest >= 0:
        add_scaled(own_packed[rest], 1.0, whole[:n_pairs])
        add_scaled(own_moments[rest], 1.0, whole[n_pairs:])
    for z in range(n_states):
        add_scaled(packed[z], 1.0, own_packed[z])
        add_scaled(moments[z], 1.0, own_moments[z])


@compiled
def whole_sums(rows, actions, rewards, firsts, lengths):
    """Σ f f', its lower triangle, and Σ f r of each group of ``SIDE_BY_SIDE`` chains; rounds without a reward left out.

    Beside them whether the rounds of a group are even. They are summed once for a log and serve every E-step.
    """
    n_features, n_groups = rows.shape[2], (firsts.size + SIDE_BY_SIDE - 1) // SIDE_BY_SIDE
    n_pairs = n_features * (n_features + 1) // 2
    sums, even = np.zeros((n_groups, n_pairs + n_features)), np.empty(n_groups, np.bool_)
    largest, counts = np.zeros((n_groups, n_features)), np.zeros(n_groups)
    for chain in range(firsts.size):
        group = chain // SIDE_BY_SIDE
        for t in range(firsts[chain], firsts[chain] + lengths[chain]):
            if np.isnan(rewards[t]):
                continue
            row = rows[t if rows.shape[0] > 1 else 0, actions[t] if rows.shape[1] > 1 else 0]
            counts[group] += 1.0
            pair = 0
            for i in range(n_features):
                for j in range(i + 1):
                    sums[group, pair] += row[i] * row[j]
                    pair += 1
                sums[group, n_pairs + i] += row[i] * rewards[t]
                largest[group, i] = max(largest[group, i], row[i] * row[i])
    for group in range(n_groups):
        even[group] = is_even(sums[group], largest[group], counts[group])
    return sums, even


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
