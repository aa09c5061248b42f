"""Linear bandit algorithms: E[r | x, a] = θ_b · f(x, a), with one θ per action or one for all; conventions as in rows.

A discount or a window makes them forget; a likelihood ratio of the errors makes them start again.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.kernels.arm_rounds import TEST_EVERY, highest_probs
from seachange.kernels.belief_updates import draw_action
from seachange.kernels.compiler import compiled
from seachange.kernels.thompson import thompson_probs


class LinearRules(NamedTuple):
    """The configuration of an algorithm."""

    samples: bool  # Thompson sampling; otherwise the highest upper confidence bound
    ridge: float  # λ
    noise: float  # σ
    bound: float  # S: the norm of θ is at most this
    failure: float  # δ: of the confidence bounds
    optimism: float  # α: bounds and deviations are multiplied by it
    discount: float  # γ
    window: int  # τ: rewards that count; 0: all
    threshold: float  # log(1 / δ) of the change detector; infinite: none
    exploration: float  # share of random choices


class LinearMemory(NamedTuple):
    """What an algorithm remembers."""

    grams: npt.NDArray[np.float64]  # (B, D, D) V = Σ γ^age f f' + λ I
    squares: npt.NDArray[np.float64]  # (B, D, D) Ṽ = Σ γ^(2 age) f f' + λ I
    moments: npt.NDArray[np.float64]  # (B, D) Σ γ^age r f
    coefs: npt.NDArray[np.float64]  # (B, D) V⁻¹ Σ γ^age r f
    spreads: npt.NDArray[np.float64]  # (B, D, D) V⁻¹ Ṽ V⁻¹
    history: npt.NDArray[np.float64]  # (w, D + 2) rounds of the window, or (1, w) sums of errors
    clock: npt.NDArray[np.float64]  # (2,) rewards so far, and since the last restart


@compiled
def confidence_width(rules, memory):
    """√λ S + σ √(2 log(1 / δ) + D log(1 + n / (λ D))), n = Σ γ^(2 age) (Russac, Vernade and Cappé 2019)."""
    n, size = memory.clock[0], memory.coefs.shape[1]
    if rules.window > 0:
        n = min(n, rules.window)
    if rules.discount < 1.0:
        n = (1.0 - rules.discount ** (2.0 * n)) / (1.0 - rules.discount**2)
    level = 2.0 * math.log(1.0 / rules.failure) + size * math.log(1.0 + n / (rules.ridge * size))
    return math.sqrt(rules.ridge) * rules.bound + rules.noise * math.sqrt(level)


@compiled
def linear_value(coef, spread, row):
    """θ · f and √(f' V⁻¹ Ṽ V⁻¹ f)."""
    mean, variance = 0.0, 0.0
    for i in range(row.size):
        mean += coef[i] * row[i]
        product = 0.0
        for j in range(row.size):
            product += spread[i, j] * row[j]
        variance += row[i] * product
    return mean, math.sqrt(max(variance, 0.0))


@compiled
def linear_probs(rules, memory, rows, allowed, probs):
    """The probability of each action in the next round."""
    n_allowed, scores, deviations = 0, np.empty(probs.size), np.empty(probs.size)
    width = rules.optimism * (rules.noise if rules.samples else confidence_width(rules, memory))
    for a in range(probs.size):
        b = a if memory.coefs.shape[0] > 1 else 0
        n_allowed += allowed[a]
        mean, deviation = linear_value(memory.coefs[b], memory.spreads[b], rows[a if rows.shape[0] > 1 else 0])
        deviations[a] = width * deviation
        scores[a] = mean if rules.samples else mean + deviations[a]
    if rules.samples:
        thompson_probs(scores, deviations, allowed, probs)
    else:
        highest_probs(scores, allowed, probs)
    for a in range(probs.size):
        share = rules.exploration / n_allowed if allowed[a] else 0.0
        probs[a] = (1.0 - rules.exploration) * probs[a] + share


@compiled
def refresh_block(memory, b, discounted):
    """θ and V⁻¹ Ṽ V⁻¹ of a block."""
    inverse = np.linalg.inv(memory.grams[b])
    memory.coefs[b] = inverse @ memory.moments[b]
    memory.spreads[b] = inverse @ memory.squares[b] @ inverse if discounted else inverse


@compiled
def add_round(memory, b, row, reward, sign):
    """Add a round to V, Ṽ and the moments of a block, or take it out."""
    for i in range(row.size):
        memory.moments[b, i] += sign * reward * row[i]
        for j in range(row.size):
            memory.grams[b, i, j] += sign * row[i] * row[j]
            memory.squares[b, i, j] += sign * row[i] * row[j]


@compiled
def add_and_refresh(memory, b, row, reward):
    """Add a round to a block without forgetting: V⁻¹ changes by -V⁻¹ f f' V⁻¹ / (1 + f' V⁻¹ f)."""
    add_round(memory, b, row, reward, 1.0)
    inverse = memory.spreads[b]
    product = inverse @ row
    scale = 1.0 / (1.0 + row @ product)
    for i in range(row.size):
        for j in range(row.size):
            inverse[i, j] -= scale * product[i] * product[j]
    memory.coefs[b] = inverse @ memory.moments[b]


@compiled
def forget_share(rules, memory):
    """Discount all rounds, but not the regularization."""
    for b in range(memory.grams.shape[0]):
        memory.grams[b] *= rules.discount
        memory.squares[b] *= rules.discount**2
        memory.moments[b] *= rules.discount
        for i in range(memory.coefs.shape[1]):
            memory.grams[b, i, i] += (1.0 - rules.discount) * rules.ridge
            memory.squares[b, i, i] += (1.0 - rules.discount**2) * rules.ridge


@compiled
def forget_all(rules, memory):
    """Start again, without any rounds."""
    memory.grams[:] = 0.0
    memory.moments[:] = 0.0
    memory.coefs[:] = 0.0
    memory.clock[:] = 0.0
    for b in range(memory.grams.shape[0]):
        for i in range(memory.coefs.shape[1]):
            memory.grams[b, i, i] = rules.ridge
    memory.squares[:] = memory.grams
    memory.spreads[:] = memory.grams / rules.ridge**2


@compiled
def errors_changed(rules, memory, error):
    """max_s (mean of the first s - mean of the others)² s (n - s) / (2 n) > log(n^1.5 / δ), for standardized errors."""
    n, sums = int(memory.clock[1]), memory.history[0]
    if n > sums.size:
        return False
    sums[n - 1] = error + (sums[n - 2] if n > 1 else 0.0)
    if n % TEST_EVERY != 0:
        return False
    bound = 1.5 * math.log(n) + rules.threshold
    for s in range(TEST_EVERY, n, TEST_EVERY):
        gap = sums[s - 1] / s - (sums[n - 1] - sums[s - 1]) / (n - s)
        if 0.5 * gap * gap * s * (n - s) / n > bound:
            return True
    return False


@compiled
def linear_learn(rules, memory, row, action, propensity, reward):
    """Count a reward, in place."""
    n_blocks, size = memory.coefs.shape
    b = action if n_blocks > 1 else 0
    mean, deviation = linear_value(memory.coefs[b], memory.spreads[b], row)
    memory.clock[0] += 1.0
    memory.clock[1] += 1.0
    if rules.window > 0:
        place = int(memory.clock[0] - 1.0) % rules.window
        oldest = memory.history[place]
        if memory.clock[0] > rules.window:
            add_round(memory, int(oldest[size]), oldest[:size], oldest[size + 1], -1.0)
            if int(oldest[size]) != b:
                refresh_block(memory, int(oldest[size]), False)
        oldest[:size], oldest[size], oldest[size + 1] = row, b, reward
        add_round(memory, b, row, reward, 1.0)
        refresh_block(memory, b, False)
    elif rules.discount < 1.0:
        forget_share(rules, memory)
        add_round(memory, b, row, reward, 1.0)
        for each in range(n_blocks):
            refresh_block(memory, each, True)
    else:
        add_and_refresh(memory, b, row, reward)
    if rules.threshold < np.inf:
        error = (reward - mean) / (rules.noise * math.sqrt(1.0 + deviation * deviation))
        if errors_changed(rules, memory, error):
            forget_all(rules, memory)


@compiled
def linear_advance(rules, memory):
    """A round passes."""


@compiled
def run_linear(rules, memory, rows, mask, uniforms, mean_rewards, rewards, actions, propensities, expected):
    """A chunk of rounds; ``memory`` changes in place."""
    probs = np.empty(mean_rewards.shape[1])
    for t in range(uniforms.size):
        features = rows[t if rows.shape[0] > 1 else 0]
        linear_probs(rules, memory, features, mask[t if mask.shape[0] > 1 else 0], probs)
        action = draw_action(probs, uniforms[t])
        actions[t], propensities[t], expected[t] = action, probs[action], probs @ mean_rewards[t]
        row = features[action if features.shape[0] > 1 else 0]
        linear_learn(rules, memory, row, action, probs[action], rewards[t, action])
        linear_advance(rules, memory)
