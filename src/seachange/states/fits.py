"""Regression fits of pieces of a log: what is kept of a piece, and how much two pieces differ."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from seachange.kernels.emission import round_scores
from seachange.kernels.pieces import piece_sums, score_spread
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats, Ints
from seachange.states.labels import chains

# A block with fewer rounds than this on a side says nothing of a difference.
LEAST_ROUNDS = 5
# Least squares, but for as much ridge as keeps collinear features from blowing up; a share of a piece's rounds.
STABLE_RIDGE = 1e-9
# Eigenvalues of a Gram matrix below this share of the largest are collinear features.
COLLINEAR = 1e-8


@dataclass(frozen=True, eq=False)
class Sums:
    """Additive statistics of pieces, one for every leading index; features in units of their root mean square."""

    grams: Floats  # (P, B, D, D) Σ f f'
    moments: Floats  # (P, B, D) Σ f e
    squares: Floats  # (P, B) Σ e²
    counts: Floats  # (P, B) Σ 1

    def __len__(self) -> int:
        """Pieces."""
        return len(self.counts)

    def __getitem__(self, pieces: Any) -> Sums:
        """Some of the pieces."""
        return Sums(self.grams[pieces], self.moments[pieces], self.squares[pieces], self.counts[pieces])

    def __add__(self, other: Sums) -> Sums:
        """Each piece together with the other's."""
        return Sums(
            self.grams + other.grams,
            self.moments + other.moments,
            self.squares + other.squares,
            self.counts + other.counts,
        )

    def grouped(self, groups: Ints, n_groups: int) -> Sums:
        """Pieces of the same group added up."""

        def totals(array: Floats) -> Floats:
            added = np.zeros((n_groups, *array.shape[1:]))
            np.add.at(added, groups, array)
            return added

        return Sums(totals(self.grams), totals(self.moments), totals(self.squares), totals(self.counts))

    def coefs(self, prior: Floats | None = None) -> Floats:
        """(P, B, D) least squares; ``prior`` (B, D, D) is a Gram matrix that draws to 0."""
        added = self._ridge if prior is None else prior
        return np.asarray(np.linalg.solve(self.grams + added, self.moments[..., None])[..., 0])

    def squares_about(self, coefs: Floats) -> Floats:
        """(P, B) Σ (e - c · f)²."""
        fitted = np.einsum("...bij,...bj->...bi", self.grams, coefs)
        return np.asarray(
            np.maximum(self.squares + np.einsum("...bi,...bi->...b", coefs, fitted - 2 * self.moments), 0)
        )

    @property
    def _ridge(self) -> Floats:
        rounds = np.einsum("...ii->...", self.grams) / self.grams.shape[-1]
        return np.asarray((STABLE_RIDGE * rounds + 1e-300)[..., None, None] * np.eye(self.grams.shape[-1]))


@dataclass(frozen=True, eq=False)
class Series:
    """A log as the detectors read it: chains one after the other, and what one fit of everything leaves over."""

    rows: Floats  # (n or 1, R, D)
    actions: Ints
    rewards: Floats
    residuals: Floats  # e_t = r_t - c · f(x_t, a_t), c the fit of the whole log
    coefs: Floats  # (B, D) c
    scales: Floats  # (D,) root mean square of each feature
    begins: Ints  # first round of each chain
    ends: Ints
    order: Ints | None  # the log's round that stands at each place, where that is another

    @property
    def contextual(self) -> bool:
        """Whether there are features besides the action."""
        return bool(self.rows.shape[0] > 1 or self.rows.shape[2] > 1)

    @cached_property
    def clicks(self) -> bool:
        """Whether rewards are 0 or 1."""
        return bool(((self.rewards == 0) | (self.rewards == 1) | np.isnan(self.rewards)).all())

    @cached_property
    def whole(self) -> Sums:
        """The whole log as one piece."""
        return self.sums(np.array([0]), np.array([len(self.rewards)]))

    def sums(self, begins: Ints, ends: Ints) -> Sums:
        """Statistics of the pieces that begin and end at these rounds."""
        n_blocks = len(self.coefs)
        grams, moments, squares, counts = piece_sums(self.rows, self.actions, self.residuals, begins, ends, n_blocks)
        return Sums(grams / np.multiply.outer(self.scales, self.scales), moments / self.scales, squares, counts)

    def rounds(self, places: Ints) -> Ints:
        """The log's rounds that stand at ``places``."""
        return places if self.order is None else self.order[places]

    @cached_property
    def metric(self) -> Metric:
        """How the scores of each block scatter."""
        return _metric(self)


@dataclass(frozen=True, eq=False)
class Metric:
    """How the scores of each block scatter, beside what a constant noise variance would make of them.

    Where noise depends on the context, the statistic of a difference is Σ_i ℓ_i χ²_1 and not χ². Divided by the
    largest ℓ it has lighter tails than χ² with Σ ℓ / max ℓ degrees of freedom: (1 - 2sℓ)^(-1/2) ≤ (1 - 2s)^(-ℓ/2).
    """

    whitening: Floats  # (B, D, D) W with W G W' = 1, in the units of the rows
    stretch: Floats  # (B,) max ℓ
    freedom: Floats  # (B,) Σ ℓ / max ℓ


