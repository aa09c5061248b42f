"""What each state's policy does: how often it takes which action, and which features move it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seachange.log.bandit_log import BanditLog
from seachange.log.features import Category, Hashed
from seachange.policies.per_state import PolicySet
from seachange.policies.softmax import SoftmaxPolicy
from seachange.policies.tabular import TabularPolicy
from seachange.protocols import Floats, Ints

# Averages over contexts are taken over so many rounds at most, and fewer where there are many actions.
MOST_ROWS, MOST_ENTRIES = 10_000, 2_000_000
# Effects of a state that are told, the least that is worth it, rounds that they are means of, features that are asked.
MOST_EFFECTS, LEAST_EFFECT, MOST_MOVED, MOST_ASKED = 6, 0.01, 1000, 40


@dataclass(frozen=True)
class Effect:
    """How much more often a policy takes an action where a feature is high than where it is low."""

    state: int
    action: str | None  # None: of any action, where features belong to actions
    feature: str
    effect: float  # difference of probabilities
    unit: str  # from 0 to 1, or from a standard deviation below the mean to one above


@dataclass(frozen=True, eq=False)
class PolicySummary:
    """The policies of all states on the contexts of a log."""

    action_names: tuple[str, ...]
    probs: Floats  # (L, K) mean over rounds
    logging: Floats  # (K,) share of rounds in which the log took each action
    effects: tuple[Effect, ...]  # of each state, the largest first
    n_situations: int | None  # rows of a table, where policies are tables
    n_sampled: int  # rounds that the means are of
    n_moved: int  # rounds that the effects are means of
    learned_from: tuple[int, ...]  # (L,) rounds of its state that each policy was learned from


def summarise_policies(log: BanditLog, policies: PolicySet, learned_from: Ints) -> PolicySummary:
    """Means over rounds that are spread evenly over ``log``; ``learned_from`` (L,) is told beside them."""
    most = max(min(MOST_ROWS, MOST_ENTRIES // (len(policies) * log.n_actions)), 1)
    rounds = _spread_evenly(len(log), most)
    part = log.take(rounds)
    probs = policies.advice(part.contexts, part.action_mask).mean(axis=0)
    first = policies[0]
    return PolicySummary(
        action_names=log.action_names,
        probs=np.asarray(probs),
        logging=np.bincount(log.actions, minlength=log.n_actions) / len(log),
        effects=_effects(part, policies),
        n_situations=len(first.contexts) if isinstance(first, TabularPolicy) else None,
        n_sampled=len(rounds),
        n_moved=len(_spread_evenly(len(rounds), MOST_MOVED)),
        learned_from=tuple(learned_from.tolist()),
    )


def _spread_evenly(n: int, most: int) -> Ints:
    """At most so many of ``n`` rounds."""
    return np.arange(0, n, -(-n // most))


def _effects(part: BanditLog, policies: PolicySet) -> tuple[Effect, ...]:
    """How much more often a policy takes an action where a feature is high than where it is low, all else as it is.

    Tables are not asked: of contexts that they have not seen they know nothing.
    """
    crossed = part.features is not None and part.features.crossed  # no feature of an action moves by itself there
    if part.joint.kind == "none" or crossed or not all(isinstance(policy, SoftmaxPolicy) for policy in policies):
        return ()
    siblings = _siblings(part)
    part = part.take(_spread_evenly(len(part), MOST_MOVED))
    flat = part.contexts.reshape(-1, part.joint.n_features)
    binary, spreads = ((flat == 0) | (flat == 1)).all(axis=0), flat.std(axis=0)
    low, high = (np.where(binary, end, flat.mean(axis=0) + sign * spreads) for end, sign in ((0.0, -1), (1.0, 1)))
    moved = {
        i: _moved(part, policies, i, low[i], high[i], siblings[i]) for i in _worth_asking(policies, spreads).tolist()
    }
    found: list[Effect] = []
    for state in range(len(policies)):
        mine = [(i, block, float(e)) for i, table in moved.items() for block, e in enumerate(table[state])]
        for i, block, effect in sorted(mine, key=lambda each: -abs(each[2]))[:MOST_EFFECTS]:
            if abs(effect) >= LEAST_EFFECT:
                action = part.action_names[block] if part.joint.kind == "shared" else None
                unit = "0 to 1" if binary[i] else "standard deviation"
                found.append(Effect(state, action, part.context_names[i], effect, unit))
    return tuple(found)


def _worth_asking(policies: PolicySet, spreads: Floats) -> Ints:
    """The features whose coefficients differ most between actions in some state; those that never vary move nothing."""
    coefs = np.stack([policy.coefs for policy in policies])[:, :, : len(spreads)]  # type: ignore[attr-defined]
    apart = np.abs(coefs).max(axis=1) if coefs.shape[1] == 1 else coefs.std(axis=1)
    sizes = (apart / np.maximum(apart.max(axis=1, keepdims=True), 1e-300)).max(axis=0) * spreads
    order = np.argsort(-sizes, kind="stable")[:MOST_ASKED]
    return np.asarray(order[sizes[order] > 0])


def _siblings(part: BanditLog) -> list[list[int]]:
    """For every feature, those that cannot be 1 with it: the other values of a category, and that it is missing."""
    spec = part.features
    found: list[list[int]] = [[] for _ in part.context_names]
    if spec is None:
        return found
    first = 0
    for feature in spec.pool or spec.shared:
        places = range(first, first + len(feature.names))
        if isinstance(feature, Category | Hashed) and not feature.several:
            for place in places:
                found[place] = [other for other in places if other != place]
        first += len(feature.names)
    return found


def _moved(
    part: BanditLog, policies: PolicySet, feature: int, low: float, high: float, siblings: Sequence[int]
) -> Floats:
    """(L, K) how much more often each action is taken at ``high`` than at ``low``.

    (L, 1) where features belong to actions: how much more often an action is taken whose own feature is high. Values of
    a category exclude each other: rounds that have another value are given this one, and compared with what they were.
    """
    if siblings and part.joint.kind == "shared":
        contexts = part.contexts[part.contexts[:, feature] == 0].copy()
        if not len(contexts):
            return np.zeros((len(policies), part.n_actions))
        before = policies.advice(contexts).mean(axis=0)
        contexts[:, siblings], contexts[:, feature] = 0.0, 1.0
        return np.asarray(policies.advice(contexts).mean(axis=0) - before)
    ends = []
    shared, places = part.joint.kind == "shared", np.arange(len(part))
    mine = (places * part.n_actions) // len(part)
    for end in (low, high):
        contexts = part.contexts.copy()
        contexts[(places, feature) if shared else (places, mine, feature)] = end
        probs = policies.advice(contexts, part.action_mask)
        ends.append(probs.mean(axis=0) if shared else probs[places, :, mine].mean(axis=0)[:, None])
    return np.asarray(ends[1] - ends[0])
