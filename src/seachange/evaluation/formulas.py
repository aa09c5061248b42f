"""The estimators as formulas, each a mean plus a ratio of sums, which is what intervals are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seachange.evaluation.sequences import Level
from seachange.evaluation.terms import Need, Terms
from seachange.params import Auto
from seachange.protocols import Floats

# Where "auto" looks for a threshold of weights: these quantiles of them, and no threshold.
QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)


class Parts(NamedTuple):
    """V̂ = level + mean(plain) + Σ above / Σ below."""

    plain: Floats | None = None  # (n,)
    above: Floats | None = None  # (n,)
    below: Floats | None = None  # (n,)
    level: float = 0.0
    setting: float | None = None  # the threshold or shrinkage that was used
    most_weight: float = np.inf  # what that setting leaves of any weight

    @property
    def ratio(self) -> float:
        """Σ above / Σ below; 0 where nothing is below."""
        if self.above is None or self.below is None:
            return 0.0
        total = float(self.below.sum())
        return float(self.above.sum()) / total if total > 0 else 0.0

    @property
    def value(self) -> float:
        """V̂."""
        return self.level + self.ratio + (0.0 if self.plain is None else float(self.plain.mean()))


@dataclass(frozen=True)
class Estimator:
    """A formula, the terms it needs, and where it is a mean of terms within known limits, those."""

    parts: Callable[[Terms, float | Auto, float | Auto], Parts]
    needs: frozenset[Need] = frozenset()
    limits: Callable[[Level, float, float], tuple[Level, Level]] | None = None  # of largest weight and reward range


def ips(terms: Terms, switch: float | Auto, shrinkage: float | Auto) -> Parts:
    """Mean of w r."""
    return Parts(terms.weights * terms.rewards)


def snips(terms: Terms, switch: float | Auto, shrinkage: float | Auto) -> Parts:
    """Σ w r / Σ w, about the least reward, so that equal rewards give exactly themselves."""
    least = float(terms.rewards.min())
    return Parts(above=terms.weights * (terms.rewards - least), below=terms.weights, level=least)


def dm(terms: Terms, switch: float | Auto, shrinkage: float | Auto) -> Parts:
    """Mean of Σ_a π(a | x) r̂(x, a)."""
    return Parts(_corrected(terms, np.zeros(len(terms.weights)), whole=False))


def dr(terms: Terms, switch: float | Auto, shrinkage: float | Auto) -> Parts:
    """Mean of Σ_a π(a | x) r̂(x, a) + w (r - r̂)."""
    return Parts(_corrected(terms, terms.weights, whole=not terms.clipped))


def sndr(terms: Terms, switch: float | Auto, shrinkage: float | Auto) -> Parts:
    """Mean of Σ_a π(a | x) r̂(x, a), plus Σ w (r - r̂) / Σ w."""
    return Parts(terms.direct, terms.weights * (terms.rewards - terms.modelled), terms.weights)


def switch_dr(terms: Terms, switch: float | Auto, shrinkage: float | Auto) -> Parts:
    """DR with w 1{w ≤ τ}; τ is ``switch`` (Wang et al. 2017)."""

    def switched(threshold: float) -> Floats:
        return np.where(terms.weights <= threshold, terms.weights, 0.0)

    chosen = _least_error(terms, _thresholds(terms.weights), switched) if switch == "auto" else float(switch)
    return Parts(_corrected(terms, switched(chosen), whole=False), setting=chosen, most_weight=chosen)


def dr_os(terms: Terms, switch: float | Auto, shrinkage: float | Auto) -> Parts:
    """DR with w λ / (w² + λ); λ is ``shrinkage`` (Su et al. 2020)."""

    def shrunk(strength: float) -> Floats:
        if np.isinf(strength):
            return terms.weights
        below = np.square(terms.weights) + strength
        return np.divide(strength * terms.weights, below, out=np.zeros_like(below), where=below > 0)

    squares = np.square(_thresholds(terms.weights))
    chosen = _least_error(terms, squares, shrunk) if shrinkage == "auto" else float(shrinkage)
    return Parts(_corrected(terms, shrunk(chosen), whole=False), setting=chosen, most_weight=np.sqrt(chosen) / 2)


def mrdr(terms: Terms, switch: float | Auto, shrinkage: float | Auto) -> Parts:
    """DR whose r̂ is fitted where its error would make DR vary most (Farajtabar et al. 2018)."""
    return Parts(terms.robust_direct + terms.weights * (terms.rewards - terms.robust_modelled))


def _corrected(terms: Terms, weights: Floats, *, whole: bool = True) -> Floats:
    """d + w (r - r̂); with weights that are not ``whole``, the noise of the fits is in its spread, not in its mean."""
    corrected: Floats = terms.direct + weights * (terms.rewards - terms.modelled)
    if whole:
        return corrected
    errors = terms.fit_errors(weights)
    corrected += errors - errors.mean()
    return corrected


def _thresholds(weights: Floats) -> Floats:
    found = np.unique(np.quantile(weights, QUANTILES))
    return np.append(found[found > 0], np.inf)


def _least_error(terms: Terms, settings: Floats, changed: Callable[[float], Floats]) -> float:
    """The setting with the least estimated mean squared error, variance + bias² of w' in place of w.

    The bias is estimated by b = mean of (w' - w) (r - r̂), whose square is too large by its own variance s²: bias² is
    max(b² - s², 0). Of equal ones the weakest wins.
    """
    n, residuals = len(terms.weights), terms.rewards - terms.modelled
    best, least = float(settings[-1]), np.inf
    for setting in settings[::-1]:
        weights = changed(float(setting))
        variance = float(np.var(_corrected(terms, weights, whole=False))) / n
        lost = (weights - terms.weights) * residuals
        error = variance + max(float(lost.mean()) ** 2 - float(np.var(lost)) / n, 0.0)
        if error < least:
            best, least = float(setting), error
    return best


def _weighted_limits(weight: Level, low: float, high: float) -> tuple[Level, Level]:
    """Of w r."""
    return weight * min(low, 0.0), weight * max(high, 0.0)


def _corrected_limits(weight: Level, low: float, high: float) -> tuple[Level, Level]:
    """Of d + w (r - r̂), r̂ in the range of rewards."""
    return low - weight * (high - low), high + weight * (high - low)


_MODEL: frozenset[Need] = frozenset({"model"})
_MODEL_AND_ERROR: frozenset[Need] = frozenset({"model", "fit error"})
ESTIMATORS = {
    "ips": Estimator(ips, limits=_weighted_limits),
    "snips": Estimator(snips),
    "dm": Estimator(dm, _MODEL_AND_ERROR),
    "dr": Estimator(dr, _MODEL_AND_ERROR, _corrected_limits),
    "sndr": Estimator(sndr, _MODEL),
    "switch-dr": Estimator(switch_dr, _MODEL_AND_ERROR, _corrected_limits),
    "dr-os": Estimator(dr_os, _MODEL_AND_ERROR, _corrected_limits),
    "mrdr": Estimator(mrdr, frozenset({"robust model"}), _corrected_limits),
}
