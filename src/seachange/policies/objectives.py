"""Off-policy objectives and their gradients, from sums that add up over chunks of a log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from seachange.engine import map_in_order
from seachange.kernels.objectives import ALONE, CROSS_ENTROPY, SQUARES, VALUE, WEIGHTS, objective_sums
from seachange.log.bandit_log import BanditLog
from seachange.policies.tiles import Tiles, tiles_of
from seachange.protocols import Floats

# Rounds are laid out once, for all passes, where that takes at most so many numbers.
MOST_KEPT = 1 << 27
# Features beyond which threads share a pass: for fewer they are not worth the waiting.
WORTH_SHARING = 1 << 21


@dataclass(frozen=True, eq=False)
class Objective:
    """J(θ) = mean y + τ mean H - λ √(Var y / N) - (l2 / 2) s Σ_j (u_j (θ_j - θ°_j))².

    y_t = Σ_a π(a | x_t) r̂(x_t, a) + min{M, π(a_t | x_t) / p_t} (r_t - r̂(x_t, a_t)),  r̂ = 0 without a reward model

    Means are weighted, N is the sum of the weights, s the mean absolute reward and u_j the root mean square of feature
    j, so that the penalty means the same whatever the units of rewards and features. ``normalised``: Σ y / Σ w in place
    of mean y, w the weights of y. ``surrogate``: y_t = (r_t / p_t) log π(a_t | x_t).
    """

    log: BanditLog
    weights: Floats  # (n,) u_t
    modelled: Floats | None = None  # (n, K) or (1, K) r̂
    clip: float = np.inf  # M
    temperature: float = 0.0  # τ
    variance_penalty: float = 0.0  # λ
    l2: float = 0.0
    centre: Floats | None = None  # (B, D) θ°; None: 0
    normalised: bool = False
    surrogate: bool = False
    workers: int = 1  # threads that share a pass

    @cached_property
    def total(self) -> float:
        """N: what all rounds count."""
        return float(self.weights.sum())

    @cached_property
    def scale(self) -> float:
        """s: weighted mean of |r|, or 1 where all rewards are 0."""
        return float(np.sum(self.weights * np.abs(self.log.arrays.rewards)) / self.total) or 1.0

    @cached_property
    def units(self) -> Floats:
        """(D,) u: root mean square of each feature."""
        return self.log.scales

    @cached_property
    def _kept(self) -> list[Tiles] | None:
        """All tiles, where there is room for them."""
        rows = self.log.arrays.rows
        size = len(self.log) * (rows.shape[1] * rows.shape[2] + (0 if self.modelled is None else self.log.n_actions))
        return list(self._laid_out()) if self.log.spool is None and (self._sparse or size <= MOST_KEPT) else None

    @property
    def _sparse(self) -> bool:
        """Whether a round without a reward moves neither y nor its variance."""
        return self.modelled is None and not self.normalised and self.temperature == 0

    def _laid_out(self) -> Iterator[Tiles]:
        """Rounds that matter, in tiles."""
        for part in self.log.chunk_slices():
            chunk, weights = self.log[part], self.weights[part]
            matters = weights > 0
            if self._sparse:
                matters &= chunk.arrays.rewards != 0
            modelled = self.modelled if self.modelled is None or len(self.modelled) == 1 else self.modelled[part]
            if matters.any():
                yield tiles_of(chunk, np.flatnonzero(matters), weights, modelled, self.clip)

    def counting(self, weights: Floats) -> Objective:
        """Inverse propensity scores, clipped as here, of rounds that count otherwise."""
        other = Objective(log=self.log, weights=weights, clip=self.clip, workers=self.workers)
        other.__dict__["units"] = self.units
        return other

    def drawn_to(self, centre: Floats | None) -> Objective:
        """The same with another ``centre``."""
        return self._with(centre=centre)

    def pulled(self, l2: float) -> Objective:
        """The same with another ``l2``."""
        return self._with(l2=l2)

    @cached_property
    def as_surrogate(self) -> Objective:
        """The concave objective that stands for this one, of rounds with a reward alone."""
        if self._sparse:
            return self._with(surrogate=True, variance_penalty=0.0)
        return self.counting(self.weights)._with(l2=self.l2, centre=self.centre, surrogate=True)

    @cached_property
    def as_value(self) -> Objective:
        """What a surrogate stands for, of the same tiles."""
        return self._with(surrogate=False)

    def _with(self, **changes: Any) -> Objective:
        other = replace(self, **changes)
        other.__dict__.update({name: getattr(self, name) for name in ("_kept", "units", "scale", "total")})
        return other

    def relative_error(self, coefs: Floats) -> float:
        """Standard error of mean y at θ = ``coefs``, in units of the mean absolute reward."""
        means, _ = self._sums(coefs, VALUE, SQUARES)
        means /= self.total
        return float(np.sqrt(max(means[1] - means[0] ** 2, 0.0) / self.total)) / self.scale

    def _sums(self, coefs: Floats, goal: int, beside: int) -> tuple[Floats, Floats]:
        """What ``objective_sums`` adds up over all tiles: of one run of them, then of all runs in order."""

        def of_run(tiles: Tiles) -> tuple[Floats, Floats]:
            means, slopes = np.zeros(3), np.zeros((3, *coefs.shape))
            single = coefs.astype(tiles.features.dtype)
            objective_sums(*tiles, single, goal, beside, self.temperature > 0, means, slopes)
            return means, slopes

        runs = self._kept
        workers = self.workers if runs and sum(tiles.features.size for tiles in runs) > WORTH_SHARING else 1
        found = map(of_run, self._laid_out()) if runs is None else map_in_order(of_run, runs, workers=workers)
        means, slopes = np.zeros(3), np.zeros((3, *coefs.shape))
        for its_means, its_slopes in found:
            means += its_means
            slopes += its_slopes
        return means, slopes

    def value_and_gradient(self, coefs: Floats) -> tuple[float, Floats]:
        """J and ∂J/∂θ at θ = ``coefs``, (B, D)."""
        total = self.total
        beside = WEIGHTS if self.normalised else SQUARES if self.variance_penalty > 0 else ALONE
        means, slopes = self._sums(coefs, CROSS_ENTROPY if self.surrogate else VALUE, beside)
        means /= total
        slopes /= total
        value, slope = means[0], slopes[0]
        if self.normalised:
            # Without weight there is nothing to divide by, and nothing is known.
            value = means[0] / means[1] if means[1] > 0 else 0.0
            slope = (slopes[0] - value * slopes[1]) / means[1] if means[1] > 0 else 0.0 * slope
        value, slope = value + self.temperature * means[2], slope + self.temperature * slopes[2]
        # Var y / N with the unbiased variance; rounding must not make it negative.
        spread = (means[1] - means[0] ** 2) / (total - 1) if total > 1 else 0.0
        if self.variance_penalty > 0 and spread > 0:
            spread_slope = (slopes[1] - 2 * means[0] * slopes[0]) / (total - 1)
            value -= self.variance_penalty * np.sqrt(spread)
            slope = slope - self.variance_penalty * spread_slope / (2 * np.sqrt(spread))
        penalty = self.l2 * self.scale * np.square(self.units)
        away = coefs if self.centre is None else coefs - self.centre
        return float(value - np.sum(penalty * np.square(away)) / 2), slope - penalty * away
