"""CSV, TSV and similar tables of text: fields between commas, tabs, semicolons or bars, below a line of names.

Polars reads the values. It does not report which lines are damaged, so the records are located here first: with arrays
for a whole block, or line by line if its quotes are irregular or its bytes are not text. A bad line then costs only
itself, and the time is linear in the size of the file.
"""

import csv
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from seachange.engine import made_ahead
from seachange.errors import LogError
from seachange.formats.sources import BYTE_ORDER_MARK, HEAD_BYTES, NOT_UTF8, blocks_of, head_of, is_utf8, shown
from seachange.formats.table import FEW_ROWS, HEAD_ROWS, TableBlock, TableLog
from seachange.log.raw import NUMBER, Rejected
from seachange.protocols import Ints

SEPARATORS = ",\t;|"
SAMPLE_LINES = 50
# A record of several lines that is longer has a quote that never closes.
LONGEST_RECORD = 1 << 18
UNCLOSED = "a quote opens a field and never closes"
# Quantifiers of groups that never backtrack; before 3.11.5, Python matches them wrongly (gh-106052).
REPEATED = rb"*+" if sys.version_info >= (3, 11, 5) else rb"*"
AFTER_QUOTE = "text follows a closing quote"
LONE_RETURN = "a carriage return is not at the end of the line"
NUL = "a NUL byte is not text"
NEWLINE, QUOTE = b"\n"[0], b'"'[0]


class Header(NamedTuple):
    """The first line of a file."""

    names: list[str]
    separator: str
    lines: int  # that it takes, with blank lines before it


class Records(NamedTuple):
    """Complete records that all have the right number of fields."""

    content: bytes  # each record ends with a newline
    starts: Ints  # (n,) where each starts in the content
    lines: Ints  # (n,) in the file
    rejected: list[Rejected]

    def text(self, record: int) -> str:
        """Return the text of a record."""
        end = self.starts[record + 1] if record + 1 < len(self.starts) else len(self.content)
        return shown(self.content[self.starts[record] : end])


def looks_like(path: Path, head: bytes) -> bool:
    """Whether a file may be a table of text."""
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if not text or b"\0" in head or text[:1] in b"{[":
        return False
    first = text.split(b"\n", 1)[0].decode(errors="replace")
    return first.isprintable() or "\t" in first or "\r" in first


