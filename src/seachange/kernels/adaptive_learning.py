"""Adaptive sampling: a belief over hypotheses, each a state in one of its modes or the open state, that learn.

The first hypotheses are frozen: one per state, or none. Each of the others is a learner, which keeps the mean and the
covariance of its coefficients, full (..., D, D) or diagonal (..., D, 1), in units of features f̃ and, if rewards are
Gaussian, of the noise variance. The open state comes last.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.kernels.belief_updates import advance, draw_action, weigh
from seachange.kernels.compiler import compiled
from seachange.kernels.emission import LARGEST, click_rate, state_scores
from seachange.kernels.monitors import ROUNDS, watch
from seachange.kernels.replay_steps import accept_choice
from seachange.kernels.thompson import thompson_probs

# Weights below this teach nothing.
NEGLIGIBLE = 1e-9
# With less belief than this, the open state takes its best action instead of sampling one.
SCARCE = 1e-3
# Click rates that learners predict are at least this far from 0 and 1, so that one surprise cannot settle the belief.
LEAST_RATE = 0.005
# Least curvature of a click, so that learners with extreme predictions go on learning.
LEAST_CURVATURE = 0.02
LEAST_DEVIATION = 1e-9
# Larger errors, in deviations of the prediction, teach no more than this.
MOST_ERROR = 100.0


class Learners(NamedTuple):
    """What learns: M learners, and what watches them."""

    coefs: npt.NDArray[np.float64]  # (M, B, D) in units
    covariances: npt.NDArray[np.float64]  # (M, B, D, D or 1)
    monitors: npt.NDArray[np.float64]  # (DRIFTED + L,)


class Rules(NamedTuple):
    """What does not change."""

    frozen_coefs: npt.NDArray[np.float64]  # (F, B, D), of raw features
    owners: npt.NDArray[np.int64]  # (F + M,) the state of each hypothesis; L for the open state
    forgetting: npt.NDArray[np.float64]  # (M,)
    limits: npt.NDArray[np.float64]  # (M, D) forgetting raises no variance above these
    start: Learners  # before the first round
    variances: npt.NDArray[np.float64]  # (F + M,) noise; (0,) for clicks
    means: npt.NDArray[np.float64]  # (D,) f̃ = (f - means) / scales
    scales: npt.NDArray[np.float64]  # (D,)
    has_open: bool
    enter: float  # probability of the open state in the next round
    leave: float
    boldness: float  # of Thompson sampling in the open state: deviations are multiplied by this
    usual: int  # the first hypothesis of the mode in which nothing has changed; -1 if there is none
    drifting: int  # the first hypothesis of the drifting mode, or -1
    alarm: float  # logarithm of the mean number of rounds between false alarms


class Round(NamedTuple):
    """Buffers for one round."""

    row: npt.NDArray[np.float64]  # (R, D) in units
    scores: npt.NDArray[np.float64]  # (M, K) mean score of every action
    values: npt.NDArray[np.float64]  # (K,)
    deviations: npt.NDArray[np.float64]  # (K,)
    sampled: npt.NDArray[np.float64]  # (K,)
    predicted: npt.NDArray[np.float64]  # (2, F + M) mean and variance of the score of the action, by hypothesis
    evidence: npt.NDArray[np.float64]  # (F + M,)
    weights: npt.NDArray[np.float64]  # (F + M,)
    direction: npt.NDArray[np.float64]  # (D,)


def buffers_of(rules, n_actions):
    """Buffers for rounds with ``n_actions``."""
    n_learners, _, n_features = rules.start.coefs.shape
    n_hypotheses = len(rules.owners)
    n_rows = n_actions if rules.start.coefs.shape[1] == 1 and n_actions > 1 else 1
    sizes = (n_rows, n_features), (n_learners, n_actions), n_actions, n_actions, n_actions
    return Round(*map(np.empty, (*sizes, (2, n_hypotheses), n_hypotheses, n_hypotheses, n_features)))


@compiled
def score_of(coefs, row):
    """m · f."""
    total = 0.0
    for j in range(row.size):
        total += coefs[j] * row[j]
    return total


@compiled
def spread_of(covariance, row, direction):
    """f' P f, with P f in ``direction``."""
    total = 0.0
    for i in range(row.size):
        if covariance.shape[1] == 1:
            direction[i] = covariance[i, 0] * row[i]
        else:
            direction[i] = 0.0
            for j in range(row.size):
                direction[i] += covariance[i, j] * row[j]
        total += direction[i] * row[i]
    return max(total, 0.0)


