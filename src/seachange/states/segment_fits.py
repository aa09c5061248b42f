"""Regression fits of log segments: sufficient statistics, and a test statistic for the difference of two fits."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import special

from seachange.kernels.change_scans import autocovariances, segment_residuals, segment_sums
from seachange.kernels.emission import round_scores
from seachange.kernels.regression import regression_sums
from seachange.log.bandit_log import BanditLog
from seachange.log.units import Units
from seachange.protocols import Floats, Ints
from seachange.states.labels import in_chains

# A block needs this many rounds on each side to count in a difference.
LEAST_ROUNDS = 5
# Ridge that stabilizes least squares with collinear features, as a share of the segment's rounds.
STABLE_RIDGE = 1e-9
# Features count as collinear if an eigenvalue of their Gram matrix is below this share of the largest.
COLLINEAR = 1e-8


@dataclass(frozen=True, eq=False)
class Sums:
    """Additive statistics of segments (leading axis); features are in the units of the series."""

    grams: Floats  # (S, B, D, D) Σ f f'
    moments: Floats  # (S, B, D) Σ f e
    squares: Floats  # (S, B) Σ e²
    counts: Floats  # (S, B) Σ 1

    def __len__(self) -> int:
        """S: the number of segments."""
        return len(self.counts)

    def __iter__(self) -> Iterator[Floats]:
        """The four arrays."""
        return iter((self.grams, self.moments, self.squares, self.counts))

    def __getitem__(self, segments: Any) -> Self:
        """A selection of segments."""
        return type(self)(*(array[segments] for array in self))

    def __add__(self, other: Self) -> Self:
        """The sums of each segment of both."""
        return type(self)(*(one + two for one, two in zip(self, other, strict=True)))

    def grouped(self, groups: Ints, n_groups: int) -> Self:
        """(n_groups, …) the sums of each group of segments."""
        totals = type(self)(*(np.zeros((n_groups, *array.shape[1:])) for array in self))
        for total, array in zip(totals, self, strict=True):
            np.add.at(total, groups, array)
        return totals

    def total(self) -> Self:
        """(1, …) the sums of all segments."""
        return self.grouped(np.zeros(len(self), dtype=np.int64), 1)

    def average_gram(self) -> Floats:
        """(B, D, D) mean f f' over the rounds of the first segment, with a small ridge."""
        rounds = np.maximum(self.counts[0], 1)
        return np.asarray(self.grams[0] / rounds[:, None, None] + 1e-9 * np.eye(self.grams.shape[-1]))

    def coefs(self, prior: Floats | None = None) -> Floats:
        """(S, B, D) least squares; ``prior`` (B, D, D), added to the Gram matrices, shrinks toward 0."""
        if prior is None:
            rounds = np.einsum("...ii->...", self.grams) / self.grams.shape[-1]
            prior = (STABLE_RIDGE * rounds + 1e-300)[..., None, None] * np.eye(self.grams.shape[-1])
        return np.asarray(np.linalg.solve(self.grams + prior, self.moments[..., None])[..., 0])

    def squares_about(self, coefs: Floats) -> Floats:
        """(S, B) Σ (e - c · f)²."""
        fitted = np.einsum("...bij,...bj->...bi", self.grams, coefs)
        gains = np.einsum("...bi,...bi->...b", coefs, fitted - 2 * self.moments)
        return np.asarray(np.maximum(self.squares + gains, 0))


@dataclass(frozen=True, eq=False)
class Metric:
    """Scatter of the scores of each block, relative to constant noise variance.

    If the noise depends on the context, the statistic of a difference is Σ_i ℓ_i χ²_1 instead of χ². Divided by the
    largest ℓ, its tails are lighter than those of χ² with Σ ℓ / max ℓ degrees of freedom:
    (1 - 2sℓ)^(-1/2) ≤ (1 - 2s)^(-ℓ/2).
    """

    whitening: Floats  # (B, D, D) W with W G W' = 1, in the units of the rows
    stretch: Floats  # (B,) max ℓ
    freedom: Floats  # (B,) Σ ℓ / max ℓ