class CsvLog(TableLog):
    """CSV, TSV and similar files, compressed or not."""

    def _names_by_file(self) -> Mapping[Path, Collection[str]]:
        self._headers = {path: _header(path) for path in self.paths}
        self._as_texts: set[str] = set()  # columns of numbers in which other texts have occurred
        self.format = "tsv" if self._headers[self.paths[0]].separator == "\t" else "csv"
        return {path: header.names for path, header in self._headers.items()}

    def _head(self) -> pl.DataFrame:
        heads = []
        for i, path in enumerate(self.paths[:FEW_ROWS]):
            found = next(self._records(path), None)
            if found is not None:
                texts = _read(found, self._headers[path], dict.fromkeys(self._headers[path].names, pl.String))
                heads.append(texts.head(FEW_ROWS if i else HEAD_ROWS))
        return pl.concat(heads, how="diagonal") if heads else pl.DataFrame()

    def _records(self, path: Path) -> Iterator[Records]:
        """Yield all records of a file, block by block."""
        header = self._headers[path]
        finder = _RecordFinder(header.separator, len(header.names), self._sources[path])
        text, line = b"", 1
        for block in blocks_of(path):
            text += block.text.replace(b"\r\n", b"\n") if b"\r" in block.text else block.text
            start = 0
            while line <= header.lines and start < len(text):
                start, line = text.index(b"\n", start) + 1, line + 1
            text = text[start:]
            found, used, n_lines = finder.records(text, line, at_end=False)
            text, line = text[used:], line + n_lines
            if len(found.lines) or found.rejected:
                yield found
        if text:
            yield finder.records(text, line, at_end=True)[0]

    def _blocks(self, rows: int) -> Iterator[Sequence[TableBlock]]:
        def block(path: Path, found: Records) -> Sequence[TableBlock]:
            return [TableBlock(path, found.lines, self._frame(path, found), found.text, found.rejected)]

        for path in self.paths:
            yield from made_ahead(self._records(path), partial(block, path))

    def _frame(self, path: Path, found: Records) -> pl.DataFrame:
        """Read the needed columns: plain numbers directly, all others as texts."""
        plain = {"integer": pl.Int64, "number": pl.Float64}
        header = self._headers[path]
        names = {name for role, name in self.columns.items() if role in ("action", "sequence", "time")}
        types = {
            name: pl.String if name in names | self._as_texts else plain.get(self._plan.types[name], pl.String)
            for name in {*self.needed} & {*header.names}
        }
        try:
            frame = _read(found, header, types)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            frame = _read(found, header, dict.fromkeys(types, pl.String))
            for name, dtype in types.items():
                texts = frame[name]
                if dtype != pl.String and (texts.cast(dtype, strict=False).is_null() & (texts != "")).any():
                    self._as_texts.add(name)
            return frame
        # 1e999 is too large and not infinite; only its text can tell.
        infinite = [name for name in types if frame[name].dtype.is_float() and frame[name].is_infinite().any()]
        if infinite:
            frame = frame.with_columns(_read(found, header, dict.fromkeys(infinite, pl.String)).get_columns())
        return frame.with_columns(pl.col(pl.Float64).fill_nan(None))


def _read(found: Records, header: Header, types: Mapping[str, Any]) -> pl.DataFrame:
    """Read the columns named in ``types``, each as its type."""
    if not found.content:
        return pl.DataFrame(schema=dict(types))
    numbered = {f"column_{i}": name for i, name in enumerate(header.names, 1)}
    # Polars removes a byte order mark, but here it is part of a field: the file's own is gone already.
    mark = BYTE_ORDER_MARK if found.content.startswith(BYTE_ORDER_MARK) else b""
    read = pl.read_csv(
        mark + found.content,
        has_header=False,
        separator=header.separator,
        schema={number: types.get(name, pl.String) for number, name in numbered.items()},
        columns=[number for number, name in numbered.items() if name in types],
        truncate_ragged_lines=False,
    )
    if len(read) != len(found.lines):
        raise pl.exceptions.ComputeError(f"{len(found.lines)} records were read as {len(read)}")
    read = read.rename(numbered, strict=False)
    # Two quotes are an empty field, like nothing at all. (Looking for one byte first is much faster.)
    quoted = b'"' in found.content and b'""' in found.content
    return read.with_columns(pl.col(pl.String).replace("", None)) if quoted else read


