"""Statistics of one column, computed part by part: moments, variances between groups, and distinct values."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.protocols import Floats

ROWS = 1 << 17  # rows per part
KEPT_HASHES = 1024  # hashes that are kept: up to this many distinct values are counted exactly


class Moments(NamedTuple):
    """Of the entries that are numbers."""

    n_seen: int
    mean: float
    variance: float


def _finite_parts(column: Floats) -> Iterator[Floats]:
    parts = (column[start : start + ROWS] for start in range(0, len(column), ROWS))
    return (part[np.isfinite(part)] for part in parts)


def moments_of(column: Floats) -> Moments:
    """The moments of ``column`` (n,), which may be on disk; NaN are skipped."""
    count, mean, squares = 0, 0.0, 0.0
    for part in filter(len, _finite_parts(column)):
        # Means and squared deviations of both parts combined (Chan et al.).
        gap, total = float(part.mean()) - mean, count + len(part)
        squares += float(np.square(part - part.mean()).sum()) + gap * gap * count * len(part) / total
        mean += gap * len(part) / total
        count = total
    return Moments(count, mean, squares / max(count, 1))


def skewness_of(column: Floats) -> float:
    """E[(x - μ)³] / σ³ of ``column`` (n,), NaN skipped; 0 if it is constant."""
    count, mean, variance = moments_of(column)
    if not variance > 0:
        return 0.0
    return sum(float((((part - mean) / np.sqrt(variance)) ** 3).sum()) for part in _finite_parts(column)) / count


def variance_between(counts: Floats, sums: Floats, squares: Floats) -> tuple[float, float]:
    """The share of the variance of x between groups, and by how many standard deviations it exceeds chance.

    An analysis of variance; 1, x and x² are summed for each of the groups (G,), none of which is empty.
    """
    n, degrees, grand = counts.sum(), len(counts) - 1, sums.sum() / max(counts.sum(), 1)
    total, between = squares.sum() - n * grand**2, (counts * np.square(sums / counts - grand)).sum()
    if degrees < 1 or n <= len(counts) or not total > 0:
        return 0.0, 0.0
    statistic = between / max((total - between) / (n - len(counts)), 1e-300)
    return float(between / total), float((statistic - degrees) / np.sqrt(2 * degrees))


class Distinct:
    """Number of distinct values in bounded memory, from their smallest hashes.

    If h is the k-th smallest of n hashes, uniform on [0, 1], then n ≈ (k - 1) / h, with relative error about 1 / √k.
    """

    def __init__(self) -> None:
        self.smallest: npt.NDArray[np.uint64] = np.empty(0, dtype=np.uint64)

    def add(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Count the values with these hashes."""
        if not self.exact:
            hashes = hashes[hashes < self.smallest[-1]]
        self.smallest = np.unique(np.concatenate([self.smallest, hashes]))[: KEPT_HASHES + 1]

    @property
    def exact(self) -> bool:
        """Whether every value was counted."""
        return len(self.smallest) <= KEPT_HASHES

    @property
    def count(self) -> int:
        """Distinct values."""
        return len(self.smallest) if self.exact else round(KEPT_HASHES / (float(self.smallest[-1]) / 2.0**64))
