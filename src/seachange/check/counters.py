"""Counters in bounded memory: sums over slices of time, rule counts with places, and tables of seen keys."""

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from seachange.check.log_check import MOST_PLACES, Place
from seachange.protocols import Bools, Floats, Ints

Hashes = npt.NDArray[np.uint64]
SLICES = 40  # a log has between half this many slices and this many
LARGEST = 1 << 20  # keys that a table holds: 16 MiB
NEW, OTHER, SAME, LEFT_OUT = 0, 1, 2, 3  # what a table knows about a key


class Slices:
    """Rounds in order, cut into 20 to 40 slices of equal length; neighbors are merged as the log grows."""

    def __init__(self) -> None:
        self.size = 1  # rounds per slice
        self.n_rounds = 0
        self._sums: list[SliceSums] = []

    def sums(self, rows: int = 1) -> "SliceSums":
        """New sums by slice, ``rows`` of them."""
        made = SliceSums(rows)
        self._sums.append(made)
        return made

    def extend(self, rounds: int) -> Ints:
        """Append rounds; returns the slice of each."""
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
        return np.diff(np.minimum(np.arange(self.count + 1) * self.size, self.n_rounds)).astype(np.float64)


class SliceSums:
    """(rows, slices) sums."""

    def __init__(self, rows: int) -> None:
        self.values = np.zeros((rows, SLICES))

    def add(self, slices: Ints, weights: Floats | None = None, rows: Ints | None = None) -> None:
        """Add weights (default 1) to ``slices`` of ``rows`` (default the first)."""
        if rows is None:
            self.values[0] += np.bincount(slices, weights, SLICES)
            return
        if len(rows) and rows.max() >= len(self.values):
            more = max(int(rows.max()) + 1 - len(self.values), len(self.values))
            self.values = np.concatenate([self.values, np.zeros((more, SLICES))])
        self.values += np.bincount(rows * SLICES + slices, weights, self.values.size).reshape(self.values.shape)

    def part(self, rows: int, slices: int) -> Floats:
        """The first rows and slices; rows without entries are 0."""
        found = np.zeros((rows, slices))
        found[: len(self.values)] = self.values[:rows, :slices]
        return found

    def halve(self) -> None:
        """Merge pairs of slices."""
        pairs = self.values.reshape(len(self.values), -1, 2).sum(axis=2)
        self.values[:] = 0
        self.values[:, : pairs.shape[1]] = pairs


class RuleCounts:
    """How often each rule is broken, and the first few places."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = defaultdict(int)
        self._places: dict[str, list[Place]] = defaultdict(list)

    def add(self, rule: str, source: str, lines: Ints) -> None:
        """Count the lines of a file that break a rule."""
        self.counts[rule] += len(lines)
        free = MOST_PLACES - len(self._places[rule])
        self._places[rule] += [Place(source, int(line)) for line in lines[:free]]

    def first(self, rule: str) -> tuple[Place, ...]:
        """The first few places."""
        return tuple(self._places[rule])


class Largest:
    """The largest values and their places, largest first."""

    def __init__(self, count: int = MOST_PLACES) -> None:
        self.count = count
        self._entries: list[tuple[float, Place]] = []

    @property
    def values(self) -> list[float]:
        """Largest first."""
        return [value for value, _ in self._entries]

    def add(self, values: Floats, source: str, lines: Ints) -> None:
        """Keep the largest of these and the earlier ones; only positive ones count."""
        top = np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")[: self.count]
        new = [(float(values[i]), Place(source, int(lines[i]))) for i in top if values[i] > 0]
        self._entries = sorted([*self._entries, *new], key=lambda entry: -entry[0])[: self.count]

    def places(self, count: int) -> tuple[Place, ...]:
        """Of the largest, in order."""
        return tuple(sorted((place for _, place in self._entries[:count]), key=lambda each: (each.source, each.line)))


class SeenKeys:
    """A sorted table of keys and the last value of each; once it is full, it keeps a random share of the keys.

    The keys that stay are those whose highest bits are 0. Nothing about them is forgotten: their repetitions are found
    at any distance, and the share gives the total.
    """

    def __init__(self, value_type: type[np.generic] = np.uint64, largest: int | None = LARGEST) -> None:
        self.level, self._largest = 0, largest
        self._keys = np.empty(0, dtype=np.uint64)
        self._values = np.empty(0, dtype=value_type)

    @property
    def share(self) -> float:
        """Of the keys that are kept."""
        return float(2.0**-self.level)

    @property
    def _highest(self) -> np.uint64:
        return np.uint64(np.iinfo(np.uint64).max >> self.level)

    def repeats(self, keys: Hashes, values: Hashes) -> npt.NDArray[np.uint8]:
        """For each key: NEW, seen with an OTHER value, with the SAME value, or LEFT_OUT."""
        seen, before = self._add(keys, values)
        found = np.where(seen, np.where(before == values, SAME, OTHER), NEW).astype(np.uint8)
        found[keys > self._highest] = LEFT_OUT
        return found

    def before(self, keys: Hashes, values: Floats) -> Floats:
        """The previous value of each key; NaN if there is none. NaN is not a value."""
        found, known = np.full(len(keys), np.nan), ~np.isnan(values)
        seen, before = self._add(keys[known], values[known])
        found[known] = np.where(seen, before, np.nan)
        return found

    def _add(self, keys: Hashes, values: Any) -> tuple[Bools, Any]:
        """Whether each key was seen before, and its previous value; then the table holds the new ones."""
        n_known, every = len(self._keys), np.concatenate([self._keys, keys])
        order = np.argsort(every, kind="stable")  # of equal keys, the one in the table comes first
        key, value = every[order], np.concatenate([self._values, values])[order]
        seen, before = np.zeros(len(every), dtype=bool), np.empty_like(value)
        again = key[1:] == key[:-1]
        seen[order[1:]], before[order[1:]] = again, value[:-1]
        last = np.append(~again, True)[: len(key)] & (key <= self._highest)
        self._keys, self._values = key[last], value[last]
        while self._largest is not None and len(self._keys) > self._largest:
            self.level += 1
            kept = np.searchsorted(self._keys, self._highest, side="right")
            self._keys, self._values = self._keys[:kept], self._values[:kept]
        return seen[n_known:], before[n_known:]
