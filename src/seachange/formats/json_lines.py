"""JSON lines: one object per line, nested records as they are."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seachange.engine import made_ahead
from seachange.errors import LogError, SeachangeWarning
from seachange.formats.json_structure import LineStructures, blank_lines
from seachange.formats.nested_fields import fields_in, lifted, lifting, lowered, paths_to
from seachange.formats.sources import BYTE_ORDER_MARK, NOT_UTF8, blocks_of, head_of, refuse_utf16, shown
from seachange.formats.table import FEW_ROWS, HEAD_ROWS, USES, TableBlock, TableLog
from seachange.formats.value_types import (
    Mismatch,
    Shape,
    TextType,
    Use,
    fitted_json_type,
    json_column,
    json_texts,
    shape_of,
    widened,
)
from seachange.log.raw import Rejected
from seachange.protocols import Bools, Ints

if TYPE_CHECKING:
    import polars

    from seachange.log.features import FeatureSpec

# If polars cannot read so few lines, they are read one by one.
FEW_LINES = 64
# Lines that are tried to find one of a structure that can be read, and structures that are remembered.
MOST_TRIED, MOST_STRUCTURES = 8, 1 << 16
# Constants that Python writes, although they are not JSON.
CONSTANTS = {"NaN": None, "Infinity": "Infinity", "-Infinity": "-Infinity"}


def looks_like(path: Path, head: bytes) -> bool:
    """Whether a file starts with a JSON object."""
    return head.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"{")


class JsonLinesLog(TableLog):
    """Lines of JSON, compressed or not."""

    format = "json-lines"

    def __init__(
        self,
        path: Path | Sequence[Path],
        columns: Mapping[str, str | Sequence[str]] | None = None,
        features: FeatureSpec | None = None,
    ) -> None:
        self._rows: list[dict[str, Any]] = []  # the first ones, until the types are decided
        self._types: dict[str, polars.DataType] = {}
        super().__init__(path, columns, features)

    def _names(self) -> list[str]:
        for path in self.paths[:FEW_ROWS]:
            self._rows += islice(_first_rows(path), FEW_ROWS if self._rows else HEAD_ROWS)
        if not self._rows:
            raise LogError(f"{str(self.paths[0])!r} has no line with a JSON object.")
        self._shape = shape_of(self._rows)
        names = self._shape.fields
        if nested := self._nested(names):
            self._paths = paths_to(nested, [self._likely_types()])
            self._rows = [lifted(row, self._paths) for row in self._rows]
            names = shape_of(self._rows).fields
        return list(names)

    def _fields(self) -> list[str]:
        return fields_in([self._likely_types()])

    def _likely_types(self) -> dict[str, polars.DataType]:
        """Return the likely types of the fields; one that is a record in any line is a record."""
        fields = self._shape.fields.items()
        return {name: shape.record_dtype if shape.fields else shape.likely_dtype() for name, shape in fields}

    def _head(self) -> polars.DataFrame:
        import polars

        rows, self._rows = self._rows, []
        uses = {name: USES.get(role, "feature") for role, name in self.columns.items()}
        shapes = shape_of(rows).fields
        self._types = {name: shape.likely_dtype(uses.get(name, "feature")) for name, shape in shapes.items()}
        for name, features in self._fitted_features().items():
            self._types[name] = fitted_json_type(features, name, self._types.get(name))
        return polars.DataFrame(
            [json_column(name, [row.get(name) for row in rows], self._types[name]) for name in shapes]
        )

    def _text_type(self, name: str, sample: polars.Series, use: Use) -> TextType | None:
        import polars

        if name not in self._types:
            return super()._text_type(name, sample, use)
        dtype = self._types[name]
        if name in self._fixed_types and use == "feature":
            return None if dtype == polars.List else "text" if dtype == polars.String else "number"
        if dtype == polars.String:
            return super()._text_type(name, sample, use) if use == "measure" else "text"
        types: dict[Any, TextType] = {
            polars.Int64(): "integer", polars.Float64(): "number", polars.Boolean(): "boolean", polars.Null(): "empty",
        }  # fmt: skip
        return types.get(dtype)

    def _blocks(self, rows: int) -> Iterator[Sequence[TableBlock]]:
        reader = _LineReader(self, {name: self._types[name] for name in self.needed if name in self._types})
        for path in self.paths:
            for read in made_ahead(_lines_of(path), reader.read):
                yield reader.blocks(path, read)
        if reader.new_keys and "contexts" not in self._asked:
            warnings.warn(
                f"{reader.new_keys:,} lines have fields that the first {HEAD_ROWS:,} lines do not have; these fields "
                f"are not used. The first such line is {reader.first_new}.",
                SeachangeWarning,
                stacklevel=3,
            )


class Lines(NamedTuple):
    """Consecutive lines of a file."""

    content: bytes
    starts: Ints  # (n,) where each starts in the content
    ends: Ints  # (n,) where its newline is
    first: int  # the number of the first line, counted from 1

    def line(self, i: int) -> bytes:
        """Return the bytes of a line."""
        return self.content[self.starts[i] : self.ends[i]]

    def of(self, which: Ints) -> bytes:
        """Return some lines, each with its newline."""
        if len(which) == which[-1] - which[0] + 1:
            return self.content[self.starts[which[0]] : self.ends[which[-1]] + 1]
        return b"".join(self.content[self.starts[i] : self.ends[i] + 1] for i in which)


class _Structures(NamedTuple):
    """What is known of lines with types as they are now."""

    types: dict[str, polars.DataType]
    new_keys: dict[int, bool]  # structure → whether it has keys that the first lines do not have


class _Read(NamedTuple):
    """Lines that polars has read, and those that have to be read one by one."""

    lines: Lines
    frame: polars.DataFrame | None
    fast: Ints
    slow: Ints
    new: Ints  # lines with new keys


class _LineReader:
    """One pass over a log. Fields that were null at first may turn out to have a type."""

    def __init__(self, log: JsonLinesLog, types: Mapping[str, polars.DataType]) -> None:
        self._names = {name for role, name in log.columns.items() if USES.get(role) == "name"}
        self._shape, self._sources = log._shape, log._sources
        self._paths = {name: path for name, path in log._paths.items() if name in types}
        self._hashes = LineStructures()
        self._known = _Structures(dict(types), {})
        self.new_keys, self.first_new = 0, ""

    def read(self, lines: Lines) -> _Read:
        """Read whatever polars can read in the same way as any other parser."""
        import polars

        known = self._known
        hashes, unclear = self._hashes.of(lines.content, lines.starts, lines.ends)
        blank = blank_lines(lines.content, lines.starts, lines.ends)
        present = np.flatnonzero(~blank & ~unclear)
        new = self._examined(lines, hashes, present, unclear, known)
        fast = present[~unclear[present]]
        slow: list[Ints] = []
        frames = list(self._frames(lines, fast, known.types, slow))
        left = np.concatenate([np.flatnonzero(unclear & ~blank), *slow])
        frame = polars.concat(frames, how="vertical_relaxed") if frames else None
        return _Read(lines, frame, np.setdiff1d(fast, left, assume_unique=True), np.sort(left), np.flatnonzero(new))

    def _examined(self, lines: Lines, hashes: Any, present: Ints, unclear: Bools, known: _Structures) -> Bools:
        """(n,) which lines have new keys; what has to be read one by one is added to the unclear."""
        distinct, inverse, counts = np.unique(hashes[present], return_inverse=True, return_counts=True)
        order, ends = np.argsort(inverse, kind="stable"), np.cumsum(counts)
        found = np.zeros(len(distinct), dtype=bool)
        rejected = np.zeros(len(distinct), dtype=bool)
        if len(known.new_keys) > MOST_STRUCTURES:
            known.new_keys.clear()
        for i, structure in enumerate(distinct.tolist()):
            if structure not in known.new_keys:
                examples = present[order[ends[i] - counts[i] : ends[i]][:MOST_TRIED]]
                rejected[i] = not self._examine(structure, (lines.line(j) for j in examples), known)
            found[i] = known.new_keys.get(structure, False)
        unclear[present[rejected[inverse]]] = True
        new = np.zeros(len(hashes), dtype=bool)
        new[present] = found[inverse]
        return new

    def _examine(self, structure: int, examples: Iterator[bytes], known: _Structures) -> bool:
        """Look at lines of a structure until one can be read; False if polars must not read them."""
        types = lowered(known.types, self._paths)
        for line in examples:
            with suppress(ValueError):
                row = object_of(line)
                if types is None or any(_as_text(row.get(name), dtype) for name, dtype in types.items()):
                    return False
                known.new_keys[structure] = _has_new_keys(row, self._shape)
                return True
        return False

    def _frames(self, lines: Lines, which: Ints, types: Any, slow: list[Ints]) -> Iterator[polars.DataFrame]:
        """Yield lines that polars can read, in halves if it cannot read all; the rest goes to ``slow``."""
        if not len(which):
            return
        frame = self._frame(lines.of(which), len(which), types)
        if frame is not None:
            yield frame
        elif len(which) <= FEW_LINES:
            slow.append(which)
        else:
            middle = len(which) // 2
            yield from self._frames(lines, which[:middle], types, slow)
            yield from self._frames(lines, which[middle:], types, slow)

    def _frame(self, content: bytes, count: int, types: Mapping[str, Any]) -> polars.DataFrame | None:
        """Read lines with polars; integers as floats if some are not integers."""
        import polars

        wider = {name: dtype if name in self._names else widened(dtype) for name, dtype in types.items()}
        for schema in (lowered(types, self._paths), lowered(wider, self._paths)):
            with suppress(polars.exceptions.PolarsError, polars.exceptions.PanicException):
                frame = polars.read_ndjson(content, schema=schema)
                if len(frame) == count:
                    return frame.select(lifting(frame.schema, self._paths)) if self._paths else frame
        return None

    def blocks(self, path: Path, read: _Read) -> Sequence[TableBlock]:
        """Return what polars has read, and the other lines, read one by one."""
        import polars

        lines, source = read.lines, self._sources[path]
        blocks, there = [], read.fast
        if read.frame is not None:
            blocks.append(TableBlock(path, lines.first + read.fast, read.frame, _text_at(lines, read.fast)))
        if len(read.slow) or not blocks:
            rows, numbers, rejected = [], [], []
            for i in read.slow.tolist():
                try:
                    rows.append(object_of(lines.line(i)))
                    numbers.append(i)
                except ValueError as error:
                    rejected.append(Rejected(source, lines.first + i, str(error), shown(lines.line(i))))
            if self._paths:
                rows = [lifted(row, self._paths) for row in rows]
            self._fill_types(rows)
            mismatches: list[Mismatch] = []
            types, slow = self._known.types, np.array(numbers, dtype=np.int64)
            frame = polars.DataFrame(
                [json_texts(name, [row.get(name) for row in rows], dtype, mismatches) for name, dtype in types.items()]
            )
            blocks.append(TableBlock(path, lines.first + slow, frame, _text_at(lines, slow), rejected, mismatches))
            there = np.concatenate([there, slow])
        new = read.new[np.isin(read.new, there)]
        if len(new):
            self.new_keys += len(new)
            self.first_new = self.first_new or f"line {lines.first + new[0]} of {source}"
        return blocks

    def _fill_types(self, rows: Sequence[dict[str, Any]]) -> None:
        """Decide the types of fields that have been null so far."""
        import polars

        types = self._known.types
        empty = [name for name, dtype in types.items() if dtype == polars.Null]
        filled = {name: shape_of([row.get(name) for row in rows]).likely_dtype() for name in empty}
        if any(dtype != polars.Null for dtype in filled.values()):
            self._known = _Structures(types | filled, {})


def object_of(line: bytes) -> dict[str, Any]:
    """Return the object in a line; a ValueError with the reason if there is none, or several ways to read it."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(NOT_UTF8) from error
    if not text.lstrip().startswith(("{", "[")):  # quickly, for files that are something else
        raise ValueError("not a JSON object")
    try:
        value = json.loads(text, object_pairs_hook=_each_once, parse_constant=CONSTANTS.get)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1}") from error
    except _DuplicateKeyError as error:
        raise ValueError(f"the key {error.args[0]!r} occurs twice in an object") from error
    except ValueError as error:  # an integer with more than 4,300 digits
        raise ValueError("a number is too large") from error
    except RecursionError as error:
        raise ValueError("objects or lists are nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    if _too_large(value):
        raise ValueError("a number is too large")
    if b"\\u" in line:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError("an escape stands for half a character (a lone surrogate)") from error
    return value


class _DuplicateKeyError(ValueError):
    """A key occurs twice in one object."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        raise _DuplicateKeyError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return found


def _too_large(value: Any) -> bool:
    """Whether a number became infinite when it was parsed."""
    if isinstance(value, dict | list):
        return any(map(_too_large, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and math.isinf(value)


def _first_rows(path: Path) -> Iterator[dict[str, Any]]:
    head = head_of(path)
    refuse_utf16(path, head)
    head = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if not head:
        raise LogError(f"{str(path)!r} is empty.")
    if head.startswith(b"["):
        raise LogError(
            f"{str(path)!r} is one JSON list; a log has one object per line. Convert it with: jq -c '.[]' in > out"
        )
    n_rows = 0
    for lines in _lines_of(path):
        for i in range(len(lines.starts)):
            with suppress(ValueError):
                yield object_of(lines.line(i))
                n_rows += 1
        if n_rows:  # and no more than a block, if most lines are bad
            return


def _lines_of(path: Path) -> Iterator[Lines]:
    first = 1
    for block in blocks_of(path):
        content = bytes(block.text)
        ends = np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == b"\n"[0])
        yield Lines(content, np.concatenate([[0], ends[:-1] + 1]), ends, first)
        first += len(ends)


def _has_new_keys(value: Any, shape: Shape) -> bool:
    """Whether an object has keys, nested ones included, that the first lines do not have."""
    if isinstance(value, dict):
        return any(name not in shape.fields or _has_new_keys(each, shape.fields[name]) for name, each in value.items())
    return isinstance(value, list) and any(_has_new_keys(each, shape.entries or Shape()) for each in value)


def _as_text(value: Any, dtype: Any) -> bool:
    """Whether an object or list is in the place of a text; polars would write it in its own way."""
    import polars

    if isinstance(value, dict):
        fields = dtype.fields if isinstance(dtype, polars.Struct) else ()
        return dtype == polars.String or any(_as_text(value.get(field.name), field.dtype) for field in fields)
    if isinstance(value, list):
        return dtype == polars.String or (dtype == polars.List and any(_as_text(each, dtype.inner) for each in value))
    return False


def _text_at(lines: Lines, places: Ints) -> Any:
    return lambda row: shown(lines.line(int(places[row])))