class Autoregression(NamedTuple):
    """A fit of noise by its own past."""

    ratio: float = 1.0  # long-run variance, 1 + 2 Σ_k ρ_k, in units of the variance, and at least 1
    lasts: float = 0.0  # Σ_k ρ_k / max_k ρ_k: lags for which the noise stays correlated
    filter: Floats = np.ones(1)  # makes innovations of variance 1 of noise of variance 1
    gain: float = 0.0  # change of AIC


@dataclass(frozen=True, eq=False)
class Noise:
    """Autocorrelation of the noise.

    Sums of whitened scores have variances ℓ of at most ``overall``, and of ``within`` on average, so the statistic of a
    difference is Σ ℓ χ²_1 as in ``Metric``.
    """

    overall: float = 1.0  # long-run variance of consecutive rounds, or ``within`` if that is larger
    within: float = 1.0  # of consecutive rounds with the same action
    lasts: float = 0.0  # rounds for which it stays correlated
    innovations: Callable[[Floats], Floats] = np.copy  # innovations of other errors, (n,), in units of this noise


@dataclass(frozen=True, eq=False)
class Series:
    """A log as the detectors read it: chains one after another, and residuals of one regression of the whole log."""

    rows: Floats  # (n or 1, R, D)
    actions: Ints
    rewards: Floats
    residuals: Floats  # e_t = r_t - c · f(x_t, a_t), c the fit of the whole log
    coefs: Floats  # (B, D) c
    units: Units  # of the features
    begins: Ints  # first round of each chain
    ends: Ints
    order: Ints | None  # round of the log at each position; None: the same
    noise: Noise = Noise()

    @property
    def data(self) -> tuple[Floats, Ints, Floats]:
        """Rows, actions and residuals."""
        return self.rows, self.actions, self.residuals

    @cached_property
    def clip(self) -> float:
        """Least distance of a click probability from 0 and 1; 0 if rewards are not clicks."""
        if not ((self.rewards == 0) | (self.rewards == 1) | np.isnan(self.rewards)).all():
            return 0.0
        rate = float(np.nanmean(self.rewards))
        return max(0.05 * min(rate, 1 - rate), 1e-9)

    @cached_property
    def whole(self) -> Sums:
        """The whole log as one segment."""
        return self.sums(np.array([0]), np.array([len(self.rewards)]))

    def sums(self, begins: Ints, ends: Ints) -> Sums:
        """Statistics of the segments from ``begins`` to before ``ends``."""
        grams, moments, squares, counts = segment_sums(*self.data, begins, ends, len(self.coefs))
        return Sums(self.units.grams(grams), self.units.moments(moments), squares, counts)

    def rounds(self, positions: Ints) -> Ints:
        """The log's rounds at these positions of the series."""
        return positions if self.order is None else self.order[positions]

    @cached_property
    def metric(self) -> Metric:
        """Scatter of the scores of each block."""
        n_blocks, n_features = self.coefs.shape
        overall, share = self.noise.overall, self.noise.within / self.noise.overall
        if not _contextual(self.rows):
            return Metric(np.ones((n_blocks, 1, 1)), np.full(n_blocks, overall), np.full(n_blocks, share))
        counts = np.maximum(self.whole.counts[0], 1)
        values, vectors = np.linalg.eigh(self.whole.grams[0] / counts[:, None, None])
        kept = values > COLLINEAR * values.max(axis=1, keepdims=True)
        scaling = np.where(kept, 1 / np.sqrt(np.where(kept, values, 1)), 0)
        whitening = scaling[..., None] * np.swapaxes(vectors, 1, 2)
        noise = np.maximum(self.whole.squares[0] / counts, 1e-300)
        # Σ e² f f' / v: the scatter of the scores of the fit, in units of the noise.
        weights = np.square(self.residuals) / noise[self.actions if n_blocks > 1 else 0]
        (raw,) = regression_sums(*self.data, weights[:, None], n_blocks)[0]
        spread = whitening @ self.units.grams(raw) @ np.swapaxes(whitening, 1, 2)
        levels = np.linalg.eigvalsh(spread / counts[:, None, None])
        # Expected excess of the largest eigenvalue of a sample over the true one.
        chance = np.square(1 + np.sqrt(n_features / counts))
        stretch = np.maximum(levels[:, -1] / chance, 1)
        freedom = np.clip(levels.sum(axis=1) / stretch, 1, n_features)
        return Metric(np.ascontiguousarray(self.units.raw_coefs(whitening)), overall * stretch, share * freedom)

    def errors_within(self, begins: Ints, ends: Ints) -> Floats:
        """(n,) errors of the fits of these segments."""
        coefs = self.units.raw_coefs(self.sums(begins, ends).coefs())
        return np.asarray(segment_residuals(*self.data, begins, ends, coefs))

    def noise_of(self, errors: Floats) -> Noise:
        """The noise with these errors (n,)."""
        n_blocks, counts = len(self.coefs), np.maximum(self.whole.counts[0], 1)
        blocks = self.actions if n_blocks > 1 else np.zeros(len(errors), dtype=np.int64)
        variances = np.bincount(blocks, errors * errors, n_blocks) / counts
        # If a block has no variance, its errors are rounding errors.
        varies = variances > 1e-12 * self.whole.squares[0] / counts
        scales = (varies / np.sqrt(np.where(varies, variances, 1.0)))[blocks]
        order = np.arange(len(errors))
        fits = [(autoregression(errors * scales, self.begins, self.ends), order, 1)]
        if n_blocks > 1:
            chains = np.repeat(np.arange(len(self.begins)), self.ends - self.begins)
            order = np.lexsort((blocks, chains))
            starts = np.flatnonzero(np.diff((chains * n_blocks + blocks)[order], prepend=-1))
            by_action = autoregression((errors * scales)[order], starts, np.append(starts[1:], len(errors)))
            fits.append((by_action, order, n_blocks))
        best, own, _ = min(fits, key=lambda fit: fit[0].gain)
        slowest, _, spacing = max(fits, key=lambda fit: fit[0].ratio)

        def innovations(others: Floats) -> Floats:
            found = np.empty(len(others))
            found[own] = np.convolve((others * scales)[own], best.filter)[: len(others)]
            return found

        return Noise(slowest.ratio, fits[-1][0].ratio, spacing * slowest.lasts, innovations)