def series_of(log: BanditLog, by_action: bool = True) -> Series:
    """The log's series; that of its rewards alone unless ``by_action``."""
    order, begins, ends = _chains(log)
    ordered = log if order is None else log.take(order)
    rows, _, actions, rewards, _ = ordered.arrays
    if not by_action:
        rows, actions = np.ones((1, 1, 1)), np.zeros(len(log), dtype=np.int64)
        rows.flags.writeable = actions.flags.writeable = False
    n_blocks = log.joint.shape[0] if by_action else 1
    scales = log.scales if by_action else np.ones(1)
    level = float(np.nanmean(rewards)) if not np.isnan(rewards).all() else 0.0
    residuals = rewards - level
    coefs = np.full((n_blocks, rows.shape[2]), level)
    if rows.shape[0] > 1 or rows.shape[2] > 1:
        # A first look gives the units; the second look at what is left keeps the sums of squares from cancelling.
        coefs = np.zeros((n_blocks, rows.shape[2]))
        looks = Series(rows, actions, rewards, rewards, coefs, scales, begins, ends, order)
        coefs = looks.whole.coefs()[0] / scales
        scores = np.empty((len(rewards), 1))
        round_scores(rows, actions, coefs[None], scores)
        residuals = rewards - scores[:, 0]
    # Read-only as a log's own columns are: kernels are compiled for one kind of array.
    residuals.flags.writeable = False
    return Series(rows, actions, rewards, residuals, coefs, scales, begins, ends, order)


def chain_lengths(log: BanditLog) -> Ints:
    """Rounds of each chain."""
    return np.array([len(log)]) if log.sequences is None else np.unique(log.sequences, return_counts=True)[1]


def _chains(log: BanditLog) -> tuple[Ints | None, Ints, Ints]:
    """An order that puts each chain in one piece (None: they are), where each chain begins, and where it ends."""
    if log.sequences is None:
        return None, np.array([0]), np.array([len(log)])
    order, starts = chains(log)
    begins = np.flatnonzero(starts)
    ends = np.append(begins[1:], len(log))
    return (None if (np.diff(order) == 1).all() else order), begins, ends


def _metric(series: Series) -> Metric:
    n_blocks, n_features = series.coefs.shape
    if not series.contextual:
        return Metric(np.ones((n_blocks, 1, 1)), np.ones(n_blocks), np.ones(n_blocks))
    whole = series.whole
    counts = np.maximum(whole.counts[0], 1)
    values, vectors = np.linalg.eigh(whole.grams[0] / counts[:, None, None])
    kept = values > COLLINEAR * values.max(axis=1, keepdims=True)
    scaling = np.where(kept, 1 / np.sqrt(np.where(kept, values, 1)), 0)
    whitening = scaling[..., None] * np.swapaxes(vectors, 1, 2)
    raw = score_spread(series.rows, series.actions, series.residuals, n_blocks)
    spread = whitening @ (raw / np.multiply.outer(series.scales, series.scales)) @ np.swapaxes(whitening, 1, 2)
    noise = np.maximum(whole.squares[0] / counts, 1e-300)
    levels = np.linalg.eigvalsh(spread / (counts * noise)[:, None, None])
    # So much the largest eigenvalue of a sample exceeds that of the truth, by chance.
    chance = np.square(1 + np.sqrt(n_features / counts))
    stretch = np.maximum(levels[:, -1] / chance, 1)
    freedom = np.clip(levels.sum(axis=1) / stretch, 1, n_features)
    return Metric(np.ascontiguousarray(whitening / series.scales), stretch, freedom)


def difference(one: Sums, other: Sums, metric: Metric) -> tuple[Floats, Floats]:
    """How much the fits of two pieces differ: a statistic (P,), about χ², and its degrees of freedom (P,).

    Q = Σ_b (RSS_both - RSS_one - RSS_other) / v_b: what one fit for both costs, in units of the noise. v_b weighs the
    residual variances of both pieces about the common fit as the variance of a difference does, n_other v_one +
    n_one v_other; a piece counts at least with the variance of both, for a short one cannot vouch for its own.
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
    spoken = (smaller >= LEAST_ROUNDS) & (both.counts >= n_features + LEAST_ROUNDS)
    # A block that never varied leaves rounding behind.
    alive = spoken & (noise > 1e-12 * both.squares / counts) & (noise > 0)
    ratio = np.divide(cost, noise * metric.stretch, out=np.zeros_like(cost), where=alive)
    degrees = np.minimum(metric.freedom, smaller)
    return np.maximum(ratio, 0).sum(axis=-1), np.where(spoken, degrees, 0).sum(axis=-1)
