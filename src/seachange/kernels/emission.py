"""Emissions of a switching regression: the likelihood of a reward in each state, for one round or many.

The score of a state is s(z) = β_z · f(x, a). Rewards are N(s(z), σ²(z)), or, if ``variances`` is empty, clicks with
p = 1 / (1 + exp(-s(z))). For single rounds, a negative variance stands for purchases: a click is any reward above 0.
Evidence is the likelihood divided by that of the most likely state. The arithmetic is the
same for one round and for many, so a live filter and a batch agree to the bit.
"""

import numpy as np

from seachange.kernels.compiler import compiled, fused
from seachange.kernels.lanes import (
    LANES,
    column_buffer,
    exp_of,
    gather,
    group_by_block,
    sum_of,
    weighted_sum,
    without_contexts,
)

# Used instead of infinity, because a difference of two infinities is NaN.
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
    """p(r | z) of one round, up to a factor. Clicks may be fractional: p^r (1 - p)^(1 - r)."""
    purchases = variances.size > 0 and variances[0] < 0.0
    if purchases:
        reward = 1.0 if reward > 0.0 else 0.0
    if variances.size == 0 or purchases:
        highest = 0.0
        for z in range(scores.size):
            small = exp_of(-abs(scores[z]))
            evidence[z] = click_probability(scores[z], reward, small)
            if 0.0 < reward < 1.0:
                click, none = click_probability(scores[z], 1.0, small), click_probability(scores[z], 0.0, small)
                evidence[z] = click**reward * none ** (1.0 - reward)
            highest = max(highest, evidence[z])
        inverse = 1.0 / highest
        for z in range(scores.size):
            evidence[z] *= inverse
        return
    nearest = LARGEST
    for z in range(scores.size):
        evidence[z] = gaussian_nll(scores[z], reward, 0.5 / variances[z], 0.5 * np.log(variances[z]))
        nearest = min(nearest, evidence[z])
    for z in range(scores.size):
        evidence[z] = exp_of(nearest - evidence[z])


@fused
def gaussian_nll(score, reward, halved, log_deviation):
    """-log N(r; s, σ²) up to a constant, with halved = 1 / 2σ²."""
    return min((reward - score) * (reward - score) * halved + log_deviation, LARGEST)


@compiled
def click_probability(score, reward, small):
    """p(r | s) for r = 0 or 1, with small = exp(-|s|)."""
    return (1.0 if (score >= 0.0) == (reward > 0.5) else small) / (1.0 + small)


@compiled
def click_rate(score):
    """1 / (1 + exp(-s)), without overflow."""
    small = exp_of(-abs(score))
    return (1.0 if score >= 0.0 else small) / (1.0 + small)


def evidences(rows, actions, rewards, coefs, variances, evidence, scores):
    """Write p(r_t | z) of every round to ``evidence``, up to a factor; return the sum of the log factors.

    ``scores``, of the same shape, is filled only if rewards are clicks. The evidence of a round without a reward (NaN)
    is 1 in every state.
    """
    halves, log_deviations = 0.5 / variances, 0.5 * np.log(variances)
    groups = group_by_block(actions, 1 if without_contexts(rows) else coefs.shape[1])
    return fill_rounds(rows, actions, rewards, *groups, coefs, halves, log_deviations, evidence, scores)


def round_scores(rows, actions, coefs, scores):
    """scores(t, z) = β_z · f(x_t, a_t)."""
    groups = group_by_block(actions, 1 if without_contexts(rows) else coefs.shape[1])
    no_rewards, none = np.empty(0), np.empty(0)
    # Read-only like a log's columns, so that no second version is compiled.
    no_rewards.flags.writeable = False
    fill_rounds(rows, actions, no_rewards, *groups, coefs, none, none, np.empty((0, coefs.shape[0])), scores)


@compiled
def fill_rounds(rows, actions, rewards, order, bounds, coefs, halves, log_deviations, evidence, scores):
    """``evidences`` if there are ``rewards``, else ``round_scores``; rounds in the order of ``group_by_block``.

    Rounds are processed ``LANES`` at a time with vector instructions; each sum has the order of ``state_scores``.
    """
    n_states, n_blocks, n_features = coefs.shape
    clicks, plain, n_observed, log_factor = halves.size == 0, without_contexts(rows), 0, 0.0
    features, block = column_buffer(n_features), column_buffer(n_states)
    nearest, seen = np.empty(LANES), np.empty(LANES)
    for b in range(bounds.size - 1):
        for first in range(bounds[b], bounds[b + 1], LANES):
            members = order[first : min(first + LANES, bounds[b + 1])]
            if plain:
                # Without contexts a score depends only on the action.
                for z in range(n_states):
                    for i in range(members.size):
                        block[z, i] = 0.0 + rows[0, 0, 0] * coefs[z, actions[members[i]] if n_blocks > 1 else 0, 0]
            else:
                gather(rows, actions, members, features)
                for z in range(n_states):
                    weighted_sum(features, slice(0, members.size), coefs[z, b], block[z])
            if clicks:
                for i in range(members.size):
                    for z in range(n_states):
                        scores[members[i], z] = block[z, i]
            if rewards.size == 0:
                continue
            for i in range(members.size):
                seen[i] = rewards[members[i]]
                n_observed += not np.isnan(seen[i])
            if clicks:
                log_factor += click_block(block, seen, members.size, nearest)
            else:
                log_factor += gaussian_block(block, seen, members.size, halves, log_deviations, nearest)
            for i in range(members.size):
                for z in range(n_states):
                    evidence[members[i], z] = block[z, i]
    return log_factor if clicks else log_factor - n_observed * HALF_LOG_2_PI


@fused
def gaussian_block(block, rewards, size, halves, log_deviations, nearest):
    """Replace the scores in ``block`` by evidence; return the sum of the log factors left out."""
    n_states = block.shape[0]
    for i in range(size):
        nearest[i] = LARGEST
    for z in range(n_states):
        scores, halved, log_deviation = block[z], halves[z], log_deviations[z]
        for i in range(size):
            scores[i] = gaussian_nll(scores[i], rewards[i], halved, log_deviation)
            nearest[i] = min(nearest[i], scores[i])
    for z in range(n_states):
        scores = block[z]
        for i in range(size):
            scores[i] = exp_of(nearest[i] - scores[i])
    for i in range(size):
        if np.isnan(rewards[i]):
            nearest[i] = 0.0
            for z in range(n_states):
                block[z, i] = 1.0
    return -sum_of(nearest, size)


@compiled
def click_block(block, rewards, size, highest):
    """``gaussian_block`` for clicks."""
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
        # Logarithms are expensive: take one of the product of many factors.
        if product * highest[i] < 1e-250:
            log_factor += np.log(product)
            product = 1.0
        product *= highest[i]
    return log_factor + np.log(product)
