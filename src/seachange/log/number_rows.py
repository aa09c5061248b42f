"""Raw numbers of a table, laid out in rows while the rest of it is still being read.

What the first part of a table becomes is most often what all of it becomes, but for the means and deviations of its
numbers. So the numbers of every part go to their places in the rows at once, what was read of them is let go of, and
when the features are known they are standardised where they stand: a large table is never held twice.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seachange.kernels.features import standardise_rows
from seachange.log.features import Feature, FeatureSpec, Flag, Number
from seachange.log.raw_columns import numbers_of, raw_columns

if TYPE_CHECKING:
    from seachange.log.raw import RawRounds

# Linux's MADV_POPULATE_WRITE, which Python has no name for.
POPULATE = 23
# So many rows stay in fast memory until all of their columns are written.
ROWS_TOGETHER = 1 << 13


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
        self.rows, self._pages = _room((n, 1, int(starts[-1]) + 1), self.precision)

    def take(self, start: int, part: RawRounds) -> RawRounds:
        """Lay out the numbers of a part, whose first round is that of number ``start``; the part without them."""
        rows = self.rows[start : start + len(part), 0]
        self._ask_for(start, start + len(part))
        arrays = [numbers_of(part.features[name]) for name in self.names]
        for begin in range(0, len(rows), ROWS_TOGETHER):
            block = rows[begin : begin + ROWS_TOGETHER]
            for place, array in zip(self._places, arrays, strict=True):
                block[:, place] = array[begin : begin + ROWS_TOGETHER]
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
        self._let_go(start, start + len(part))
        return replace(part, features=part.features.with_columns(columns))

    def _ask_for(self, start: int, end: int) -> None:
        """Have the memory of some rounds all at once, which is quicker than page by page."""
        stride = self.rows.strides[0]
        first, last = start * stride // mmap.PAGESIZE * mmap.PAGESIZE, end * stride
        if self._pages is not None and first < last:
            with suppress(OSError, AttributeError):  # of older systems
                self._pages.madvise(POPULATE, first, last - first)

    def _let_go(self, start: int, end: int) -> None:
        """Give the memory of some rounds back to the system, but for pages that others have a share in."""
        pages, stride = self._pages, self.rows.strides[0]
        first, last = -(-start * stride // mmap.PAGESIZE) * mmap.PAGESIZE, end * stride // mmap.PAGESIZE * mmap.PAGESIZE
        if pages is not None and first < last:
            pages.madvise(mmap.MADV_DONTNEED, first, last - first)


def _layout(features: Sequence[Feature]) -> list[tuple[str, bool, int]]:
    """What decides where features stand."""
    return [(feature.column, isinstance(feature, Number | Flag), len(feature.names)) for feature in features]


def fresh(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array of zeros, in pages of the usual size.

    NumPy asks for huge ones, which virtual machines that lend out their free memory can take seconds a gigabyte to get.
    """
    return _room(shape, dtype)[0]


def _room(shape: tuple[int, ...], dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], mmap.mmap | None]:
    """The same, and the pages themselves where there are any."""
    size = prod(shape) * np.dtype(dtype).itemsize
    if sys.platform == "win32" or size == 0:
        return np.zeros(shape, dtype=dtype), None
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, dtype=dtype).reshape(shape), pages
