"""Bandit algorithms without contexts: choosing an action, learning from a reward, and whole horizons of rounds.

Each algorithm is a combination of ``ArmRules``: what it ranks actions by, what it forgets, and how it detects changes.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.kernels.belief_updates import draw_action
from seachange.kernels.compiler import compiled
from seachange.kernels.thompson import thompson_probs

KL_INDEX, UCB_INDEX, SAMPLING, WEIGHTS = 0, 1, 2, 3
NO_DETECTOR, HALVES, CUSUM, LIKELIHOOD_RATIO = 0, 1, 2, 3
# The likelihood ratio is tested at every tenth reward of an action, for every tenth split of its rewards.
TEST_EVERY = 10
SMALLEST = 1e-15


class ArmRules(NamedTuple):
    """The configuration of an algorithm; rewards are scaled to (r - low) / span."""

    score: int  # what actions are ranked by
    detector: int
    low: float
    span: float
    width: float  # ξ of a UCB index
    discount: float  # γ: the weight of a reward after one more reward; 1: none is forgotten
    window: int  # rewards that count; 0: all
    threshold: float  # of the detector
    drift: float  # ε of CUSUM
    warmup: int  # M of CUSUM: rewards of an action that give its reference mean
    exploration: float  # share of rounds that explore
    cyclic: bool  # exploring rounds take all actions in turn
    growing: bool  # the share grows with the square root of the restarts
    share_rate: float  # α of Exp3.S
    restarts: npt.NDArray[np.int64]  # (m,) rounds after whose decisions an oracle restarts the action taken


class ArmMemory(NamedTuple):
    """What an algorithm remembers."""

    counts: npt.NDArray[np.float64]  # (K,) rewards that count
    sums: npt.NDArray[np.float64]  # (K,) their sums; the weights of Exp3.S
    starts: npt.NDArray[np.float64]  # (K,) the round of the last restart
    walks: npt.NDArray[np.float64]  # (K, 3) two walks of CUSUM and the mean that they compare with
    history: npt.NDArray[np.float64]  # recent rewards of each action, their sums from the first on, or rounds (2, w)
    clock: npt.NDArray[np.float64]  # (3,) rounds, restarts, and rewards so far


@compiled
def bernoulli_divergence(p, q):
    """kl(p, q) = p log(p / q) + (1 - p) log((1 - p) / (1 - q))."""
    p = min(max(p, SMALLEST), 1.0 - SMALLEST)
    q = min(max(q, SMALLEST), 1.0 - SMALLEST)
    return p * math.log(p / q) + (1.0 - p) * math.log((1.0 - p) / (1.0 - q))


@compiled
def kl_bound(mean, level):
    """The largest q with kl(mean, q) ≤ level, to 1e-6."""
    low = min(max(mean, 0.0), 1.0)
    high = min(1.0, low + math.sqrt(0.5 * level))  # Pinsker
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        if bernoulli_divergence(mean, middle) > level:
            high = middle
        else:
            low = middle
    return 0.5 * (low + high)


@compiled
def arm_scores(rules, memory, scores):
    """The index of each action: an upper confidence bound of its mean reward; infinite without rewards."""
    total = 0.0
    for a in range(scores.size):
        total += memory.counts[a]
    if rules.score == KL_INDEX and rules.detector == NO_DETECTOR:
        # Without restarts or a window, all rounds; with a window, at most its length.
        total = memory.clock[2] if rules.window == 0 else min(memory.clock[2], rules.window)
    for a in range(scores.size):
        count = memory.counts[a]
        if count <= 0.0:
            scores[a] = np.inf
            continue
        mean = memory.sums[a] / count
        elapsed = memory.clock[0] - memory.starts[a] if rules.detector == LIKELIHOOD_RATIO else total
        level = math.log(max(elapsed, 1.0)) / count
        scores[a] = kl_bound(mean, level) if rules.score == KL_INDEX else mean + 2.0 * math.sqrt(rules.width * level)


@compiled
def highest_probs(scores, allowed, probs):
    """The same probability for all allowed actions with the highest score."""
    highest, n_highest = -np.inf, 0
    for a in range(scores.size):
        if allowed[a] and scores[a] >= highest:
            n_highest = n_highest + 1 if scores[a] == highest else 1
            highest = scores[a]
    for a in range(scores.size):
        probs[a] = 1.0 / n_highest if allowed[a] and scores[a] == highest else 0.0


@compiled
def arm_probs(rules, memory, rows, allowed, probs):
    """The probability of each action in the next round."""
    n_actions, n_allowed = probs.size, 0
    scores = np.empty(n_actions)
    for a in range(n_actions):
        n_allowed += allowed[a]
    if rules.score == SAMPLING:
        # Normal variables with the moments of Beta(1 + successes, 1 + failures).
        deviations = np.empty(n_actions)
        for a in range(n_actions):
            size = memory.counts[a] + 2.0
            scores[a] = min(max((memory.sums[a] + 1.0) / size, 0.0), 1.0)
            deviations[a] = math.sqrt(scores[a] * (1.0 - scores[a]) / (size + 1.0))
        thompson_probs(scores, deviations, allowed, probs)
        return
    if rules.score == WEIGHTS:
        weight = 0.0
        for a in range(n_actions):
            weight += memory.sums[a] if allowed[a] else 0.0
        for a in range(n_actions):
            probs[a] = (1.0 - rules.exploration) * memory.sums[a] / weight + rules.exploration / n_allowed
            probs[a] = probs[a] if allowed[a] else 0.0
        return
    exploration = rules.exploration
    if rules.growing:
        exploration *= math.sqrt(memory.clock[1] + 1.0)
    if rules.cyclic and exploration > 0.0:
        turn = int(memory.clock[0]) % max(int(n_actions / exploration), n_actions)
        if turn < n_actions and allowed[turn]:
            probs[:] = 0.0
            probs[turn] = 1.0
            return
        exploration = 0.0
    arm_scores(rules, memory, scores)
    highest_probs(scores, allowed, probs)
    if exploration > 0.0:
        for a in range(n_actions):
            probs[a] = (1.0 - exploration) * probs[a] + (exploration / n_allowed if allowed[a] else 0.0)


@compiled
def forget_arm(memory, action):
    """Restart one action."""
    memory.counts[action] = 0.0
    memory.sums[action] = 0.0
    memory.starts[action] = memory.clock[0]
    memory.walks[action] = 0.0


@compiled
def halves_differ(rules, memory, action, reward):
    """|Σ of the last w / 2 rewards - Σ of the w / 2 before them| > b, the test of M-UCB."""
    w = rules.window
    seen = int(memory.counts[action])
    recent = memory.history[action]
    recent[(seen - 1) % w] = reward
    if seen < w:
        return False
    difference = 0.0
    for i in range(w):
        value = recent[(seen + i) % w]
        difference += value if i >= w // 2 else -value
    return abs(difference) > rules.threshold


@compiled
def walk_is_high(rules, memory, action, reward):
    """Two-sided CUSUM: g ← max{0, g ± (r - u) - ε} for the mean u of the first M rewards; a change if g > h."""
    count, walk = memory.counts[action], memory.walks[action]
    if count == rules.warmup:
        walk[2] = memory.sums[action] / count
    elif count > rules.warmup:
        walk[0] = max(0.0, walk[0] + reward - walk[2] - rules.drift)
        walk[1] = max(0.0, walk[1] + walk[2] - reward - rules.drift)
    return max(walk[0], walk[1]) > rules.threshold


@compiled
def ratio_is_high(rules, memory, action):
    """max_s s kl(μ_1:s, μ_1:n) + (n - s) kl(μ_s+1:n, μ_1:n) > log(n^1.5 / δ), the Bernoulli likelihood ratio."""
    n, sums = int(memory.counts[action]), memory.history[action]
    if n > sums.size:
        return False
    sums[n - 1] = memory.sums[action]
    if n % TEST_EVERY != 0:
        return False
    total, bound = sums[n - 1], 1.5 * math.log(n) + rules.threshold
    for s in range(TEST_EVERY, n, TEST_EVERY):
        before, after = sums[s - 1] / s, (total - sums[s - 1]) / (n - s)
        ratio = s * bernoulli_divergence(before, total / n) + (n - s) * bernoulli_divergence(after, total / n)
        if ratio > bound:
            return True
    return False


@compiled
def arm_learn(rules, memory, row, action, propensity, reward):
    """Count a reward, in place, and restart if a change is detected."""
    reward = (reward - rules.low) / rules.span
    n_actions = memory.counts.size
    memory.clock[2] += 1.0
    if rules.score == WEIGHTS:
        # Exp3.S: w(a) ← w(a) exp(γ r / (K p(a))) + e α / K Σ w. Only ratios matter, so exp() is kept at most 1.
        power = rules.exploration * reward / (propensity * n_actions)
        kept = math.exp(-max(power, 0.0))
        total = 0.0
        for a in range(n_actions):
            grown = memory.sums[a] * (math.exp(min(power, 0.0)) if a == action else kept)
            memory.sums[a] = grown + math.e * rules.share_rate / n_actions * kept
            total += memory.sums[a]
        memory.sums[:] = memory.sums / total
        return
    if rules.discount < 1.0:
        memory.counts[:] = memory.counts * rules.discount
        memory.sums[:] = memory.sums * rules.discount
    if rules.window > 0 and rules.detector == NO_DETECTOR:
        place, actions, rewards = int(memory.clock[2] - 1.0) % rules.window, memory.history[0], memory.history[1]
        if memory.clock[2] > rules.window:
            memory.counts[int(actions[place])] -= 1.0
            memory.sums[int(actions[place])] -= rewards[place]
        actions[place], rewards[place] = action, reward
    for restart in rules.restarts:
        if memory.clock[0] == restart:
            forget_arm(memory, action)
    memory.counts[action] += 1.0
    memory.sums[action] += reward
    if rules.detector == HALVES and halves_differ(rules, memory, action, reward):
        memory.clock[1] += 1.0
        for a in range(n_actions):
            forget_arm(memory, a)
    elif (rules.detector == CUSUM and walk_is_high(rules, memory, action, reward)) or (
        rules.detector == LIKELIHOOD_RATIO and ratio_is_high(rules, memory, action)
    ):
        memory.clock[1] += 1.0
        forget_arm(memory, action)


@compiled
def arm_advance(rules, memory):
    """A round passes."""
    memory.clock[0] += 1.0


@compiled
def run_arms(rules, memory, rows, mask, uniforms, mean_rewards, rewards, actions, propensities, expected):
    """A chunk of rounds; ``memory`` changes in place."""
    probs = np.empty(mean_rewards.shape[1])
    for t in range(uniforms.size):
        arm_probs(rules, memory, rows[0], mask[t if mask.shape[0] > 1 else 0], probs)
        action = draw_action(probs, uniforms[t])
        actions[t], propensities[t], expected[t] = action, probs[action], probs @ mean_rewards[t]
        arm_learn(rules, memory, rows[0, 0], action, probs[action], rewards[t, action])
        arm_advance(rules, memory)
