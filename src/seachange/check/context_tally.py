"""Raw features, looked at one part of a log after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seachange.check.rounds import hashes_of, numbers_of
from seachange.check.slices import Slices, SliceSums
from seachange.kernels.column_sums import add_numbers, add_rewards
from seachange.log.distinct import Distinct
from seachange.protocols import Floats, Ints

if TYPE_CHECKING:
    import polars

# Distinct values of a column whose rewards are summed each by itself.
MOST_VALUES = 200


class ContextTally:
    """One raw feature."""

    def __init__(self, name: str, slices: Slices) -> None:
        self.name, self.kind = name, ""
        self.n_rounds = self.n_missing = 0
        self.distinct = Distinct()
        self.lowest, self.highest = np.inf, -np.inf
        self.shift: float | None = None  # sums are of x - shift, which keeps them exact enough
        self.sums = np.zeros(6)  # 1, x, x², r, r², xr of the rounds that have both
        self.sums_of_missing = np.zeros(3)  # 1, r, r² of the rounds where it is missing
        self.sums_of_known = np.zeros(3)  # the same of the others
        self.counts: SliceSums = slices.sums()
        self.values: SliceSums = slices.sums()
        self.squares: SliceSums = slices.sums()
        self.single: Any = None  # the value it has where it has only one
        self._by_value: Any = None  # a table of value hash, n, Σ r, Σ r²; False: there are too many values

    def add(self, column: polars.Series, rewards: Floats, members: Ints) -> None:
        """Take up a part."""
        self._note_kind(column)
        missing = column.is_null().to_numpy()
        if column.dtype.is_float():
            missing = missing | column.is_nan().fill_null(False).to_numpy()
        self.n_rounds += len(column)
        self.n_missing += int(missing.sum())
        add_rewards(missing, rewards, self.sums_of_known, self.sums_of_missing)
        hashes = hashes_of(column.to_frame())
        self.distinct.add(hashes[~missing])
        if self.single is None and not missing.all():
            self.single = column[int(np.flatnonzero(~missing)[0])]
        if column.dtype.is_numeric() or self.kind == "yes or no":
            self._add_numbers(numbers_of(column)[0], rewards, members)
        self._add_values(np.where(missing, np.uint64(0), hashes), rewards)

    def _note_kind(self, column: polars.Series) -> None:
        kind = _kind_of(column.dtype)
        if kind and kind != self.kind:
            self.kind = {
                ("", kind): kind,
                ("whole number", "number"): "number",
                ("number", "whole number"): "number",
            }.get((self.kind, kind), "text" if self.kind else kind)

    def _add_numbers(self, values: Floats, rewards: Floats, members: Ints) -> None:
        if self.shift is None:
            known = values[np.isfinite(values)]
            if not len(known):
                return
            self.shift = float(known.mean())
        slices = (self.counts.values[0], self.values.values[0], self.squares.values[0])
        lowest, highest = add_numbers(values, rewards, members, self.shift, self.sums, *slices)
        self.lowest, self.highest = min(self.lowest, lowest), max(self.highest, highest)

    def _add_values(self, hashes: npt.NDArray[np.uint64], rewards: Floats) -> None:
        if self._by_value is False:
            return
        seen = np.isfinite(rewards)
        if self._by_value is None and len(np.unique(hashes[: 10 * MOST_VALUES])) > MOST_VALUES:
            self._by_value = False
            return
        values, places = np.unique(hashes[seen], return_inverse=True)
        if len(values) > MOST_VALUES:
            self._by_value = False
            return
        r = rewards[seen]
        sums = np.stack([np.bincount(places, weights, len(values)) for weights in (None, r, r * r)])
        if self._by_value is not None:
            values, places = np.unique(np.concatenate([self._by_value[0], values]), return_inverse=True)
            both = np.concatenate([self._by_value[1], sums], axis=1)
            sums = np.stack([np.bincount(places, row, len(values)) for row in both])
        self._by_value = False if len(values) > MOST_VALUES else (values, sums)

    @property
    def mean(self) -> float | None:
        """Of the numbers."""
        count = self.counts.values.sum()
        return None if self.shift is None else float(self.shift + self.values.values.sum() / count)

    @property
    def told_by_numbers(self) -> float:
        """R² of the reward by a line in the number."""
        n, x, xx, r, rr, xr = self.sums
        if n < 2:
            return 0.0
        spread, noise = xx - x * x / n, rr - r * r / n
        return 0.0 if not (spread > 0 and noise > 0) else float((xr - x * r / n) ** 2 / (spread * noise))

    @property
    def told_by_values(self) -> float:
        """R² of the reward by the value, where there are few, missing being one of them."""
        if self._by_value in (None, False):
            return 0.0
        counts, sums, squares = self._by_value[1]
        n, total = counts.sum(), sums.sum()
        noise = squares.sum() - total * total / n
        left = (squares - sums * sums / counts).sum()
        return 0.0 if not noise > 0 else float(1 - left / noise)

    @property
    def n_values(self) -> int:
        """Distinct values that were told apart with the rewards."""
        return 0 if self._by_value in (None, False) else len(self._by_value[0])


def _kind_of(dtype: Any) -> str:
    import polars

    kinds = (
        ("yes or no", dtype == polars.Boolean),
        ("whole number", dtype.is_integer()),
        ("number", dtype.is_numeric()),
        ("date", dtype.is_temporal()),
        ("record", dtype == polars.Struct),
        ("list", dtype.is_nested()),
        ("", dtype == polars.Null),
        ("text", True),
    )
    return next(kind for kind, holds in kinds if holds)
