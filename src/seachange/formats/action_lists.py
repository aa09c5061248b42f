"""What dsjson and Vowpal Wabbit text share: features of rounds and of their actions as columns.

A feature is a number, a boolean, or text, or a list of these. The first batch of lines in which a feature appears
decides its type; a feature that mixes types there becomes text, with numbers in their shortest form (3 for 3.0). Later
rounds that do not fit are rejected. Columns are added as new features appear and never change their type.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import polars

from seachange.errors import warn
from seachange.formats.sources import Block, shown
from seachange.log.raw import Rejected, text_of
from seachange.protocols import Bools, Ints

Kind = Literal["number", "boolean", "text"]
KINDS: dict[type, Kind] = {bool: "boolean", int: "number", float: "number", str: "text"}
CONVERT: dict[Kind, Callable[[Any], Any]] = {"number": float, "boolean": bool, "text": text_of}
TAG = "_tag"
MAX_COLUMNS = 1024
MAX_LINES = 1 << 14  # lines per batch: bounds the rejected lines that are held at once
# A text feature names the actions if at most one round in this many repeats or lacks a name; those are rejected.
ROUNDS_PER_UNNAMED = 20
NAMES_REPEAT = "{column} names the actions, but two actions of this round share a name or lack one"
WRONG_TYPE = "{column} must be {shape}, as in earlier rounds"


class LineBatch(NamedTuple):
    """Consecutive lines of one file."""

    source: str
    first: int  # number of the first line in its file, from 1
    n_lines: int
    text: bytes  # without the last line feed

    @property
    def lines(self) -> list[bytes]:
        """The lines, without line feeds."""
        return self.text.split(b"\n")


def line_batches(blocks: Iterable[Block], max_lines: int = MAX_LINES) -> Iterator[LineBatch]:
    """Cut blocks of whole lines into batches of at most ``max_lines`` lines."""
    source, first = None, 1
    for block in blocks:
        if block.source != source:
            source, first = block.source, 1
        text = memoryview(block.text)
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
        begin = 0
        for start in range(0, len(ends), max_lines):
            n_lines = min(max_lines, len(ends) - start)
            end = int(ends[start + n_lines - 1])
            yield LineBatch(block.source, first, n_lines, bytes(text[begin:end]))
            begin, first = end + 1, first + n_lines


class Reasons:
    """Why rounds of a batch are rejected; the first reason counts."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.texts: dict[int, str] = {}

    def add(self, bad: Bools, reason: str) -> None:
        """Reject the rounds where ``bad`` is true."""
        self.add_rounds(np.flatnonzero(bad), reason)

    def add_rounds(self, rounds: Ints, reason: str) -> None:
        """Reject rounds by index."""
        for k in rounds.tolist():
            self.texts.setdefault(k, reason)

    @property
    def good(self) -> Bools:
        """Which rounds are not rejected."""
        good = np.ones(self.n, bool)
        good[list(self.texts)] = False
        return good

    def rejected(self, source: str, lines: Sequence[int] | Ints, texts: Mapping[int, bytes]) -> tuple[Rejected, ...]:
        """The rejected rounds, by the line number and text of each."""
        found = ((int(lines[k]), reason, shown(texts[k])) for k, reason in self.texts.items())
        return tuple(Rejected(source, *each) for each in sorted(found))


class Values(NamedTuple):
    """Some values of one feature, all of one type."""

    rows: Ints  # the round or the action that each value belongs to
    values: polars.Series  # Float64, Boolean or String, or lists of these; without nulls

    def filter(self, kept: Bools) -> Self:
        """Only the values of rows that are kept."""
        mine = kept[self.rows]
        return self if mine.all() else self._replace(rows=self.rows[mine], values=self.values.filter(mine))


Features = dict[str, list[Values]]


