"""The whole E-step over many short chains, one round of many chains at a time.

The rounds of a chain depend on each other; those of different chains do not, so vector instructions process round t of
``LANES`` chains at once, with chain i in column t * LANES + i. Chains are sorted longest first, so that those that have
a round t come first. The recursions are those of ``seachange.kernels.forward_backward``.
"""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled, fused, reordered
from seachange.kernels.emission import HALF_LOG_2_PI, click_block, click_rate, gaussian_block, n_missing
from seachange.kernels.lanes import LANES, add_dots, column_buffer, own_row, sum_of, weighted_sum
from seachange.kernels.regression import add_products

# Rounds of a group whose products are summed at a time.
ROUNDS_PER_PASS = 4
# Chains read at a time.
CHAINS_PER_READ = 8


@compiled
def run_groups(
    rows, actions, rewards, firsts, widths, plain, subtractable, coefs, halves, log_deviations, initial, transition,
    arrivals, features, seen, evidence, filtered, inverses, scores, own, posteriors, first_states, pairs, sums, totals,
):  # fmt: skip
    """The E-step over groups of ``LANES`` chains: adds to the last four arguments and returns the log-likelihood.

    ``widths`` (m, longest) is the number of chains of a group that have a round t. ``posteriors`` (n, L) receives
    p(z_t | all rewards), unless its shape is (0, L). The arguments from ``features`` to ``own`` are buffers.
    """
    likelihood = 0.0
    for g in range(subtractable.size):
        n_rounds = 0
        while n_rounds < widths.shape[1] and widths[g, n_rounds] > 0:
            n_rounds += 1
        own_widths = widths[g, :n_rounds]
        heads = firsts[g * LANES : g * LANES + own_widths[0]]
        gather_chains(rows, actions, rewards, heads, own_widths, features, seen)
        likelihood += forward_group(
            features, seen, own_widths, coefs, halves, log_deviations, initial, arrivals, evidence, filtered, inverses,
            scores,
        )  # fmt: skip
        backward_group(own_widths, transition, evidence, filtered, inverses, first_states, pairs)
        for t in range(n_rounds if posteriors.shape[0] > 0 else 0):
            for i in range(own_widths[t]):
                for z in range(initial.size):
                    posteriors[heads[i] + t, z] = filtered[z, t * LANES + i]
        sum_group(features, seen, own_widths, filtered, scores, plain[g], subtractable[g], own, sums, totals)
    return likelihood


@compiled
def gather_chains(rows, actions, rewards, firsts, widths, features, seen):
    """Write f(x_t, a_t) and r_t of each round of the chains to its column of ``features`` and ``seen``."""
    # Read a few chains at a time, so that writes are adjacent.
    for start in range(0, firsts.size, CHAINS_PER_READ):
        for t in range(widths.size):
            for i in range(start, min(start + CHAINS_PER_READ, widths[t])):
                place, column = firsts[i] + t, t * LANES + i
                seen[column] = rewards[place]
                row = own_row(rows, place, actions[place])
                for j in range(row.size):
                    features[j, column] = row[j]