def series_of(log: BanditLog, by_action: bool = True) -> Series:
    """The series of a log; without ``by_action``, of its rewards alone."""
    ordered, order, starts = in_chains(log)
    begins = np.flatnonzero(starts)
    ends = np.append(begins[1:], len(log))
    rows, _, actions, rewards, _ = ordered.arrays
    if not by_action:
        rows, actions = np.ones((1, 1, 1)), np.zeros(len(log), dtype=np.int64)
        rows.flags.writeable = actions.flags.writeable = False
    n_blocks = log.joint.shape[0] if by_action else 1
    units = log.units if by_action else Units(np.zeros(1), np.ones(1))
    level = float(np.nanmean(rewards)) if not np.isnan(rewards).all() else 0.0
    residuals = rewards - level
    # Read-only like a log's columns, so that kernels are compiled for one kind of array.
    residuals.flags.writeable = False
    coefs = np.full((n_blocks, rows.shape[2]), level)
    if _contextual(rows):
        # Sums of squares of residuals, unlike those of rewards, do not cancel.
        coefs[:, :-1] = 0.0
        unfitted = Series(rows, actions, rewards, residuals, coefs, units, begins, ends, order)
        coefs = coefs + units.raw_coefs(unfitted.whole.coefs()[0])
        scores = np.empty((len(rewards), 1))
        round_scores(rows, actions, coefs[None], scores)
        residuals = rewards - scores[:, 0]
        residuals.flags.writeable = False
    return Series(rows, actions, rewards, residuals, coefs, units, begins, ends, order)


def _contextual(rows: Floats) -> bool:
    """Whether there are features other than the action."""
    return bool(rows.shape[0] > 1 or rows.shape[2] > 1)


def chain_lengths(log: BanditLog) -> Ints:
    """Rounds of each chain."""
    return np.array([len(log)]) if log.sequences is None else np.unique(log.sequences, return_counts=True)[1]