class FeatureList:
    """Features collected one row at a time."""

    def __init__(self) -> None:
        self._singles: dict[tuple[str, Kind], tuple[list[int], list[Any]]] = {}
        self._lists: dict[str, dict[int, list[Any]]] = {}
        self._last: dict[str, tuple[int, list[Any]]] = {}  # the last row with a single value, and where that is

    def add(self, row: int, values: Iterable[tuple[str, Any, bool]]) -> None:
        """Add (name, value, whether it is in a list) of one row; values of the same name become a list."""
        for name, value, in_list in values:
            last, held = self._last.get(name, (-1, []))
            if not in_list and last != row:
                rows, held = self._singles.setdefault((name, KINDS[type(value)]), ([], []))
                rows.append(row)
                held.append(value)
                self._last[name] = row, held
            else:
                cell = self._lists.setdefault(name, {}).setdefault(row, [])
                if last == row and not cell:
                    cell.append(held[-1])
                cell.append(value)

    def features(self) -> Features:
        """All values, by feature."""
        features: Features = {}
        for (name, single), (rows, held) in self._singles.items():
            lists = self._lists.get(name, {})
            if lists:
                pairs = [(row, value) for row, value in zip(rows, held, strict=True) if row not in lists]
                rows, held = [row for row, _ in pairs], [value for _, value in pairs]
            column = polars.Series([CONVERT[single](value) for value in held], dtype=Shape(single, False).dtype)
            features.setdefault(name, []).append(Values(np.array(rows, np.int64), column))
        for name, lists in self._lists.items():
            by_kind: dict[Kind, dict[int, list[Any]]] = {}
            for row, cell in lists.items():
                kinds = {KINDS[type(value)] for value in cell}
                kind: Kind = "text" if "text" in kinds else "boolean" if kinds == {"boolean"} else "number"
                by_kind.setdefault(kind, {})[row] = [CONVERT[kind](value) for value in cell]
            for kind, cells in by_kind.items():
                column = polars.Series([*cells.values()], dtype=Shape(kind, True).dtype)
                features.setdefault(name, []).append(Values(np.array([*cells], np.int64), column))
        return {name: found for name, each in features.items() if (found := [one for one in each if len(one.rows)])}


class Shape(NamedTuple):
    """The type of a feature."""

    kind: Kind
    is_list: bool

    def __str__(self) -> str:
        if self.is_list:
            return f"a list of {'text' if self.kind == 'text' else self.kind + 's'}"
        return "text" if self.kind == "text" else f"a single {self.kind}"

    @property
    def dtype(self) -> polars.DataType:
        """The type of the column."""
        dtype = {"number": polars.Float64(), "boolean": polars.Boolean(), "text": polars.String()}[self.kind]
        return polars.List(dtype) if self.is_list else dtype


def shape_of(pieces: list[Values], repeated: tuple[Kind, ...]) -> Shape:
    """The type that all values have in common; ``repeated`` types may be lists."""
    dtypes = [piece.values.dtype for piece in pieces]
    inner = {dtype.inner if isinstance(dtype, polars.List) else dtype for dtype in dtypes}
    kind: Kind = "text" if polars.String in inner else "number" if polars.Float64 in inner else "boolean"
    return Shape(kind, kind in repeated and polars.List in dtypes)


def column_of(pieces: list[Values], shape: Shape, n_rows: int) -> tuple[polars.Series, Ints]:
    """A column of this shape, null where a row has no value; and the rows that do not fit."""
    fitting, bad = [Values(np.zeros(0, np.int64), polars.Series(dtype=shape.dtype))], [np.zeros(0, np.int64)]
    for rows, values in pieces:
        if (column := _converted(values, shape)) is None:
            bad.append(rows)
        else:
            fitting.append(Values(rows, column))
    rows, values = np.concatenate([piece.rows for piece in fitting]), polars.concat([each.values for each in fitting])
    if len(rows) < n_rows or not (rows[1:] > rows[:-1]).all():
        places = np.full(n_rows, -1, np.int64)
        places[rows] = np.arange(len(rows))
        index = polars.Series(places)
        values = values.gather(index.set(index < 0, None))
    return values, np.concatenate(bad)


def _converted(values: polars.Series, shape: Shape) -> polars.Series | None:
    """Values in the type of a feature; None if they do not fit it."""
    is_list, wanted = isinstance(values.dtype, polars.List), Shape(shape.kind, False).dtype
    own = values.dtype.inner if isinstance(values.dtype, polars.List) else values.dtype
    if is_list and not shape.is_list:
        return None
    if own != wanted and not (wanted == polars.String or (own == polars.Boolean and wanted == polars.Float64)):
        return None
    if shape.is_list and not is_list:
        values = values.reshape((-1, 1)).arr.to_list()
    if own != wanted and wanted == polars.String:
        cells = [[text_of(each) for each in cell] if shape.is_list else text_of(cell) for cell in values.to_list()]
        return polars.Series(cells, dtype=shape.dtype)
    return values.cast(shape.dtype)