@compiled
def choose(belief, advice, allowed, exploration, uniform, rows, learners, rules, buffers, probs):
    """Draw an action: each hypothesis proposes a distribution over actions, and they are mixed by the belief.

    A frozen hypothesis follows its policy ``advice`` (F, K). A learner takes the action with the highest mean reward,
    and the open state samples one by Thompson sampling. Then come the choices of ``exploration``.
    """
    n_actions, n_frozen, n_learners = probs.size, rules.frozen_coefs.shape[0], learners.coefs.shape[0]
    n_blocks, n_allowed, advised = learners.coefs.shape[1], 0, 0.0
    for r in range(buffers.row.shape[0]):
        for j in range(rules.means.size):
            buffers.row[r, j] = (rows[r, j] - rules.means[j]) / rules.scales[j]
    for a in range(n_actions):
        probs[a] = 0.0
        if allowed[a]:
            n_allowed += 1
            for z in range(n_frozen):
                probs[a] += belief[z] * advice[z, a]
            advised += probs[a]
    for m in range(n_learners):
        mass, best, is_open = belief[n_frozen + m], -1, rules.has_open and m == n_learners - 1
        for a in range(n_actions):
            r, b = a if rows.shape[0] > 1 else 0, a if n_blocks > 1 else 0
            buffers.scores[m, a] = score_of(learners.coefs[m, b], buffers.row[r])
            if allowed[a]:
                buffers.values[a] = buffers.scores[m, a]
                if best < 0 or buffers.values[a] > buffers.values[best]:
                    best = a
                if is_open and mass >= SCARCE:
                    unit = np.sqrt(rules.variances[n_frozen + m]) if rules.variances.size > 0 else 1.0
                    spread = spread_of(learners.covariances[m, b], buffers.row[r], buffers.direction)
                    buffers.deviations[a] = unit * max(rules.boldness * np.sqrt(spread), LEAST_DEVIATION)
        if is_open and mass >= SCARCE:
            thompson_probs(buffers.values, buffers.deviations, allowed, buffers.sampled)
            for a in range(n_actions):
                probs[a] += mass * buffers.sampled[a]
        else:
            probs[best] += mass
        advised += mass
    # Policies that ignore masks may give all allowed actions a probability of 0: then the choice is uniform.
    kept = (1.0 - exploration) / advised if advised > 0.0 else 0.0
    share = (exploration if advised > 0.0 else 1.0) / n_allowed
    for a in range(n_actions):
        if allowed[a]:
            probs[a] = kept * probs[a] + share
    return draw_action(probs, uniform)


@compiled
def predict(rows, action, learners, rules, buffers, predicted):
    """Mean and variance of the score of ``action`` under every hypothesis, after ``choose``."""
    n_frozen, n_blocks = rules.frozen_coefs.shape[0], learners.coefs.shape[1]
    r, b = action if rows.shape[0] > 1 else 0, action if n_blocks > 1 else 0
    predicted[1, :n_frozen] = 0.0
    state_scores(rows, action, rules.frozen_coefs, predicted[0, :n_frozen])
    for m in range(learners.coefs.shape[0]):
        predicted[0, n_frozen + m] = buffers.scores[m, action]
        spread = spread_of(learners.covariances[m, b], buffers.row[r], buffers.direction)
        predicted[1, n_frozen + m] = spread


