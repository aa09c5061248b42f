"""What each state's policy does: how often it takes each action, and which features it responds to."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from seachange.log.bandit_log import BanditLog
from seachange.log.features import Category, Hashed
from seachange.policies.per_state import PolicySet
from seachange.policies.softmax import SoftmaxPolicy
from seachange.policies.tabular import TabularPolicy
from seachange.protocols import Floats, Ints

# Averages over contexts use at most this many rounds, and fewer if there are many actions.
MOST_ROWS, MOST_ENTRIES = 10_000, 2_000_000
# Effects shown per state, the smallest one shown, rounds they are averaged over, and features tried.
MOST_EFFECTS, LEAST_EFFECT, MOST_EFFECT_ROWS, MOST_FEATURES = 6, 0.01, 1000, 40


@dataclass(frozen=True)
class Effect:
    """How much more often a policy takes an action if a feature is high than if it is low."""

    state: int
    action: str | None  # None: any action, if features belong to actions
    feature: str
    effect: float  # difference in probability
    unit: str  # from 0 to 1, or from one standard deviation below the mean to one above


@dataclass(frozen=True, eq=False)
class PolicySummary:
    """The policies of all states on the contexts of a log."""

    action_names: tuple[str, ...]
    probs: Floats  # (L, K) mean over rounds
    logging: Floats  # (K,) share of rounds in which the log took each action
    effects: tuple[Effect, ...]  # of each state, the largest first
    n_situations: int | None  # rows of the table, if policies are tables
    n_sampled: int  # rounds the means are taken over
    n_effect_rows: int  # rounds the effects are averaged over
    learned_from: tuple[int, ...]  # (L,) rounds each policy was learned from


def summarize_policies(log: BanditLog, policies: PolicySet, learned_from: Ints) -> PolicySummary:
    """Means over rounds spread evenly over ``log``; ``learned_from`` (L,) is stored beside them."""
    most = max(min(MOST_ROWS, MOST_ENTRIES // (len(policies) * log.n_actions)), 1)
    part, first = log.take(_spread_evenly(len(log), most)), policies[0]
    return PolicySummary(
        action_names=log.action_names,
        probs=np.asarray(policies.advice(part.contexts, part.action_mask).mean(axis=0)),
        logging=np.bincount(log.actions, minlength=log.n_actions) / len(log),
        effects=_effects(part, policies),
        n_situations=len(first.contexts) if isinstance(first, TabularPolicy) else None,
        n_sampled=len(part),
        n_effect_rows=len(_spread_evenly(len(part), MOST_EFFECT_ROWS)),
        learned_from=tuple(learned_from.tolist()),
    )


def _spread_evenly(n: int, most: int) -> Ints:
    """At most ``most`` of ``n`` rounds."""
    return np.arange(0, n, -(-n // most))


def _effects(part: BanditLog, policies: PolicySet) -> tuple[Effect, ...]:
    """How much more often a policy takes an action if a feature is high than if it is low, all else unchanged.

    Tables are skipped: they have no answer for contexts they have not seen.
    """
    crossed = part.features is not None and part.features.crossed  # an action's features cannot vary one by one
    if part.joint.kind == "none" or crossed or not all(isinstance(policy, SoftmaxPolicy) for policy in policies):
        return ()
    siblings = _siblings(part)
    part = part.take(_spread_evenly(len(part), MOST_EFFECT_ROWS))
    flat = part.contexts.reshape(-1, part.joint.n_features)
    binary, spreads = ((flat == 0) | (flat == 1)).all(axis=0), flat.std(axis=0)
    low, high = (np.where(binary, end, flat.mean(axis=0) + sign * spreads) for end, sign in ((0.0, -1), (1.0, 1)))
    features = _candidates(policies, spreads).tolist()
    tables = {i: _effect_of(part, policies, i, (low[i], high[i]), siblings[i]) for i in features}
    found: list[Effect] = []
    for state in range(len(policies)):
        mine = [(i, block, float(e)) for i, table in tables.items() for block, e in enumerate(table[state])]
        for i, block, effect in sorted(mine, key=lambda each: -abs(each[2]))[:MOST_EFFECTS]:
            if abs(effect) >= LEAST_EFFECT:
                action = part.action_names[block] if part.joint.kind == "shared" else None
                unit = "0 to 1" if binary[i] else "standard deviation"
                found.append(Effect(state, action, part.context_names[i], effect, unit))
    return tuple(found)


def _candidates(policies: PolicySet, spreads: Floats) -> Ints:
    """The features whose coefficients differ most between actions in some state, without constant features."""
    coefs = np.stack([policy.coefs for policy in policies])[:, :, : len(spreads)]  # type: ignore[attr-defined]
    apart = np.abs(coefs).max(axis=1) if coefs.shape[1] == 1 else coefs.std(axis=1)
    sizes = (apart / np.maximum(apart.max(axis=1, keepdims=True), 1e-300)).max(axis=0) * spreads
    order = np.argsort(-sizes, kind="stable")[:MOST_FEATURES]
    return np.asarray(order[sizes[order] > 0])


def _siblings(part: BanditLog) -> list[list[int]]:
    """For every feature, those it excludes: the other values of its category, and that the value is missing."""
    found: list[list[int]] = [[] for _ in part.context_names]
    first = 0
    for feature in () if part.features is None else part.features.pool or part.features.shared:
        columns = range(first, first + len(feature.names))
        if isinstance(feature, Category | Hashed) and not feature.several:
            for column in columns:
                found[column] = [other for other in columns if other != column]
        first += len(feature.names)
    return found


def _effect_of(part: BanditLog, policies: PolicySet, feature: int, ends: Any, siblings: list[int]) -> Floats:
    """(L, K) how much more often each action is taken at the second of two ``ends`` than at the first.

    (L, 1) if features belong to actions: how much more often an action is taken if its own feature is high. Values of a
    category exclude each other: rounds with another value are given this one and compared with what they were.
    """
    if siblings and part.joint.kind == "shared":
        contexts = part.contexts[part.contexts[:, feature] == 0].copy()
        if not len(contexts):
            return np.zeros((len(policies), part.n_actions))
        before = policies.advice(contexts).mean(axis=0)
        contexts[:, siblings], contexts[:, feature] = 0.0, 1.0
        return np.asarray(policies.advice(contexts).mean(axis=0) - before)
    taken, shared, rows = [], part.joint.kind == "shared", np.arange(len(part))
    own = (rows * part.n_actions) // len(part)
    for end in ends:
        contexts = part.contexts.copy()
        contexts[(rows, feature) if shared else (rows, own, feature)] = end
        probs = policies.advice(contexts, part.action_mask)
        taken.append(probs.mean(axis=0) if shared else probs[rows, :, own].mean(axis=0)[:, None])
    return np.asarray(taken[1] - taken[0])
