"""Deployments that hold a belief over states: one round, and whole horizons of rounds."""

import numpy as np

from seachange.kernels.compiler import compiled
from seachange.kernels.emission import LARGEST, reward_evidence, state_scores


@compiled
def mix_advice(belief, advice, exploration, allowed, probs):
    """probs(a) ∝ (1 - γ) Σ_z Q(z) π_z(a) + γ / (number of actions allowed), over the actions that are."""
    n_allowed = 0
    advised = 0.0
    for a in range(probs.size):
        probs[a] = 0.0
        if allowed[a]:
            n_allowed += 1
            for z in range(belief.size):
                probs[a] += belief[z] * advice[z, a]
            advised += probs[a]
    # Experts that ignore masks may give all allowed actions a probability of 0: then the choice is uniform.
    kept = (1.0 - exploration) / advised if advised > 0.0 else 0.0
    share = (exploration if advised > 0.0 else 1.0) / n_allowed
    for a in range(probs.size):
        if allowed[a]:
            probs[a] = kept * probs[a] + share


@compiled
def draw_action(probs, uniform):
    """The first action of positive probability whose cumulative probability exceeds ``uniform``."""
    cumulative = 0.0
    last = 0
    for a in range(probs.size):
        if probs[a] > 0.0:
            last = a
            cumulative += probs[a]
            if uniform < cumulative:
                return a
    return last


@compiled
def decide(belief, advice, exploration, allowed, uniform, probs):
    """Mix the advice into ``probs`` and draw an action."""
    mix_advice(belief, advice, exploration, allowed, probs)
    return draw_action(probs, uniform)


@compiled
def exp4s_evidence(column, propensity, cost, learning_rate, evidence):
    """exp(-η c̃(z)) up to a factor, with c̃(z) = π_z(a) cost / 𝓔(a)."""
    scale = min(max(-learning_rate * cost / propensity, -LARGEST), LARGEST)
    # The best expert gets 1, so that exp() stays in range for any cost.
    highest = scale * column[0]
    for z in range(column.size):
        highest = max(highest, scale * column[z])
    for z in range(column.size):
        evidence[z] = np.exp(scale * column[z] - highest)


@compiled
def is_finite(array):
    """Whether all entries are finite."""
    return np.isfinite(array).all()


@compiled
def is_distribution(probs):
    """Whether no entry is negative or NaN, and the sum is 1 up to rounding."""
    total = 0.0
    for i in range(probs.size):
        if not probs[i] >= 0.0:
            return False
        total += probs[i]
    return abs(total - 1.0) <= 1e-6


@compiled
def is_evidence(evidence):
    """Whether all entries are finite and not negative, and one is positive."""
    highest = 0.0
    for z in range(evidence.size):
        if not 0.0 <= evidence[z] < np.inf:
            return False
        highest = max(highest, evidence[z])
    return highest > 0.0


@compiled
def weigh(belief, evidence, weighed):
    """weighed(z) ∝ Q(z) evidence(z); return Σ_z Q(z) evidence(z)."""
    total = 0.0
    for z in range(belief.size):
        weighed[z] = belief[z] * evidence[z]
        total += weighed[z]
    inverse = 1.0 / total
    for z in range(belief.size):
        weighed[z] *= inverse
    return total


@compiled
def move(weighed, transition, belief):
    """belief(z') = Σ_z weighed(z) Φ(z, z')."""
    for j in range(belief.size):
        moved = 0.0
        for i in range(belief.size):
            moved += weighed[i] * transition[i, j]
        belief[j] = moved


@compiled
def advance(belief, evidence, transition, scratch):
    """Weight the belief by the evidence, then apply the transition; in place."""
    weigh(belief, evidence, scratch)
    move(scratch, transition, belief)


@compiled
def replay(belief, evidences, transition):
    """``belief`` after rounds with these (m, L) evidences, in place."""
    scratch = np.empty(belief.size)
    for t in range(evidences.shape[0]):
        advance(belief, evidences[t], transition, scratch)