@fused
def forward_group(
    features, seen, widths, coefs, halves, log_deviations, initial, arrivals, evidence, filtered, inverses, scores
):
    """Fill ``evidence``, ``filtered``, ``inverses`` and, for clicks, ``scores``; return the log-likelihood.

    ``widths`` is the number of chains that have a round t. ``halves`` and ``log_deviations`` are 1 / 2σ² and log σ of
    the states, empty if rewards are clicks; ``arrivals`` is Φ'.
    """
    n_states, clicks, belief = initial.size, halves.size == 0, column_buffer(initial.size)
    for z in range(n_states):
        belief[z] = initial[z]
    nearest, products = np.empty(LANES), np.empty(LANES)
    products[:] = 1.0
    likelihood = 0.0
    n_observed = 0
    for t in range(widths.size):
        width = widths[t]
        columns = slice(t * LANES, t * LANES + width)
        block, rewards = evidence[t], seen[columns]
        n_observed += width - n_missing(rewards, width)
        for z in range(n_states):
            weighted_sum(features, columns, coefs[z, 0], block[z])
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
            weighted, before, emitted = filtered[z, columns], belief[z], block[z]
            for i in range(width):
                weighted[i] = before[i] * emitted[i]
                total[i] += weighted[i]
        for i in range(width):
            products[i] *= total[i]
            total[i] = 1.0 / total[i]
        for z in range(n_states):
            weighted = filtered[z, columns]
            for i in range(width):
                weighted[i] *= total[i]
        for z in range(n_states):
            weighted_sum(filtered, columns, arrivals[z], belief[z])
        # Logarithms are expensive: take one of the product of a few scales, none of which can be very small.
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
    """Replace ``filtered`` by posteriors; add those of first rounds to ``first_states``, and ``pairs``."""
    n_states = transition.shape[0]
    future, ahead = column_buffer(n_states), column_buffer(n_states)
    following = 0
    for t in range(widths.size - 1, -1, -1):
        width, scale = widths[t], inverses[t]
        columns, going_on = slice(t * LANES, t * LANES + width), slice(0, following)
        for k in range(n_states):
            # Chains that end in this round have no future rewards.
            ahead[k] = 1.0
            weighted_sum(future, going_on, transition[k], ahead[k])
            add_dots(future, going_on, filtered[k, columns], pairs[k])
        for k in range(n_states):
            coming, known, later, emitted = ahead[k], filtered[k, columns], future[k], evidence[t, k]
            for i in range(width):
                known[i] *= coming[i]
                later[i] = emitted[i] * coming[i] * scale[i]
        following = widths[t]
    for k in range(n_states):
        first_states[k] += sum_of(filtered[k], following)


@compiled
def sum_group(features, seen, widths, posteriors, scores, plain, subtractable, own, sums, totals):
    """``regression_sums`` or, if there are ``scores``, ``logistic_sums`` of a group, weighted by ``posteriors``.

    Adds packed Gram matrices and moments to ``sums`` (L, D (D + 3) / 2), with ``own`` as a buffer of that shape, and
    overwrites ``seen`` and ``posteriors``. The weights of a round sum to 1, so for Gaussian rewards in ``subtractable``
    rounds, the sums of the dominant state are the ``plain`` sums minus those of the other states.
    """
    n_states, n_features = posteriors.shape[0], features.shape[0]
    slope, n_pairs = np.empty(ROUNDS_PER_PASS * LANES), sums.shape[1] - n_features
    for z in range(n_states):
        for pair in range(sums.shape[1]):
            own[z, pair] = 0.0
    clicks, rest, most = scores.shape[0] > 0, -1, -1.0
    for z in range(n_states if subtractable and not clicks else 0):
        mass = 0.0
        for t in range(widths.size):
            mass += sum_of(posteriors[z, t * LANES :], widths[t])
        if mass > most:
            rest, most = z, mass
    t = 0
    while t < widths.size:
        # Sums over more columns are faster: include the next rounds while all chains are still running.
        start, size, together = t * LANES, widths[t], 1
        while together < ROUNDS_PER_PASS and size == together * LANES and t + together < widths.size:
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
                    slope[i] = scores[t + i // LANES, z, i % LANES]
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
    """Write u r to ``slope``; add Σ u r² and Σ u to ``totals``."""
    square, total = 0.0, 0.0
    for i in range(size):
        slope[i] = weights[i] * rewards[i]
        square += slope[i] * rewards[i]
        total += weights[i]
    totals[0] += square
    totals[1] += total


@compiled
def click_slopes(weights, rewards, size, slope, totals):
    """Replace scores in ``slope`` by u (r - p) and ``weights`` by u p (1 - p); add Σ u r and Σ u to ``totals``."""
    for i in range(size):
        p = click_rate(slope[i])
        totals[0] += weights[i] * rewards[i]
        totals[1] += weights[i]
        slope[i] = weights[i] * (rewards[i] - p)
        weights[i] *= p * (1.0 - p)
