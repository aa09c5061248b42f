"""ValueEstimate, and the intervals that can be requested for one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from seachange.errors import Fix
from seachange.evaluation.diagnostics import EstimateWarning, Reason
from seachange.evaluation.formulas import ESTIMATORS, Level, Parts
from seachange.evaluation.intervals import (
    LEAST_IN_SPREAD,
    ConfidenceSequence,
    bernstein_interval,
    bernstein_ratio,
    bootstrap_interval,
    draw_counts,
    gamma_interval,
    influences,
    normal_interval,
    running_interval,
    standard_error,
)
from seachange.evaluation.support import effective_samples
from seachange.log.bandit_log import BanditLog, require_rewards
from seachange.log.clusters import Clusters
from seachange.params import require
from seachange.protocols import Floats

IntervalKind = Literal["normal", "bootstrap", "bernstein", "sequence"]
FEWEST = 2.0  # with fewer effective rounds there is no spread to build an interval from


@dataclass(frozen=True, repr=False)
class ValueEstimate:
    """A policy's mean reward per round, as one estimator sees it."""

    estimator: str
    value: float
    std_error: float
    low: float
    high: float
    effective_samples: float  # (Σ w)² / Σ w²: the effective sample size
    max_weight: float  # largest weight, after clipping
    interval: str = "normal"
    confidence: float = 0.95
    setting: float | None = None  # τ of switch-dr, λ of dr-os
    latent: bool = False  # the paper's estimator: its states were found using the rewards they weight

    def __repr__(self) -> str:
        interval = f"{self.confidence:.0%} interval {self.low:.4g} to {self.high:.4g}"
        samples = f"{self.effective_samples:,.0f} effective rounds"
        return f"{type(self).__name__}({self.estimator}: {self.value:.4g}, {interval}, {samples})"


