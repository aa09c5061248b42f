"""JSON lines: one object per line, nested records as they are.

Polars reads lines into typed columns, but it keeps the first of two equal keys, ignores keys that it was not asked for,
and has nulls for values of other types. So keys are counted: polars has read all of a line if it found as many values
as the line has keys. All other lines are parsed one by one with ``json``, which also finds the reason to reject a line.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars

from seachange.engine import made_ahead
from seachange.errors import LogError, warn
from seachange.formats.action_lists import LineBatch, line_batches, too_many_names
from seachange.formats.nested_fields import fields_in, fields_of, lifted, lifting, lowered, paths_to
from seachange.formats.sources import BLOCK_LINES, BYTE_ORDER_MARK, NOT_UTF8, blocks_of, head_of, is_utf8, shown
from seachange.formats.table import FEW_ROWS, HEAD_ROWS, USES, TableBlock, TableLog
from seachange.formats.value_types import (
    MAX_DEPTH,
    TOO_DEEP,
    Mismatch,
    Room,
    Shape,
    TextType,
    Use,
    by_holder,
    fitted_json_type,
    json_column,
    json_texts,
    shape_of,
    too_deep,
)
from seachange.log.raw import Rejected
from seachange.protocols import Ints

INVALID = "the line is not valid JSON: {error} at character {place}"
NOT_JSON = "the line is not valid JSON: {constant}"
NOT_OBJECT = "the line is not a JSON object"
DUPLICATE_KEY = "an object has the key {key!r} twice"
TOO_LARGE = "a number is too large for a double"
SURROGATE = "a string has half of a surrogate pair"
# Constants that Python writes, although they are not JSON.
CONSTANTS = {"NaN": None, "Infinity": "Infinity", "-Infinity": "-Infinity"}
LARGE = rb"[0-9]{39}|[eE]\+?[0-9]{2}"  # numbers that may be too large for polars
LARGEST = int(sys.float_info.max)
# The ending of keys whose value is null: polars reads "x":null as "x\u0000":true, to tell it from no key at all.
NULL = "\0"
NULL_VALUE, SPACED_NULL, NULL_KEY = b'":null', b'": null', b'\\u0000":true'
# With these in a line, keys cannot be counted: a quote within a string that looks like the end of a key, and the NULL.
AMBIGUOUS = (b'\\":', b"\\u0000")
# Flags count for more than other values, since polars reads numbers in records as flags; doubtful values for much more.
FLAG, MANY = 1 << 23, 1 << 40
# Polars parses this much at once: nested records in about as much as fits the cache of a core, flat ones in more.
CHUNK_BYTES, FLAT_CHUNK_BYTES = 1 << 19, 1 << 21
# Of each batch, lines that teach the reader new keys; one line in RARE must have a key.
LESSONS, RARE = 1000, 1024
# Fields, nested ones included: of the table, and more that are learned later to read lines that have them quickly.
MAX_FIELDS, LATER_FIELDS = 10_000, 1000
# Values of all fields, most of them missing, that are held at once: of the first lines, and of a batch.
HEAD_VALUES, BATCH_VALUES = 1 << 22, 1 << 22
# A table with more values than this must have at least a byte of text for every few of them.
MAX_VALUES, VALUES_PER_BYTE = 1 << 25, 10


class _Anything(msgspec.Struct, gc=False):
    """An object; msgspec checks the syntax of all keys and values, and skips them."""


_CHECKED = msgspec.json.Decoder(_Anything)


def _n_objects(text: bytes) -> int:
    """How many objects a text consists of, apart from whitespace; -1 if it has anything else."""
    try:
        return len(_CHECKED.decode_lines(text))
    except (msgspec.DecodeError, RecursionError):
        return -1


def read_records(text: bytes, dtypes: Mapping[str, Any], *, strict: bool) -> tuple[Ints, polars.DataFrame]:
    """Read the lines of ``text`` that have no keys but those of ``dtypes``: which they are, and one row for each.

    Values of other types are never read, with one exception: ``strict``, which is faster for nested records, reads
    booleans as numbers, numbers as integers, numbers and booleans as text, and single values as lists.
    """
    codes = np.frombuffer(text, np.uint8)
    ends = np.append(np.flatnonzero(codes == ord("\n")), len(text))
    colons = np.flatnonzero(codes[:-1] == ord(":"))
    before, after = codes[colons - 1], codes[colons + 1]
    after = np.where(after == ord(" "), codes[np.minimum(colons + 2, len(codes) - 1)], after)
    is_key, n_lines = before == ord('"'), len(ends)
    flags = is_key & np.isin(after, [ord(letter) for letter in "tfn"])  # true and false, and nulls, which become true
    keys, flags, apart = (
        np.diff(np.searchsorted(colons[mask], ends), prepend=0) for mask in (is_key, flags, before <= ord(" "))
    )
    # A key that is apart from its colon is not counted, so nothing is known of such a line.
    n_keys = np.where(apart == 0, keys + FLAG * flags, -1)
    nulls = bool((is_key & (after == ord("n"))).any())
    read_as = _with_nulls(dtypes) if nulls else dict(dtypes)
    # Polars raises on invalid JSON, but reads half of a surrogate pair as NUL, lists and numbers as rows of nulls, and
    # allows deeper nesting than we do. A flat object without escapes is none of these and needs no other check.
    starts = np.append(0, ends[:-1] + 1)
    flat = not any(mark in text for mark in (b"\\", b"[")) and np.array_equal(np.flatnonzero(codes == ord("{")), starts)
    step = max(1, (FLAT_CHUNK_BYTES if flat else CHUNK_BYTES) * n_lines // (len(text) + 1))
    frames, places = [polars.DataFrame(schema=read_as)], [np.zeros(0, np.int64)]
    readable = dtypes and not (nulls and _has_marks(dtypes))
    for start in range(0, n_lines if readable else 0, step):
        stop = min(start + step, n_lines)
        chunk = text[starts[start] : ends[stop - 1]]
        for kept, lines in _candidates(chunk, stop - start, flat):
            frame = _frame(lines, read_as, strict, nulls)
            if frame is not None and len(frame) == len(kept):
                frames.append(frame)
                places.append(start + kept)
                break
    frame, found = polars.concat(frames), np.concatenate(places)
    whole = n_keys[found] == _values_in(frame)
    if not whole.all():
        found, frame = found[whole], frame.filter(polars.Series(whole))
    return found, frame if not nulls else frame.select(list(dtypes)).cast(polars.Schema(dtypes))


def _candidates(chunk: bytes, n_lines: int, flat: bool) -> Iterator[tuple[Ints, bytes]]:
    """Lines that polars may be able to read: all of them; those that are valid; those without large numbers."""
    if flat or (_unambiguous(chunk) and _n_objects(chunk) == n_lines):
        yield np.arange(n_lines), chunk
    lines = chunk.split(b"\n")
    valid = [i for i, line in enumerate(lines) if _unambiguous(line) and _n_objects(line) == 1]
    for kept in (valid, [i for i in valid if not re.search(LARGE, lines[i])]):
        yield np.array(kept, np.int64), b"\n".join(lines[i] for i in kept)


def _unambiguous(text: bytes) -> bool:
    return is_utf8(text) and not (b"\\" in text and any(mark in text for mark in AMBIGUOUS))


def _frame(chunk: bytes, dtypes: Any, strict: bool, nulls: bool) -> polars.DataFrame | None:
    """A table of lines; None if polars cannot read one of them, for example because of a number that is too large."""
    if nulls:
        chunk = chunk.replace(SPACED_NULL, NULL_VALUE).replace(NULL_VALUE, NULL_KEY)
    errors = polars.exceptions.PolarsError, polars.exceptions.PanicException
    if strict and chunk:
        with suppress(*errors):
            texts = polars.Series([chunk.decode()]).str.split("\n").explode()
            return texts.str.json_decode(polars.Struct(dtypes)).struct.unnest()
    with suppress(*errors):
        return polars.read_ndjson(chunk, schema=dict(dtypes), ignore_errors=True)
    return None


def _with_nulls(dtypes: Mapping[str, Any]) -> dict[str, Any]:
    """All fields, each with one of the same name and NULL."""

    def within(dtype: Any) -> Any:
        if isinstance(dtype, polars.List):
            return polars.List(within(dtype.inner))
        return polars.Struct(_with_nulls(fields_of(dtype))) if isinstance(dtype, polars.Struct) else dtype

    both = (((name, within(dtype)), (name + NULL, polars.Boolean())) for name, dtype in dtypes.items())
    return {name: dtype for pair in both for name, dtype in pair}


def _has_marks(dtypes: Mapping[str, Any]) -> bool:
    """Whether the name of a field cannot be told from the mark of another's null."""
    for name, dtype in dtypes.items():
        while isinstance(dtype, polars.List):
            dtype = dtype.inner
        if name.endswith(NULL) or _has_marks(fields_of(dtype)):
            return True
    return False