def difference(one: Sums, other: Sums, metric: Metric) -> tuple[Floats, Floats]:
    """Statistic (S,) for the difference of the fits of two segments, about χ², and its degrees of freedom (S,).

    Q = Σ_b (RSS_both - RSS_one - RSS_other) / v_b: the cost of a common fit, in units of the noise. v_b combines the
    residual variances of both segments under the common fit, weighted as in the variance of a difference,
    n_other v_one + n_one v_other. The variance of a segment is at least that of both together, because a short segment
    underestimates its own.
    """
    n_features = one.moments.shape[-1]
    both = one + other
    common = both.coefs()
    own, others = one.squares_about(common), other.squares_about(common)
    cost = own + others - one.squares_about(one.coefs()) - other.squares_about(other.coefs())
    counts = np.maximum(both.counts, 1)
    spare = counts / np.maximum(counts - n_features, 1)
    shared = (own + others) / counts
    first = np.maximum(own / np.maximum(one.counts, 1), shared)
    second = np.maximum(others / np.maximum(other.counts, 1), shared)
    noise = spare * (first * other.counts + second * one.counts) / counts
    smaller = np.minimum(one.counts, other.counts)
    counted = (smaller >= LEAST_ROUNDS) & (both.counts >= n_features + LEAST_ROUNDS)
    # If a block has no variance, its sums contain only rounding errors.
    varies = counted & (noise > 1e-12 * both.squares / counts) & (noise > 0)
    ratio = np.divide(cost, noise * metric.stretch, out=np.zeros_like(cost), where=varies)
    degrees = np.minimum(metric.freedom, smaller)
    return np.maximum(ratio, 0).sum(axis=-1), np.where(counted, degrees, 0).sum(axis=-1)


def autoregression(noise: Floats, begins: Ints, ends: Ints) -> Autoregression:
    """Autoregression of chains of noise; its long-run variance is σ² / (1 - Σ φ)².

    There are no lags if BIC selects none. Otherwise AIC selects them, and the long-run variance is the larger of those
    with the lags of AIC and BIC: with few lags an autoregression misses slow decay, and with many it varies.
    """
    n = max(int(np.count_nonzero(noise)), 1)
    n_lags = min(int(10 * np.log10(len(noise))), int((ends - begins).max()) - 1)
    sums = autocovariances(noise, begins, ends, n_lags)
    correlations, coefs, innovation = sums / max(sums[0], 1e-300), np.zeros(0), 1.0
    fits, ratios, filters = [0.0], [1.0], [np.ones(1)]
    for lag in range(1, n_lags + 1):
        # Levinson and Durbin: the partial autocorrelation extends the fit by one lag.
        partial = (correlations[lag] - coefs @ correlations[lag - 1 : 0 : -1]) / innovation
        coefs, innovation = np.append(coefs - partial * coefs[::-1], partial), innovation * (1 - partial**2)
        # Without innovations, the noise is a constant or a cycle.
        if not innovation > 1e-9:
            break
        fits.append(n * np.log(innovation))
        ratios.append(innovation / (1 - coefs.sum()) ** 2)
        filters.append(np.append(1.0, -coefs) / np.sqrt(innovation))
    few, best = (int(np.argmin(fits + price * np.arange(len(fits)))) for price in (np.log(n), 2.0))
    if few == 0:
        return Autoregression()
    ratio = max(float(ratios[few]), float(ratios[best]), 1.0)
    lasts = (ratio - 1) / 2 / max(float(correlations[1:].max()), 1e-9)
    return Autoregression(ratio, lasts, filters[best], float(fits[best] + 2 * best))


def log_tail(statistics: Floats, degrees: Floats) -> Floats:
    """log P(χ²_ν ≥ q); 0 if ν is 0."""
    halves, middles = np.maximum(degrees, 1e-9) / 2, np.maximum(statistics, 0) / 2
    with np.errstate(divide="ignore", under="ignore"):
        tails = np.log(special.gammaincc(halves, middles))
    # If it underflows: the leading term of the expansion, x^(a - 1) e^(-x) / Γ(a), and a bound on the rest.
    far = np.maximum(middles, 1e-300)
    leading = (halves - 1) * np.log(far) - far - special.gammaln(halves)
    rest = -np.log1p(-np.clip((halves - 1) / far, 0, 0.99))
    return np.where(degrees > 0, np.where(np.isfinite(tails), tails, leading + rest), 0.0)
