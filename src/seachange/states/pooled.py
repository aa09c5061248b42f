"""What one regression of the whole log explains. EM works on the rest, so that a state is what differs from it.

Without this the ridge would pull states to 0 and not to each other: a mean reward of 100 would pass for noise.
"""

from __future__ import annotations

import numpy as np

from seachange.kernels.regression import regression_sums, solve_ridge
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats

# Least squares, but for as much ridge as keeps collinear features from blowing up; in rounds.
STABLE_RIDGE = 1e-6


def pooled_fit(log: BanditLog, scales: Floats) -> Floats:
    """(B, D) coefficients of the whole log, by least squares; ``scales`` (D,) are the units of the features."""
    n_blocks, n_features = log.joint.shape
    grams, moments = np.zeros((1, n_blocks, n_features, n_features)), np.zeros((1, n_blocks, n_features))
    for chunk in log.chunks():
        arrays = chunk.arrays
        sums = regression_sums(arrays.rows, arrays.actions, arrays.rewards, np.ones((len(chunk), 1)), n_blocks)
        grams += sums[0]
        moments += sums[1]
    return np.asarray(solve_ridge(grams, moments, STABLE_RIDGE * np.square(scales))[0])


def residual_log(log: BanditLog, coefs: Floats) -> BanditLog:
    """The log with r_t - c · f(x_t, a_t) for rewards."""
    rows, _, actions, rewards, _ = log.arrays
    if log.joint.kind == "per action":
        fitted = rows[np.arange(len(log)), actions] @ coefs[0]
    else:
        fitted = np.einsum("nd,nd->n", coefs[actions], np.broadcast_to(rows[:, 0], (len(log), rows.shape[2])))
    return log.with_rewards(rewards - fitted)
