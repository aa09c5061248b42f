"""Value estimates and their intervals: normal, gamma, empirical-Bernstein, bootstrap, confidence sequences.

Rounds of one sequence form a cluster; clusters are independent.
"""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Literal, Self, get_args

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import zeta
from scipy.stats import pearson3
from scipy.stats import t as student

from seachange.errors import Fix
from seachange.evaluation.diagnostics import EstimateWarning, Reason
from seachange.evaluation.formulas import ESTIMATORS, Level, Parts
from seachange.evaluation.terms import Range, effective_samples
from seachange.log.bandit_log import BanditLog, require_propensities, require_rewards
from seachange.log.clusters import Clusters
from seachange.params import Brief, require
from seachange.protocols import Floats

IntervalKind = Literal["normal", "bootstrap", "bernstein", "sequence"]
FEWEST = 2.0  # with a smaller effective sample size, there is no spread to build an interval from


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
        samples = f"effective sample size {self.effective_samples:,.0f}"
        return f"{type(self).__name__}({self.estimator}: {self.value:.4g}, {interval}, {samples})"

    def widened(self, error: float) -> Self:
        """The same with an interval that includes another, independent standard ``error``."""
        if error == 0:
            return self
        reach, total = NormalDist().inv_cdf(0.5 + self.confidence / 2) * error, float(np.hypot(self.std_error, error))
        low, high = (float(np.hypot(self.value - end, reach)) for end in (self.low, self.high))
        return replace(self, std_error=total, low=self.value - low, high=self.value + high)


@dataclass(frozen=True, eq=False)
class IntervalRequest:
    """Which interval to compute, and what it may need."""

    kind: IntervalKind
    confidence: float
    clusters: Clusters
    reward_range: Range
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
        """Raise if the estimator ``name`` has no interval of this kind; ``automatic`` says its setting is "auto"."""
        if not self.bounded:
            return
        possible = [each for each, one in ESTIMATORS.items() if one.limits or (self.kind == "bernstein" and one.ratio)]
        rule = f'interval="{self.kind}" is not available for {name}. Use one of {", ".join(possible)}, or '
        require(name in possible, f'{rule}interval="bootstrap", which works for every estimator.')
        setting = ESTIMATORS[name].setting
        rule = f'interval="{self.kind}" is not valid if {setting} is chosen from the same rewards; '
        require(not automatic, f"{rule}pass {setting} as a number.")

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
            size = f"The effective sample size behind a standard error is below {LEAST_IN_SPREAD:.0f}"
            problem = f"{size}, so normal intervals are too narrow."
            fix = Fix('pass interval="bootstrap"', "pass --interval bootstrap to seachange evaluate")
            warnings.warn(EstimateWarning((Reason("few rewards", problem, (fix,)),)), stacklevel=4)
        numbers = (value, error, low, high, effective, float(weights.max()))
        return ValueEstimate(name, *numbers, self.kind, self.confidence, parts.setting, latent)

    def _interval(self, name: str, parts: Parts, value: float, error: float, weight_bound: float) -> Range:
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
        ends = bernstein_interval(terms, (float(least), float(most)), self.clusters, self.confidence)
        low, high = self._possible(ends).tolist()
        return low, high

    def _possible(self, values: npt.ArrayLike) -> Floats:
        """Values clipped to what a policy can earn: its rewards, some of them clipped to 0, stay in their range."""
        least, most = self.reward_range
        return np.clip(np.asarray(values, dtype=np.float64), min(least, 0.0), max(most, 0.0))

    def running(self, name: str, parts: Parts, weight_bound: Level) -> "ConfidenceSequence":
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


def require_evaluable(log: BanditLog, confidence: float, purpose: str) -> None:
    """Raise unless ``log`` has the rewards and propensities, and ``confidence`` is one, that ``purpose`` needs."""
    require_confidence(confidence)
    require_rewards(log, purpose)
    require_propensities(log, purpose)


def interval_request(
    log: BanditLog, kind: IntervalKind, confidence: float, reward_range: Range | None = None, seed: int = 0
) -> IntervalRequest:
    """The user's request, validated."""
    require_rewards(log, "evaluating a policy")
    kinds = get_args(IntervalKind)
    require(kind in kinds, f"interval must be one of {', '.join(kinds)}; got {kind!r}.")
    require_confidence(confidence)
    rewards = log.arrays.rewards
    least, most = float(rewards.min()), float(rewards.max())
    if reward_range is None:
        known = kind in ("normal", "bootstrap") or bool(((rewards == 0) | (rewards == 1)).all())
        rule = f'interval="{kind}" needs reward_range=(least, most), the possible rewards, unless all are 0 or 1; '
        require(known, f"{rule}these range from {least:g} to {most:g}.")
        return IntervalRequest(kind, confidence, Clusters(log), (0.0, 1.0), seed)
    low, high = map(float, reward_range)
    require(low < high, f"reward_range must be (least, most); got {reward_range}.")
    rule = f"reward_range={reward_range} must contain all rewards; they range from {least:g} to {most:g}."
    require(low <= least and most <= high, rule)
    return IntervalRequest(kind, confidence, Clusters(log), (low, high), seed)