def _values_in(frame: polars.DataFrame) -> Ints:
    """(n,) how many keys of each row have a value, plus FLAG for each flag; very many if a value is doubtful."""
    columns, found = {column.name: column for column in frame}, np.zeros(len(frame), np.int64)
    for name, column in columns.items():
        there = column.is_not_null()
        if name.endswith(NULL) and name[:-1] in columns:
            there &= columns[name[:-1]].is_null()  # otherwise the line has the key twice
        found += there.to_numpy() * (1 + FLAG * (column.dtype == polars.Boolean))
        found += _values_within(column)
    return found


def _values_within(column: polars.Series) -> Any:
    if isinstance(column.dtype, polars.Struct) and column.dtype.fields:
        return _values_in(column.struct.unnest())
    if isinstance(column.dtype, polars.List):
        entries = column.explode(empty_as_null=False, keep_nulls=False)
        doubtful = entries.is_null() | (entries.dtype == polars.Boolean)
        within = MANY * doubtful.to_numpy() + _values_within(entries)
        ends = column.list.len().fill_null(0).to_numpy().astype(np.int64).cumsum()
        return np.diff(np.concatenate([[0], within.cumsum()])[ends], prepend=0)
    if column.dtype == polars.String:  # polars may have written an object or a list as text, in its own way
        return MANY * (column.str.starts_with("{") | column.str.starts_with("[")).fill_null(False).to_numpy()
    return 0