class _RecordFinder:
    """Finds the records in blocks of whole lines."""

    def __init__(self, separator: str, n_fields: int, source: str) -> None:
        self.separator, self.n_fields, self.source = separator.encode(), n_fields, source
        sep, quoted = re.escape(self.separator), rb'"(?:[^"]++|"")' + REPEATED
        field = rb"(?:" + quoted + rb'"|(?!")[^' + sep + rb"\r]*+)"
        self._field = re.compile(rb"(" + field + rb")(" + sep + rb"|\Z)")
        self._complete = re.compile(field + rb"(?:" + sep + field + rb")" + REPEATED)
        self._open = re.compile(rb"(?:" + field + sep + rb")" + REPEATED + quoted)

    def records(self, text: bytes, line: int, at_end: bool) -> tuple[Records, int, int]:
        """Return the records of a block that starts at ``line``, and how many bytes and lines they take."""
        plain = b"\0" not in text and b"\r" not in text and is_utf8(text)
        return (self._regular(text, line, at_end) if plain else None) or self._by_line(text, line, at_end)

    def _regular(self, text: bytes, line: int, at_end: bool) -> tuple[Records, int, int] | None:
        """Find all records with arrays; None if a quote is not at the start or end of its field."""
        codes = np.frombuffer(text, dtype=np.uint8)
        newlines, separators = codes == NEWLINE, codes == self.separator[0]
        all_newlines = ends = np.flatnonzero(newlines)
        if b'"' in text:
            quotes = codes == QUOTE
            if not _quotes_at_ends(codes, np.flatnonzero(quotes), self.separator[0]):
                return None
            inside = (np.cumsum(quotes, dtype=np.int32) & 1).astype(bool)
            separators &= ~inside
            ends = np.flatnonzero(newlines & ~inside)
        used = int(ends[-1]) + 1 if len(ends) else 0
        if len(text) - used > LONGEST_RECORD or (at_end and used < len(text)):
            return None
        starts = np.concatenate([[0], ends + 1])[: len(ends)]
        fields = 1 + np.diff(np.searchsorted(np.flatnonzero(separators), ends), prepend=0)
        lines = line + np.searchsorted(all_newlines, starts)
        blank, sizes = ends == starts, ends - starts + 1
        good = (fields == self.n_fields) & ~blank
        rejected = [
            Rejected(self.source, int(lines[i]), self._wrong_count(int(fields[i])), shown(text[starts[i] : ends[i]]))
            for i in np.flatnonzero(~good & ~blank)
        ]
        content = text[:used] if good.all() else codes[:used][np.repeat(good, sizes)].tobytes()
        starts = np.cumsum(sizes[good]) - sizes[good]
        return Records(content, starts, lines[good], rejected), used, int(np.searchsorted(all_newlines, used))

    def _by_line(self, text: bytes, first_line: int, at_end: bool) -> tuple[Records, int, int]:
        """Find records line by line. A line with wrong quotes is rejected alone, and the next one starts a record."""
        lines = text.split(b"\n")[:-1]
        offsets = np.cumsum([0, *(len(line) + 1 for line in lines)]).tolist()
        faults = [NUL if b"\0" in line else "" if is_utf8(line) else NOT_UTF8 for line in lines]
        # Where a record ends that is inside quotes when line i starts: after which line, and what is wrong with it.
        ends: list[tuple[int, str]] = [(len(lines), UNCLOSED)] * (len(lines) + 1)
        for i in range(len(lines) - 1, -1, -1):
            fault = faults[i] or (self._fault(b'"' + lines[i]) if b'"' in lines[i] else UNCLOSED)
            ends[i] = ends[i + 1] if fault == UNCLOSED else (i + 1, fault)
        records: list[tuple[int, bytes]] = []
        rejected = []
        i = 0
        while i < len(lines):
            fault = faults[i] or self._fault(lines[i])
            end, reason = ends[i + 1] if fault == UNCLOSED else (i + 1, fault)
            if fault == UNCLOSED and reason in ("", UNCLOSED) and offsets[end] - offsets[i] > LONGEST_RECORD:
                end, reason = i + 1, UNCLOSED
            elif reason == UNCLOSED and not at_end:
                break  # the rest of it may be in the next block
            record = b"\n".join(lines[i:end]) if not reason else b""
            if record:
                fields = self._fields(record)
                if len(fields) == self.n_fields:
                    records.append((first_line + i, self.separator.join(fields) + b"\n"))
                else:
                    reason = self._wrong_count(len(fields))
            if reason:
                rejected.append(Rejected(self.source, first_line + i, reason, shown(lines[i])))
            i = end if record else i + 1
        starts = np.cumsum([0, *(len(record) for _, record in records)], dtype=np.int64)[:-1]
        numbers = np.array([number for number, _ in records], dtype=np.int64)
        content = b"".join(record for _, record in records)
        return Records(content, starts, numbers, rejected), offsets[i], i

    def _fault(self, line: bytes) -> str:
        """Return what is wrong with a line that starts outside quotes; UNCLOSED if it ends inside them."""
        if (b'"' not in line and b"\r" not in line) or self._complete.fullmatch(line):
            return ""
        if self._open.fullmatch(line):
            return UNCLOSED
        return LONE_RETURN if b"\r" in line else AFTER_QUOTE

    def _fields(self, record: bytes) -> list[bytes]:
        """Return the fields of a record; those with a quote inside are quoted."""
        if b'"' not in record:
            return record.split(self.separator)
        fields = []
        for field, separator in self._field.findall(record):
            plain = not field.startswith(b'"') and b'"' in field
            fields.append(b'"' + field.replace(b'"', b'""') + b'"' if plain else field)
            if not separator:
                break
        return fields

    def _wrong_count(self, fields: int) -> str:
        return f"the line has {fields} field{'s' * (fields != 1)}, but the header has {self.n_fields}"


