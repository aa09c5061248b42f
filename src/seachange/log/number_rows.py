"""Raw numbers of a table, laid out in rows while the rest of it is still being read.

What the first part of a table becomes is most often what all of it becomes, but for the means and deviations of its
numbers. So the numbers of every part go to their places in the rows at once, what was read of them is let go of, and
when the features are known they are standardised where they stand: a large table is never held twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from seachange.kernels.features import lay_out, standardise_rows
from seachange.log.features import Feature, FeatureSpec, Flag, Number
from seachange.log.raw_columns import numbers_of, raw_columns
from seachange.log.room import Room
from seachange.protocols import Floats, Ints

if TYPE_CHECKING:
    from seachange.log.raw import RawRounds


class NumberRows:
    """Rows for ``n`` rounds, with places for the features that the first of them seem to have."""

    def __init__(self, features: Sequence[Feature], first: RawRounds, n: int) -> None:
        columns = raw_columns(first.features)
        flat = {name for name, column in columns.items() if column.kind == "number" and column.holder == name}
        self._layout = _layout(features)
        starts = np.cumsum([0, *(len(feature.names) for feature in features)])
        taken = [i for i, feature in enumerate(features) if feature.column in flat]
        self.names = tuple(features[i].column for i in taken)
        self._places = starts[taken]
        dtypes = {str(columns[name].values.dtype) for name in self.names} - {"Boolean"}
        self.precision = "float32" if dtypes == {"Float32"} else "float64"
        self._room = Room((n, 1, int(starts[-1]) + 1), self.precision)
        self.rows = self._room.array

    def take(self, start: int, part: RawRounds) -> RawRounds:
        """Lay out the numbers of a part, whose first round is that of number ``start``; the part without them."""
        rows = self.rows[start : start + len(part), 0]
        self._room.ask_for(start, start + len(part))
        arrays = [numbers_of(part.features[name]) for name in self.names]
        if len(rows) and arrays:
            _lay_out([np.require(array, rows.dtype, ["C", "A"]) for array in arrays], self._places, rows)
        return replace(part, features=part.features.drop(self.names))

    def fit(self, spec: FeatureSpec, n: int) -> bool:
        """Whether these are the rows of ``spec`` for ``n`` rounds, but for what is no number."""
        alike = spec.precision == self.precision and _layout(spec.shared) == self._layout
        return bool(self.names) and alike and n <= len(self.rows)

    def standardise(self, spec: FeatureSpec, start: int, end: int) -> None:
        """The numbers of some rounds, where they are."""
        features = [feature for feature in spec.shared if feature.column in self.names]
        means = np.array([feature.mean if isinstance(feature, Number) else 0.0 for feature in features])
        scales = np.array([feature.scale if isinstance(feature, Number) else 1.0 for feature in features])
        marks = np.array([isinstance(feature, Number | Flag) and feature.marked for feature in features])
        standardise_rows(self._places, means, scales, marks, self.rows[start:end, 0])

    def given_back(self, start: int, part: RawRounds) -> RawRounds:
        """A part with the numbers that were taken from it, as numbers of the rows' precision; here they are gone."""
        import polars

        rows = self.rows[start : start + len(part), 0]
        places = zip(self.names, self._places, strict=True)
        columns = [polars.Series(name, rows[:, place].copy()) for name, place in places]
        self._room.let_go(start, start + len(part))
        return replace(part, features=part.features.with_columns(columns))


def _lay_out(arrays: Sequence[npt.NDArray[Any]], places: Ints, rows: Floats) -> None:
    """Write columns of the type of ``rows`` to their places there."""
    # A kernel takes one array: that from the first column in memory to the last, in which only columns are read.
    first = min(arrays, key=_address)
    starts = np.array([_address(array) - _address(first) for array in arrays]) // rows.itemsize
    numbers = as_strided(first, shape=(int(starts.max()) + len(rows),), strides=(rows.itemsize,), writeable=False)
    lay_out(numbers, starts, places, rows)


def _address(array: npt.NDArray[Any]) -> int:
    return int(array.ctypes.data)


def _layout(features: Sequence[Feature]) -> list[tuple[str, bool, int]]:
    """What decides where features stand."""
    return [(feature.column, isinstance(feature, Number | Flag), len(feature.names)) for feature in features]
