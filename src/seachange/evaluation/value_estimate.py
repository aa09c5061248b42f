"""ValueEstimate: a value with the interval that was asked for."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from seachange.errors import ParameterError, SeachangeWarning
from seachange.evaluation.bootstrap import LEAST_IN_SPREAD, bootstrap_interval, draw_counts
from seachange.evaluation.formulas import ESTIMATORS, Parts
from seachange.evaluation.intervals import (
    bernstein_interval,
    bernstein_ratio,
    gamma_interval,
    influences,
    normal_interval,
    spread_of,
)
from seachange.evaluation.sequences import Level, Watched, running_interval
from seachange.evaluation.support import effective_samples
from seachange.log.bandit_log import BanditLog, require_rewards
from seachange.log.clusters import Clusters
from seachange.params import require
from seachange.protocols import Floats

IntervalKind = Literal["normal", "bootstrap", "bernstein", "sequence"]
# Fewer effective rounds than this have no spread to make an interval of.
FEWEST = 2.0


@dataclass(frozen=True, repr=False)
class ValueEstimate:
    """Mean reward a round that a policy would earn, as one estimator sees it."""

    estimator: str
    value: float
    std_error: float
    low: float
    high: float
    effective_samples: float  # (Σ w)² / Σ w²: rounds of the log that speak for the policy
    max_weight: float  # largest weight, after clipping
    interval: str = "normal"
    confidence: float = 0.95
    setting: float | None = None  # τ of switch-dr, λ of dr-os
    latent: bool = False  # the paper's estimator: states that were found with the help of the rewards they weigh

    def __repr__(self) -> str:
        """The answer in a line."""
        interval = f"{self.confidence:.0%} interval {self.low:.4g} to {self.high:.4g}"
        ground = f"{self.effective_samples:,.0f} effective rounds"
        return f"{type(self).__name__}({self.estimator}: {self.value:.4g}, {interval}, {ground})"


@dataclass(frozen=True, eq=False)
class Wanted:
    """Which interval, and all that it may need."""

    kind: IntervalKind
    confidence: float
    clusters: Clusters
    reward_range: tuple[float, float]
    seed: int = 0

    @cached_property
    def _counts(self) -> Floats:
        """The bootstrap's resamples, the same for all estimators."""
        return draw_counts(len(self.clusters.sizes), self.seed)

    @cached_property
    def _rare(self) -> bool:
        """Whether few rewards differ from the rest: small weights, or models, may hide that in an estimate's terms."""
        rewards = self.clusters.log.arrays.rewards
        return _few(rewards - rewards.mean())

    @property
    def bounded(self) -> bool:
        """Whether the interval stands on the range of the rewards."""
        return self.kind in ("bernstein", "sequence")

    def require_possible(self, name: str, automatic: bool) -> None:
        """Raise where the estimator ``name`` has no such interval."""
        if not self.bounded:
            return
        if ESTIMATORS[name].limits is None and (self.kind, name) != ("bernstein", "snips"):
            others = ", ".join(each for each in ESTIMATORS if ESTIMATORS[each].limits is not None)
            raise ParameterError(
                f'interval="{self.kind}" is for means of terms whose range is known: {others}'
                f'{", and for snips" if self.kind == "bernstein" else ""}; {name} is none. "bootstrap" is for all.'
            )
        if automatic and name in ("switch-dr", "dr-os"):
            setting = "switch" if name == "switch-dr" else "shrinkage"
            raise ParameterError(
                f'interval="{self.kind}" needs a {setting} that was not chosen by the rewards it judges; give a number.'
            )

    def answer(self, name: str, parts: Parts, weights: Floats, weight_bound: float, latent: bool) -> ValueEstimate:
        """The estimate that ``parts`` make, with its interval."""
        effective = effective_samples(weights)
        known = min(effective, float(weights.sum())) >= FEWEST
        value, (error, few) = parts.value, self._spread(parts) if known else (np.inf, False)
        if few and self.kind == "normal":
            warnings.warn(
                f"fewer than {LEAST_IN_SPREAD:.0f} rounds, in effect, make all of an estimate's spread: normal "
                'intervals are too short there; interval="bootstrap" allows for it.',
                SeachangeWarning,
                stacklevel=4,
            )
        elif few:
            found, rewards = influences(parts, self.clusters), self.clusters.log.arrays.rewards
            low, high = gamma_interval(value, found, weights, rewards, self.confidence)
        if not few or self.kind == "normal":
            low, high = self._interval(name, parts, value, error, weight_bound)
        return ValueEstimate(
            estimator=name,
            value=value,
            std_error=error,
            low=low,
            high=high,
            effective_samples=effective,
            max_weight=float(weights.max()),
            interval=self.kind,
            confidence=self.confidence,
            setting=parts.setting,
            latent=latent,
        )

    def _spread(self, parts: Parts) -> tuple[float, bool]:
        """The standard error, and whether few clusters make it where that matters."""
        found = influences(parts, self.clusters)
        error = spread_of(found)
        return error, not self.bounded and 0 < error < np.inf and (self._rare or _few(found))

    def _interval(
        self, name: str, parts: Parts, value: float, error: float, weight_bound: float
    ) -> tuple[float, float]:
        if self.kind == "normal":
            return normal_interval(value, error, self.clusters, self.confidence)
        if self.kind == "bootstrap":
            return bootstrap_interval(parts, value, error, self.clusters, self.confidence, self._counts)
        if self.kind == "sequence":
            watched = self.running(name, parts, weight_bound)
            return float(watched.low[-1]), float(watched.high[-1])
        if name == "snips":
            return bernstein_ratio(parts, weight_bound, self.reward_range, self.clusters, self.confidence)
        terms, (least, most) = self._terms(name, parts, weight_bound)
        low, high = bernstein_interval(terms, (float(least), float(most)), self.clusters, self.confidence)
        return float(self._possible(low)), float(self._possible(high))

    def _possible(self, values: npt.ArrayLike) -> Floats:
        """The nearest values that a policy can have: its rewards, some of them clipped, are in their range."""
        least, most = self.reward_range
        return np.clip(np.asarray(values, dtype=np.float64), min(least, 0.0), max(most, 0.0))

    def running(self, name: str, parts: Parts, weight_bound: Level) -> Watched:
        """The confidence sequence after each cluster."""
        terms, limits = self._terms(name, parts, weight_bound)
        watched = running_interval(terms, limits, self.reward_range, self.clusters, self.confidence)
        return replace(watched, low=self._possible(watched.low), high=self._possible(watched.high))

    def _terms(self, name: str, parts: Parts, weight_bound: Level) -> tuple[Floats, tuple[Level, Level]]:
        """The terms of a mean and the limits they are known to keep."""
        assert parts.plain is not None, "what has limits is a mean"
        if name == "mean":
            return parts.plain, self.reward_range
        limits_of = ESTIMATORS[name].limits
        assert limits_of is not None, "require_possible was asked"
        return parts.plain, limits_of(np.minimum(weight_bound, parts.most_weight), *self.reward_range)


