"""Raw features of lines as columns whose kinds stay the same from the first block of a file to the last.

A feature is a number, a truth value or a text, or a list of those where it stands in an array. What the first block
with a feature shows is what it is from then on; a first block with several kinds of it makes it a text, as written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from seachange.kernels import json_lines as kernel
from seachange.log.readers.leaves import Found, Leaves
from seachange.protocols import Bools, Ints

if TYPE_CHECKING:
    import polars

Kind = Literal["number", "truth", "text"]
MOST_COLUMNS = 1024
NAMES = {"number": "number", "truth": "truth value", "text": "text"}


class Shape(NamedTuple):
    """What the values of a feature are."""

    kind: Kind
    is_list: bool

    @property
    def words(self) -> str:
        """For people."""
        return f"a list of {NAMES[self.kind]}s" if self.is_list else f"a single {NAMES[self.kind]}"


@dataclass(frozen=True, eq=False)
class Column:
    """A feature of one block."""

    found: Found
    kinds: int
    shape: Shape  # as this block alone shows it
    values: polars.Series  # in that shape
    bad: Bools | None = None  # rows that do not fit it


@dataclass
class Columns:
    """The features of a file so far."""

    shapes: dict[str, Shape] = field(default_factory=dict)
    left_out: str | None = None  # a feature for which there was no room

    def frame(
        self, leaves: Leaves, columns: dict[str, Column], n_rows: int
    ) -> tuple[polars.DataFrame, dict[str, Bools]]:
        """All features of the file so far as columns of a block; and the rows of it that do not fit."""
        import polars

        bad = {}
        new = [name for name in columns if name not in self.shapes]
        for name in new[max(MOST_COLUMNS - len(self.shapes), 0) :]:
            self.left_out = name
            del columns[name]
        for name, column in columns.items():
            shape = self.shapes.setdefault(name, column.shape)
            if shape != column.shape:
                columns[name] = column = column_of(leaves, column.found, column.kinds, n_rows, shape)
            if column.bad is not None:
                bad[f"{name} is not {shape.words}, as it is elsewhere"] = column.bad
        empty = {name: polars.repeat(None, n_rows, dtype=dtype_of(shape), eager=True)
                 for name, shape in self.shapes.items() if name not in columns}  # fmt: skip
        every = {name: columns[name].values if name in columns else empty[name] for name in self.shapes}
        return polars.DataFrame(every) if every else polars.DataFrame(height=n_rows), bad


def dtype_of(shape: Shape) -> polars.DataType:
    """The type of a column."""
    import polars

    plain = {"number": polars.Float64(), "truth": polars.Boolean(), "text": polars.String()}[shape.kind]
    return polars.List(plain) if shape.is_list else plain


def shape_of(kinds: int, repeated: tuple[str, ...]) -> Shape:
    """What values with leaves of these kinds are; what may be ``repeated`` is a list where it is."""
    plain = (kinds | kinds >> kernel.IN_ARRAY) & (2**kernel.IN_ARRAY - 1)
    truths = 1 << kernel.TRUE | 1 << kernel.FALSE
    kind: Kind = "text" if plain >> kernel.STRING & 1 else "number" if plain & ~truths else "truth"
    in_array = kinds >> kernel.IN_ARRAY & (2**kernel.IN_ARRAY - 1) > 0
    return Shape(kind, in_array or (kind in repeated and kinds >> kernel.TWICE_IN_ROW > 0))


def column_of(leaves: Leaves, found: Found, kinds: int, n_rows: int, shape: Shape | None = None) -> Column:
    """Leaves of these kinds as a column, null where there is none."""
    import polars

    own = shape_of(kinds, leaves.repeated)
    shape = shape or own
    marks, kept = None, found
    if shape != own or (not shape.is_list and kinds >> kernel.TWICE_IN_ROW):
        bad = _misfits(found, shape)
        if bad.any():
            marks = np.zeros(n_rows, bool)
            marks[found.rows[bad]] = True
            kept = found.where(~bad)
    values, rows = _values(leaves, kept, shape), kept.rows
    if values.null_count():  # strings that are no text
        marks = np.zeros(n_rows, bool) if marks is None else marks
        marks[rows[values.is_null().to_numpy()]] = True
    if shape.is_list:
        lists = polars.DataFrame({"row": rows, "value": values}).group_by("row", maintain_order=True).agg("value")
        values, rows = lists["value"], lists["row"].to_numpy()
    return Column(found, kinds, shape, _spread(values, rows, n_rows), marks)


def _misfits(found: Found, shape: Shape) -> Bools:
    """Which leaves are not of a shape."""
    bad = np.zeros(len(found.rows), bool)
    if not shape.is_list:
        bad |= found.kinds >= kernel.IN_ARRAY
        bad[1:] |= found.rows[1:] == found.rows[:-1]  # one name, spelled in two ways
    if shape.kind == "number":
        bad |= found.of_kind(kernel.STRING)
    if shape.kind == "truth":
        bad |= ~(found.of_kind(kernel.TRUE) | found.of_kind(kernel.FALSE))
    return bad


def _values(leaves: Leaves, found: Found, shape: Shape) -> polars.Series:
    import polars

    if shape.kind == "number":
        ones = found.of_kind(kernel.TRUE)
        return polars.Series(np.where(ones, 1.0, found.numbers) if ones.any() else found.numbers)
    if shape.kind == "truth":
        return polars.Series(found.of_kind(kernel.TRUE))
    words = found.of_kind(kernel.STRING)
    if words.all():
        return leaves.strings[found.numbers.astype(np.uint32)]
    texts = np.empty(len(words), object)
    texts[words] = leaves.strings[found.numbers[words].astype(np.uint32)].to_list()
    texts[~words] = [
        text if _means(text, number) else repr(number)  # a scale is not in the text
        for text, number in zip(leaves.written(found.starts[~words]), found.numbers[~words].tolist(), strict=True)
    ]
    return polars.Series(texts.tolist(), dtype=polars.String)


def _means(text: str, number: float) -> bool:
    if text in ("true", "false"):
        return True
    try:
        return float(text) == number
    except ValueError:
        return False


def _spread(values: polars.Series, rows: Ints, n_rows: int) -> polars.Series:
    """Values in their rows, null in all others."""
    import polars

    if len(rows) == n_rows:  # no row has two
        return values
    places = np.full(n_rows, -1, np.int64)
    places[rows] = np.arange(len(rows))
    index = polars.Series(places)
    return values.gather(index.set(index < 0, None))