@compiled
def predictive_evidence(predicted, reward, n_frozen, rules, evidence):
    """p(r | hypothesis) before learning from r, up to a factor.

    Gaussian rewards: N(r; s, σ² (1 + v)), with s and v the mean and variance of the score. Clicks: p^r (1 - p)^(1 - r),
    p = 1 / (1 + exp(-s / √(1 + π v / 8))).
    """
    clicks, highest = rules.variances.size == 0, -LARGEST
    for h in range(evidence.size):
        score, variance = predicted[0, h], predicted[1, h]
        if clicks:
            rate = click_rate(score / np.sqrt(1.0 + 0.125 * np.pi * variance))
            if h >= n_frozen:
                rate = min(max(rate, LEAST_RATE), 1.0 - LEAST_RATE)
            # 1 - p, without cancellation
            none = click_rate(-score) if h < n_frozen else 1.0 - rate
            evidence[h] = 0.0
            if reward > 0.0:
                evidence[h] += reward * np.log(rate)
            if reward < 1.0:
                evidence[h] += (1.0 - reward) * np.log(none)
        else:
            total = rules.variances[h] * (1.0 + variance)
            gap = reward - score
            evidence[h] = -0.5 * (gap * gap / total + np.log(total))
        evidence[h] = max(evidence[h], -LARGEST)
        highest = max(highest, evidence[h])
    for h in range(evidence.size):
        evidence[h] = np.exp(evidence[h] - highest)


@compiled
def learn(weights, features, block, reward, learners, rules, direction):
    """One reward, with the probabilities ``weights`` of the hypotheses and the action's ``features`` (D,) in units.

    All modes of a state learn with the probability of the state. With weight w, a learner first forgets, P ← P / λ^w,
    and then takes the Kalman step of its regression: h = w (clicks: w p (1 - p)), P ← P - h P f f' P / (1 + h f' P f),
    m ← m + w (r - r̂) P f.
    """
    n_frozen, n_features = rules.frozen_coefs.shape[0], features.size
    clicks = rules.variances.size == 0
    for m in range(learners.coefs.shape[0]):
        weight, owner = 0.0, rules.owners[n_frozen + m]
        for h in range(weights.size):
            if rules.owners[h] == owner:
                weight += weights[h]
        if weight < NEGLIGIBLE:
            continue
        mean, covariance = learners.coefs[m, block], learners.covariances[m, block]
        if rules.forgetting[m] < 1.0:
            forget(covariance, rules.forgetting[m] ** -weight, rules.limits[m], direction)
        score, curvature = score_of(mean, features), weight
        expected = score
        if clicks:
            expected = click_rate(score)
            curvature = weight * max(expected * (1.0 - expected), LEAST_CURVATURE)
        spread = spread_of(covariance, features, direction)
        step, error = 1.0 / (1.0 + curvature * spread), reward - expected
        if not clicks:
            most = MOST_ERROR * np.sqrt(rules.variances[n_frozen + m] * (1.0 + spread))
            error = min(max(error, -most), most)
        # Exactly symmetric: forgetting would multiply a difference of the last digit until it is all that is left.
        gain = curvature * step
        for i in range(n_features):
            mean[i] += weight * error * step * direction[i]
            if covariance.shape[1] == 1:
                covariance[i, 0] -= gain * (direction[i] * direction[i])
            else:
                for j in range(n_features):
                    covariance[i, j] -= gain * (direction[i] * direction[j])


@compiled
def forget(covariance, factor, limits, scratch):
    """Multiply variances by ``factor``, but raise none above its limit."""
    diagonal = covariance.shape[1] == 1
    for i in range(limits.size):
        variance = covariance[i, 0] if diagonal else covariance[i, i]
        scratch[i] = np.sqrt(max(min(factor, limits[i] / variance), 1.0))
    for i in range(limits.size):
        if diagonal:
            covariance[i, 0] *= scratch[i] * scratch[i]
        else:
            for j in range(limits.size):
                covariance[i, j] *= scratch[i] * scratch[j]


