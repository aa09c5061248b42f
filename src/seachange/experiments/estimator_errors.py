"""How far estimators are from a value that is known, over runs, beside published figures."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from seachange.errors import SeachangeWarning
from seachange.evaluation.estimators import ValueEstimate, evaluate
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats

PLAIN = ("dm", "ips", "snips", "dr", "sndr")
TUNED = ("switch-dr", "dr-os")
# The settings that Open Bandit Pipeline's examples choose from, both of τ and of λ.
CANDIDATES = (10.0, 50.0, 100.0, 500.0, 1000.0, 5000.0, 10000.0, math.inf)
# One-sided, of the intervals that SLOPE compares, when the figures were published; newer versions have 0.1.
SLOPE_DELTA = 0.05
# Standard errors within which two figures are taken to be the same.
CLOSE = 3.0


@dataclass(frozen=True)
class Published:
    """A relative error in somebody's table."""

    mean: float
    std: float  # over runs


@dataclass(frozen=True)
class EstimatorResult:
    """One estimator's relative error |V̂ - V| / V over all runs."""

    estimator: str
    mean: float
    std: float  # over runs
    published: float
    published_std: float
    within: bool  # the means are at most three standard errors of their difference apart


def relative_errors(log: BanditLog, probs: Floats, modelled: Floats, value: float) -> dict[str, float]:
    """|V̂ - V| / V of every estimator for a policy (n, K) whose true value is V, with the reward model given."""
    with warnings.catch_warnings():
        # How wrong the numbers are is what is measured, also of those that we would refuse.
        warnings.simplefilter("ignore", SeachangeWarning)
        found = evaluate(log, probs, PLAIN, modelled=modelled, force=True)
        found += [chosen_by_slope(_over_candidates(log, probs, modelled, name), len(log)) for name in TUNED]
    return {estimate.estimator: abs(estimate.value - value) / value for estimate in found}


def chosen_by_slope(estimates: Sequence[ValueEstimate], n_rounds: int, delta: float = SLOPE_DELTA) -> ValueEstimate:
    """The setting with the narrowest interval such that it and all wider ones agree (Su et al. 2020, SLOPE).

    In order of falling width c_i = t_{1-δ} s_i: the last i for which every pair j < k ≤ i has
    |V̂_j - V̂_k| ≤ c_k + (√6 - 1) c_j, the constant of Tucker and Lee (2021).
    """
    reach = float(student.ppf(1 - delta, n_rounds - 1))
    wide = sorted(estimates, key=lambda estimate: -estimate.std_error)
    for i, narrow in enumerate(wide[1:], start=1):
        gaps = [abs(other.value - narrow.value) for other in wide[:i]]
        room = [reach * (narrow.std_error + (math.sqrt(6) - 1) * other.std_error) for other in wide[:i]]
        if any(gap > allowed for gap, allowed in zip(gaps, room, strict=True)):
            return wide[i - 1]
    return wide[-1]


def summarise(
    runs: Sequence[Mapping[str, float]], published: Mapping[str, Published], published_runs: int
) -> list[EstimatorResult]:
    """The table: our mean and spread of every estimator's error, and whether it is the published one."""
    results = []
    for name, theirs in published.items():
        errors = np.array([run[name] for run in runs])
        mean, std = float(errors.mean()), float(errors.std(ddof=1)) if len(errors) > 1 else 0.0
        error = math.sqrt(std**2 / len(errors) + theirs.std**2 / published_runs)
        within = abs(mean - theirs.mean) <= CLOSE * error
        results.append(EstimatorResult(name, mean, std, theirs.mean, theirs.std, within))
    return results


def _over_candidates(log: BanditLog, probs: Floats, modelled: Floats, name: str) -> list[ValueEstimate]:
    return [
        estimate
        for setting in CANDIDATES
        for estimate in evaluate(log, probs, (name,), modelled=modelled, switch=setting, shrinkage=setting, force=True)
    ]