@compiled
def logged_exp4s_evidence(advice, actions, propensities, rewards, learning_rate, low, span, evidences):
    """Write the evidence of logged rewards to ``evidences`` (n, L), which stays as it is if a reward is NaN."""
    for t in range(actions.size):
        if not np.isnan(rewards[t]):
            cost = 1.0 - (rewards[t] - low) / span
            exp4s_evidence(advice[t, :, actions[t]], propensities[t], cost, learning_rate, evidences[t])


@compiled
def logged_posterior_evidence(rows, actions, rewards, coefs, variances, evidences):
    """The same under an HMM."""
    scores = np.empty(coefs.shape[0])
    for t in range(actions.size):
        if not np.isnan(rewards[t]):
            state_scores(rows[t if rows.shape[0] > 1 else 0], actions[t], coefs, scores)
            reward_evidence(scores, rewards[t], variances, evidences[t])


@compiled
def take_round(
    t, belief, starts, initial, advice, exploration, mask, uniforms, mean_rewards, probs, beliefs, actions,
    propensities, expected,
):  # fmt: skip
    """Draw round t's action; write the belief, the action, its propensity and Σ_a probs(a) μ_t(a)."""
    if starts[t]:
        belief[:] = initial
    beliefs[t] = belief
    experts = advice[t if advice.shape[0] > 1 else 0]
    mix_advice(belief, experts, exploration, mask[t if mask.shape[0] > 1 else 0], probs)
    action = draw_action(probs, uniforms[t])
    actions[t] = action
    propensities[t] = probs[action]
    for a in range(probs.size):
        expected[t] += probs[a] * mean_rewards[t, a]
    return action


@compiled
def run_exp4s(
    belief, starts, initial, advice, mask, uniforms, mean_rewards, rewards, exploration, learning_rate, low, span,
    transition, beliefs, actions, propensities, expected,
):  # fmt: skip
    """Exp4.S over a chunk of rounds; ``belief`` changes in place, ``beliefs[t]`` is the belief that decided round t.

    In rounds with ``starts``, the deployment begins anew from the belief ``initial``. A reward that is NaN is missing.
    """
    probs, evidence, scratch = np.empty(mean_rewards.shape[1]), np.empty(belief.size), np.empty(belief.size)
    for t in range(uniforms.size):
        action = take_round(
            t, belief, starts, initial, advice, exploration, mask, uniforms, mean_rewards, probs, beliefs, actions,
            propensities, expected,
        )  # fmt: skip
        # A cost of 0 is evidence of 1 for every expert.
        cost = 0.0 if np.isnan(rewards[t, action]) else 1.0 - (rewards[t, action] - low) / span
        column = advice[t if advice.shape[0] > 1 else 0, :, action]
        exp4s_evidence(column, probs[action], cost, learning_rate, evidence)
        advance(belief, evidence, transition, scratch)


@compiled
def run_posterior(
    belief, starts, initial, advice, mask, uniforms, mean_rewards, rewards, exploration, rows, coefs, variances,
    transition, beliefs, actions, propensities, expected,
):  # fmt: skip
    """HMM posterior sampling over a chunk of rounds; the same conventions."""
    probs, evidence, scratch = np.empty(mean_rewards.shape[1]), np.empty(belief.size), np.empty(belief.size)
    scores = np.empty(belief.size)
    for t in range(uniforms.size):
        action = take_round(
            t, belief, starts, initial, advice, exploration, mask, uniforms, mean_rewards, probs, beliefs, actions,
            propensities, expected,
        )  # fmt: skip
        state_scores(rows[t if rows.shape[0] > 1 else 0], action, coefs, scores)
        reward = rewards[t, action]
        if np.isnan(reward):
            # With scores of 0, an infinite reward is evidence of 1 for every state.
            reward, scores[:] = np.inf, 0.0
        reward_evidence(scores, reward, variances, evidence)
        advance(belief, evidence, transition, scratch)