@compiled
def renew(weights, learners, rules):
    """Mix what the open state has learned with its start, by the probability that it is entered only now.

    The mean and covariance of the mixture; so a regime that is entered again is learned afresh.
    """
    if not rules.has_open:
        return
    m, chance = learners.coefs.shape[0] - 1, weights[weights.size - 1]
    staying = chance * (1.0 - rules.leave)
    kept = staying / max(staying + (1.0 - chance) * rules.enter, 1e-300)
    first, start = rules.start.coefs[m], rules.start.covariances[m]
    unit = 1.0 if rules.variances.size == 0 else 1.0 / rules.variances[weights.size - 1]
    for b in range(first.shape[0]):
        mean, covariance = learners.coefs[m, b], learners.covariances[m, b]
        for i in range(mean.size):
            gap = mean[i] - first[b, i]
            if covariance.shape[1] == 1:
                covariance[i, 0] = kept * covariance[i, 0] + (1.0 - kept) * (start[b, i, 0] + kept * unit * gap * gap)
            else:
                for j in range(mean.size):
                    product = gap * (mean[j] - first[b, j])
                    covariance[i, j] = kept * covariance[i, j] + (1.0 - kept) * (start[b, i, j] + kept * unit * product)
        for i in range(mean.size):
            mean[i] = kept * mean[i] + (1.0 - kept) * first[b, i]


@compiled
def take_reward(belief, action, rows, reward, transition, learners, rules, buffers):
    """Learn from the reward of ``action``, then move the belief; in place. ``choose`` and ``predict`` come before.

    A reward that is NaN is missing: the round passes, and there is nothing to predict.
    """
    if np.isnan(reward):
        buffers.evidence[:], buffers.weights[:] = 1.0, belief
        learners.monitors[ROUNDS] += 1.0
    else:
        predictive_evidence(buffers.predicted, reward, rules.frozen_coefs.shape[0], rules, buffers.evidence)
        weigh(belief, buffers.evidence, buffers.weights)
        watch(belief, buffers.weights, buffers.predicted, buffers.evidence, reward, learners, rules)
        r, b = action if rows.shape[0] > 1 else 0, action if learners.coefs.shape[1] > 1 else 0
        learn(buffers.weights, buffers.row[r], b, reward, learners, rules, buffers.direction)
    renew(buffers.weights, learners, rules)
    advance(belief, buffers.evidence, transition, buffers.weights)


@compiled
def run_adaptive(
    belief, learners, starts, initial, advice, mask, uniforms, mean_rewards, rewards, exploration, rows, rules, buffers,
    transition, beliefs, actions, propensities, expected,
):  # fmt: skip
    """Adaptive sampling over a chunk of rounds; ``belief`` and ``learners`` change in place.

    In rounds with ``starts``, the belief begins anew, and learners go on.
    """
    probs = np.empty(mean_rewards.shape[1])
    for t in range(uniforms.size):
        if starts[t]:
            belief[:] = initial
        beliefs[t] = belief
        row, allowed = rows[t if rows.shape[0] > 1 else 0], mask[t if mask.shape[0] > 1 else 0]
        experts = advice[t if advice.shape[0] > 1 else 0]
        action = choose(belief, experts, allowed, exploration, uniforms[t], row, learners, rules, buffers, probs)
        actions[t], propensities[t] = action, probs[action]
        for a in range(probs.size):
            expected[t] += probs[a] * mean_rewards[t, a]
        predict(row, action, learners, rules, buffers, buffers.predicted)
        take_reward(belief, action, row, rewards[t, action], transition, learners, rules, buffers)


@compiled
def follow_adaptive(belief, learners, initial, past, acceptance, found, exploration, rows, rules, buffers, transition):
    """Adaptive sampling along a chunk of a log; it learns from the rounds that are accepted."""
    probs = np.empty(past.mask.shape[1])
    for t in range(past.actions.size):
        if past.starts[t]:
            belief[:] = initial
        row, action = rows[t if rows.shape[0] > 1 else 0], past.actions[t]
        allowed = past.mask[t if past.mask.shape[0] > 1 else 0]
        choose(belief, past.advice[t], allowed, exploration, 0.5, row, learners, rules, buffers, probs)
        reward = np.nan
        if accept_choice(t, probs, past, acceptance, found):
            reward = past.rewards[t]
            predict(row, action, learners, rules, buffers, buffers.predicted)
        take_reward(belief, action, row, reward, transition, learners, rules, buffers)
