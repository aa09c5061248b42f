"""What was seen before, in bounded memory: a table of hashes which, once it is full, keeps a share of the keys.

The keys that stay are those whose highest bits are 0, of which nothing is forgotten: repetitions are seen at any
distance, and how many there are in all follows from the share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from seachange.kernels.repeats import LEFT_OUT, last_values, move_entries, note_repeats

Hashes = npt.NDArray[np.uint64]
SMALLEST = 1 << 12
# Places of a table that may grow no more, half of which are used: 32 MiB.
LARGEST = 1 << 21


class SeenBefore:
    """Keys and the last value that came with each."""

    def __init__(self, value_type: type[np.generic] = np.uint64, largest: int | None = LARGEST) -> None:
        self.level = 0
        self._largest, self._used = largest, 0
        self._keys = np.zeros(SMALLEST, dtype=np.uint64)
        self._values = np.zeros(SMALLEST, dtype=value_type)

    @property
    def share(self) -> float:
        """Of the keys that are looked at."""
        return float(2.0**-self.level)

    def repeats(self, keys: Hashes, values: Hashes) -> npt.NDArray[np.uint8]:
        """For every key whether it is NEW, seen with an OTHER value, with the SAME, or LEFT_OUT."""
        found = np.asarray(self._pass(note_repeats, keys, values, np.uint8, LEFT_OUT))
        # Keys that the table has no room for any more may have been seen before it was full: then, not later.
        found[keys > np.iinfo(np.uint64).max >> self.level] = LEFT_OUT
        return found

    def before(self, keys: Hashes, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """For every key the value that came with it before; NaN where there was none."""
        return np.asarray(self._pass(last_values, keys, values, np.float64, np.nan))

    def _pass(self, kernel: Callable[..., Any], keys: Hashes, values: Any, kind: type, empty: Any) -> Any:
        found: Any = np.full(len(keys), empty, dtype=kind)
        done = 0
        while True:
            free = len(self._keys) // 2 - self._used
            part, n_new = kernel(keys[done:], values[done:], self._keys, self._values, self.level, free)
            found[done : done + len(part)] = part
            done, self._used = done + len(part), self._used + n_new
            if done == len(keys):
                return found
            self._make_room()

    def _make_room(self) -> None:
        """A larger table, or the same one for half of the keys."""
        grows = self._largest is None or len(self._keys) < self._largest
        self.level += not grows
        keys = np.zeros(2 * len(self._keys) if grows else len(self._keys), dtype=np.uint64)
        values = np.zeros(len(keys), dtype=self._values.dtype)
        self._used = int(move_entries(self._keys, self._values, keys, values, self.level))
        self._keys, self._values = keys, values