def influences(parts: Parts, clusters: Clusters) -> Floats:
    """(G,) ψ_g / n, ψ_g the cluster's sum of (term - mean) + (numerator - ratio denominator) / mean(denominator).

    Each cluster's contribution to the error of V̂; infinite if the denominator is 0.
    """
    linear = np.zeros(len(clusters.log)) if parts.terms is None else parts.terms - parts.terms.mean()
    if parts.numerator is not None and parts.denominator is not None:
        mean = float(parts.denominator.mean())
        if not mean > 0:
            return np.full(len(clusters.sizes), np.inf)
        linear = linear + (parts.numerator - parts.ratio * parts.denominator) / mean
    return np.asarray(clusters.sums(linear) / len(clusters.log))


def standard_error(influence: Floats) -> float:
    """√(G / (G - 1) Σ_g ψ_g²) / n of the clusters' ``influences``; infinite for one cluster."""
    count = len(influence)
    return float(np.sqrt(influence @ influence * count / (count - 1))) if count > 1 else np.inf


def normal_interval(value: float, error: float, clusters: Clusters, confidence: float) -> Range:
    """V̂ ± t s, with t from Student's distribution with G - 1 degrees of freedom.

    Valid for many clusters, none of which dominates the sum.
    """
    if not np.isfinite(error):
        return -np.inf, np.inf
    reach = float(student.ppf(0.5 + confidence / 2, len(clusters.sizes) - 1)) * error
    return value - reach, value + reach


def gamma_interval(value: float, influence: Floats, weights: Floats, rewards: Floats, confidence: float) -> Range:
    """Interval for when a few clusters make up the spread, e.g. few rounds have a reward.

    Each end is a quantile of a gamma distribution shifted to mean V̂ + ψ', with variance Σ ψ² + ψ'² and skewness
    2 (Σ ψ³ + ψ'³) / (Σ ψ² + ψ'²)^1.5, mirrored if negative. ψ' stands for one more round that by chance was not
    observed: the farther of the most extreme influence on that side and ± w' δ' / n, where w' = Σ w² / Σ w is the mean
    weight of the policy's own choices and δ' = Σ δ² / Σ δ, δ the distances of rewards from their mean on that side. For
    c clicks with equal weights in a long log, these are the exact Poisson limits (Garwood 1936); unequal weights follow
    Fay and Feuer (1997), who use the largest weight for w'.
    """
    spread, away = float(np.sqrt(influence @ influence)), rewards - rewards.mean()
    scaled = influence / spread
    third = float(np.sum(scaled**3))
    typical = float(weights @ weights / weights.sum()) / (len(weights) * spread)

    def end(side: float, share: float) -> float:
        farthest, distances = float((side * scaled).max()), np.maximum(side * away, 0.0)
        total = float(distances.sum())
        more = side * max(farthest, typical * float(distances @ distances) / total if total > 0 else 0.0)
        variance = 1 + more**2
        skewness = 2 * (third + more**3) / variance**1.5
        return value + spread * float(pearson3.ppf(share, skewness, loc=more, scale=np.sqrt(variance)))

    return end(-1.0, 0.5 - confidence / 2), end(1.0, 0.5 + confidence / 2)


def bernstein_interval(terms: Floats, limits: Range, clusters: Clusters, confidence: float) -> Range:
    """mean ± √(2 s² log(4 / δ) / G) + 7 R log(4 / δ) / (3 (G - 1)) for terms within ``limits``, δ = 1 - confidence.

    Maurer and Pontil (2009), valid for any number G of independent clusters. For clusters of several rounds, the terms
    are their sums divided by the mean size, and R grows with the largest cluster.
    """
    middle = sum(limits) / 2
    sums = clusters.sums(terms - middle) * (len(clusters.sizes) / len(clusters.log))
    radius = _bernstein_radius(sums, _reach(clusters, limits[1] - limits[0]), confidence)
    mean = middle + float(sums.mean())
    return mean - radius, mean + radius


