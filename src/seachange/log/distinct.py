"""How many distinct values there are, in memory that does not grow with them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# The least hashes that are kept: up to so many values are counted exactly.
LEAST_HASHES = 1024


class Distinct:
    """How many distinct values there are, from the least of their hashes.

    If h is the k-th least of n hashes, evenly spread over [0, 1], then n ≈ (k - 1) / h, to about 1 / √k.
    """

    def __init__(self) -> None:
        self.least: npt.NDArray[np.uint64] = np.empty(0, dtype=np.uint64)

    def add(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Take up some values."""
        if not len(hashes):
            return
        if not self.exact:
            hashes = hashes[hashes < self.least[-1]]
        ordered = np.sort(np.concatenate([self.least, hashes]))
        fresh = np.ones(len(ordered), dtype=bool)
        fresh[1:] = ordered[1:] != ordered[:-1]
        self.least = ordered[fresh][: LEAST_HASHES + 1]

    @property
    def exact(self) -> bool:
        """Whether every value was counted."""
        return len(self.least) <= LEAST_HASHES

    @property
    def count(self) -> int:
        """Distinct values."""
        return len(self.least) if self.exact else round(LEAST_HASHES / (float(self.least[-1]) / 2.0**64))