def _few(differences: Floats) -> bool:
    """Whether few of these make all of their spread."""
    return 0 < effective_samples(np.square(differences)) < LEAST_IN_SPREAD


def wanted_interval(
    log: BanditLog, kind: IntervalKind, confidence: float, reward_range: tuple[float, float] | None, seed: int
) -> Wanted:
    """What a user asked for, checked."""
    require_rewards(log, "evaluating a policy")
    kinds = get_args(IntervalKind)
    require(kind in kinds, f"interval must be one of {', '.join(kinds)}; got {kind!r}.")
    require(0 < confidence < 1, f"confidence must be between 0 and 1; got {confidence}.")
    rewards = log.arrays.rewards
    least, most = float(rewards.min()), float(rewards.max())
    if reward_range is None:
        clicks = kind in ("normal", "bootstrap") or bool(((rewards == 0) | (rewards == 1)).all())
        require(
            clicks,
            f'interval="{kind}" needs reward_range=(least, most) that rewards can be; these go from {least:g} to '
            f"{most:g}, and only the range of clicks, all 0 or 1, is known without it.",
        )
        reward_range = (0.0, 1.0)
    else:
        low, high = reward_range
        require(low < high, f"reward_range must be (least, most); got {reward_range}.")
        require(
            low <= least and most <= high,
            f"reward_range must hold all rewards; it is {reward_range} and they go from {least:g} to {most:g}.",
        )
    return Wanted(kind, confidence, Clusters(log), (float(reward_range[0]), float(reward_range[1])), seed)
