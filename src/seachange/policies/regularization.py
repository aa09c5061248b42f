"""Regularization of softmax learners: how strongly, toward what; and what clipping costs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from seachange.errors import SeachangeWarning
from seachange.log.bandit_log import CHUNK_ROWS, BanditLog
from seachange.log.clusters import Clusters
from seachange.policies.objectives import Objective
from seachange.policies.softmax import SoftmaxPolicy
from seachange.protocols import Floats, Ints, Policy

# Probabilities held in memory at a time.
MAX_PROBS = 1 << 24
# Share of rewarded rounds that may be clipped without a warning.
MAX_CLIPPED_SHARE = 0.01


def logged_action_probs(log: BanditLog, policy: Policy, rounds: Ints | None = None, *, greedy: bool = False) -> Floats:
    """π(a_t | x_t) of every round, or of ``rounds``; ``greedy``: 1 if a_t is the most likely action of π, else 0."""
    found = []
    for part in log.chunk_slices(min(CHUNK_ROWS, max(MAX_PROBS // log.n_actions, 1))):
        chunk, here = log[part], np.arange(part.stop - part.start)
        if rounds is not None:
            here = rounds[slice(*np.searchsorted(rounds, (part.start, part.stop)))] - part.start
        if len(here) > 0:
            mask = None if chunk.action_mask is None else chunk.action_mask[here]
            probs, actions = policy.predict_proba(chunk.contexts[here], mask), chunk.actions[here]
            found.append(probs.argmax(axis=1) == actions if greedy else probs[np.arange(len(here)), actions])
    return np.concatenate(found).astype(np.float64) if found else np.empty(0)


def warn_about_clipping(log: BanditLog, counts: Floats, clip: float, stacklevel: int) -> None:
    """Warn if ``clip`` is often below 1 / p: then no policy gets full credit for those rounds."""
    rewards, propensities = log.arrays.rewards, log.arrays.propensities
    rewarded = (rewards != 0) & (counts > 0)
    clipped = rewarded & (clip * propensities < 1)
    share = int(clipped.sum()) / max(int(rewarded.sum()), 1)
    if share > MAX_CLIPPED_SHARE:
        worth = (counts * np.abs(rewards))[clipped]
        credit = clip * worth.sum() / (worth / propensities[clipped]).sum()
        warnings.warn(
            f"clip={clip:g} is below 1 / propensity in {share:.1%} of the rewarded rounds. A policy that always takes "
            f"those actions gets credit for only {credit:.1%} of what they earned. To clip nothing, use "
            f"clip={1 / float(propensities[rewarded].min()):.4g}.",
            SeachangeWarning,
            stacklevel=stacklevel,
        )


# Strengths to try, strongest first, as multiples of the squared relative standard error of the value.
STRENGTHS = (2000.0, 2.0)
MIN_L2 = 1e-6
# The surrogate's maximum takes actions in proportion to their rewards; the best policy is more decided.
STEEPER_THAN_SURROGATE = 4.0
# Blocks of time: the odd ones are one half of the log, the even ones the other.
BLOCKS = 10

Climb = Callable[[Objective, Floats], tuple[Floats, Any]]


def regularized(objective: Objective, start: Floats, strength: float) -> Objective:
    """``objective`` regularized toward ``start``: l2 = ``strength`` times its squared relative standard error there."""
    return objective.with_l2(max(strength * objective.relative_error(start) ** 2, MIN_L2)).centered_at(start)


def best_strength(objective: Objective, surrogate: Objective, start: Floats, climb: Climb) -> float:
    """The largest strength whose held-out value is within one standard error of the best.

    On each half of the log, maximize the surrogate (that of the whole log gave ``start``), then learn by inverse
    propensity scores from there, once per strength. The greedy policies are compared by the same scores on the other
    half.
    """
    log, weights = objective.log, objective.weights
    odd = Clusters(log).folds(BLOCKS, weights) % 2 == 1
    rewarded = np.flatnonzero((log.arrays.rewards != 0) & (weights > 0))
    earned = np.zeros((len(STRENGTHS), len(rewarded)))
    for half in (odd, ~odd):
        held_out = np.flatnonzero(~half[rewarded])
        if len(held_out) in (0, len(rewarded)):
            # One half has no rewards: nothing to compare.
            return STRENGTHS[0]
        scores = objective.reweighted(weights * half)
        own = scores.as_surrogate.with_l2(surrogate.l2).centered_at(surrogate.center)
        center = reached = STEEPER_THAN_SURROGATE * climb(own, start / STEEPER_THAN_SURROGATE)[0]
        for each, strength in enumerate(STRENGTHS):
            reached = climb(regularized(scores, center, strength), reached)[0]
            earned[each, held_out] = _scores(objective, reached, rewarded[held_out])
    gaps = earned.sum(axis=1).max() - earned.sum(axis=1)
    errors = np.sqrt(np.square(earned[np.argmin(gaps)] - earned).sum(axis=1))
    return STRENGTHS[int(np.argmax(gaps <= errors))]


def _scores(objective: Objective, coefs: Floats, rounds: Ints) -> Floats:
    """u min{M, π(a_t | x_t) / p_t} r_t of ``rounds``, π the greedy policy of ``coefs``."""
    log = objective.log
    probs = logged_action_probs(log, SoftmaxPolicy(coefs, log.joint), rounds, greedy=True)
    ratios = np.minimum(objective.clip, probs / log.arrays.propensities[rounds])
    return np.asarray(objective.weights[rounds] * ratios * log.arrays.rewards[rounds])
