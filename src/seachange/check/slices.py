"""Sums over equal slices of time, of a log whose length is not known before its end."""

from __future__ import annotations

import numpy as np

from seachange.protocols import Floats, Ints

# A log has between half as many slices and as many.
SLICES = 40


class Slices:
    """Rounds in their order, cut into 20 to 40 slices of equal length; when there are more, two become one."""

    def __init__(self) -> None:
        self.size = 1  # rounds of a slice
        self.n_rounds = 0
        self._sums: list[SliceSums] = []

    def sums(self, rows: int = 1) -> SliceSums:
        """Something to be summed by slice, a row for each of several."""
        made = SliceSums(rows)
        self._sums.append(made)
        return made

    def extend(self, rounds: int) -> Ints:
        """Take up so many rounds: the slice of each."""
        places = np.arange(self.n_rounds, self.n_rounds + rounds)
        self.n_rounds += rounds
        while self.n_rounds > self.size * SLICES:
            self.size *= 2
            for each in self._sums:
                each.halve()
        return places // self.size

    @property
    def count(self) -> int:
        """Slices in use."""
        return -(-self.n_rounds // self.size)

    @property
    def lengths(self) -> Floats:
        """(S,) rounds in each."""
        lengths = np.full(self.count, float(self.size))
        if self.count:
            lengths[-1] = self.n_rounds - self.size * (self.count - 1)
        return lengths


class SliceSums:
    """(rows, slices) sums."""

    def __init__(self, rows: int) -> None:
        self.values = np.zeros((rows, SLICES))

    def add(self, members: Ints, weights: Floats | None = None, rows: Ints | None = None) -> None:
        """Add weights (1 where there are none) to the slices ``members``, of ``rows`` where there are several."""
        if rows is None:
            self.values[0] += np.bincount(members, weights, SLICES)
            return
        if len(rows) and rows.max() >= len(self.values):
            more = np.zeros((max(int(rows.max()) + 1, 2 * len(self.values)), SLICES))
            more[: len(self.values)] = self.values
            self.values = more
        self.values += np.bincount(rows * SLICES + members, weights, self.values.size).reshape(self.values.shape)

    def part(self, rows: int, slices: int) -> Floats:
        """The first rows and slices; rows that nothing was added to are 0."""
        found = np.zeros((rows, slices))
        found[: len(self.values)] = self.values[:rows, :slices]
        return found

    def halve(self) -> None:
        """Make one slice of two."""
        pairs = self.values.reshape(len(self.values), -1, 2).sum(axis=2)
        self.values[:] = 0
        self.values[:, : pairs.shape[1]] = pairs
