"""Tables of text: fields between commas, tabs, semicolons or bars, under a line of names."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from seachange.errors import LogError
from seachange.log.readers.ahead import made_ahead
from seachange.log.readers.csv_lines import Records, records
from seachange.log.readers.kinds import NUMBER
from seachange.log.readers.lines import BYTE_ORDER_MARK
from seachange.log.readers.streams import HEAD_BYTES, NOT_UTF8, head_of, likely_lines, opened, require_narrow
from seachange.log.readers.table_log import FEW_ROWS, HEAD_ROWS, Block, TableLog

if TYPE_CHECKING:
    import polars

    from seachange.log.features import FeatureSpec

SEPARATORS = ",\t;|"
SAMPLE_LINES = 50


class Header(NamedTuple):
    """The names of a file's columns, and what stands between its fields."""

    names: list[str]
    separator: str
    lines: int  # that it takes


def looks_like(path: Path, head: bytes) -> bool:
    """Whether a file may be a table of text."""
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if not text or b"\0" in head or text[:1] in b"{[":
        return False
    first = text.split(b"\n", 1)[0].decode(errors="replace")
    return first.isprintable() or "\t" in first or "\r" in first


class CsvLog(TableLog):
    """CSV, TSV and their kin, plain or packed."""

    def __init__(
        self,
        path: Path | Sequence[Path],
        columns: Mapping[str, str | Sequence[str]] | None = None,
        features: FeatureSpec | None = None,
    ) -> None:
        self._headers: dict[Path, Header] = {}
        self._careful: set[str] = set()  # columns that have held texts which are no plain numbers
        super().__init__(path, columns, features)
        self._require_places({path: header.names for path, header in self._headers.items()})
        self.likely_rounds = likely_lines(self.paths)
        self.format = "tsv" if self._headers[self.paths[0]].separator == "\t" else "csv"

    def _names(self) -> list[str]:
        self._headers = {path: _header(path) for path in self.paths}
        return list(dict.fromkeys(name for header in self._headers.values() for name in header.names))

    def _head(self) -> polars.DataFrame:
        import polars

        heads = []
        for i, path in enumerate(self.paths[:FEW_ROWS]):
            with opened(path) as stream:
                found = next(self._records(path, stream), None)
            if found is not None:
                rows = HEAD_ROWS if i == 0 else FEW_ROWS
                texts = _read(found, self._headers[path], dict.fromkeys(self._headers[path].names, polars.String))
                heads.append(texts.head(rows))
        return polars.concat(heads, how="diagonal") if heads else polars.DataFrame()

    def _records(self, path: Path, stream: IO[bytes]) -> Iterator[Records]:
        header = self._headers[path]
        for _ in range(header.lines):
            stream.readline()
        return records(stream, header.separator, len(header.names), header.lines + 1, self._sources[path])

    def _blocks(self, rows: int) -> Iterator[Block]:
        for path in self.paths:
            with opened(path) as stream:
                yield from made_ahead(self._records(path, stream), partial(self._block, path))

    def _block(self, path: Path, found: Records) -> Block:
        return Block(path, found.lines, self._frame(path, found), found.text, found.rejected)

    def _frame(self, path: Path, found: Records) -> polars.DataFrame:
        """The columns that are needed: plain numbers read at once, all others as texts."""
        import polars

        plain = {"whole": polars.Int64, "number": polars.Float64}
        names = {place for word, place in self.columns.items() if word in ("action", "sequence", "time")}
        header = self._headers[path]
        needed = {*self.needed} & {*header.names}
        texts = {*self._careful, *names}
        types = {
            name: polars.String if name in texts else plain.get(self._plan.kinds[name], polars.String)
            for name in needed
        }
        try:
            frame = _read(found, header, types)
        except (polars.exceptions.PolarsError, polars.exceptions.PanicException):
            return self._careful_frame(found, header, types)
        odd = [name for name, dtype in types.items() if dtype == polars.Float64 and frame[name].is_infinite().any()]
        if odd:
            frame = frame.with_columns(_read(found, header, dict.fromkeys(odd, polars.String)).get_columns())
        return frame.with_columns(polars.col(polars.Float64).fill_nan(None))

    def _careful_frame(self, found: Records, header: Header, types: Mapping[str, Any]) -> polars.DataFrame:
        """Everything as texts; which columns are to be read so from now on is kept in mind."""
        import polars

        frame = _read(found, header, dict.fromkeys(types, polars.String))
        for name, dtype in types.items():
            if dtype != polars.String and (frame[name].cast(dtype, strict=False).is_null() & (frame[name] != "")).any():
                self._careful.add(name)
        return frame


