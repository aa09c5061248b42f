"""JSON lines: an object a line, with nested ones as they are."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError, SeachangeWarning
from seachange.log.raw import Rejected
from seachange.log.readers.ahead import made_ahead
from seachange.log.readers.json_types import column_of, texts_of, type_of, wanted_type, with_numbers
from seachange.log.readers.kinds import Kind, Odd, Role
from seachange.log.readers.lines import BYTE_ORDER_MARK, Lines, line_blocks
from seachange.log.readers.nested import FieldPath, fields_in, lifted, lifting, lowered, paths_to
from seachange.log.readers.streams import NOT_UTF8, head_of, likely_lines, opened, require_narrow
from seachange.log.readers.table_log import FEW_ROWS, HEAD_ROWS, ROLES, Block, TableLog
from seachange.protocols import Ints

if TYPE_CHECKING:
    import polars

    from seachange.log.features import FeatureSpec

Doubts = npt.NDArray[np.int8]
# So few lines are read one by one where polars cannot read them all at once.
FEW_LINES = 64
# What Python writes beside JSON.
CONSTANTS = {"NaN": None, "Infinity": "Infinity", "-Infinity": "-Infinity"}


def looks_like(path: Path, head: bytes) -> bool:
    """Whether a file begins with an object of JSON."""
    return head.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"{")


class JsonLinesLog(TableLog):
    """Lines of JSON, plain or packed."""

    format = "json-lines"

    def __init__(
        self,
        path: Path | Sequence[Path],
        columns: Mapping[str, str | Sequence[str]] | None = None,
        features: FeatureSpec | None = None,
    ) -> None:
        self._rows: list[dict[str, Any]] = []  # of the head, until the types are decided
        self._types: dict[str, polars.DataType] = {}
        super().__init__(path, columns, features)
        self.likely_rounds = likely_lines(self.paths)

    def _names(self) -> list[str]:
        for path in self.paths[:FEW_ROWS]:
            self._rows += islice(_head_rows(path), FEW_ROWS if self._rows else HEAD_ROWS)
        if not self._rows:
            raise LogError(f"{str(self.paths[0])!r} has no line with an object of JSON.")
        names = _keys_of(self._rows)
        if nested := self._nested(names):
            self._paths = paths_to(nested, [self._likely_types()])
            names = _keys_of([lifted(row, self._paths) for row in self._rows])
        return list(names)

    def _fields(self) -> list[str]:
        return fields_in([self._likely_types()])

    def _likely_types(self) -> dict[str, polars.DataType]:
        """Of the columns, by their first values; one that is a record anywhere is one."""
        columns = {name: [row.get(name) for row in self._rows] for name in _keys_of(self._rows)}
        # A single line with something else does not keep all others from being records.
        kinds = {name: [v for v in values if isinstance(v, dict)] or values for name, values in columns.items()}
        return {name: type_of(values) for name, values in kinds.items()}

    def _head(self) -> polars.DataFrame:
        import polars

        rows, self._rows = self._rows, []
        roles = {place: ROLES.get(word, "feature") for word, place in self.columns.items()}
        self._known = _key_numbers(rows)
        rows = [lifted(row, self._paths) for row in rows] if self._paths else rows
        names = _keys_of(rows)
        self._types = {name: type_of([row.get(name) for row in rows], roles.get(name, "feature")) for name in names}
        for name, those in self._features_by_holder().items():
            self._types[name] = wanted_type(those, name, self._types.get(name))
        return polars.DataFrame([column_of(name, [row.get(name) for row in rows], self._types[name]) for name in names])

    def _kind(self, name: str, sample: polars.Series, role: Role) -> Kind | None:
        import polars

        if name not in self._types:
            return super()._kind(name, sample, role)
        dtype = self._types[name]
        if name in self._wanted and role == "feature":
            return None if dtype == polars.List else "text" if dtype == polars.String else "number"
        if dtype == polars.String:
            return super()._kind(name, sample, role) if role == "measure" else "text"
        kinds: dict[Any, Kind] = {
            polars.Int64(): "whole", polars.Float64(): "number", polars.Boolean(): "flag", polars.Null(): "nothing",
        }  # fmt: skip
        return kinds.get(dtype)

    def _blocks(self, rows: int) -> Iterator[Block]:
        reading = _Reading(self.needed, self._types, self._known, self.columns, self._sources, self._paths)
        for path in self.paths:
            with opened(path) as stream:
                for lines, doubts, frame in made_ahead(line_blocks(stream, self._sources[path]), reading.at_once):
                    yield from reading.stretch(path, lines, doubts, 0, len(doubts), frame)
        if reading.new_keys and "contexts" not in self._asked:
            warnings.warn(
                f"{reading.new_keys:,} lines have fields that the first {HEAD_ROWS:,} do not have, and which are left "
                f"out: the first is {reading.first_new}.",
                SeachangeWarning,
                stacklevel=3,
            )


class _Reading:
    """One pass over the lines of a log, during which fields that were empty may turn out to be of a type."""

    def __init__(
        self,
        needed: Sequence[str],
        types: Mapping[str, polars.DataType],
        known: Ints,
        places: Mapping[str, str],
        sources: Mapping[Path, str],
        paths: Mapping[str, FieldPath],
    ) -> None:
        self.types = {name: types[name] for name in needed if name in types}
        self.names = {place for word, place in places.items() if ROLES.get(word) == "name"}
        self.known = known
        self.sources = sources
        self.paths = {name: path for name, path in paths.items() if name in self.types}
        self.new_keys = 0
        self.first_new = ""

    def at_once(self, lines: Lines) -> tuple[Lines, Doubts, polars.DataFrame | None]:
        """Lines, what is doubtful about them, and all that they hold if nothing is."""
        from seachange.kernels.json_keys import doubtful_lines

        codes = np.frombuffer(lines.content, dtype=np.uint8)
        doubts = doubtful_lines(codes, lines.begins, lines.ends, self.known)
        return lines, doubts, self._read(lines, doubts, 0, len(doubts))

    def stretch(
        self, path: Path, lines: Lines, doubts: Doubts, start: int, end: int, frame: polars.DataFrame | None
    ) -> Iterator[Block]:
        """Lines at once where polars can read them and no reader could differ; otherwise in halves, and then singly."""
        from seachange.kernels.json_keys import BLANK

        if frame is not None:
            there = start + np.flatnonzero(doubts[start:end] != BLANK)
            self._count_new(path, lines, doubts, there)
            yield Block(path, lines.first + there, frame, _text_at(lines, there))
        elif end - start <= FEW_LINES:
            yield self._singly(path, lines, doubts, start, end)
        else:
            middle = (start + end) // 2
            for half in ((start, middle), (middle, end)):
                yield from self.stretch(path, lines, doubts, *half, self._read(lines, doubts, *half))

    def _read(self, lines: Lines, doubts: Doubts, start: int, end: int) -> polars.DataFrame | None:
        """What polars reads; whole numbers as numbers where some of them are not whole."""
        import polars

        from seachange.kernels.json_keys import BLANK, DOUBTFUL

        if (doubts[start:end] == DOUBTFUL).any():
            return None
        count = int((doubts[start:end] != BLANK).sum())
        content = lines.content[lines.begins[start] : lines.ends[end - 1] + 1]
        wider = {name: dtype if name in self.names else with_numbers(dtype) for name, dtype in self.types.items()}
        for types in (lowered(self.types, self.paths), lowered(wider, self.paths)):
            if types is None:
                return None
            try:
                frame = polars.read_ndjson(content, schema=types)
            except (polars.exceptions.PolarsError, polars.exceptions.PanicException):
                continue
            if len(frame) == count:
                return None if any(map(_like_objects, frame.get_columns())) else self._lifted(frame)
        return None

    def _lifted(self, frame: polars.DataFrame) -> polars.DataFrame:
        return frame.select(lifting(frame.schema, self.paths)) if self.paths else frame

    def _singly(self, path: Path, lines: Lines, doubts: Doubts, start: int, end: int) -> Block:
        import polars

        from seachange.kernels.json_keys import BLANK, DOUBTFUL

        rows, there, rejected = [], [], []
        for i in start + np.flatnonzero(doubts[start:end] != BLANK):
            try:
                rows.append(_row(lines, int(i), doubtful=doubts[i] == DOUBTFUL))
                there.append(i)
            except ValueError as error:
                rejected.append(Rejected(self.sources[path], lines.first + int(i), str(error), lines.text(int(i))))
        if self.paths:
            rows = [lifted(row, self.paths) for row in rows]
        for name, dtype in self.types.items():
            if dtype == polars.Null:
                self.types = {**self.types, name: type_of([row.get(name) for row in rows])}
        odd: list[Odd] = []
        columns = [texts_of(name, [row.get(name) for row in rows], dtype, odd) for name, dtype in self.types.items()]
        places = np.array(there, dtype=np.int64)
        self._count_new(path, lines, doubts, places)
        return Block(path, lines.first + places, polars.DataFrame(columns), _text_at(lines, places), rejected, odd)

    def _count_new(self, path: Path, lines: Lines, doubts: Doubts, there: Ints) -> None:
        """Keep in mind that lines which are read have keys that nobody knows."""
        from seachange.kernels.json_keys import NEW_KEY

        new = there[doubts[there] == NEW_KEY]
        if len(new):
            self.new_keys += len(new)
            self.first_new = self.first_new or f"line {lines.first + new[0]} of {self.sources[path]}"


def object_of(line: bytes) -> dict[str, Any]:
    """The object in a line; a ValueError that says why where there is none, or more than one way to read it."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(NOT_UTF8) from error
    try:
        value = json.loads(text, object_pairs_hook=_each_once, parse_constant=CONSTANTS.get)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise ValueError("its objects are nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("it is no object of JSON")
    if _too_large(value):
        raise ValueError("a number in it is too large")
    if b"\\u" in line:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError("it escapes half a character") from error
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there twice in an object")
    return found


def _too_large(value: Any) -> bool:
    """Whether a number became infinite when it was read."""
    if isinstance(value, dict | list):
        return any(map(_too_large, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and math.isinf(value)


def _head_rows(path: Path) -> Iterator[dict[str, Any]]:
    from seachange.kernels.json_keys import BLANK, DOUBTFUL, doubtful_lines

    head = head_of(path)
    require_narrow(path, head)
    head = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if not head:
        raise LogError(f"{str(path)!r} is empty.")
    if head.startswith(b"["):
        raise LogError(f"{str(path)!r} is one JSON list; a log has an object a line (jq -c '.[]' writes it so).")
    with opened(path) as stream:
        for lines in line_blocks(stream, path.name):
            codes = np.frombuffer(lines.content, dtype=np.uint8)
            doubts = doubtful_lines(codes, lines.begins, lines.ends, np.zeros(0, dtype=np.int64))
            for i in np.flatnonzero(doubts != BLANK):
                with suppress(ValueError):
                    yield _row(lines, int(i), doubtful=doubts[i] == DOUBTFUL)


def _row(lines: Lines, i: int, doubtful: bool) -> dict[str, Any]:
    """The object in a line, quickly where nothing about it is doubtful."""
    import msgspec

    line = lines.content[lines.begins[i] : lines.ends[i]]
    if not doubtful:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(line, type=dict[str, Any])
    return object_of(line)


def _keys_of(rows: Sequence[dict[str, Any]]) -> dict[str, None]:
    """All keys, in the order in which they first occur."""
    found: dict[str, None] = {}
    for row in rows:
        if not row.keys() <= found.keys():
            found |= dict.fromkeys(row)
    return found


def _key_numbers(rows: Sequence[dict[str, Any]]) -> Ints:
    """The numbers of all keys of some objects, nested ones too, sorted."""
    from seachange.kernels.json_keys import key_number

    found: dict[tuple[int, str], int] = {}

    def walk(objects: Sequence[dict[str, Any]], around: int) -> None:
        for key in _keys_of(objects):
            codes = np.frombuffer(key.encode(), dtype=np.uint8)
            number = found[around, key] = int(key_number(codes, 0, len(codes), around))
            inner = [row.get(key) for row in objects]
            while any(isinstance(value, list) for value in inner):
                inner = [one for value in inner if isinstance(value, list) for one in value] + [
                    value for value in inner if isinstance(value, dict)
                ]
            if objects_inside := [value for value in inner if isinstance(value, dict)]:
                walk(objects_inside, number)

    walk(rows, 0)
    return np.unique(np.array(list(found.values()), dtype=np.int64))


def _like_objects(column: polars.Series) -> bool:
    """Whether a text begins as a list or an object does, whose text polars may have made in a way of its own."""
    import polars

    if column.dtype == polars.Struct:
        return any(map(_like_objects, column.struct.unnest().get_columns()))
    if column.dtype == polars.List:
        return _like_objects(column.explode())
    return column.dtype == polars.String and bool(column.str.contains(r"^[\[{]").any())


def _text_at(lines: Lines, places: Ints) -> Callable[[int], str]:
    return lambda row: lines.text(int(places[row]))
