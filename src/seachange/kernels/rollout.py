"""Whole-horizon deployments, one step kernel a deployer. The steps are those of ``act`` and ``update``, to the bit."""

from __future__ import annotations

import numpy as np

from seachange.kernels.belief import advance, draw_action, exp4s_evidence, mix_advice
from seachange.kernels.compiler import compiled
from seachange.kernels.emission import reward_evidence, state_scores


@compiled
def take_round(t, belief, advice, exploration, mask, uniforms, mean_rewards, probs, actions, propensities, expected):
    """Draw round t's action; write it, its propensity and Σ_a probs(a) μ_t(a)."""
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
    belief, advice, mask, uniforms, mean_rewards, rewards, exploration, learning_rate, low, span, transition,
    beliefs, actions, propensities, expected,
):  # fmt: skip
    """Exp4.S over a chunk of rounds; ``belief`` is moved in place, ``beliefs[t]`` is what round t was decided with."""
    probs, evidence, scratch = np.empty(mean_rewards.shape[1]), np.empty(belief.size), np.empty(belief.size)
    column = np.empty(belief.size)
    for t in range(uniforms.size):
        beliefs[t] = belief
        action = take_round(
            t, belief, advice, exploration, mask, uniforms, mean_rewards, probs, actions, propensities, expected
        )
        cost = 1.0 - (rewards[t, action] - low) / span
        for z in range(belief.size):
            column[z] = advice[t if advice.shape[0] > 1 else 0, z, action]
        exp4s_evidence(column, probs[action], cost, learning_rate, evidence)
        advance(belief, evidence, transition, scratch)


@compiled
def run_posterior(
    belief, advice, mask, uniforms, mean_rewards, rewards, exploration, rows, coefs, variances, transition,
    beliefs, actions, propensities, expected,
):  # fmt: skip
    """HMM posterior sampling over a chunk of rounds; the same conventions."""
    probs, evidence, scratch = np.empty(mean_rewards.shape[1]), np.empty(belief.size), np.empty(belief.size)
    scores = np.empty(belief.size)
    for t in range(uniforms.size):
        beliefs[t] = belief
        action = take_round(
            t, belief, advice, exploration, mask, uniforms, mean_rewards, probs, actions, propensities, expected
        )
        state_scores(rows[t if rows.shape[0] > 1 else 0], action, coefs, scores)
        reward_evidence(scores, rewards[t, action], variances, evidence)
        advance(belief, evidence, transition, scratch)


@compiled
def run_fixed(belief, advice, mask, uniforms, mean_rewards, exploration, actions, propensities, expected):
    """A deployment that never changes its mind."""
    probs = np.empty(mean_rewards.shape[1])
    for t in range(uniforms.size):
        take_round(t, belief, advice, exploration, mask, uniforms, mean_rewards, probs, actions, propensities, expected)