def bernstein_ratio(
    parts: Parts, weight_bound: float, reward_range: Range, clusters: Clusters, confidence: float
) -> Range:
    """Interval for Σ w r / Σ w: all v for which the mean of w (r - v) is within its radius of 0."""
    assert parts.numerator is not None, "a ratio has a numerator"
    assert parts.denominator is not None, "and a denominator"
    (low, high), scale = reward_range, len(clusters.sizes) / len(clusters.log)
    below = clusters.sums(parts.denominator) * scale
    above = clusters.sums(parts.numerator) * scale + (parts.offset - low) * below
    reach = _reach(clusters, weight_bound * (high - low))

    def excess(shift: float) -> float:
        """How far the mean is outside its radius at v = low + ``shift``: concave on either side of the estimate."""
        terms = above - shift * below
        return abs(float(terms.mean())) - _bernstein_radius(terms, reach, confidence)

    total = float(below.sum())
    center = float(above.sum()) / total if total > 0 else (high - low) / 2

    def edge(end: float) -> float:
        return low + (end if excess(end) <= 0 else float(brentq(excess, *sorted((end, center)), xtol=1e-12)))

    return edge(0.0), edge(high - low)


def _reach(clusters: Clusters, width: float) -> float:
    return width * float(clusters.sizes.max()) * len(clusters.sizes) / len(clusters.log)


def _bernstein_radius(terms: Floats, reach: float, confidence: float) -> float:
    count = len(terms)
    if count < 2:
        return np.inf
    depth = np.log(4 / (1 - confidence))
    return float(np.sqrt(2 * terms.var(ddof=1) * depth / count) + 7 * reach * depth / (3 * (count - 1)))


RESAMPLES = 1000
# With more clusters, groups of neighbors are drawn. The spread is then known to 1 in √(2 · 4096), about 1 %.
MOST_GROUPS = 4096
AT_ONCE = 32  # resamples counted at a time, small enough for the cache
# With fewer effective clusters in the spread, (Σ ψ²)² / Σ ψ⁴ of their influences or of the rewards' distances from
# their mean, too many resamples miss all of them.
LEAST_IN_SPREAD = 10.0
# Floor on a resample's spread, as a share of the log's: rounding leaves some spread where there is none.
LEAST_SPREAD = 0.1


def draw_counts(n_clusters: int, seed: int) -> Floats:
    """(R, G) how often each resample draws each group, with replacement."""
    n_groups, generator = min(n_clusters, MOST_GROUPS), np.random.default_rng(seed)
    counts = np.empty((RESAMPLES, n_groups))
    for start in range(0, RESAMPLES, AT_ONCE):
        part = counts[start : start + AT_ONCE]
        # Group g of resample i in this part is index i G + g of one long count.
        picks = generator.integers(n_groups, size=part.shape, dtype=np.uint16)
        indices = picks + n_groups * np.arange(len(part))[:, None]
        part[:] = np.bincount(indices.reshape(-1), minlength=part.size).reshape(part.shape)
    return counts


def bootstrap_interval(
    parts: Parts, value: float, error: float, clusters: Clusters, confidence: float, counts: Floats
) -> Range:
    """V̂ - s t*, t* the quantiles of (V* - V̂) / s* over resamples of whole clusters.

    Numerators and denominators are drawn together, so a ratio that is the same in every cluster has width 0. Valid
    under the conditions of the normal interval, and more accurate for skewed terms. With c rewarded rounds, a share
    e^-c of the resamples has no reward and no spread; ``LEAST_IN_SPREAD`` is where this becomes negligible.
    """
    if not 0 < error < np.inf:
        return (value, value) if error == 0 else (-np.inf, np.inf)
    n_groups = counts.shape[1]
    starts = np.arange(n_groups) * len(clusters.sizes) // n_groups

    def grouped(column: Floats) -> Floats:
        return np.add.reduceat(clusters.sums(column), starts)

    rounds = np.add.reduceat(clusters.sizes, starts)
    ratios = []
    if parts.terms is not None:
        ratios.append((grouped(parts.terms - parts.terms.mean()), rounds))
    if parts.numerator is not None and parts.denominator is not None:
        ratios.append((grouped(parts.numerator - parts.ratio * parts.denominator), grouped(parts.denominator)))
    shifts, errors = _resampled(ratios, counts)
    scores = shifts / np.maximum(errors, LEAST_SPREAD * error)
    upper, lower = np.quantile(scores, [0.5 + confidence / 2, 0.5 - confidence / 2])
    return value - float(upper) * error, value - float(lower) * error


