"""Off-policy objectives and their gradients, from sums that add up over chunks of a log."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from seachange.kernels.objectives import objective_sums
from seachange.log.bandit_log import BanditLog
from seachange.policies.rewards import RewardModel
from seachange.protocols import Floats


@dataclass(frozen=True, eq=False)
class Objective:
    """J(θ) = mean y + τ mean H - λ √(Var y / N) - (l2 / 2) s Σ_j (u_j θ_j)².

    y_t = Σ_a π(a | x_t) r̂(x_t, a) + min{M, π(a_t | x_t) / p_t} (r_t - r̂(x_t, a_t)),  r̂ = 0 without a reward model

    Means are weighted, N is the sum of the weights, s the mean absolute reward and u_j the root mean square of feature
    j, so that the penalty means the same whatever the units of rewards and features.
    """

    log: BanditLog
    weights: Floats  # (n,) u_t
    reward_model: RewardModel | None
    clip: float  # M
    temperature: float  # τ
    variance_penalty: float  # λ
    l2: float

    @cached_property
    def scale(self) -> float:
        """s: weighted mean of |r|, or 1 where all rewards are 0."""
        return float(np.sum(self.weights * np.abs(self.log.arrays.rewards)) / self.weights.sum()) or 1.0

    @cached_property
    def units(self) -> Floats:
        """(D,) u: root mean square of each feature."""
        return self.log.joint.scales(self.log.arrays.rows)

    @cached_property
    def _chunks(self) -> list[tuple[Any, ...]]:
        """The kernel's arguments, chunk by chunk."""
        return [
            (*self.log[rounds].arrays, self.weights[rounds], self._modelled(rounds))
            for rounds in self.log.chunk_slices()
        ]

    def _modelled(self, rounds: slice) -> Floats:
        if self.reward_model is None:
            return np.zeros((1, self.log.n_actions))
        return self.reward_model.predict(self.log[rounds])

    def value_and_gradient(self, coefs: Floats) -> tuple[float, Floats]:
        """J and ∂J/∂θ at θ = ``coefs``, (B, D)."""
        total = float(self.weights.sum())
        means, slopes = np.zeros(3), np.zeros((3, *coefs.shape))
        for chunk in self._chunks:
            sums, gradients = objective_sums(  # type: ignore[call-arg]
                *chunk, coefs, self.clip, self.variance_penalty > 0, self.temperature > 0
            )
            means += sums / total
            slopes += gradients / total
        value = means[0] + self.temperature * means[2]
        slope = slopes[0] + self.temperature * slopes[2]
        # Var y / N with the unbiased variance; rounding must not make it negative.
        spread = (means[1] - means[0] ** 2) / (total - 1) if total > 1 else 0.0
        if self.variance_penalty > 0 and spread > 0:
            spread_slope = (slopes[1] - 2 * means[0] * slopes[0]) / (total - 1)
            value -= self.variance_penalty * np.sqrt(spread)
            slope -= self.variance_penalty * spread_slope / (2 * np.sqrt(spread))
        penalty = self.l2 * self.scale * np.square(self.units)
        return float(value - np.sum(penalty * np.square(coefs)) / 2), slope - penalty * coefs
