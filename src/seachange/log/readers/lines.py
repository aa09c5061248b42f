"""Lines of text, many at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np

from seachange.errors import LogError
from seachange.protocols import Ints

BLOCK_BYTES = 1 << 23
LONGEST_LINE = 1 << 26
SHOWN = 200  # characters of a line that is rejected
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NEWLINE = b"\n"[0]


class Lines(NamedTuple):
    """Whole lines that follow each other."""

    content: bytes
    begins: Ints  # (n,) where each begins in the content
    ends: Ints  # (n,) where its newline is
    first: int  # the number of the first in its file, counted from 1

    def text(self, i: int) -> str:
        """What stands in a line."""
        return shown(self.content[self.begins[i] : self.ends[i]])


def line_blocks(stream: IO[bytes], source: str) -> Iterator[Lines]:
    """All lines of a stream, a block of bytes at a time; a mark of byte order is no part of the first."""
    first = 1
    while content := stream.read(BLOCK_BYTES):
        if first == 1:
            content = content.removeprefix(BYTE_ORDER_MARK)
        if not content.endswith(b"\n"):
            rest = stream.readline(LONGEST_LINE)
            if len(rest) == LONGEST_LINE:
                raise LogError(f"{source!r} has a line of more than {LONGEST_LINE:,} bytes: is it text?")
            content += rest if rest.endswith(b"\n") else rest + b"\n"
        ends = np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == NEWLINE)
        yield Lines(content, np.concatenate([[0], ends[:-1] + 1]), ends, first)
        first += len(ends)


def shown(content: bytes) -> str:
    """Bytes as text of bearable length."""
    return content[: 4 * SHOWN].decode(errors="replace").rstrip("\r\n")[:SHOWN]
