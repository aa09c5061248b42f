"""Sums over a column and the rewards beside it. NaN is no number."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled


@compiled
def add_numbers(values, rewards, members, shift, sums, counts, totals, squares):
    """Add x - shift: its powers to those of its slice, (1, x, x², r, r², xr) to ``sums``; returns the range of x."""
    lowest, highest = np.inf, -np.inf
    for t in range(values.size):
        if not np.isfinite(values[t]):
            continue
        lowest, highest = min(lowest, values[t]), max(highest, values[t])
        x, r, s = values[t] - shift, rewards[t], members[t]
        counts[s] += 1.0
        totals[s] += x
        squares[s] += x * x
        if np.isfinite(r):
            sums[0] += 1.0
            sums[1] += x
            sums[2] += x * x
            sums[3] += r
            sums[4] += r * r
            sums[5] += x * r
    return lowest, highest


@compiled
def add_rewards(missing, rewards, known, lost):
    """Add (1, r, r²) to ``known``, or to ``lost`` where the column is missing."""
    for t in range(rewards.size):
        r = rewards[t]
        if np.isfinite(r):
            sums = lost if missing[t] else known
            sums[0] += 1.0
            sums[1] += r
            sums[2] += r * r
