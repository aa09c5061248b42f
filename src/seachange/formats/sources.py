"""Input files: which ones a path stands for, and their bytes, decompressed while they are read."""

from __future__ import annotations

import bz2
import glob
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from seachange.errors import LogError, did_you_mean

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


def files_of(path: str | Path | Sequence[str | Path]) -> list[Path]:
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
    if glob.has_magic(str(path)):
        matches = sorted(glob.glob(str(place), recursive=True), key=_natural_order)
        if matches:
            return list(dict.fromkeys(file for match in matches for file in files_of(match)))
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
            magic = file.read(6)
        with closing(_open(path, magic)) as stream:
            yield stream
    except DAMAGE as error:
        raise LogError(f"{str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    except MemoryError as error:
        raise LogError(f"{str(path)!r} cannot be read: it takes too much memory to decompress.") from error


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed; of a damaged file, as many as can be read."""
    head = b""
    try:
        with opened(path) as stream:
            while len(head) < HEAD_BYTES and (more := stream.read(min(4096, HEAD_BYTES - len(head)))):
                head += more
    except LogError:
        if not head:
            raise
    return head


def refuse_utf16(path: Path, head: bytes) -> None:
    """Raise a LogError if a file starts like UTF-16 text."""
    if head.startswith(UTF16_MARKS):
        raise LogError(
            f"{str(path)!r} is UTF-16 text; text must be UTF-8. Convert it with: iconv -f utf-16 -t utf-8 in > out"
        )


def bare_suffix(path: Path) -> str:
    """Return the lower-case suffix without compression: .csv for CLICKS.CSV.GZ."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _open(path: Path, magic: bytes) -> Any:
    if magic.startswith(b"\x1f\x8b"):
        return gzip.open(path)
    if magic.startswith(b"BZh"):
        return bz2.open(path)
    if magic.startswith(b"\xfd7zXZ\x00"):
        return lzma.open(path)
    return _open_zstandard(path) if magic.startswith(b"\x28\xb5\x2f\xfd") else path.open("rb")


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


def _not_regular(path: Path) -> LogError:
    return LogError(f"{str(path)!r} is not a regular file (pipes and devices are not read). Write it to a file first.")


def _natural_order(path: str | Path) -> list[tuple[bool, int, str]]:
    """Sort key that puts part-2 before part-10: the files of a log follow each other in time."""
    pieces = re.split(r"([0-9]+)", str(path))
    return [(piece.isdecimal(), int(piece) if piece.isdecimal() else 0, piece) for piece in pieces]


def _hidden(file: Path) -> bool:
    """Whether a file is bookkeeping of the tool that wrote the others: _SUCCESS, .crc, _metadata."""
    return any(part.startswith((".", "_")) for part in file.parts)
