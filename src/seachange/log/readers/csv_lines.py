"""Records of CSV text: where they begin and end, and which lines are none.

A block of bytes is looked at as a whole, with arrays. Only where its quotes are irregular, or its bytes no text, is it
read line by line, so that one bad line costs that line and not those after it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import islice
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError
from seachange.log.raw import Rejected
from seachange.log.readers.lines import BLOCK_BYTES, NEWLINE, shown
from seachange.log.readers.streams import NOT_UTF8
from seachange.protocols import Bools, Ints

Codes = npt.NDArray[np.uint8]
# A record that is longer has a quote that never closes.
LONGEST_RECORD = 1 << 20
UNFINISHED = "a quote opens a field and never closes it"
LONE_RETURN = "a carriage return stands alone in a line"
QUOTE, RETURN = b'"'[0], b"\r"[0]
ENDING = "\r\n"


class Records(NamedTuple):
    """Whole records that all have the right number of fields."""

    content: bytes  # ends each record with a newline
    starts: Ints  # (n,) where each begins in the content
    lines: Ints  # (n,) in the file
    rejected: list[Rejected]

    def text(self, record: int) -> str:
        """What stands there."""
        end = self.starts[record + 1] if record + 1 < len(self.starts) else len(self.content)
        return shown(self.content[self.starts[record] : end])


def records(stream: IO[bytes], separator: str, n_fields: int, first_line: int, source: str) -> Iterator[Records]:
    """All records of a stream that stands after the header, block by block."""
    waiting, line, at_end = b"", first_line, False
    while not at_end:
        fresh = stream.read(BLOCK_BYTES)
        at_end = not fresh
        block = waiting + fresh
        if at_end and block and not block.endswith(b"\n"):
            block += b"\n"
        part, used, n_lines = _read(block, at_end, separator, n_fields, line, source)
        waiting, line = block[used:], line + n_lines
        if len(part.lines) or part.rejected:
            yield part


def _read(
    block: bytes, at_end: bool, separator: str, n_fields: int, line: int, source: str
) -> tuple[Records, int, int]:
    """The records of a block, how many of its bytes they take, and how many lines."""
    if b"\0" not in block and _is_text(block, at_end):
        found = _regular(block, at_end, separator, n_fields, line, source)
        if found is not None:
            return found
    return _careful(block, at_end, separator, n_fields, line, source)


def _is_text(block: bytes, at_end: bool) -> bool:
    if block.isascii():
        return True
    try:
        (block if at_end else block[: block.rfind(b"\n") + 1]).decode()
    except UnicodeDecodeError:
        return False
    return True


def _regular(
    block: bytes, at_end: bool, separator: str, n_fields: int, line: int, source: str
) -> tuple[Records, int, int] | None:
    """The whole block at once; None where a quote is not at an end of its field."""
    codes = np.frombuffer(block, dtype=np.uint8)
    newlines, separators = codes == NEWLINE, codes == ord(separator)
    all_newlines = np.flatnonzero(newlines)
    if b'"' in block:
        quotes = codes == QUOTE
        inside: Bools = (np.cumsum(quotes, dtype=np.int32) & 1).astype(bool)
        if not _quotes_at_ends(codes, np.flatnonzero(quotes), ord(separator)):
            return None
        newlines &= ~inside
        separators &= ~inside
        ends = np.flatnonzero(newlines)
    else:
        inside, ends = np.zeros(0, dtype=bool), all_newlines
    used = int(ends[-1]) + 1 if len(ends) else 0
    if len(block) - used > LONGEST_RECORD or (at_end and used < len(block)):
        return None
    if b"\r" in block and not _returns_before_newlines(codes[:used], inside[:used]):
        return None
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64) if len(ends) else ends.astype(np.int64)
    fields = 1 + np.diff(np.searchsorted(np.flatnonzero(separators), ends), prepend=0)
    lines = line + np.searchsorted(all_newlines, starts)
    blank = (ends == starts) | ((ends == starts + 1) & (codes[starts] == RETURN))
    good = (fields == n_fields) & ~blank
    rejected = [
        Rejected(source, int(lines[i]), _wrong_count(int(fields[i]), n_fields), shown(block[starts[i] : ends[i]]))
        for i in np.flatnonzero(~good & ~blank)
    ]
    content = block[:used]
    if not good.all():
        keep = np.repeat(good, np.diff(ends, prepend=-1))
        content = codes[:used][keep].tobytes()
        starts = np.concatenate([[0], np.cumsum((ends - starts + 1)[good])[:-1]]).astype(np.int64)[: int(good.sum())]
    if b"\r" in content:
        returns = np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == RETURN)
        content, starts = content.replace(b"\r\n", b"\n"), starts - np.searchsorted(returns, starts)
    return Records(content, starts, lines[good], rejected), used, int(np.searchsorted(all_newlines, used))


def _quotes_at_ends(codes: Codes, quotes: Ints, separator: int) -> bool:
    """Whether quotes open at the begin of a field, close at its end, and are doubled elsewhere."""
    opening, closing = quotes[::2], quotes[1::2]
    before = codes[opening - 1]
    fine = (before == separator) | (before == NEWLINE) | (before == QUOTE)
    after = codes[np.minimum(closing + 1, len(codes) - 1)]
    shut = (after == separator) | (after == NEWLINE) | (after == RETURN) | (after == QUOTE)
    return bool((fine | (opening == 0)).all() and (shut | (closing == len(codes) - 1)).all())


def _returns_before_newlines(codes: Codes, inside: Bools) -> bool:
    returns = np.flatnonzero(codes == RETURN)
    if len(inside) and inside[returns].any():
        return False
    return bool((codes[returns + 1] == NEWLINE).all())  # a record ends with a newline, so there is a next byte


def _careful(
    block: bytes, at_end: bool, separator: str, n_fields: int, first_line: int, source: str
) -> tuple[Records, int, int]:
    """Line by line. A line whose quotes are wrong is rejected alone, and the next line starts a record."""
    lines = block.split(b"\n")
    last = lines.pop()  # without a newline: empty, or not yet all there
    texts = [line.removesuffix(b"\r") for line in lines]
    out, starts, numbers, rejected = io.BytesIO(), [], [], []
    # Only what ends a line is put in quotes, so a return must.
    writer = csv.writer(text := io.StringIO(newline=""), delimiter=separator, lineterminator=ENDING)
    i, used = 0, 0
    while i < len(texts):
        taken, fields, reason = _record(texts, i, separator)
        if reason == UNFINISHED and not at_end and len(block) - used <= LONGEST_RECORD:
            break
        if not reason and fields and len(fields) != n_fields:
            reason = _wrong_count(len(fields), n_fields)
        elif reason:
            taken = 1
        if reason:
            rejected.append(Rejected(source, first_line + i, reason, shown(texts[i])))
        elif fields:
            writer.writerow(fields)
            starts.append(out.tell())
            numbers.append(first_line + i)
            out.write(text.getvalue().removesuffix(ENDING).encode() + b"\n")
            text.seek(0)
            text.truncate()
        used += sum(len(line) + 1 for line in lines[i : i + taken])
        i += taken
    if len(last) > LONGEST_RECORD:
        raise LogError(
            f"line {first_line + i} of {source!r} is longer than {LONGEST_RECORD:,} bytes: is that a table of text?"
        )
    found = Records(out.getvalue(), np.array(starts, dtype=np.int64), np.array(numbers, dtype=np.int64), rejected)
    return found, used, i


def _record(lines: list[bytes], i: int, separator: str) -> tuple[int, list[str], str]:
    """How many lines the record at line ``i`` takes, its fields, and what is wrong with it."""
    size = quotes = 0
    for taken, line in enumerate(islice(lines, i, None), 1):
        size += len(line) + 1
        quotes += line.count(b'"')
        if taken > 1 and (quotes % 2 or b'"' not in line):
            if size > LONGEST_RECORD:
                break
            continue  # the quote is still open
        content = b"\n".join(lines[i : i + taken])
        if b"\0" in content:
            return 1, [], "a NUL byte is no text"
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return 1, [], NOT_UTF8
        if '"' not in text:
            return (1, text.split(separator) if text else [], "") if "\r" not in text else (1, [], LONE_RETURN)
        try:
            rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                continue
            return 1, [], LONE_RETURN if "new-line" in str(error) else "text follows a quote that closed its field"
        return (taken, rows[0], "") if len(rows) == 1 else (1, [], LONE_RETURN)
    return 1, [], UNFINISHED


def _wrong_count(fields: int, wanted: int) -> str:
    return f"it has {fields} field{'s' * (fields != 1)} and the header {wanted}"
