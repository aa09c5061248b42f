"""Input files: the files that a path stands for, and their bytes and lines, decompressed while they are read."""

import bz2
import glob
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote

import numpy as np

from seachange.errors import LogError, did_you_mean
from seachange.formats.column_roles import Columns, require_no_columns
from seachange.log.features import FeatureSpec

# Bytes that are enough to recognize a format.
HEAD_BYTES = 1 << 16
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zstd")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
NOT_UTF8 = "the bytes are not UTF-8; convert Windows or Latin-1 text with: iconv -f cp1252 -t utf-8 in > out"
# Raised while a truncated or damaged file is decompressed.
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)
# The directory name that Hive and Spark give to rows without a value.
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
# A block ends when it reaches either size. The limit on lines bounds the memory that many short lines take.
BLOCK_BYTES, BLOCK_LINES = 1 << 23, 1 << 16
PIECE_BYTES = 1 << 16
XZ_MEMORY = 1 << 28  # that an xz file may ask for; xz -9 asks for a quarter of it
LONGEST_LINE = 1 << 24
Paths = str | Path | Sequence[str | Path]  # a file, a folder, a pattern, or several of them
SHOWN = 200  # characters of a rejected line that are kept


def files_of(path: Paths) -> list[Path]:
    """List the files that a path, folder, glob pattern or list of them stands for, in natural order of their names."""
    if not isinstance(path, str | Path):
        if not path:
            raise LogError("the list of paths is empty: it names no file.")
        return list(dict.fromkeys(file for one in path for file in files_of(one)))
    place = Path(path).expanduser()
    if place.is_file():
        return [place]
    if place.is_dir():
        found = [file for file in place.rglob("*") if file.is_file() and not _hidden(file.relative_to(place))]
        if not found:
            raise LogError(f"there is no file in the folder {str(path)!r}.")
        return sorted(found, key=_natural_order)
    if place.exists():
        raise _not_regular(place)
    if glob.has_magic(str(path)) and (matches := glob.glob(str(place), recursive=True)):
        return files_of(sorted(matches, key=_natural_order))
    raise LogError(f"there is no file {str(path)!r}.{near_file(place)}")


def near_file(path: Path) -> str:
    """Return a "Did you mean" question if a missing file has a neighbor with a similar name."""
    if path.exists() or not path.parent.is_dir() or glob.has_magic(path.name):
        return ""
    return did_you_mean(path.name, sorted(other.name for other in path.parent.iterdir()))


def partition_keys(file: Path) -> dict[str, str]:
    """Return the columns that folder names hold, such as day=2026-01-01."""
    pairs = (folder.partition("=") for folder in file.parts[:-1])
    return {name: unquote(value) for name, equals, value in pairs if equals and name and value != NO_VALUE}


def names_of(files: Sequence[Path]) -> dict[Path, str]:
    """Return short names for files, with folders if file names alone are ambiguous."""
    if len({file.name for file in files}) == len(files):
        return {file: file.name for file in files}
    around = Path(os.path.commonpath([file.parent for file in files]))
    return {file: str(file.relative_to(around)) for file in files}


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading and decompress it on the fly; whatever goes wrong is a LogError."""
    if path.exists() and not path.is_file():
        raise _not_regular(path)
    try:
        with path.open("rb") as file:
            start = file.read(6)
        opener = next((opener for magic, opener in OPENERS.items() if start.startswith(magic)), None)
        with closing(path.open("rb") if opener is None else opener(path)) as stream:
            yield stream
    except DAMAGE as error:
        raise LogError(f"{str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    except MemoryError as error:
        raise LogError(f"{str(path)!r} cannot be read: it takes too much memory to decompress.") from error


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed; of a damaged file, as many as can be read. Refuse UTF-16 text."""
    head = b""
    try:
        with opened(path) as stream:
            while len(head) < HEAD_BYTES and (more := stream.read(min(4096, HEAD_BYTES - len(head)))):
                head += more
    except LogError:
        if not head:
            raise
    if head.startswith(UTF16_MARKS):
        raise LogError(
            f"{str(path)!r} is UTF-16 text; text must be UTF-8. Convert it with: iconv -f utf-16 -t utf-8 in > out"
        )
    return head


def bare_suffix(path: Path) -> str:
    """Return the lower-case suffix without compression: .csv for CLICKS.CSV.GZ."""
    return next((each for each in map(str.lower, reversed(path.suffixes)) if each not in COMPRESSED_SUFFIXES), "")


class Block(NamedTuple):
    """Consecutive lines of a file; the last one ends with a newline, too."""

    source: str
    text: bytearray


