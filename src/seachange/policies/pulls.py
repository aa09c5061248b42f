"""How strongly a policy is drawn to the surrogate's: as strongly as costs nothing on the other half of the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seachange.log.clusters import Clusters
from seachange.policies.chosen import chosen_probs
from seachange.policies.objectives import Objective
from seachange.policies.softmax import SoftmaxPolicy
from seachange.protocols import Floats, Ints

# Pulls that are tried, the strongest first: so many times the squared relative standard error of the value.
PULLS = (2000.0, 2.0)
LEAST_PULL = 1e-6
# The surrogate takes actions as often as they are rewarded; the best policy takes the best one more often.
STEEPER_THAN_SURROGATE = 4.0
# Blocks of time, of which one half is the odd ones, the other the even.
BLOCKS = 10

Climb = Callable[[Objective, Floats], tuple[Floats, Any]]


def pull_to(objective: Objective, start: Floats, pull: float) -> Objective:
    """``objective`` drawn to ``start``, ``pull`` times the squared relative standard error of its value there."""
    return objective.pulled(max(pull * objective.relative_error(start) ** 2, LEAST_PULL)).drawn_to(start)


def pull_that_pays(objective: Objective, surrogate: Objective, start: Floats, climb: Climb) -> float:
    """The strongest pull that earns as much as any other, to a standard error, where it was not learned.

    Each half of the log has a maximum of the surrogate of its own (the whole log's gave ``start``), and from there come
    policies by inverse propensity scores, one a pull. Their greedy actions are judged by the same scores on the other
    half.
    """
    log, weights = objective.log, objective.weights
    odd = Clusters(log).folds(BLOCKS, weights) % 2 == 1
    rewarded = np.flatnonzero((log.arrays.rewards != 0) & (weights > 0))
    earned = np.zeros((len(PULLS), len(rewarded)))
    for half in (odd, ~odd):
        judged = np.flatnonzero(~half[rewarded])
        if len(judged) in (0, len(rewarded)):
            # A half without rewards teaches nothing.
            return PULLS[0]
        scores = objective.counting(weights * half)
        own = scores.as_surrogate.pulled(surrogate.l2).drawn_to(surrogate.centre)
        centre = reached = STEEPER_THAN_SURROGATE * climb(own, start / STEEPER_THAN_SURROGATE)[0]
        for each, pull in enumerate(PULLS):
            reached = climb(pull_to(scores, centre, pull), reached)[0]
            earned[each, judged] = _scores(objective, reached, rewarded[judged])
    behind = earned.sum(axis=1).max() - earned.sum(axis=1)
    errors = np.sqrt(np.square(earned[np.argmin(behind)] - earned).sum(axis=1))
    return PULLS[int(np.argmax(behind <= errors))]


def _scores(objective: Objective, coefs: Floats, rounds: Ints) -> Floats:
    """u min{M, π(a_t | x_t) / p_t} r_t of ``rounds``, π the greedy policy of ``coefs``."""
    log = objective.log
    probs = chosen_probs(log, SoftmaxPolicy(coefs, log.joint), rounds, greedy=True)
    ratios = np.minimum(objective.clip, probs / log.arrays.propensities[rounds])
    return np.asarray(objective.weights[rounds] * ratios * log.arrays.rewards[rounds])