def _resampled(ratios: list[tuple[Floats, Floats]], counts: Floats) -> tuple[Floats, Floats]:
    """(R,) V* - V̂ and s* for a sum of ratios Σ a / Σ b of the groups' b and a, where a sums to 0.

    s*² = G / (G - 1) Σ_g m_g ψ_g², m the counts and ψ_g the sum over ratios of (a - (Σ m a / Σ m b) b) / Σ m b. The
    squares are multiplied out, so that every sum over groups is a column of one matrix product.
    """
    columns = np.stack([column for ratio in ratios for column in ratio], axis=1)
    n_groups, n_columns = columns.shape
    products = (columns[:, :, None] * columns[:, None, :]).reshape(n_groups, -1)
    sums = counts @ np.concatenate([columns, products], axis=1)
    above, below, squares = sums[:, :n_columns:2], sums[:, 1:n_columns:2], sums[:, n_columns:]
    scales = np.divide(1.0, below, out=np.zeros_like(below), where=below > 0)
    # ψ = Σ_i c_i column_i, with one c for each a and b.
    factors = np.stack([scales, -above * scales**2], axis=2).reshape(len(counts), -1)
    squares = np.einsum("ri,rj,rij->r", factors, factors, squares.reshape(-1, n_columns, n_columns))
    return (above * scales).sum(axis=1), np.sqrt(np.maximum(squares, 0.0) * n_groups / (n_groups - 1))


# η and s of the stitched boundary: the ratio of successive variance epochs, and the decay of their error shares.
EPOCH, DECAY = 2.0, 1.4


@dataclass(frozen=True, eq=False, repr=False)
class ConfidenceSequence(Brief):
    """An estimate and its confidence sequence after each round (after each sequence, if the log has sequences)."""

    values: Floats  # (G,)
    low: Floats  # (G,)
    high: Floats  # (G,)


def running_interval(
    terms: Floats, limits: tuple[Level, Level], guesses: Range, clusters: Clusters, confidence: float
) -> ConfidenceSequence:
    """Bounds on the mean of E[term | past] so far, after each cluster.

    S / N ± u(V) / N, with S the sum of the terms, N the number of rounds and V = Σ (term - guess)², where the guess for
    a term is the mean of earlier terms, clipped to ``guesses``; u is ``stitched_boundary``. This is the
    empirical-Bernstein sequence of Howard et al. (2021), theorem 4: with probability ``confidence`` it holds at all
    times at once, for terms of any distribution within ``limits``, even if the mean changes. The lower bound depends
    only on the lower limit and the largest guess, so terms far above do not loosen it. If limits are given per cluster,
    (G,), and depend only on clusters so far, no later cluster changes the bounds.
    """
    sums, sizes = clusters.sums(terms), clusters.sizes
    totals, rounds = np.cumsum(sums), np.cumsum(sizes)
    low, high = guesses
    guess = np.full(len(sums), (low + high) / 2)
    guess[1:] = np.clip(totals[:-1] / rounds[:-1], low, high)
    variances = np.cumsum(np.square(sums - sizes * guess))
    largest, error = np.maximum.accumulate(sizes), (1 - confidence) / 2
    below = stitched_boundary(variances, largest * (high - limits[0]), error)
    above = stitched_boundary(variances, largest * (limits[1] - low), error)
    return ConfidenceSequence(totals / rounds, (totals - below) / rounds, (totals + above) / rounds)


def stitched_boundary(variances: Floats, scale: Level, error: float) -> Floats:
    """u(v) = c (√(k₁² v' ℓ + k₂² ℓ²) + k₂ ℓ), v' = max(v / c², 1), ℓ = s log(1 + log_η v') + log(ζ(s) / α).

    A sum with variance process v and steps below c ever crosses it with probability at most α; it is 0 if c ≤ 0.
    k₁ = (η^¼ + η^-¼) / √2, k₂ = (√η + 1) / 2 (Howard et al. 2021, theorem 1).
    """
    scale = np.maximum(scale, 0.0)
    first, second = (EPOCH**0.25 + EPOCH**-0.25) / np.sqrt(2), (np.sqrt(EPOCH) + 1) / 2
    scaled = np.maximum(np.divide(variances, scale**2, out=np.ones_like(variances), where=scale > 0), 1.0)
    level = DECAY * np.log1p(np.log(scaled) / np.log(EPOCH)) + np.log(zeta(DECAY) / error)
    return np.asarray(scale * (np.sqrt(first**2 * scaled * level + second**2 * np.square(level)) + second * level))
