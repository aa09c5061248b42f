"""The change-point detector's scan over a log."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def mean_shifts(rewards, window):
    """|μ⁺_t - μ⁻_t| for t = w … n - w: mean reward of the w rounds from t on against the w rounds before t."""
    n = rewards.size
    shifts = np.zeros(n + 1)
    difference = 0.0
    for i in range(window):
        difference += rewards[window + i] - rewards[i]
    shifts[window] = abs(difference) / window
    # The running sum is started afresh every window so that rounding cannot pile up.
    for t in range(window + 1, n - window + 1):
        if t % window == 0:
            difference = 0.0
            for i in range(window):
                difference += rewards[t + i] - rewards[t - window + i]
        else:
            difference += rewards[t + window - 1] - 2.0 * rewards[t - 1] + rewards[t - window - 1]
        shifts[t] = abs(difference) / window
    return shifts


@njit(cache=True, nogil=True)
def pick_peaks(candidates, n, reach):
    """Walk ``candidates`` (best first), keep each that is more than ``reach`` rounds from all kept before."""
    blocked = np.zeros(n + 1, dtype=np.bool_)
    kept = np.zeros(candidates.size, dtype=np.bool_)
    for i in range(candidates.size):
        t = candidates[i]
        if not blocked[t]:
            kept[i] = True
            for near in range(max(0, t - reach), min(n, t + reach) + 1):
                blocked[near] = True
    return candidates[kept]
