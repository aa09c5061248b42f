"""What a reward says about the state: emissions of a switching regression, for one round and for many.

A state's score is s(z) = β_z · f(x, a). Rewards are N(s(z), σ²(z)) where there are ``variances`` (L,), and clicks with
p = 1 / (1 + exp(-s(z))) where there are none (0,). Evidence is a likelihood up to a factor that all states share: the
likeliest state has 1. Both forms do the same arithmetic, so that a live filter agrees with a batch to the bit.
"""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled, fused, reordered
from seachange.kernels.exponential import exp_of
from seachange.kernels.rows import SIDE_BY_SIDE, columns_for, gather, grouped, tabled

# What would be infinite is this instead: a difference of two infinities is not a number.
LARGEST = 1e300
HALF_LOG_2_PI = 0.5 * np.log(2.0 * np.pi)


@fused
def state_scores(row, action, coefs, scores):
    """scores(z) = β_z · f(x, a), for coefs (L, B, D) and one round's row (R, D)."""
    r, b = action if row.shape[0] > 1 else 0, action if coefs.shape[1] > 1 else 0
    for z in range(scores.size):
        total = 0.0
        for j in range(row.shape[1]):
            total += row[r, j] * coefs[z, b, j]
        scores[z] = total


@compiled
def reward_evidence(scores, reward, variances, evidence):
    """p(r | z) up to a factor, of one round; where rewards are clicks r may be a part of one: p^r (1 - p)^(1 - r)."""
    if variances.size == 0:
        highest = 0.0
        for z in range(scores.size):
            small = exp_of(-abs(scores[z]))
            evidence[z] = click_probability(scores[z], reward, small)
            if 0.0 < reward < 1.0:
                # A part of a click counts as that part of the evidence of one.
                click, none = click_probability(scores[z], 1.0, small), click_probability(scores[z], 0.0, small)
                evidence[z] = click**reward * none ** (1.0 - reward)
            highest = max(highest, evidence[z])
        inverse = 1.0 / highest
        for z in range(scores.size):
            evidence[z] *= inverse
        return
    nearest = LARGEST
    for z in range(scores.size):
        evidence[z] = gaussian_surprise(scores[z], reward, 0.5 / variances[z], 0.5 * np.log(variances[z]))
        nearest = min(nearest, evidence[z])
    for z in range(scores.size):
        evidence[z] = exp_of(nearest - evidence[z])


@fused
def gaussian_surprise(score, reward, halved, log_deviation):
    """-log N(r; s, σ²) without its constant, for halved = 1 / 2σ²."""
    return min((reward - score) * (reward - score) * halved + log_deviation, LARGEST)


@compiled
def click_probability(score, reward, small):
    """p(r | s) of a click or none, for small = exp(-|s|)."""
    return (1.0 if (score >= 0.0) == (reward > 0.5) else small) / (1.0 + small)


@compiled
def click_rate(score):
    """1 / (1 + exp(-s)), whatever the size of s."""
    small = exp_of(-abs(score))
    return (1.0 if score >= 0.0 else small) / (1.0 + small)


def evidences(rows, actions, rewards, coefs, variances, evidence, scores):
    """p(r_t | z) of every round into ``evidence``, up to a factor; returns the factors' log-product.

    ``scores`` of the same shape is filled where rewards are clicks, and not touched otherwise. Rounds without a reward
    (NaN) are unobserved: all ones.
    """
    halves, log_deviations = 0.5 / variances, 0.5 * np.log(variances)
    groups = grouped(actions, 1 if tabled(rows) else coefs.shape[1])
    return fill_rounds(rows, actions, rewards, *groups, coefs, halves, log_deviations, evidence, scores)


def round_scores(rows, actions, coefs, scores):
    """scores(t, z) = β_z · f(x_t, a_t)."""
    groups, no_rewards, none = grouped(actions, 1 if tabled(rows) else coefs.shape[1]), np.empty(0), np.empty(0)
    # As a log's are: nothing is compiled for these.
    no_rewards.flags.writeable = False
    fill_rounds(rows, actions, no_rewards, *groups, coefs, none, none, np.empty((0, coefs.shape[0])), scores)


