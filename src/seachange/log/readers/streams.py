"""Bytes of files, decompressed on the way."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

from seachange.errors import LogError

# As much as is looked at to tell a format.
HEAD_BYTES = 1 << 16
ZSTANDARD = b"\x28\xb5\x2f\xfd"
PACKED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zstd")
LINES_AT_A_TIME = 1 << 14
# Lines may be shorter than those of the head.
SPARE = 1.25
# What is wrong with text of another encoding, and the cure.
NOT_UTF8 = "its bytes are not UTF-8; rewrite Windows or Latin-1 text so: iconv -f cp1252 -t utf-8 in > out"
WIDE_TEXT = (b"\xff\xfe", b"\xfe\xff")


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, without its compression; what cannot be read is a LogError."""
    try:
        with path.open("rb") as file:
            magic = file.read(6)
        with closing(_opener(magic)(path)) as stream:
            yield stream
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise LogError(f"{str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def head_of(path: Path) -> bytes:
    """The first bytes of a file, without its compression; as many as can be read of a damaged one."""
    head = b""
    try:
        with opened(path) as stream:
            while len(head) < HEAD_BYTES and (more := stream.read(min(4096, HEAD_BYTES - len(head)))):
                head += more
    except LogError:
        if not head:
            raise
    return head


def likely_lines(paths: Sequence[Path]) -> int | None:
    """A few more lines than there are in plain files whose heads are like the rest; None where one is packed."""
    total = 0.0
    for path in paths:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        if _opener(head[:6]) is not _plain:
            return None
        total += path.stat().st_size * (head.count(b"\n") + 1) / max(len(head), 1)
    return round(SPARE * total)


def require_narrow(path: Path, head: bytes) -> None:
    """Raise where a file begins as UTF-16 text does."""
    if head.startswith(WIDE_TEXT):
        raise LogError(
            f"{str(path)!r} is UTF-16 text from its first line on; text must be UTF-8. Rewrite the file: "
            "iconv -f utf-16 -t utf-8 in > out."
        )


def bare_suffix(path: Path) -> str:
    """The ending of a name that tells the format, in lower case: .csv of CLICKS.CSV.GZ."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in PACKED_SUFFIXES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _opener(magic: bytes) -> Callable[[Path], Any]:
    if magic.startswith(b"\x1f\x8b"):
        return gzip.open
    if magic.startswith(b"BZh"):
        return bz2.open
    if magic.startswith(b"\xfd7zXZ\x00"):
        return lzma.open
    return _zstandard if magic.startswith(ZSTANDARD) else _plain


def _plain(path: Path) -> Any:
    return path.open("rb")


def _zstandard(path: Path) -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14 has it
    except ImportError:
        return io.BufferedReader(_Lines(path), HEAD_BYTES)
    return zstd.open(path)


class _Lines(io.RawIOBase):
    """What polars unpacks, which is lines of text, as bytes again."""

    def __init__(self, path: Path) -> None:
        import polars

        batches = polars.scan_lines(path, name="line").collect_batches(chunk_size=LINES_AT_A_TIME, lazy=True)
        self._batches = iter(batches)
        self._waiting = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        import polars

        while not self._waiting:
            try:
                batch = next(self._batches, None)
            except polars.exceptions.PolarsError as error:
                raise OSError(f"{error}") from error
            if batch is None:
                return 0
            self._waiting = memoryview("".join(f"{line}\n" for line in batch["line"]).encode())
        count = min(len(buffer), len(self._waiting))
        buffer[:count] = self._waiting[:count]
        self._waiting = self._waiting[count:]
        return count
