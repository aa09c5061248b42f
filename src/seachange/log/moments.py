"""Count, mean, variance and skewness of a column, a part at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seachange.protocols import Floats

ROWS = 1 << 17


class Moments(NamedTuple):
    """Of the entries that are numbers."""

    n_seen: int
    mean: float
    variance: float


def moments_of(column: Floats) -> Moments:
    """The moments of ``column`` (n,), which may be on disk; NaN are left out."""
    count, mean, squares = 0, 0.0, 0.0
    for start in range(0, len(column), ROWS):
        part = column[start : start + ROWS]
        part = part[np.isfinite(part)]
        if len(part) == 0:
            continue
        # Means and squared deviations of both parts together (Chan et al.).
        gap, total = float(part.mean()) - mean, count + len(part)
        squares += float(np.square(part - part.mean()).sum()) + gap * gap * count * len(part) / total
        mean += gap * len(part) / total
        count = total
    return Moments(count, mean, squares / max(count, 1))


def skewness_of(column: Floats) -> float:
    """E[(x - μ)³] / σ³ of ``column`` (n,), NaN left out; 0 where nothing varies."""
    count, mean, variance = moments_of(column)
    if not variance > 0:
        return 0.0
    cubes = 0.0
    for start in range(0, len(column), ROWS):
        part = column[start : start + ROWS]
        cubes += float((((part[np.isfinite(part)] - mean) / np.sqrt(variance)) ** 3).sum())
    return cubes / count
