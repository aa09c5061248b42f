"""Rejection sampling along a log: a deployment learns only from rounds that it could have produced itself.

Round t is accepted if u_t p_t < c π_t(a_t | x_t), u_t uniform: with c π / p ≤ 1 the accepted rounds are distributed as
those of the deployment. c is fixed (replay), or the smaller of c_max and a quantile of the p / π of earlier rounds
(DR-ns). A rejected round passes without a reward. The steps equal ``act`` and ``update`` to the bit.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.kernels.belief_updates import advance, exp4s_evidence, mix_advice
from seachange.kernels.compiler import compiled
from seachange.kernels.emission import reward_evidence, state_scores


class LoggedRounds(NamedTuple):
    """A chunk of a log, with the advice of the experts."""

    starts: npt.NDArray[np.bool_]  # (n,) whether a sequence starts
    advice: npt.NDArray[np.float64]  # (n, L, K)
    mask: npt.NDArray[np.bool_]  # (n or 1, K)
    actions: npt.NDArray[np.int64]  # (n,)
    rewards: npt.NDArray[np.float64]  # (n,)
    propensities: npt.NDArray[np.float64]  # (n,)
    uniforms: npt.NDArray[np.float64]  # (n,) u_t
    predicted_rewards: npt.NDArray[np.float64]  # (n or 1, K) r̂(x_t, a)
    beyond: npt.NDArray[np.float64]  # (n or 1, K) 1 if the log could not take an action, else 0


class Acceptance(NamedTuple):
    """The acceptance rate, and the p / π seen so far if the rate depends on them (else arrays of length 0)."""

    rate: npt.NDArray[np.float64]  # (1,) c
    highest: float  # c_max
    quantile: float  # q
    lower: npt.NDArray[np.float64]  # the ⌈q m⌉ smallest of m, negated, as a heap
    upper: npt.NDArray[np.float64]  # the others, as a heap
    sizes: npt.NDArray[np.int64]  # (2,) lengths of both heaps


class Followed(NamedTuple):
    """The choices of a deployment in the rounds of a log."""

    chosen: npt.NDArray[np.float64]  # (n,) π_t(a_t | x_t)
    direct: npt.NDArray[np.float64]  # (n,) Σ_a π_t(a | x_t) r̂(x_t, a)
    beyond: npt.NDArray[np.float64]  # (n,) the share of π_t on actions that the log could not take
    rates: npt.NDArray[np.float64]  # (n,) c
    accepted: npt.NDArray[np.bool_]  # (n,)


@compiled
def push(heap, size, value):
    """Add to the heap, whose smallest is first, in heap[:size]."""
    place = size
    while place > 0 and heap[(place - 1) // 2] > value:
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = value


@compiled
def pop(heap, size):
    """Take the smallest out of heap[:size]."""
    smallest, value, place = heap[0], heap[size - 1], 0
    while True:
        child = 2 * place + 1
        if child + 1 < size - 1 and heap[child + 1] < heap[child]:
            child += 1
        if child >= size - 1 or heap[child] >= value:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = value
    return smallest


@compiled
def include(lower, upper, sizes, quantile, value):
    """Add a value to those whose quantile is kept: the ⌈q m⌉ smallest of m are in ``lower``, negated."""
    if sizes[0] > 0 and value < -lower[0]:
        push(lower, sizes[0], -value)
        sizes[0] += 1
    else:
        push(upper, sizes[1], value)
        sizes[1] += 1
    wanted = max(1, int(np.ceil(quantile * (sizes[0] + sizes[1]))))
    while sizes[0] < wanted:
        push(lower, sizes[0], -pop(upper, sizes[1]))
        sizes[0] += 1
        sizes[1] -= 1
    while sizes[0] > wanted:
        push(upper, sizes[1], -pop(lower, sizes[0]))
        sizes[0] -= 1
        sizes[1] += 1


@compiled
def accept_round(t, belief, initial, past, acceptance, found, exploration, probs):
    """Whether round t is accepted for a deployment with this belief."""
    if past.starts[t]:
        belief[:] = initial
    mix_advice(belief, past.advice[t], exploration, past.mask[t if past.mask.shape[0] > 1 else 0], probs)
    return accept_choice(t, probs, past, acceptance, found)


@compiled
def accept_choice(t, probs, past, acceptance, found):
    """Whether round t is accepted. π_t(a_t), the expected reward of π_t, and c are written in either case."""
    action, propensity = past.actions[t], past.propensities[t]
    found.chosen[t], found.rates[t] = probs[action], acceptance.rate[0]
    predicted_rewards = past.predicted_rewards[t if past.predicted_rewards.shape[0] > 1 else 0]
    beyond = past.beyond[t if past.beyond.shape[0] > 1 else 0]
    for a in range(probs.size):
        found.direct[t] += probs[a] * predicted_rewards[a]
        found.beyond[t] += probs[a] * beyond[a]
    accepted = past.uniforms[t] * propensity < acceptance.rate[0] * probs[action]
    found.accepted[t] = accepted
    if acceptance.upper.size > 0:
        ratio = propensity / probs[action] if probs[action] > 0.0 else np.inf
        include(acceptance.lower, acceptance.upper, acceptance.sizes, acceptance.quantile, ratio)
        acceptance.rate[0] = min(acceptance.highest, -acceptance.lower[0])
    return accepted


@compiled
def follow_exp4s(belief, initial, past, acceptance, found, exploration, learning_rate, low, span, transition):
    """Exp4.S along a chunk of a log; ``belief`` and ``acceptance`` change in place, ``found`` is filled."""
    probs, scratch, evidence = np.empty(past.advice.shape[2]), np.empty(belief.size), np.empty(belief.size)
    for t in range(past.actions.size):
        evidence[:] = 1.0
        if accept_round(t, belief, initial, past, acceptance, found, exploration, probs):
            cost = 1.0 - (past.rewards[t] - low) / span
            exp4s_evidence(past.advice[t, :, past.actions[t]], found.chosen[t], cost, learning_rate, evidence)
        advance(belief, evidence, transition, scratch)


@compiled
def follow_posterior(belief, initial, past, acceptance, found, exploration, rows, coefs, variances, transition):
    """HMM posterior sampling along a chunk of a log; the same conventions."""
    probs, scores, evidence = np.empty(past.advice.shape[2]), np.empty(belief.size), np.empty(belief.size)
    for t in range(past.actions.size):
        evidence[:] = 1.0
        if accept_round(t, belief, initial, past, acceptance, found, exploration, probs):
            state_scores(rows[t if rows.shape[0] > 1 else 0], past.actions[t], coefs, scores)
            reward_evidence(scores, past.rewards[t], variances, evidence)
        advance(belief, evidence, transition, scores)


@compiled
def largest_ratios(advice, mask, exploration, actions, propensities, ratios):
    """ratios[t] = max over beliefs of π_t(a_t) / p_t, which a belief in a single state attains.

    Σ_z Q(z) π_z(a) / Σ_z Q(z) s_z ≤ max_z π_z(a) / s_z, with s_z the share of its advice on allowed actions.
    """
    probs, sure = np.empty(advice.shape[2]), np.ones(1)
    for t in range(actions.size):
        allowed = mask[t if mask.shape[0] > 1 else 0]
        for z in range(advice.shape[1]):
            mix_advice(sure, advice[t, z : z + 1], exploration, allowed, probs)
            ratios[t] = max(ratios[t], probs[actions[t]] / propensities[t])