@dataclass
class Columns:
    """The features of a log so far, with their types."""

    repeated: tuple[Kind, ...]
    shapes: dict[str, Shape] = field(default_factory=dict)
    left_out: str | None = None  # a feature beyond MAX_COLUMNS

    def frame(self, features: Features, n_rows: int) -> tuple[polars.DataFrame, dict[str, Ints]]:
        """All features of the log so far as columns of a batch; and its rows that do not fit, by reason."""
        columns, bad = {}, {}
        for name, pieces in features.items():
            if name not in self.shapes and len(self.shapes) == MAX_COLUMNS:
                self.left_out = name
                continue
            shape = self.shapes.setdefault(name, shape_of(pieces, self.repeated))
            columns[name], misfits = column_of(pieces, shape, n_rows)
            if len(misfits):
                bad[WRONG_TYPE.format(column=name, shape=shape)] = misfits
        for name in self.shapes.keys() - columns.keys():
            columns[name] = polars.repeat(None, n_rows, dtype=self.shapes[name].dtype, eager=True)
        ordered = {name: columns[name] for name in self.shapes}
        return polars.DataFrame(ordered) if ordered else polars.DataFrame(height=n_rows), bad


class FeatureColumns:
    """The columns of a log, for rounds and for actions, and which of them names the actions.

    ``named`` says whether actions have names, if that is known; otherwise the first batch decides.
    """

    def __init__(self, named: bool | None, repeated: tuple[Kind, ...]) -> None:
        self.named = named
        self.shared, self.items = Columns(repeated), Columns(repeated)
        self.started = False
        self.name_column: str | None = None

    def frames(
        self, shared: Features, items: Features, n_items: Ints, reasons: Reasons
    ) -> tuple[polars.DataFrame, polars.DataFrame, polars.Series | None]:
        """Features of the good rounds, those of their actions, and the actions' names; may reject more rounds."""
        good, round_of_item = reasons.good, np.repeat(np.arange(len(n_items)), n_items)
        shared, items = _filtered(shared, good), _filtered(items, good[round_of_item])
        if not self.started and good.any():
            self.started = True
            self.name_column = self._name_column(items, round_of_item, good)
        shared_frame, misfits = self.shared.frame(shared, len(good))
        for reason, rounds in misfits.items():
            reasons.add_rounds(rounds, reason)
        item_frame, misfits = self.items.frame(items, len(round_of_item))
        for reason, rows in misfits.items():
            reasons.add_rounds(round_of_item[rows], reason)
        names = None
        if self.name_column is not None:
            names = item_frame[self.name_column]
            unnamed = round_of_item[_unnamed(names, round_of_item)]
            reasons.add_rounds(unnamed, NAMES_REPEAT.format(column=self.name_column))
            item_frame = item_frame.drop(self.name_column)
        if TAG in item_frame.columns:
            item_frame = item_frame.drop(TAG)
        good = reasons.good
        if good.all():
            return shared_frame, item_frame, names
        mine = good[round_of_item]
        return shared_frame.filter(good), item_frame.filter(mine), None if names is None else names.filter(mine)

    def _name_column(self, items: Features, round_of_item: Ints, good: Bools) -> str | None:
        """The text feature that tells the actions of a round apart: a tag, or the only feature of the actions."""
        others = [name for name in items if name != TAG]
        candidate = TAG if TAG in items else others[0] if len(others) == 1 else None
        if self.named is False or candidate is None:
            return None
        shape = shape_of(items[candidate], self.items.repeated)
        if shape != Shape("text", False):
            return None
        values, _ = column_of(items[candidate], shape, len(round_of_item))
        unnamed = np.zeros(len(good), bool)
        unnamed[round_of_item[_unnamed(values, round_of_item)]] = True
        return candidate if self.named or ROUNDS_PER_UNNAMED * (unnamed & good).sum() <= good.sum() else None

    def warn(self, source: str) -> None:
        """Warn if there were too many features."""
        name = self.shared.left_out or self.items.left_out
        if name is not None:
            too_many_names("features", MAX_COLUMNS, name, source)


def too_many_names(what: str, most: int, left_out: str, source: str) -> None:
    """Warn that names beyond a limit are left out."""
    warn(
        f"{source!r} has more than {most:,} {what}; {left_out!r} and others after the first {most:,} are left out. If "
        f"names of {what} hold values such as words or identifiers, log them as text or as a list.",
        stacklevel=5,
    )


def _filtered(features: Features, kept: Bools) -> Features:
    """The values of kept rows; features without any are dropped."""
    if kept.all():
        return features
    found = {name: [piece.filter(kept) for piece in pieces] for name, pieces in features.items()}
    found = {name: [piece for piece in pieces if len(piece.rows)] for name, pieces in found.items()}
    return {name: pieces for name, pieces in found.items() if pieces}


def _unnamed(names: polars.Series, round_of_item: Ints) -> Bools:
    """Which actions have no name or one that another action of the round has too."""
    twice = polars.DataFrame({"round": round_of_item, "name": names}).is_duplicated()
    return np.asarray((names.is_null() | twice).to_numpy(), dtype=bool)