@dataclass(frozen=True, eq=False)
class IntervalRequest:
    """Which interval to compute, and what it may need."""

    kind: IntervalKind
    confidence: float
    clusters: Clusters
    reward_range: tuple[float, float]
    seed: int = 0

    @cached_property
    def _counts(self) -> Floats:
        return draw_counts(len(self.clusters.sizes), self.seed)

    @cached_property
    def _rare(self) -> bool:
        """Whether few rewards differ from the rest; small weights or models can hide that in an estimate's terms."""
        rewards = self.clusters.log.arrays.rewards
        return _few(rewards - rewards.mean())

    @property
    def bounded(self) -> bool:
        """Whether the interval relies on the reward range."""
        return self.kind in ("bernstein", "sequence")

    def require_possible(self, name: str, automatic: bool) -> None:
        """Raise if the estimator ``name`` has no such interval; ``automatic`` says its setting is "auto"."""
        if not self.bounded:
            return
        possible = [each for each, one in ESTIMATORS.items() if one.limits or (self.kind == "bernstein" and one.ratio)]
        require(
            name in possible,
            f'interval="{self.kind}" is not available for {name}. Use one of {", ".join(possible)}, or '
            'interval="bootstrap", which works for every estimator.',
        )
        setting = ESTIMATORS[name].setting
        require(
            not automatic,
            f'interval="{self.kind}" is not valid if {setting} is chosen from the same rewards; pass {setting} as a '
            "number.",
        )

    def estimate(
        self, name: str, parts: Parts, weights: Floats, weight_bound: float = np.inf, latent: bool = False
    ) -> ValueEstimate:
        """The estimate that ``parts`` add up to, with its interval."""
        effective, influence, value = effective_samples(weights), influences(parts, self.clusters), parts.value
        error = standard_error(influence) if min(effective, float(weights.sum())) >= FEWEST else np.inf
        few = not self.bounded and 0 < error < np.inf and (self._rare or _few(influence))
        if few and self.kind == "bootstrap":
            rewards = self.clusters.log.arrays.rewards
            low, high = gamma_interval(value, influence, weights, rewards, self.confidence)
        else:
            low, high = self._interval(name, parts, value, error, weight_bound)
        if few and self.kind == "normal":
            problem = (
                f"Fewer than {LEAST_IN_SPREAD:.0f} effective rounds account for all of an estimate's spread, so normal "
                "intervals are too short."
            )
            fix = Fix('pass interval="bootstrap"', "pass --interval bootstrap to seachange evaluate")
            warnings.warn(EstimateWarning((Reason("few rewards", problem, (fix,)),)), stacklevel=4)
        numbers = (value, error, low, high, effective, float(weights.max()))
        return ValueEstimate(name, *numbers, self.kind, self.confidence, parts.setting, latent)

    def _interval(
        self, name: str, parts: Parts, value: float, error: float, weight_bound: float
    ) -> tuple[float, float]:
        if self.kind == "normal":
            return normal_interval(value, error, self.clusters, self.confidence)
        if self.kind == "bootstrap":
            return bootstrap_interval(parts, value, error, self.clusters, self.confidence, self._counts)
        if self.kind == "sequence":
            sequence = self.running(name, parts, weight_bound)
            return float(sequence.low[-1]), float(sequence.high[-1])
        if parts.terms is None:
            return bernstein_ratio(parts, weight_bound, self.reward_range, self.clusters, self.confidence)
        terms, (least, most) = self._terms(name, parts, weight_bound)
        low, high = bernstein_interval(terms, (float(least), float(most)), self.clusters, self.confidence)
        return float(self._possible(low)), float(self._possible(high))

    def _possible(self, values: npt.ArrayLike) -> Floats:
        """Values clipped to what a policy can earn: its rewards, some of them clipped to 0, stay in their range."""
        least, most = self.reward_range
        return np.clip(np.asarray(values, dtype=np.float64), min(least, 0.0), max(most, 0.0))

    def running(self, name: str, parts: Parts, weight_bound: Level) -> ConfidenceSequence:
        """The confidence sequence after each cluster."""
        terms, limits = self._terms(name, parts, weight_bound)
        sequence = running_interval(terms, limits, self.reward_range, self.clusters, self.confidence)
        return replace(sequence, low=self._possible(sequence.low), high=self._possible(sequence.high))

    def _terms(self, name: str, parts: Parts, weight_bound: Level) -> tuple[Floats, tuple[Level, Level]]:
        assert parts.terms is not None, "only means have limits"
        if name == "mean":
            return parts.terms, self.reward_range
        limits_of = ESTIMATORS[name].limits
        assert limits_of is not None, "require_possible was called"
        return parts.terms, limits_of(np.minimum(weight_bound, parts.max_weight), *self.reward_range)


def _few(differences: Floats) -> bool:
    return 0 < effective_samples(np.square(differences)) < LEAST_IN_SPREAD


def require_confidence(confidence: float) -> None:
    """Raise unless ``confidence`` is a probability that an interval can have."""
    require(0 < confidence < 1, f"confidence must be between 0 and 1; got {confidence}.")


def interval_request(
    log: BanditLog,
    kind: IntervalKind,
    confidence: float,
    reward_range: tuple[float, float] | None = None,
    seed: int = 0,
) -> IntervalRequest:
    """The user's request, validated."""
    require_rewards(log, "evaluating a policy")
    kinds = get_args(IntervalKind)
    require(kind in kinds, f"interval must be one of {', '.join(kinds)}; got {kind!r}.")
    require_confidence(confidence)
    rewards = log.arrays.rewards
    least, most = float(rewards.min()), float(rewards.max())
    known = kind in ("normal", "bootstrap") or bool(((rewards == 0) | (rewards == 1)).all())
    require(
        reward_range is not None or known,
        f'interval="{kind}" needs reward_range=(least, most), the range of possible rewards. It is known only if '
        f"all rewards are 0 or 1; these range from {least:g} to {most:g}.",
    )
    if reward_range is not None:
        low, high = reward_range
        require(low < high, f"reward_range must be (least, most); got {reward_range}.")
        require(
            low <= least and most <= high,
            f"reward_range={reward_range} must contain all rewards; they range from {least:g} to {most:g}.",
        )
    low, high = reward_range or (0.0, 1.0)
    return IntervalRequest(kind, confidence, Clusters(log), (float(low), float(high)), seed)
