"""dLinUCB: several LinUCB models; those whose predictions fail are removed, and a new one starts if all of them do."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.kernels.belief_updates import draw_action
from seachange.kernels.compiler import compiled
from seachange.kernels.linear_rounds import (
    LinearMemory,
    LinearRules,
    add_and_refresh,
    confidence_width,
    forget_all,
    linear_probs,
    linear_value,
)


class MasterRules(NamedTuple):
    """The configuration."""

    linear: LinearRules
    margin: float  # η: noise that a prediction may miss a reward by
    doubt: float  # log(1 / δ₂) of the bounds of a model's badness
    slack: float  # δ̃: a new model starts if all are worse than their bound by this
    limit: float  # δ₁: models that are worse than their bound by this are removed


class MasterMemory(NamedTuple):
    """The models, and their latest failures."""

    grams: npt.NDArray[np.float64]  # (M, B, D, D); see ``LinearMemory`` for these
    squares: npt.NDArray[np.float64]  # (M, B, D, D)
    moments: npt.NDArray[np.float64]  # (M, B, D)
    coefs: npt.NDArray[np.float64]  # (M, B, D)
    spreads: npt.NDArray[np.float64]  # (M, B, D, D)
    clocks: npt.NDArray[np.float64]  # (M, 2)
    failures: npt.NDArray[np.float64]  # (M, τ) whether each of the last predictions failed
    seen: npt.NDArray[np.float64]  # (M,) rewards since a model started; negative: no model


@compiled
def model_of(memory, m):
    """One of the models."""
    return LinearMemory(
        memory.grams[m], memory.squares[m], memory.moments[m], memory.coefs[m], memory.spreads[m],
        memory.failures[:0], memory.clocks[m],
    )  # fmt: skip


@compiled
def badness(rules, memory, m):
    """The share of a model's latest predictions that failed, and its confidence bound."""
    n = min(memory.seen[m], memory.failures.shape[1])
    if n == 0:
        return 0.0, 0.5
    return memory.failures[m].sum() / n, math.sqrt(rules.doubt / (2.0 * n))


@compiled
def start_model(rules, memory):
    """Start a model in an empty place, or in that of the model with the fewest rewards."""
    place = 0
    for m in range(memory.seen.size):
        if memory.seen[m] < memory.seen[place]:
            place = m
    memory.seen[place] = 0.0
    memory.failures[place] = 0.0
    forget_all(rules.linear, model_of(memory, place))


@compiled
def master_probs(rules, memory, rows, allowed, probs):
    """The choice of the model whose badness has the lowest bound."""
    best, lowest = 0, np.inf
    for m in range(memory.seen.size):
        if memory.seen[m] >= 0.0:
            share, reach = badness(rules, memory, m)
            low = share - math.sqrt(math.log(memory.failures.shape[1])) * reach
            if low < lowest:
                best, lowest = m, low
    linear_probs(rules.linear, model_of(memory, best), rows, allowed, probs)


@compiled
def master_learn(rules, memory, row, action, propensity, reward):
    """Count a reward in every model that predicted it, and a failure in the others."""
    all_fail, n_models = True, 0
    for m in range(memory.seen.size):
        if memory.seen[m] < 0.0:
            continue
        model = model_of(memory, m)
        b = action if model.coefs.shape[0] > 1 else 0
        mean, deviation = linear_value(model.coefs[b], model.spreads[b], row)
        fails = abs(mean - reward) > confidence_width(rules.linear, model) * deviation + rules.margin
        if not fails:
            add_and_refresh(model, b, row, reward)
            model.clock[0] += 1.0
        memory.failures[m, int(memory.seen[m]) % memory.failures.shape[1]] = 1.0 if fails else 0.0
        memory.seen[m] += 1.0
        share, reach = badness(rules, memory, m)
        if share < reach + rules.slack:
            all_fail = False
        elif share >= reach + rules.limit:
            memory.seen[m] = -1.0
            continue
        n_models += 1
    if all_fail or n_models == 0:
        start_model(rules, memory)


@compiled
def master_advance(rules, memory):
    """A round passes."""


@compiled
def run_master(rules, memory, rows, mask, uniforms, mean_rewards, rewards, actions, propensities, expected):
    """A chunk of rounds; ``memory`` changes in place."""
    probs = np.empty(mean_rewards.shape[1])
    for t in range(uniforms.size):
        features = rows[t if rows.shape[0] > 1 else 0]
        master_probs(rules, memory, features, mask[t if mask.shape[0] > 1 else 0], probs)
        action = draw_action(probs, uniforms[t])
        actions[t], propensities[t], expected[t] = action, probs[action], probs @ mean_rewards[t]
        row = features[action if features.shape[0] > 1 else 0]
        master_learn(rules, memory, row, action, probs[action], rewards[t, action])
        master_advance(rules, memory)
