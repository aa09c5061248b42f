"""What a reward says about the state: emissions of a switching regression, for one round and for many.

A state's score is s(z) = β_z · f(x, a). Rewards are N(s(z), σ²(z)) where there are ``variances`` (L,), and clicks with
p = 1 / (1 + exp(-s(z))) where there are none (0,). Evidence is a likelihood up to a factor that all states share: the
likeliest state has 1. Both forms do the same arithmetic, so that a live filter agrees with a batch to the bit.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from seachange.kernels.exponential import exp_in_place

# What would be infinite is this instead: a difference of two infinities is not a number.
LARGEST = 1e300


@njit(cache=True, nogil=True)
def state_scores(row, action, coefs, scores):
    """scores(z) = β_z · f(x, a), for coefs (L, B, D) and one round's row (R, D)."""
    r, b = action if row.shape[0] > 1 else 0, action if coefs.shape[1] > 1 else 0
    for z in range(scores.size):
        total = 0.0
        for j in range(row.shape[1]):
            total += row[r, j] * coefs[z, b, j]
        scores[z] = total


@njit(cache=True, nogil=True)
def reward_evidence(scores, reward, variances, evidence):
    """p(r | z) up to a factor, of one round."""
    if variances.size == 0:
        for z in range(scores.size):
            evidence[z] = -abs(scores[z])
        exp_in_place(evidence)
        highest = 0.0
        for z in range(scores.size):
            evidence[z] = click_probability(scores[z], reward, evidence[z])
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
        evidence[z] = nearest - evidence[z]
    exp_in_place(evidence)


@njit(cache=True, nogil=True)
def gaussian_surprise(score, reward, halved, log_deviation):
    """-log N(r; s, σ²) without its constant, for halved = 1 / 2σ²."""
    return min((reward - score) * (reward - score) * halved + log_deviation, LARGEST)


@njit(cache=True, nogil=True)
def click_probability(score, reward, small):
    """p(r | s) of a click or none, for small = exp(-|s|)."""
    return (1.0 if (score >= 0.0) == (reward > 0.5) else small) / (1.0 + small)


@njit(cache=True, nogil=True)
def evidences(rows, actions, rewards, coefs, variances, evidence, scores):
    """p(r_t | z) of every round into ``evidence``, up to a factor; returns the factors' log-product.

    ``scores`` is room of the same shape where rewards are clicks, which it then holds the scores of, and is not touched
    otherwise. Rounds without a reward (NaN) are unobserved: all ones.
    """
    if variances.size == 0:
        round_scores(rows, actions, coefs, scores)
        return click_evidences(scores, rewards, evidence)
    round_scores(rows, actions, coefs, evidence)
    return gaussian_evidences(rewards, variances, evidence)


@njit(cache=True, nogil=True)
def round_scores(rows, actions, coefs, scores):
    """scores(t, z) = β_z · f(x_t, a_t). The innermost loop is over states, for vector instructions."""
    many, own_row, own_block = rows.shape[0] > 1, rows.shape[1] > 1, coefs.shape[1] > 1
    n_states, n_blocks, n_features = coefs.shape
    by_feature = np.empty((n_blocks, n_features, n_states))
    for z in range(n_states):
        for b in range(n_blocks):
            for j in range(n_features):
                by_feature[b, j, z] = coefs[z, b, j]
    if not many and not own_row and n_features == 1:
        # Without contexts a score depends on the action alone.
        for b in range(n_blocks):
            for z in range(n_states):
                by_feature[b, 0, z] = 0.0 + rows[0, 0, 0] * by_feature[b, 0, z]
        for t in range(actions.size):
            b = actions[t] if own_block else 0
            for z in range(n_states):
                scores[t, z] = by_feature[b, 0, z]
        return
    for t in range(actions.size):
        k, r, b = t if many else 0, actions[t] if own_row else 0, actions[t] if own_block else 0
        for z in range(n_states):
            scores[t, z] = 0.0
        for j in range(n_features):
            feature = rows[k, r, j]
            for z in range(n_states):
                scores[t, z] += feature * by_feature[b, j, z]


@njit(cache=True, nogil=True)
def gaussian_evidences(rewards, variances, evidence):
    """Scores in ``evidence`` give way to evidence."""
    n_states = variances.size
    halves, log_deviations = np.empty(n_states), np.empty(n_states)
    for z in range(n_states):
        halves[z] = 0.5 / variances[z]
        log_deviations[z] = 0.5 * np.log(variances[z])
    log_factor = 0.0
    n_observed = 0
    for t in range(rewards.size):
        if np.isnan(rewards[t]):
            for z in range(n_states):
                evidence[t, z] = 0.0
            continue
        nearest = LARGEST
        for z in range(n_states):
            evidence[t, z] = gaussian_surprise(evidence[t, z], rewards[t], halves[z], log_deviations[z])
            nearest = min(nearest, evidence[t, z])
        for z in range(n_states):
            evidence[t, z] = nearest - evidence[t, z]
        log_factor -= nearest
        n_observed += 1
    exp_in_place(evidence.reshape(-1))
    return log_factor - 0.5 * n_observed * np.log(2.0 * np.pi)


@njit(cache=True, nogil=True)
def click_evidences(scores, rewards, evidence):
    """The evidence of clicks, from their scores."""
    n_states = scores.shape[1]
    for t in range(rewards.size):
        for z in range(n_states):
            evidence[t, z] = -abs(scores[t, z])
    exp_in_place(evidence.reshape(-1))
    log_factor = 0.0
    product = 1.0
    for t in range(rewards.size):
        if np.isnan(rewards[t]):
            for z in range(n_states):
                evidence[t, z] = 1.0
            continue
        highest = 0.0
        for z in range(n_states):
            evidence[t, z] = click_probability(scores[t, z], rewards[t], evidence[t, z])
            highest = max(highest, evidence[t, z])
        inverse = 1.0 / highest
        for z in range(n_states):
            evidence[t, z] *= inverse
        # Logarithms are dear: one serves the product of many factors.
        if highest < 1e-150:
            log_factor += np.log(highest)
            continue
        product *= highest
        if product < 1e-150:
            log_factor += np.log(product)
            product = 1.0
    return log_factor + np.log(product)