def object_of(line: bytes, constants: Mapping[str, Any] = CONSTANTS) -> dict[str, Any]:
    """Return the object in a line; a ValueError with the reason if there is none, or several ways to read it."""
    nested = line.count(b"{") + line.count(b"[") > MAX_DEPTH
    with suppress(ValueError, RecursionError):
        quick: dict[str, Any] = msgspec.json.decode(line)
        # With as many colons as keys, no key can be there twice, nor in an object within.
        flat = type(quick) is dict and not nested and len(quick) == line.count(b":")
        if flat and not _too_large(quick.values()):
            return quick
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(NOT_UTF8) from error
    if not text.lstrip().startswith(("{", "[")):  # quickly, for files that are something else
        raise ValueError(NOT_OBJECT)

    def constant(word: str) -> Any:
        if word not in constants:
            raise _BadValueError(NOT_JSON.format(constant=word))
        return constants[word]

    try:
        value = json.loads(text, object_pairs_hook=_each_once, parse_constant=constant)
        if nested and too_deep(value):
            raise _BadValueError(TOO_DEEP)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ValueError(INVALID.format(error=error.msg.removesuffix(" at"), place=error.pos + 1)) from error
    except UnicodeEncodeError as error:
        raise ValueError(SURROGATE) from error
    except _BadValueError:
        raise
    except ValueError as error:  # an integer with more than 4,300 digits
        raise ValueError(TOO_LARGE) from error
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    if not isinstance(value, dict):
        raise ValueError(NOT_OBJECT)
    if _too_large(value.values()):
        raise ValueError(TOO_LARGE)
    return value


