"""Hidden Markov chains over a log: scaled forward and backward recursions, and short chains.

``filter_rounds`` has the arithmetic of a live filter and agrees with it to the bit. ``forward`` and ``backward`` agree
up to rounding: they normalize one round late, so that no round waits for the division of the previous one. Rows are
indexed in place because creating a view would cost more than using the row.

The second half is the whole E-step over many short chains. The rounds of a chain depend on each other; those of
different chains do not, so vector instructions process round t of ``LANES`` chains at once, with chain i in column
t * LANES + i. Chains are sorted longest first, so that those that have a round t come first.
"""

import numpy as np

from seachange.kernels.belief_updates import move, weigh
from seachange.kernels.compiler import compiled, fused, reordered
from seachange.kernels.emission import HALF_LOG_2_PI, click_block, click_rate, gaussian_block, n_missing
from seachange.kernels.lanes import LANES, add_dots, column_buffer, own_row, sum_of, weighted_sum
from seachange.kernels.regression import add_products

# Short chains read at a time.
CHAINS_PER_READ = 8


@compiled
def filter_rounds(evidence, starts, initial, transition, belief, filtered):
    """Write p(z_t | r_1:t) to ``filtered``, round by round as in a deployment.

    ``belief`` is p(z | rewards before this chunk) and is updated for the next chunk. A new chain begins from
    ``initial`` in every round with ``starts``.
    """
    for t in range(evidence.shape[0]):
        if starts[t]:
            belief[:] = initial
        weigh(belief, evidence[t], filtered[t])
        move(filtered[t], transition, belief)


@compiled
def forward(evidence, starts, initial, transition, belief, filtered, inverses):
    """Write p(z_t | r_1:t) to ``filtered`` and 1 / S_t to ``inverses``; return Σ_t log S_t.

    S_t = Σ_z p(z_t = z | r_1:t-1) evidence(z). ``belief`` and ``starts`` are as in ``filter_rounds``. Inside the loop,
    belief is S_t-1 p(z_t | r_1:t-1); it is divided by S_t-1 one round later, when the division has finished.
    """
    n_states = belief.size
    log_likelihood, product, before = 0.0, 1.0, 1.0
    for t in range(evidence.shape[0]):
        if starts[t]:
            before = 1.0
            belief[:] = initial
        total = 0.0
        for z in range(n_states):
            weighted = belief[z] * evidence[t, z]
            filtered[t, z] = weighted
            total += weighted
        for j in range(n_states):
            moved = 0.0
            for i in range(n_states):
                moved += filtered[t, i] * transition[i, j]
            belief[j] = moved * before
        scale = total * before
        inverse = 1.0 / scale
        for z in range(n_states):
            filtered[t, z] *= before * inverse
        inverses[t] = inverse
        before = inverse
        # Logarithms are expensive: take one of the product of many scales.
        product *= scale
        if product < 1e-150:
            log_likelihood += np.log(product)
            product = 1.0
    for z in range(n_states):
        belief[z] *= before
    return log_likelihood + np.log(product)


@compiled
def backward(filtered, evidence, inverses, next_starts, transition, future, posteriors, pairs):
    """Write p(z_t | all rewards) to ``posteriors``; add Σ_t p(z_t = i, z_t+1 = j | all rewards) / Φ(i, j) to ``pairs``.

    ``future`` is evidence(z) p(later rewards | z) of the round after this chunk, up to its scale (ones at the end), and
    is updated for the previous chunk. ``next_starts[t]`` is true if round t + 1 starts a new chain. ``posteriors`` may
    be the same array as ``filtered``.
    """
    n_states = transition.shape[0]
    ahead = np.empty(n_states)
    for t in range(filtered.shape[0] - 1, -1, -1):
        if next_starts[t]:
            for i in range(n_states):
                ahead[i] = 1.0
        else:
            for i in range(n_states):
                total = 0.0
                for j in range(n_states):
                    total += transition[i, j] * future[j]
                    pairs[i, j] += filtered[t, i] * future[j]
                ahead[i] = total
        for i in range(n_states):
            posteriors[t, i] = filtered[t, i] * ahead[i]
            future[i] = evidence[t, i] * ahead[i] * inverses[t]


@compiled
def run_groups(
    rows, actions, rewards, firsts, widths, plain, subtractable, coefs, variances, initial, transition, posteriors
):
    """The E-step over groups of ``LANES`` chains: log-likelihood, first states, pairs, packed sums and totals.

    ``widths`` (m, longest) is the number of chains of a group that have a round t. ``posteriors`` (n, L) receives
    p(z_t | all rewards), unless its shape is (0, L).
    """
    n_states, n_features, longest = initial.size, rows.shape[2], widths.shape[1]
    halves, log_deviations, arrivals = 0.5 / variances, 0.5 * np.log(variances), transition.T.copy()
    features, filtered = column_buffer(n_features, longest), column_buffer(n_states, longest)
    seen, inverses = column_buffer(1, longest)[0], np.empty((longest, LANES))
    evidence = np.empty((longest, n_states, LANES))
    scores = np.empty((longest if variances.size == 0 else 0, n_states, LANES))
    likelihood, first_states, pairs = 0.0, np.zeros(n_states), np.zeros((n_states, n_states))
    sums, totals = np.zeros((n_states, n_features * (n_features + 3) // 2)), np.zeros((n_states, 2))
    own = np.empty(sums.shape)
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
                for z in range(n_states):
                    posteriors[heads[i] + t, z] = filtered[z, t * LANES + i]
        sum_group(features, seen, own_widths, filtered, scores, plain[g], subtractable[g], own, sums, totals)
    return likelihood, first_states, pairs, sums, totals


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
    likelihood, n_observed = 0.0, 0
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
    slope, n_pairs = np.empty(LANES), sums.shape[1] - n_features
    own[:] = 0.0
    clicks, rest, most = scores.shape[0] > 0, -1, -1.0
    for z in range(n_states if subtractable and not clicks else 0):
        mass = 0.0
        for t in range(widths.size):
            mass += sum_of(posteriors[z, t * LANES :], widths[t])
        if mass > most:
            rest, most = z, mass
    for t in range(widths.size):
        start, size = t * LANES, widths[t]
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
                slope[:size] = scores[t, z, :size]
                click_slopes(weights, rewards, size, slope, totals[z])
            else:
                gaussian_slopes(weights, rewards, size, slope, totals[z])
            if z != rest:
                add_products(features, columns, weights, slope, own[z, :n_pairs], own[z, n_pairs:])
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
