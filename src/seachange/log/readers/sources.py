"""Which files a path stands for: a file, a folder of parts, a pattern, a list of them."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from seachange.errors import LogError, did_you_mean

# What Hive, Spark and their kin call the folder of rows without a value.
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def files_of(path: str | Path | Sequence[str | Path]) -> list[Path]:
    """The files of a data set, in the order of their names."""
    if not isinstance(path, str | Path):
        if not path:
            raise LogError("a list of paths names no file.")
        return list(dict.fromkeys(file for one in path for file in files_of(one)))
    place = Path(path).expanduser()
    if place.is_file():
        return [place]
    if place.is_dir():
        found = [file for file in place.rglob("*") if file.is_file() and not _hidden(file.relative_to(place))]
        if not found:
            raise LogError(f"there is no file in the folder {str(path)!r}.")
        return sorted(found, key=_in_order)
    if glob.has_magic(str(path)):
        matches = sorted(glob.glob(str(place), recursive=True), key=_in_order)
        if matches:
            return list(dict.fromkeys(file for match in matches for file in files_of(match)))
    raise LogError(f"there is no file {str(path)!r}.{near_file(place)}")


def near_file(path: Path) -> str:
    """A question whether a file or folder of a name like it was meant, where there is none at ``path``."""
    if path.exists() or not path.parent.is_dir() or glob.has_magic(path.name):
        return ""
    return did_you_mean(path.name, sorted(other.name for other in path.parent.iterdir()))


def partition_keys(file: Path) -> dict[str, str]:
    """What the names of the folders around a file say of its rows: day=2026-01-01."""
    pairs = (folder.partition("=") for folder in file.parts[:-1])
    return {name: unquote(value) for name, equals, value in pairs if equals and name and value != NO_VALUE}


def names_of(files: Sequence[Path]) -> dict[Path, str]:
    """What files are called; with their folders where they would be called alike."""
    if len({file.name for file in files}) == len(files):
        return {file: file.name for file in files}
    around = Path(os.path.commonpath([file.parent for file in files]))
    return {file: str(file.relative_to(around)) for file in files}


def _in_order(path: str | Path) -> list[tuple[bool, int, str]]:
    """The order of names in which part-2 comes before part-10: files of a log follow each other in time."""
    pieces = re.split(r"([0-9]+)", str(path))
    return [(piece.isdecimal(), int(piece) if piece.isdecimal() else 0, piece) for piece in pieces]


def _hidden(file: Path) -> bool:
    """Whether a file belongs to the tool that wrote the others: _SUCCESS, .crc, _metadata."""
    return any(part.startswith((".", "_")) for part in file.parts)
