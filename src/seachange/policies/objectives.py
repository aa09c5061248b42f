"""Off-policy objectives and their gradients, from sums that add up over chunks of a log."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from seachange.engine import map_in_order
from seachange.kernels.lanes import LANES
from seachange.kernels.objective_sums import ALONE, CROSS_ENTROPY, SQUARES, VALUE, WEIGHTS, objective_sums
from seachange.log.bandit_log import BanditLog
from seachange.log.joint_features import JointFeatures
from seachange.log.units import Units
from seachange.protocols import Bools, Floats, Ints

COMMON = 0.1  # share of rounds with the smallest reward that makes it the baseline


class Tiles(NamedTuple):
    """Rounds as ``objective_sums`` takes them, S = ``LANES`` per tile, in the precision of the features."""

    features: Floats  # (m, D, R S) in the log's units; features per action without the intercept
    allowed: Bools  # (m, K, S), or (0, K, S) if every action is allowed
    chosen: Ints  # (m, S)
    residuals: Floats  # (m, S) r - b - m(a_t)
    inverses: Floats  # (m, S) 1 / p
    limits: Floats  # (m, S) M p: probabilities are clipped here
    weights: Floats  # (m, S) u, 0 in columns without a round
    modeled: Floats  # (m, K, S) m, minus b, or (0, K, S) without a reward model


def tiles_of(
    log: BanditLog, rounds: Ints, units: Units, rewards: Floats, weights: Floats, modeled: Floats | None, clip: float
) -> Tiles:
    """Tiles of ``rounds``, given ``rewards`` (n,) and ``modeled`` ones, (n, K) or (1, K), relative to the baseline."""
    rows, mask, actions, _, propensities = log.arrays
    n_actions, chosen, kind = log.n_actions, actions[rounds], rows.dtype

    def own(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The values of ``rounds``; a single row is that of every round."""
        return values[rounds] if len(values) > 1 else np.broadcast_to(values, (len(rounds), *values.shape[1:]))

    predicted, residuals = np.empty((0, n_actions, LANES), dtype=kind), rewards[rounds]
    if modeled is not None:
        selected = own(modeled)
        residuals = residuals - selected[np.arange(len(rounds)), chosen]
        predicted = _in_columns(selected, kind)
    allowed = np.empty((0, n_actions, LANES), bool)
    if len(mask) > 1 or not mask.all():
        allowed = _in_columns(own(mask), bool, True)
    width = rows.shape[2] - (log.joint.kind == "per action")
    standard = np.empty((len(rounds), rows.shape[1], width), kind)
    np.subtract(own(rows)[..., :width], units.means[:width], out=standard, casting="same_kind")
    np.divide(standard, units.scales[:width], out=standard, casting="same_kind")
    features = _in_columns(np.moveaxis(standard, 2, 1), kind)
    return Tiles(
        features=features.reshape(*features.shape[:2], -1),
        allowed=allowed,
        chosen=_in_columns(chosen, np.int32),
        residuals=_in_columns(residuals, kind),
        inverses=_in_columns(1 / propensities[rounds], kind),
        limits=_in_columns(clip * propensities[rounds], kind),
        weights=_in_columns(weights[rounds], kind),
        modeled=predicted,
    )


