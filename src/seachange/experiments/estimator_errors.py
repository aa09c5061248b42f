"""Relative errors of estimators, measured as in Open Bandit Pipeline's examples."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from seachange.errors import SeachangeWarning
from seachange.evaluation.estimators import ValueEstimate, evaluate
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats, Ints

# The settings of the published tables.
STRENGTH, ITERATIONS = 100.0, 10_000
FOLDS, FOLD_SEED = 3, 12345


def logistic_regression() -> LogisticRegression:
    """The classifier of the published tables, used for reward models and policies."""
    return LogisticRegression(C=STRENGTH, max_iter=ITERATIONS)


def cross_fitted_rewards(
    contexts: Floats, action_features: Floats, actions: Ints, rewards: Floats, positions: Ints | None = None
) -> Floats:
    """r̂(x_t, a) (n, K) = σ(u'x_t + v'g_a + c), fitted on the folds without round t.

    ``action_features`` (K, e) are the g_a. Each of the ``positions``, if given, has its own fit.
    """
    predicted = np.empty((len(actions), len(action_features)))
    places = np.zeros(len(actions), dtype=np.int64) if positions is None else positions
    joint = np.concatenate([contexts, action_features[actions]], axis=1)
    for known, held_out in KFold(FOLDS, shuffle=True, random_state=FOLD_SEED).split(joint):
        for place in np.unique(places):
            fit, asked = known[places[known] == place], held_out[places[held_out] == place]
            predicted[asked] = _predict(joint[fit], rewards[fit], contexts[asked], action_features)
    return predicted


def _predict(joint: Floats, rewards: Floats, contexts: Floats, action_features: Floats) -> Floats:
    if rewards.min() == rewards.max():
        return np.full((len(contexts), len(action_features)), rewards[0])
    model = logistic_regression().fit(joint, rewards)
    coefs, width = model.coef_[0], contexts.shape[1]
    shared = contexts @ coefs[:width] + model.intercept_[0]
    scores: Floats = expit(shared[:, None] + action_features @ coefs[width:])
    return scores


PLAIN = ("dm", "ips", "snips", "dr", "sndr")
TUNED = ("switch-dr", "dr-os")
# The candidates of Open Bandit Pipeline's examples, for both τ and λ.
CANDIDATES = (10.0, 50.0, 100.0, 500.0, 1000.0, 5000.0, 10000.0, math.inf)
# δ of SLOPE's one-sided intervals when the numbers were published; newer versions use 0.1.
SLOPE_DELTA = 0.05
# Standard errors within which two numbers count as equal.
CLOSE = 3.0


@dataclass(frozen=True)
class Published:
    """A published relative error."""

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
    within: bool  # the means differ by at most three standard errors


def relative_errors(log: BanditLog, probs: Floats, modelled: Floats, value: float) -> dict[str, float]:
    """|V̂ - V| / V of every estimator, for a policy (n, K) with true value V and a given reward model."""
    with warnings.catch_warnings():
        # Errors are measured even for values that would be refused.
        warnings.simplefilter("ignore", SeachangeWarning)
        found = evaluate(log, probs, PLAIN, modelled=modelled, force=True)
        found += [chosen_by_slope(_over_candidates(log, probs, modelled, name), len(log)) for name in TUNED]
    return {estimate.estimator: abs(estimate.value - value) / value for estimate in found}


def chosen_by_slope(estimates: Sequence[ValueEstimate], n_rounds: int, delta: float = SLOPE_DELTA) -> ValueEstimate:
    """The setting with the narrowest interval that agrees with all wider ones (SLOPE, Su et al. 2020).

    In order of decreasing width c_i = t_{1-δ} s_i: the last i for which every pair j < k ≤ i has
    |V̂_j - V̂_k| ≤ c_k + (√6 - 1) c_j, the constant of Tucker and Lee (2021).
    """
    reach = float(student.ppf(1 - delta, n_rounds - 1))
    wide = sorted(estimates, key=lambda estimate: -estimate.std_error)
    for i, narrow in enumerate(wide[1:], start=1):
        gaps = [abs(other.value - narrow.value) for other in wide[:i]]
        allowed = [reach * (narrow.std_error + (math.sqrt(6) - 1) * other.std_error) for other in wide[:i]]
        if any(gap > most for gap, most in zip(gaps, allowed, strict=True)):
            return wide[i - 1]
    return wide[-1]


def summarise(
    runs: Sequence[Mapping[str, float]], published: Mapping[str, Published], published_runs: int
) -> list[EstimatorResult]:
    """The table: mean and spread of each estimator's error, and whether it matches the published one."""
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