@compiled
def fill_rounds(rows, actions, rewards, order, bounds, coefs, halves, log_deviations, evidence, scores):
    """``evidences`` where there are ``rewards``, else ``round_scores``; rounds as they are ``grouped``.

    Scores are summed side by side, for vector instructions; each sum has the order of ``state_scores``.
    """
    n_states, n_blocks, n_features = coefs.shape
    clicks, plain, n_observed, log_factor = halves.size == 0, tabled(rows), 0, 0.0
    features, block = columns_for(n_features), columns_for(n_states)
    nearest, seen = np.empty(SIDE_BY_SIDE), np.empty(SIDE_BY_SIDE)
    for b in range(bounds.size - 1):
        for first in range(bounds[b], bounds[b + 1], SIDE_BY_SIDE):
            members = order[first : min(first + SIDE_BY_SIDE, bounds[b + 1])]
            if plain:
                # Without contexts a score depends on the action alone.
                for z in range(n_states):
                    for i in range(members.size):
                        block[z, i] = 0.0 + rows[0, 0, 0] * coefs[z, actions[members[i]] if n_blocks > 1 else 0, 0]
            else:
                gather(rows, actions, members, features)
                for z in range(n_states):
                    weighed_sum(features, slice(0, members.size), coefs[z, b], block[z])
            if clicks:
                for i in range(members.size):
                    for z in range(n_states):
                        scores[members[i], z] = block[z, i]
            if rewards.size == 0:
                continue
            for i in range(members.size):
                seen[i] = rewards[members[i]]
            n_observed += members.size - n_missing(seen, members.size)
            if clicks:
                log_factor += click_block(block, seen, members.size, nearest)
            else:
                log_factor += gaussian_block(block, seen, members.size, halves, log_deviations, nearest)
            for i in range(members.size):
                for z in range(n_states):
                    evidence[members[i], z] = block[z, i]
    return log_factor if clicks else log_factor - n_observed * HALF_LOG_2_PI


@fused
def weighed_sum(rows, columns, weights, totals):
    """Σ_j weights(j) rows(j) of these columns into the first of ``totals``, each summed in the order of j."""
    size = columns.stop - columns.start
    for i in range(size):
        totals[i] = 0.0
    fours = weights.size // 4 * 4
    for j in range(0, fours, 4):
        # What was loaded of the totals serves four rows.
        first, second, third, fourth = (
            rows[j, columns],
            rows[j + 1, columns],
            rows[j + 2, columns],
            rows[j + 3, columns],
        )
        for i in range(size):
            totals[i] = (
                totals[i]
                + first[i] * weights[j]
                + second[i] * weights[j + 1]
                + third[i] * weights[j + 2]
                + fourth[i] * weights[j + 3]
            )
    for j in range(fours, weights.size):
        row = rows[j, columns]
        for i in range(size):
            totals[i] += row[i] * weights[j]


@compiled
def n_missing(rewards, size):
    """How many of the first rewards are missing."""
    missing = 0
    for i in range(size):
        missing += np.isnan(rewards[i])
    return missing


@fused
def gaussian_block(block, rewards, size, halves, log_deviations, nearest):
    """Scores in ``block`` give way to evidence; returns the log-product of the factors left out."""
    n_states = block.shape[0]
    for i in range(size):
        nearest[i] = LARGEST
    for z in range(n_states):
        scores, halved, log_deviation = block[z], halves[z], log_deviations[z]
        for i in range(size):
            scores[i] = gaussian_surprise(scores[i], rewards[i], halved, log_deviation)
            nearest[i] = min(nearest[i], scores[i])
    for z in range(n_states):
        scores = block[z]
        for i in range(size):
            scores[i] = exp_of(nearest[i] - scores[i])
    if n_missing(rewards, size) > 0:
        for i in range(size):
            if np.isnan(rewards[i]):
                for z in range(n_states):
                    block[z, i] = 1.0
                nearest[i] = 0.0
    return -total_of(nearest, size)


@reordered
def total_of(values, size):
    """The sum of the first ``size`` values, in an order of the compiler's."""
    total = 0.0
    for i in range(size):
        total += values[i]
    return total


@compiled
def click_block(block, rewards, size, highest):
    """The same for clicks."""
    n_states = block.shape[0]
    for i in range(size):
        highest[i] = 0.0
    for z in range(n_states):
        scores = block[z]
        for i in range(size):
            scores[i] = click_probability(scores[i], rewards[i], exp_of(-abs(scores[i])))
            highest[i] = max(highest[i], scores[i])
    log_factor = 0.0
    product = 1.0
    for i in range(size):
        if np.isnan(rewards[i]):
            for z in range(n_states):
                block[z, i] = 1.0
            continue
        inverse = 1.0 / highest[i]
        for z in range(n_states):
            block[z, i] *= inverse
        # Logarithms are dear: one serves the product of many factors.
        if product * highest[i] < 1e-250:
            log_factor += np.log(product)
            product = 1.0
        product *= highest[i]
    return log_factor + np.log(product)