def _in_columns(values: npt.NDArray[Any], kind: npt.DTypeLike, padding: Any = 0) -> npt.NDArray[Any]:
    """(n, …) as (m, …, S), padded at the end."""
    n_tiles = -(-len(values) // LANES)
    whole = np.full((n_tiles * LANES, *values.shape[1:]), padding, dtype=kind)
    whole[: len(values)] = values
    return np.ascontiguousarray(np.moveaxis(whole.reshape(n_tiles, LANES, *values.shape[1:]), 1, -1))


def least_reward(log: BanditLog, counts: Floats) -> float:
    """The smallest reward of the rounds that count."""
    return float(np.min(log.arrays.rewards, where=counts > 0, initial=np.inf))


def reward_baseline(log: BanditLog, counts: Floats) -> float:
    """The reward to measure others from: the smallest one if a tenth of the rounds earn it, else the mean.

    No click is worth 0, so the rounds without a click can be skipped.
    """
    rewards, least = log.arrays.rewards, least_reward(log, counts)
    if float(counts @ (rewards == least)) >= COMMON * counts.sum():
        return least
    return least + float(counts @ (rewards - least) / counts.sum())


def free_coefs(units: Units, joint: JointFeatures, raw: Floats) -> Floats:
    """A policy's coefficients in ``units``; without an intercept that all actions share, which cancels."""
    coefs = units.coefs(raw)
    return coefs[:, :-1] if joint.kind == "per action" else coefs


def policy_coefs(units: Units, joint: JointFeatures, free: Floats) -> Floats:
    """The raw coefficients of a policy with ``free_coefs`` (B, D)."""
    if joint.kind != "per action":
        return units.raw_coefs(free)
    return np.append(free / units.scales[:-1], [[0.0]], axis=1)


MAX_KEPT = 1 << 27  # tiles are kept for all passes if they take at most this many numbers
# Threads share a pass over more features than this; below, starting them costs more than they save.
MIN_SHARED = 1 << 21


@dataclass(frozen=True, eq=False)
class Objective:
    """J(θ) = mean y + τ mean H - λ √(Var y / N) - (l2 / 2) s |θ - θ°|².

    y_t = Σ_a π(a | x_t) r̂(x_t, a) + min{M, π(a_t | x_t) / p_t} (r_t - r̂(x_t, a_t)),  r̂ = 0 without a reward model

    θ (B, D) are ``free_coefs``, and r and r̂ are relative to the ``baseline``. Means are weighted, N is the sum of the
    weights and s the mean absolute r, so neither the units nor the level of rewards and features matter.
    ``normalized``: Σ y / Σ w instead of mean y, with w the weights of y. ``surrogate``: y_t = (max{r_t, 0} / p_t) log
    π(a_t | x_t).
    """

    log: BanditLog
    weights: Floats  # (n,) u_t
    modeled: Floats | None = None  # (n, K) or (1, K) r̂ + b
    baseline: float = 0.0  # b
    clip: float = np.inf  # M
    temperature: float = 0.0  # τ
    variance_penalty: float = 0.0  # λ
    l2: float = 0.0
    center: Floats | None = None  # (B, D) θ°; None: 0
    normalized: bool = False
    surrogate: bool = False
    workers: int = 1  # threads per pass

    @cached_property
    def total(self) -> float:
        """N: the sum of the weights."""
        return float(self.weights.sum())

    @cached_property
    def scale(self) -> float:
        """s: weighted mean of |r - b|, or 1 if all are 0."""
        return float(np.sum(self.weights * np.abs(self.log.arrays.rewards - self.baseline)) / self.total) or 1.0

    @cached_property
    def _kept(self) -> list[Tiles] | None:
        rows = self.log.arrays.rows
        size = len(self.log) * (rows.shape[1] * rows.shape[2] + (0 if self.modeled is None else self.log.n_actions))
        return list(self._laid_out()) if self.log.disk is None and (self._sparse or size <= MAX_KEPT) else None

    @property
    def _sparse(self) -> bool:
        """Whether rounds whose reward is the baseline change neither y nor its variance."""
        return self.modeled is None and not self.normalized and self.temperature == 0

    def _laid_out(self) -> Iterator[Tiles]:
        """Tiles of the rounds that matter."""
        for part in self.log.chunk_slices():
            chunk, weights = self.log[part], self.weights[part]
            matters, rewards = weights > 0, chunk.arrays.rewards - self.baseline
            if self.surrogate:
                rewards = np.maximum(rewards, 0.0)
            if self._sparse:
                matters &= rewards != 0
            modeled = self.modeled
            if modeled is not None:
                modeled = (modeled if len(modeled) == 1 else modeled[part]) - self.baseline
            if matters.any():
                rounds = np.flatnonzero(matters)
                yield tiles_of(chunk, rounds, self.log.units, rewards, weights, modeled, self.clip)

    def reweighted(self, weights: Floats) -> Self:
        """Inverse propensity scores with the same clip and baseline, and other weights."""
        return type(self)(self.log, weights, baseline=self.baseline, clip=self.clip, workers=self.workers)

    def as_surrogate(self) -> Self:
        """The concave surrogate of this objective, if no reward is below the baseline."""
        if self._sparse:
            return self.changed(surrogate=True, variance_penalty=0.0)
        return replace(self.reweighted(self.weights), surrogate=True)

    def changed(self, **settings: Any) -> Self:
        """The same objective with other settings, on the same tiles."""
        other = replace(self, **settings)
        other.__dict__.update({name: getattr(self, name) for name in ("_kept", "scale", "total")})
        return other

    def relative_error(self, coefs: Floats) -> float:
        """Standard error of mean y at θ = ``coefs``, in units of the mean absolute reward."""
        means, _ = self._sums(coefs, VALUE, SQUARES)
        means /= self.total
        return float(np.sqrt(max(means[1] - means[0] ** 2, 0.0) / self.total)) / self.scale

    def _sums(self, coefs: Floats, goal: int, second: int) -> tuple[Floats, Floats]:
        """The sums of ``objective_sums`` over all tiles, added up in a fixed order."""

        def of_run(tiles: Tiles) -> tuple[Floats, Floats]:
            means, slopes = np.zeros(3), np.zeros((3, *coefs.shape))
            single = coefs.astype(tiles.features.dtype)
            objective_sums(*tiles, single, goal, second, self.temperature > 0, means, slopes)
            return means, slopes

        runs = self._kept
        workers = self.workers if runs and sum(tiles.features.size for tiles in runs) > MIN_SHARED else 1
        sums = map(of_run, self._laid_out()) if runs is None else map_in_order(of_run, runs, workers=workers)
        means, slopes = np.zeros(3), np.zeros((3, *coefs.shape))
        for run_means, run_slopes in sums:
            means += run_means
            slopes += run_slopes
        return means, slopes

    def value_and_gradient(self, coefs: Floats) -> tuple[float, Floats]:
        """J and ∂J/∂θ at θ = ``coefs``, (B, D)."""
        total = self.total
        second = WEIGHTS if self.normalized else SQUARES if self.variance_penalty > 0 else ALONE
        means, slopes = self._sums(coefs, CROSS_ENTROPY if self.surrogate else VALUE, second)
        means /= total
        slopes /= total
        value, slope = means[0], slopes[0]
        if self.normalized:
            # Without any weight there is nothing to normalize by.
            value = means[0] / means[1] if means[1] > 0 else 0.0
            slope = (slopes[0] - value * slopes[1]) / means[1] if means[1] > 0 else 0.0 * slope
        value, slope = value + self.temperature * means[2], slope + self.temperature * slopes[2]
        # Var y / N with the unbiased variance; rounding may make it negative.
        spread = (means[1] - means[0] ** 2) / (total - 1) if total > 1 else 0.0
        if self.variance_penalty > 0 and spread > 0:
            spread_slope = (slopes[1] - 2 * means[0] * slopes[0]) / (total - 1)
            value -= self.variance_penalty * np.sqrt(spread)
            slope = slope - self.variance_penalty * spread_slope / (2 * np.sqrt(spread))
        penalty = self.l2 * self.scale
        offset = coefs if self.center is None else coefs - self.center
        return float(value - penalty * np.sum(np.square(offset)) / 2), slope - penalty * offset