class _BadValueError(ValueError):
    """A key or constant is not allowed; the argument is the reason to reject the line."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _BadValueError(DUPLICATE_KEY.format(key=next(key for key, count in counts.items() if count > 1)))
    return found


def _too_large(values: Iterable[Any]) -> bool:
    """Whether a number is infinite as a double."""
    for value in values:
        kind = type(value)
        if kind in (int, float):
            if not -LARGEST <= value <= LARGEST:
                return True
        elif (kind is dict and _too_large(value.values())) or (kind is list and _too_large(value)):
            return True
    return False


def looks_like(path: Path, head: bytes) -> bool:
    """Whether a file starts with a JSON object."""
    return head.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"{")


class JsonLinesLog(TableLog):
    """Lines of JSON, compressed or not."""

    format = "json-lines"

    def _names(self) -> list[str]:
        self._rows: list[dict[str, Any]] = []  # the first ones, until the types are decided
        self._types: dict[str, polars.DataType] = {}
        for path in self.paths[:FEW_ROWS]:
            self._rows += islice(_first_rows(path), FEW_ROWS if self._rows else HEAD_ROWS)
        if not self._rows:
            raise LogError(f"{str(self.paths[0])!r} has no line with a JSON object.")
        self._shape = shape_of(self._rows, room := Room(MAX_FIELDS))
        self._full = bool(room.left_out)
        if self._full:
            too_many_names("fields", MAX_FIELDS, room.left_out, self.paths[0].name)
        names = self._shape.fields
        if nested := self._nested(names):
            self._paths = paths_to(nested, [self._likely_types()])
            self._rows = [lifted(row, self._paths) for row in self._rows]
            names = shape_of(self._rows, Room(MAX_FIELDS)).fields
        return list(names)

    def _fields(self) -> list[str]:
        return fields_in([self._likely_types()])

    def _likely_types(self) -> dict[str, polars.DataType]:
        """Return the likely types of the fields; one that is a record in any line is a record."""
        fields = self._shape.fields.items()
        return {name: shape.record_dtype if shape.fields else shape.likely_dtype() for name, shape in fields}

    def _head(self) -> polars.DataFrame:
        rows, self._rows = self._rows, []
        uses = {name: USES.get(role, "feature") for role, name in self.columns.items()}
        shapes = (shape_of(rows, Room(MAX_FIELDS)) if self._paths else self._shape).fields
        self._types = {name: shape.likely_dtype(uses.get(name, "feature")) for name, shape in shapes.items()}
        fitted = {} if self._spec is None else by_holder(self._spec.shared, self._spec.holders)
        for name, features in fitted.items():
            self._types[name] = fitted_json_type(features, name, self._types.get(name))
        few = rows[: max(FEW_ROWS, HEAD_VALUES // len(shapes))]
        return polars.DataFrame(
            [json_column(name, [row.get(name) for row in few], self._types[name]) for name in shapes]
        )

    def _text_type(self, name: str, sample: polars.Series, use: Use) -> TextType | None:
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
        types = {name: self._types[name] for name in self.needed if name in self._types}
        reader, n_fields = _LineReader(self, types), len(fields_in([types]))
        batch_lines = min(BLOCK_LINES, max(FEW_ROWS, BATCH_VALUES // (1 + n_fields)))
        lines = size = 0
        for path in self.paths:
            for read in made_ahead(line_batches(blocks_of(path), batch_lines), reader.read):
                lines, size = lines + read.batch.n_lines, size + len(read.batch.text)
                if lines * n_fields > max(MAX_VALUES, VALUES_PER_BYTE * size):
                    raise LogError(
                        f"{self.paths[0].name!r} has {n_fields:,} fields, but most lines have only a few of them, and "
                        "missing values take as much memory as others. Name the fields to use with "
                        'columns={"contexts": [...]}. If field names hold values such as words or identifiers, log '
                        "them as text or as a list."
                    )
                yield reader.blocks(path, read)
        if reader.new_keys and "contexts" not in self._asked and not self._full:
            warn(
                f"{reader.new_keys:,} lines have fields that the first {HEAD_ROWS:,} lines do not have; these fields "
                f"are not used. The first such line is {reader.first_new}.",
                stacklevel=3,
            )


def _first_rows(path: Path) -> Iterator[dict[str, Any]]:
    head = head_of(path).removeprefix(BYTE_ORDER_MARK).lstrip()
    if not head:
        raise LogError(f"{str(path)!r} is empty.")
    if head.startswith(b"["):
        raise LogError(
            f"{str(path)!r} is one JSON list; a log has one object per line. Convert it with: jq -c '.[]' in > out"
        )
    n_rows = 0
    for batch in line_batches(blocks_of(path), BLOCK_LINES):
        for line in batch.lines:
            with suppress(ValueError):
                yield object_of(line)
                n_rows += 1
        if n_rows:  # and no more than a block, if most lines are bad
            return


class _Read(NamedTuple):
    """Lines that polars has read; all others are read one by one."""

    batch: LineBatch
    fast: Ints
    frame: polars.DataFrame
    new: Ints  # those of the fast lines that have fields unknown in the first lines of the log


class _LineReader:
    """One pass over a log. Types of fields that were null at first are decided later, and new fields are noticed."""

    def __init__(self, log: JsonLinesLog, types: Mapping[str, polars.DataType]) -> None:
        self._head, self._seen, self._sources = log._shape, deepcopy(log._shape), log._sources
        self._later = self._seen.room or Room(0)  # of all shapes within
        self._later.left = LATER_FIELDS
        self._paths = {name: path for name, path in log._paths.items() if name in types}
        names = [name for role, name in log.columns.items() if USES.get(role) == "name"]
        self._name_paths = {log._paths.get(name, (name,)) for name in names}
        self._types = dict(types)
        self._schemas = self._all_schemas()
        self.new_keys, self.first_new = 0, ""

    def _all_schemas(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """The types of all fields that polars reads, of those in the first lines, and of those that are wanted."""
        if (wanted := lowered(self._types, self._paths)) is None:
            return {}, {}, {}
        read_as = self._read_as(wanted, self._seen)
        wanted = {name: _narrowed(read_as[name], dtype) for name, dtype in wanted.items() if dtype != polars.Null}
        return read_as, _known(read_as, self._head), wanted

    def read(self, batch: LineBatch) -> _Read:
        """Read whatever polars can read. Other threads may call this, so it changes nothing."""
        read_as, known, wanted = self._schemas
        fast, frame = read_records(batch.text, read_as, strict=False)
        new = fast[:0]
        if read_as != known:
            new = fast[_values_in(frame.select(list(known)).cast(polars.Schema(known))) < _values_in(frame)]
        frame = frame.select(list(wanted)).cast(polars.Schema(wanted))
        lifts = self._paths and wanted
        return _Read(batch, fast, frame.select(lifting(frame.schema, self._paths)) if lifts else frame, new)

    def _read_as(self, wanted: Mapping[str, Any], shape: Shape, path: tuple[str, ...] = ()) -> dict[str, Any]:
        """The types of all fields: those that are wanted, and the likely types of the others."""
        least = shape.counts.get("object", 0) / RARE if shape is self._seen else 0

        def field(name: str, each: Shape) -> Any:
            dtype = wanted.get(name)
            if each.counts.keys() == {"object"} and (dtype is None or dtype in (polars.Struct, polars.Null)):
                return polars.Struct(self._read_as(fields_of(dtype), each, (*path, name)))
            if dtype is None:
                return each.likely_dtype()
            floats = dtype == polars.Int64 and "number" in each.counts and (*path, name) not in self._name_paths
            return polars.Float64() if floats else dtype

        found = {
            name: field(name, each)
            for name, each in shape.fields.items()
            if name in wanted or sum(each.counts.values()) >= least
        }
        return found | {name: dtype for name, dtype in wanted.items() if name not in found}

    def blocks(self, path: Path, read: _Read) -> Sequence[TableBlock]:
        """Return what polars has read, and the other lines, read one by one."""
        first, source = read.batch.first, self._sources[path]
        lines = cache(lambda: read.batch.lines)

        def text_at(places: Ints) -> Any:
            return lambda row: shown(lines()[int(places[row])])

        blocks, new = [], read.new.tolist()
        if len(read.fast):
            blocks.append(TableBlock(path, first + read.fast, read.frame, text_at(read.fast)))
        rows, numbers, rejected = [], [], []
        for i in np.setdiff1d(np.arange(read.batch.n_lines), read.fast, assume_unique=True).tolist():
            if not (line := lines()[i]).strip():
                continue
            try:
                rows.append(object_of(line))
                numbers.append(i)
            except ValueError as error:
                rejected.append(Rejected(source, first + i, str(error), shown(line)))
        new += [i for i, row in zip(numbers, rows, strict=True) if _has_new_keys(row, self._head)]
        if new:
            self.new_keys += len(new)
            self.first_new = self.first_new or f"line {first + min(new)} of {source}"
        if rows or rejected or not blocks:
            for row in rows[:LESSONS]:
                self._seen.with_value(row)
            if self._paths:
                rows = [lifted(row, self._paths) for row in rows]
            self._fill_types(rows)
            self._schemas = self._all_schemas()
            mismatches: list[Mismatch] = []
            slow = np.array(numbers, dtype=np.int64)
            frame = polars.DataFrame(
                [
                    json_texts(name, [row.get(name) for row in rows], dtype, mismatches)
                    for name, dtype in self._types.items()
                ]
            )
            blocks.append(TableBlock(path, first + slow, frame, text_at(slow), rejected, mismatches))
        return blocks

    def _fill_types(self, rows: Sequence[dict[str, Any]]) -> None:
        """Decide the types of fields that have been null so far."""
        empty = [name for name, dtype in self._types.items() if dtype == polars.Null]
        found = {name: shape_of([row.get(name) for row in rows], self._later) for name in empty}
        self._types |= {name: shape.likely_dtype() for name, shape in found.items()}


def _has_new_keys(value: Any, shape: Shape) -> bool:
    """Whether an object has keys, nested ones included, that the first lines do not have; nulls do not count."""
    if isinstance(value, dict):
        return any(
            each is not None and (name not in shape.fields or _has_new_keys(each, shape.fields[name]))
            for name, each in value.items()
        )
    return isinstance(value, list) and any(_has_new_keys(each, shape.entries or Shape()) for each in value)


def _known(dtypes: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """The fields that values of ``shape`` have."""
    found: dict[str, Any] = {}
    for name, dtype in dtypes.items():
        if name in shape.fields:
            record = isinstance(dtype, polars.Struct)
            found[name] = polars.Struct(_known(fields_of(dtype), shape.fields[name])) if record else dtype
    return found


def _narrowed(read_as: Any, wanted: Any) -> Any:
    """A wanted type, with floats in place of integers that polars reads as floats."""
    if isinstance(wanted, polars.Struct) and isinstance(read_as, polars.Struct):
        inner = fields_of(read_as)
        return polars.Struct({name: _narrowed(inner[name], dtype) for name, dtype in fields_of(wanted).items()})
    return read_as if wanted == polars.Int64 else wanted