def blocks_of(path: Path) -> Iterator[Block]:
    """Yield a file in blocks of whole lines.

    A truncated or damaged file yields its whole lines and then raises a LogError. A byte order mark is removed.
    """
    with opened(path) as stream:
        text, n_lines, first, damage, ended = bytearray(), 0, True, None, False
        while not ended:
            try:
                # read1 makes one read of the compressed file, so nothing before the damage is lost.
                piece = stream.read1(min(PIECE_BYTES, BLOCK_BYTES))  # type: ignore[attr-defined]
            except DAMAGE as error:
                piece, damage = b"", error
            ended = not piece
            if ended and text and not text.endswith(b"\n") and damage is None:
                piece = b"\n"
            text += piece
            n_lines += int(np.count_nonzero(np.frombuffer(piece, np.uint8) == ord("\n")))  # faster than bytes.count
            if len(text) < BLOCK_BYTES and n_lines < BLOCK_LINES and not ended:
                continue
            if first:
                text, first = text.removeprefix(BYTE_ORDER_MARK), False
            if n_lines:
                cut = text.rfind(b"\n") + 1
                block, text, n_lines = text, text[cut:], 0
                del block[cut:]
                yield Block(path.name, block)
            if len(text) > LONGEST_LINE:
                raise LogError(f"{str(path)!r} has a line of more than {LONGEST_LINE:,} bytes; that is not a text log.")
        if damage is not None:
            raise LogError(
                f"{str(path)!r} breaks off or is damaged: {getattr(damage, 'strerror', None) or damage}. "
                "Download or copy the file again."
            ) from damage


def is_utf8(content: bytes | bytearray) -> bool:
    """Whether bytes are UTF-8 text."""
    try:
        return content.isascii() or content.decode() is not None
    except UnicodeDecodeError:
        return False


def shown(content: bytes) -> str:
    """Return bytes as text that is short enough for a message."""
    return content[: 4 * SHOWN].decode(errors="replace").rstrip("\r\n")[:SHOWN]


class TextLog:
    """A log in one or several text files, in a format without named columns.

    ``features`` tell whether the actions in a round's list are identified by name or by features.
    """

    format: str
    columns: dict[str, str]
    description: str  # of the format, for errors

    def __init__(self, path: Paths, columns: Columns | None = None, *, features: FeatureSpec | None = None) -> None:
        require_no_columns(columns, self.description)
        self.files = [Path(file) for file in ([path] if isinstance(path, str | Path) else path)]
        self.named = features.named if features is not None and features.listed else None

    @property
    def name(self) -> str:
        """The name of the first file, and how many more there are."""
        more = len(self.files) - 1
        return self.files[0].name + (f" and {more} more" if more else "")

    def blocks(self) -> Iterator[Block]:
        """Yield all files in blocks of whole lines."""
        names = names_of(self.files)
        for file in self.files:
            for block in blocks_of(file):
                yield block._replace(source=names[file])


class _XzFile:
    """An xz file of one or more streams; ``lzma.open`` would use as much memory as the file asks for."""

    def __init__(self, path: Path) -> None:
        self._file, self._name, self._input, self._between = path.open("rb"), str(path), b"", True
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ_MEMORY)
        self.close = self._file.close

    def read1(self, size: int) -> bytes:
        """Read at most ``size`` bytes; none at the end."""
        found = b""
        while not found:
            if not self._input and self._stream.needs_input:
                self._input = self._file.read(PIECE_BYTES)
                if not self._input:
                    if self._between:
                        return b""
                    raise EOFError("the file ends in the middle of a stream")
            if self._between and not self._input.strip(b"\0"):  # padding between streams
                self._input = b""
                continue
            try:
                found = self._stream.decompress(self._input.lstrip(b"\0") if self._between else self._input, size)
            except lzma.LZMAError as error:
                if str(error) != "Memory usage limit exceeded":
                    raise
                raise LogError(
                    f"{self._name!r} needs more than {XZ_MEMORY >> 20} MiB of memory to decompress. Compress it again "
                    "with the usual settings: xz -dc in | xz -6 > out"
                ) from error
            self._input, self._between = b"", False
            if self._stream.eof:
                self._input, self._between = self._stream.unused_data, True
                self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ_MEMORY)
        return found

    read = read1


def _open_zstandard(path: Path) -> Any:
    """Open a Zstandard file with a decoder that works piece by piece: others can be made to fill the memory."""
    for module in ("compression.zstd", "backports.zstd"):  # the first is part of Python 3.14
        with suppress(ImportError):
            return import_module(module).open(path)
    try:
        pyarrow = import_module("pyarrow")
    except ImportError:
        raise LogError(
            f"{str(path)!r} is compressed with Zstandard, which needs Python 3.14 or a package: "
            "pip install backports.zstd. Or compress the file with gzip instead."
        ) from None
    return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"), HEAD_BYTES)


# By the first bytes of a compressed file.
OPENERS: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": _XzFile,
    b"\x28\xb5\x2f\xfd": _open_zstandard,
}


def _not_regular(path: Path) -> LogError:
    return LogError(f"{str(path)!r} is not a regular file (pipes and devices are not read). Write it to a file first.")


def _natural_order(path: str | Path) -> list[tuple[bool, int, str]]:
    """Sort key that puts part-2 before part-10: the files of a log follow each other in time."""
    pieces = re.split(r"([0-9]+)", str(path))
    return [(piece.isdecimal(), int(piece) if piece.isdecimal() else 0, piece) for piece in pieces]


def _hidden(file: Path) -> bool:
    """Whether a file is bookkeeping of the tool that wrote the others: _SUCCESS, .crc, _metadata."""
    return any(part.startswith((".", "_")) for part in file.parts)
