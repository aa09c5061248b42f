"""Reward models r̂(x, a) for the direct and doubly robust methods."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seachange.kernels.regression import modelled_rewards, penalised_gram, regression_sums, scaled_inverse, solve_ridge
from seachange.log.bandit_log import BanditLog
from seachange.params import Auto
from seachange.protocols import Floats
from seachange.states.shrinkage import likeliest_ridge


@dataclass(frozen=True, eq=False)
class RewardModel:
    """r̂(x, a) = c · f(x, a), by weighted least squares with a ridge."""

    coefs: Floats  # (B, D)
    inverse_gram: Floats  # (B, D, D): (Σ u f f' + ridge I)⁻¹

    def predict(self, log: BanditLog) -> Floats:
        """r̂(x_t, a) of every round and action: (n, K), or (1, K) for a log without contexts."""
        return np.ascontiguousarray(modelled_rewards(log.arrays.rows, self.coefs))


def fit_rewards(log: BanditLog, weights: Floats, ridge: float | Auto) -> list[RewardModel]:
    """One reward model for every column of ``weights``, (n, L).

    ``ridge`` counts in rounds; "auto" is the one that the rewards make most likely. It pulls towards the mean reward
    where there is an intercept to hold it, and to 0 where actions have vectors of their own.
    """
    n_blocks, n_features = log.joint.shape
    scales = log.joint.scales(log.arrays.rows)
    offsets = np.zeros(weights.shape[1])
    if log.joint.kind != "per action":
        counts = weights.sum(axis=0)
        offsets = np.divide(log.arrays.rewards @ weights, counts, out=offsets, where=counts > 0)
    grams = np.zeros((weights.shape[1], n_blocks, n_features, n_features))
    moments, totals = np.zeros((weights.shape[1], n_blocks, n_features)), np.zeros((weights.shape[1], 2))
    for rounds in log.chunk_slices():
        arrays = log[rounds].arrays
        sums = regression_sums(arrays.rows, arrays.actions, arrays.rewards, weights[rounds], n_blocks)
        grams += sums[0]
        moments += sums[1]
        totals += sums[2]
    # Moments of r - offset: the intercept is the last feature, which is always 1.
    moments -= offsets[:, None, None] * grams[..., -1]
    squares = totals[:, 0] - np.square(offsets) * totals[:, 1]
    models = []
    for z, offset in enumerate(offsets):
        used = ridge
        if used == "auto":
            used = likeliest_ridge(grams[z], moments[z], float(squares[z]), float(totals[z, 1]), scales)
        penalties = used * np.square(scales)
        coefs = solve_ridge(grams[z], moments[z], penalties)
        if log.joint.kind != "per action":
            coefs[..., -1] += offset
        models.append(RewardModel(coefs, scaled_inverse(penalised_gram(grams[z], penalties))))
    return models
