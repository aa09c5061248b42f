"""Files of lines, plain or gzipped, a block of whole lines at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from seachange.errors import LogError

BLOCK_BYTES = 1 << 25
HEAD_BYTES = 1 << 16
# No format of lines has longer ones; a file that does is something else, and would have to be held in memory.
LONGEST_LINE = 1 << 26
SHOWN_TEXT = 200
GZIP = b"\x1f\x8b"
# zlib's word for a gzip header and trailer around the stream.
GZIP_WINDOW = 31


def line_blocks(path: Path, size: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The bytes of the file in blocks of about ``size`` that end with a line; the file's last line may lack its end.

    A gzip file that breaks off gives the lines that are whole and then a LogError.
    """
    rest = b""
    try:
        with path.open("rb") as file:
            zipped = file.peek(2)[:2] == GZIP
            for piece in _unzipped(file, path, size) if zipped else iter(lambda: file.read(size), b""):
                # Only the new piece can hold the end of a line that the rest began.
                end = piece.rfind(b"\n") + 1
                if end:
                    yield rest + piece[:end]
                    rest = piece[end:]
                else:
                    rest += piece
                if len(rest) > LONGEST_LINE:
                    raise LogError(
                        f"{str(path)!r} has a line of more than {LONGEST_LINE:,} bytes: it is no log of lines."
                    )
    except OSError as error:
        raise LogError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from error
    if rest:
        yield rest


def _unzipped(file: BinaryIO, path: Path, size: int) -> Iterator[bytes]:
    """What a gzip file of one or more members holds, in pieces of about ``size``."""
    inflater = zlib.decompressobj(GZIP_WINDOW)
    packed = b""
    while packed := packed or file.read(1 << 20):
        if inflater.eof:
            packed = packed.lstrip(b"\0")  # some writers fill the last block of a tape
            if not packed:
                continue
            inflater = zlib.decompressobj(GZIP_WINDOW)
        try:
            piece = inflater.decompress(packed, size)
        except zlib.error as error:
            raise LogError(f"{str(path)!r} is damaged: its gzip stream cannot be unpacked ({error}).") from error
        packed = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
        if piece:
            yield piece
    if not inflater.eof:
        raise LogError(f"{str(path)!r} breaks off: its gzip stream has no end. Fetch the file again.")


def head_of(path: Path) -> bytes:
    """The first lines of the file."""
    return next(line_blocks(path, HEAD_BYTES), b"")


def shown_line(line: bytes) -> str:
    """A line of a file as text that can be printed, cut to a bearable length."""
    return line.rstrip(b"\r\n")[:SHOWN_TEXT].decode("utf-8", "backslashreplace")


def require_no_columns(columns: Mapping[str, Any] | None, description: str) -> None:
    """Raise where columns are named for a format that has fixed places for everything."""
    if columns:
        given = next(iter(columns))
        raise LogError(f"{description} has a fixed place for everything and takes no columns; {given!r} is given.")