def _read(found: Records, header: Header, types: Mapping[str, Any]) -> polars.DataFrame:
    """The columns named in ``types``, each as its type."""
    import polars

    if not found.content:
        return polars.DataFrame(schema=dict(types))
    numbered = {f"column_{i}": name for i, name in enumerate(header.names, 1)}
    # Polars takes a mark of byte order away; if these bytes begin with one, it is part of a field.
    mark = BYTE_ORDER_MARK if found.content.startswith(BYTE_ORDER_MARK) else b""
    read = polars.read_csv(
        mark + found.content,
        has_header=False,
        separator=header.separator,
        schema={number: types.get(name, polars.String) for number, name in numbered.items()},
        columns=[number for number, name in numbered.items() if name in types],
        truncate_ragged_lines=False,
    )
    if len(read) != len(found.lines):
        raise polars.exceptions.ComputeError(f"{len(found.lines)} records were read as {len(read)}")
    read = read.rename(numbered, strict=False)
    # A field of two quotes is as empty as one of none. One byte is found much faster than two.
    quoted = b'"' in found.content and b'""' in found.content
    return read.with_columns(polars.col(polars.String).replace("", None)) if quoted else read


def _header(path: Path) -> Header:
    head = head_of(path)
    where = repr(str(path))
    if not head.strip():
        raise LogError(f"{where} is empty.")
    require_narrow(path, head)
    lines = head.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    skipped = next(i for i, line in enumerate(lines) if line.strip() or i == len(lines) - 1)
    first = lines[skipped].removesuffix(b"\r")
    if skipped == len(lines) - 1 and len(head) == HEAD_BYTES:
        raise LogError(f"the first line of {where} should name the columns; it has more than {HEAD_BYTES:,} bytes.")
    if b"\r" in first and len(lines) == 1:
        raise LogError(f"{where} cannot be read as a table of text: its lines end in carriage returns alone.")
    try:
        text = first.decode()
    except UnicodeDecodeError as error:
        raise LogError(f"line {skipped + 1} of {where} should name the columns; {NOT_UTF8}.") from error
    if "\0" in text:
        raise LogError(f"{where} cannot be read as a table of text: it holds NUL bytes.")
    rows = [line.decode(errors="replace") for line in lines[skipped + 1 : skipped + 1 + SAMPLE_LINES] if line.strip()]
    separator = _separator(text, rows)
    names = [name.strip() for name in _fields(text, separator)]
    _require_names(where, names)
    return Header(names, separator, skipped + 1)


def _fields(line: str, separator: str) -> list[str]:
    """The fields of a line; none where its quotes are wrong."""
    try:
        return next(csv.reader([line], delimiter=separator, strict=True), [])
    except csv.Error:
        return []


def _separator(first: str, rows: Sequence[str]) -> str:
    """The one that cuts the most lines into as many fields as the first; of several, into the most."""

    def merit(separator: str) -> tuple[float, int]:
        fields = len(_fields(first, separator))
        agree = sum(len(_fields(row, separator)) == fields for row in rows)
        return (round(agree / len(rows), 1) if rows and fields > 1 else 0.0, fields)

    return max(SEPARATORS, key=merit)


def _require_names(where: str, names: Sequence[str]) -> None:
    if len(names) < 2:
        raise LogError(
            f"{where} has one column, or its first line has quotes that do not match: a table of text has names in its "
            "first line, with commas, tabs, semicolons or bars between them."
        )
    if twice := [name for name in names if names.count(name) > 1]:
        raise LogError(f"the columns of {where} must have different names; {twice[0]!r} is there twice.")
    if all(re.match(NUMBER, name) for name in names):
        raise LogError(f"the first line of {where} should name the columns; it has numbers: {', '.join(names[:5])}.")
