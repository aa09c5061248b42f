"""Reward models r̂(x, a) for the direct and doubly robust methods."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seachange.kernels.regression import modelled_rewards, regression_sums, solve_ridge
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats


@dataclass(frozen=True, eq=False)
class RewardModel:
    """r̂(x, a) = c · f(x, a), by weighted least squares with a ridge."""

    coefs: Floats  # (B, D)
    inverse_gram: Floats  # (B, D, D): (Σ u f f' + ridge I)⁻¹

    def predict(self, log: BanditLog) -> Floats:
        """r̂(x_t, a) of every round and action: (n, K), or (1, K) for a log without contexts."""
        return np.ascontiguousarray(modelled_rewards(log.arrays.rows, self.coefs))


def fit_rewards(log: BanditLog, weights: Floats, ridge: float) -> list[RewardModel]:
    """One reward model for every column of ``weights``, (n, L)."""
    n_blocks, n_features = log.joint.shape
    grams = np.zeros((weights.shape[1], n_blocks, n_features, n_features))
    moments = np.zeros((weights.shape[1], n_blocks, n_features))
    for rounds in log.chunk_slices():
        arrays = log[rounds].arrays
        sums = regression_sums(arrays.rows, arrays.actions, arrays.rewards, weights[rounds], n_blocks)
        grams += sums[0]
        moments += sums[1]
    coefs = solve_ridge(grams, moments, ridge)
    inverses = np.linalg.pinv(grams + ridge * np.eye(n_features), hermitian=True)
    return [RewardModel(c, inverse) for c, inverse in zip(coefs, inverses, strict=True)]