def _quotes_at_ends(codes: npt.NDArray[np.uint8], quotes: Ints, separator: int) -> bool:
    """Whether quotes open at the start of a field, close at its end, and are doubled elsewhere."""
    opening, closing = quotes[::2], quotes[1::2]
    before, after = codes[opening - 1], codes[np.minimum(closing + 1, len(codes) - 1)]
    opens = (before == separator) | (before == NEWLINE) | (before == QUOTE) | (opening == 0)
    closes = (after == separator) | (after == NEWLINE) | (after == QUOTE)
    return bool(opens.all() and closes.all())


def _header(path: Path) -> Header:
    """Read the names of the columns, and find out what separates them."""
    head, where = head_of(path), repr(str(path))
    if not head.strip():
        raise LogError(f"{where} is empty.")
    lines = head.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    skipped = next(i for i, line in enumerate(lines) if line.strip() or i == len(lines) - 1)
    first = lines[skipped].removesuffix(b"\r")
    if skipped == len(lines) - 1 and len(head) == HEAD_BYTES:
        raise LogError(f"the first line of {where} should name the columns; it has more than {HEAD_BYTES:,} bytes.")
    if b"\r" in first and len(lines) == 1:
        raise LogError(
            f"the lines of {where} end in carriage returns alone. Convert it with: tr '\\r' '\\n' < in > out"
        )
    if not is_utf8(first):
        raise LogError(f"line {skipped + 1} of {where} should name the columns; {NOT_UTF8}.")
    if b"\0" in first:
        raise LogError(f"{where} is not a table of text: it has NUL bytes.")
    rows = [line.decode(errors="replace") for line in lines[skipped + 1 : skipped + 1 + SAMPLE_LINES] if line.strip()]
    separator = _separator(first.decode(), rows)
    names = [name.strip() for name in _names_in(first.decode(), separator)]
    if len(names) < 2:
        raise LogError(
            f"{where} has one column, or the quotes in its first line do not match. The first line of a table names "
            "the columns, separated by commas, tabs, semicolons or bars."
        )
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise LogError(f"the columns of {where} must have different names; {name!r} occurs twice.")
    if all(re.match(NUMBER, name) for name in names):
        raise LogError(f"the first line of {where} should name the columns; it has numbers: {', '.join(names[:5])}.")
    return Header(names, separator, skipped + 1)


def _names_in(line: str, separator: str) -> list[str]:
    """Return the fields of a line; none if its quotes do not match."""
    try:
        return next(csv.reader([line], delimiter=separator, strict=True), [])
    except csv.Error:
        return []


def _separator(first: str, rows: Sequence[str]) -> str:
    """Return the separator that splits most lines into as many fields as the first; if several do, into the most."""

    def merit(separator: str) -> tuple[float, int]:
        fields = len(_names_in(first, separator))
        agree = sum(len(_names_in(row, separator)) == fields for row in rows)
        return (round(agree / len(rows), 1) if rows and fields > 1 else 0.0, fields)

    return max(SEPARATORS, key=merit)
