"""Can this log speak of a deployment that learns? What ``diagnose`` asks, and how many rounds it lived through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from seachange.errors import RefusedError
from seachange.evaluation.diagnostics import LEAST_EFFECTIVE, Diagnostics, diagnostics_of
from seachange.evaluation.support import Support
from seachange.evaluation.value_estimate import FEWEST
from seachange.kernels.adaptive import Followed
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats

# Fewer accepted rounds than this say too little of a deployment, as fewer effective rounds do of a policy.
LEAST_ACCEPTED = int(LEAST_EFFECTIVE)
# Quantiles that are offered where too few rounds are accepted.
READIER = (0.001, 0.01, 0.05, 0.1)
# What is offered would accept so many times the least: walks differ.
AMPLE = 1.5
# Actions that are named, at most.
NAMED = 5


class Offer(NamedTuple):
    """A setting that would accept more, and the c it would lead to."""

    words: str
    rate: float


def deployment_diagnostics(log: BanditLog, walks: list[Followed], offers: Sequence[Offer]) -> Diagnostics:
    """How the log bears on the deployment that was led along it.

    c_t w_t over the mean of c are its weights, which average 1 where the log took all that the deployment would do. A
    refusal for want of accepted rounds names the first offer that would cure it; none would where few rounds have all
    the weight. Raises where nothing can be forced.
    """
    weights = [walk.chosen / log.propensities for walk in walks]
    rate = float(np.mean([walk.rates.mean() for walk in walks]))
    counted = np.mean([walk.rates * w for walk, w in zip(walks, weights, strict=True)], axis=0) / rate
    beyond = float(np.mean([walk.beyond.mean() for walk in walks]))
    support = Support(counted, float(counted.max()), beyond, None if log.logging_probs is None else beyond)
    found = diagnostics_of(log, support, np.inf, clips=False)
    fewest = min(int(walk.accepted.sum()) for walk in walks)
    if fewest >= LEAST_ACCEPTED:
        return found
    helpful = offers if found.effective_samples >= LEAST_EFFECTIVE else ()
    reasons = (
        f"the deployment lived through {fewest} of {len(log):,} rounds, and needs at least {LEAST_ACCEPTED}: "
        f"{_cures(log, walks, weights, helpful)} would cure it",
        *found.refusals,
    )
    if fewest < FEWEST:
        raise RefusedError(f"no value: {'; '.join(reasons)}.")
    return replace(found, refusals=reasons)


def readier(weights: list[Floats], quantile: float, highest_rate: float) -> list[Offer]:
    """Settings of DR-ns that accept more than these."""
    ratios, offers = 1 / np.maximum(np.concatenate(weights), 1e-300), []
    for higher in (quantile, *(each for each in READIER if each > quantile)):
        rate = min(float(np.quantile(ratios, higher, method="inverted_cdf")), 1.0)
        freed = ['highest_rate="auto"'] if rate > highest_rate else []
        raised = [f"quantile={higher:g}, with beliefs that are less exact"] if higher > quantile else []
        offers += [Offer(" and ".join(freed + raised), rate)] if freed or raised else []
    return offers


def _cures(log: BanditLog, walks: list[Followed], weights: list[Floats], offers: Sequence[Offer]) -> str:
    """What would make enough rounds accepted."""
    enough = AMPLE * LEAST_ACCEPTED
    taken = float(np.mean([walk.accepted.sum() for walk in walks]))
    cures = [
        offer.words for offer in offers if np.mean([np.minimum(offer.rate * w, 1).sum() for w in weights]) >= enough
    ][:1]
    if taken > 0:
        cures.append(f"a log of some {enough / taken * len(log):,.0f} rounds like these")
    return " or ".join(cures) or f"a deployment that takes actions which the log took{_never_taken(log)}"


def _never_taken(log: BanditLog) -> str:
    never = np.flatnonzero(np.bincount(log.arrays.actions, minlength=log.n_actions) == 0)
    more = f" and {len(never) - NAMED} more" if len(never) > NAMED else ""
    return f" (never {', '.join(log.action_names[i] for i in never[:NAMED])}{more})" if len(never) else ""
