"""The estimators as formulas. Each is a mean plus a ratio of sums, which is all that intervals need to know.

To add an estimator, write a function from ``Terms`` (and a setting, if it has one) to ``Parts`` and register it in
``ESTIMATORS``. ``tests/contracts/test_estimators.py`` then checks it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from seachange.evaluation.terms import Need, Terms
from seachange.params import Auto
from seachange.protocols import Floats

# "auto" picks a weight threshold among these quantiles of the weights, and no threshold.
QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
Setting = float | Auto
Level: TypeAlias = float | Floats  # one number, or one per cluster


class Parts(NamedTuple):
    """V̂ = offset + mean(terms) + Σ numerator / Σ denominator."""

    terms: Floats | None = None  # (n,)
    numerator: Floats | None = None  # (n,)
    denominator: Floats | None = None  # (n,)
    offset: float = 0.0
    setting: float | None = None  # the threshold or shrinkage used
    max_weight: float = np.inf  # upper bound on any weight under that setting

    @property
    def ratio(self) -> float:
        """Σ numerator / Σ denominator; 0 if the denominator is 0."""
        if self.numerator is None or self.denominator is None:
            return 0.0
        total = float(self.denominator.sum())
        return float(self.numerator.sum()) / total if total > 0 else 0.0

    @property
    def value(self) -> float:
        """V̂."""
        return self.offset + self.ratio + (0.0 if self.terms is None else float(self.terms.mean()))


@dataclass(frozen=True)
class Estimator:
    """A formula and what the rest of the package must know about it."""

    parts: Callable[[Terms, Setting], Parts]
    needs: frozenset[Need] = frozenset()
    setting: Literal["switch", "shrinkage"] | None = None  # the argument of ``evaluate`` that the formula receives
    full_weights: bool = True  # uses w as it is, so that errors of r̂ cancel
    ratio: bool = False  # is Σ w r / Σ w, which has its own Bernstein interval
    # Bounds on the mean's terms, from the largest weight and the reward range; None if it is not a plain mean.
    limits: Callable[[Level, float, float], tuple[Level, Level]] | None = None


def ips(terms: Terms, _: Setting) -> Parts:
    """Mean of w r."""
    return Parts(terms.weights * terms.rewards)


def snips(terms: Terms, _: Setting) -> Parts:
    """Σ w r / Σ w, relative to the smallest reward, so that equal rewards are reproduced exactly."""
    least = float(terms.rewards.min())
    return Parts(numerator=terms.weights * (terms.rewards - least), denominator=terms.weights, offset=least)


def dm(terms: Terms, _: Setting) -> Parts:
    """Mean of Σ_a π(a | x) r̂(x, a)."""
    return Parts(_corrected(terms, np.zeros(len(terms.weights)), fit_noise=True))


def dr(terms: Terms, _: Setting) -> Parts:
    """Mean of Σ_a π(a | x) r̂(x, a) + w (r - r̂)."""
    return Parts(_corrected(terms, terms.weights, fit_noise=terms.clipped))


def sndr(terms: Terms, _: Setting) -> Parts:
    """Mean of Σ_a π(a | x) r̂(x, a), plus Σ w (r - r̂) / Σ w."""
    return Parts(terms.direct, terms.weights * (terms.rewards - terms.predicted), terms.weights)


def switch_dr(terms: Terms, switch: Setting) -> Parts:
    """DR with w 1{w ≤ τ}; τ is ``switch`` (Wang et al. 2017)."""

    def switched(threshold: float) -> Floats:
        return np.where(terms.weights <= threshold, terms.weights, 0.0)

    chosen = _least_error(terms, _thresholds(terms.weights), switched) if switch == "auto" else float(switch)
    return Parts(_corrected(terms, switched(chosen), fit_noise=True), setting=chosen, max_weight=chosen)


def dr_os(terms: Terms, shrinkage: Setting) -> Parts:
    """DR with w λ / (w² + λ); λ is ``shrinkage`` (Su et al. 2020)."""

    def shrunk(strength: float) -> Floats:
        if np.isinf(strength):
            return terms.weights
        below = np.square(terms.weights) + strength
        return np.divide(strength * terms.weights, below, out=np.zeros_like(below), where=below > 0)

    squares = np.square(_thresholds(terms.weights))
    chosen = _least_error(terms, squares, shrunk) if shrinkage == "auto" else float(shrinkage)
    return Parts(_corrected(terms, shrunk(chosen), fit_noise=True), setting=chosen, max_weight=np.sqrt(chosen) / 2)


def mrdr(terms: Terms, _: Setting) -> Parts:
    """DR with r̂ fitted to minimize the variance of DR (Farajtabar et al. 2018)."""
    return Parts(terms.robust_direct + terms.weights * (terms.rewards - terms.robust_predicted))


def _corrected(terms: Terms, weights: Floats, *, fit_noise: bool) -> Floats:
    """d + w (r - r̂); with ``fit_noise``, the error of r̂ is added to the spread of the terms, not to their mean."""
    corrected: Floats = terms.direct + weights * (terms.rewards - terms.predicted)
    if fit_noise:
        errors = terms.fit_errors(weights)
        corrected += errors - errors.mean()
    return corrected


def _thresholds(weights: Floats) -> Floats:
    quantiles = np.unique(np.quantile(weights, QUANTILES))
    return np.append(quantiles[quantiles > 0], np.inf)


def _least_error(terms: Terms, settings: Floats, changed: Callable[[float], Floats]) -> float:
    """The setting with the smallest estimated mean squared error: variance + bias² of using w' instead of w.

    b is the mean of (w' - w) (r - r̂) and s its standard error; the squared bias is estimated by max(b² - s², 0). Ties
    go to the weakest setting.
    """
    n, residuals = len(terms.weights), terms.rewards - terms.predicted
    best, least = float(settings[-1]), np.inf
    for setting in settings[::-1]:
        weights = changed(float(setting))
        variance = float(np.var(_corrected(terms, weights, fit_noise=True))) / n
        lost = (weights - terms.weights) * residuals
        error = variance + max(float(lost.mean()) ** 2 - float(np.var(lost)) / n, 0.0)
        if error < least:
            best, least = float(setting), error
    return best


def _corrected_limits(weight: Level, low: float, high: float) -> tuple[Level, Level]:
    """Bounds on d + w (r - r̂), with r̂ in the reward range."""
    return low - weight * (high - low), high + weight * (high - low)


_MODEL: frozenset[Need] = frozenset({"model"})
_MODEL_AND_ERROR: frozenset[Need] = frozenset({"model", "fit error"})
ESTIMATORS = {
    "ips": Estimator(ips, limits=lambda weight, low, high: (weight * min(low, 0.0), weight * max(high, 0.0))),
    "snips": Estimator(snips, ratio=True),
    "dm": Estimator(dm, _MODEL_AND_ERROR, full_weights=False),
    "dr": Estimator(dr, _MODEL_AND_ERROR, limits=_corrected_limits),
    "sndr": Estimator(sndr, _MODEL),
    "switch-dr": Estimator(switch_dr, _MODEL_AND_ERROR, "switch", full_weights=False, limits=_corrected_limits),
    "dr-os": Estimator(dr_os, _MODEL_AND_ERROR, "shrinkage", full_weights=False, limits=_corrected_limits),
    "mrdr": Estimator(mrdr, frozenset({"robust model"}), limits=_corrected_limits),
}
