"""Files that appear whole or not at all, and never in place of others unless asked to."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatch
from pathlib import Path
from secrets import token_hex

from seachange.errors import OutputError

_WRITTEN: ContextVar[list[Path] | None] = ContextVar("_WRITTEN", default=None)


def claim_file(path: str | Path, *, force: bool, read: Iterable[Path] = ()) -> Path:
    """``path``, if a file can be written there; asked before the work, not after.

    What is ``read``, a file, a folder or a pattern, is never written over.
    """
    target = Path(path)
    for source in read:
        if target.exists() and _is_of(target.resolve(), source):
            raise OutputError(f"{str(target)!r} is read here, and would be written over; name another file.")
    if target.is_dir():
        raise OutputError(f"{str(target)!r} is a folder; name a file.")
    if target.exists() and not target.is_file():
        # A file would take the place of the device or the pipe.
        raise OutputError(f"{str(target)!r} is no ordinary file; name one.")
    if target.exists() and not force:
        raise OutputError(f"{str(target)!r} exists already; force=True writes over it.")
    _require_writable(target.parent)
    return target


def _is_of(file: Path, source: Path) -> bool:
    """Whether ``source`` is a file, its folder, or a pattern of its name."""
    return any(fnmatch(str(each), str(source.resolve())) or each == source.resolve() for each in (file, *file.parents))


def claim_folder(path: str | Path, *, force: bool) -> Path:
    """``path`` as a folder that files can be written into, made where it is missing."""
    target = Path(path)
    if target.exists() and not target.is_dir():
        raise OutputError(f"{str(target)!r} is a file; name a folder.")
    if target.is_dir() and any(target.iterdir()) and not force:
        raise OutputError(f"{str(target)!r} is not empty; force=True writes into it.")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{str(target)!r} cannot be made: {error.strerror}.") from error
    _require_writable(target)
    return target


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """A path to write to; it becomes ``path`` when the block ends well and vanishes when it does not."""
    # A link stays one: what it points to is written.
    target = claim_file(path, force=True).resolve()
    # The name is known before the file is there, so that no signal comes between its making and its undoing.
    beside = target.with_name(f".{target.name}.{token_hex(8)}{target.suffix}")
    try:
        beside.touch(exist_ok=False)
        yield beside
        beside.replace(target)
        if (written := _WRITTEN.get()) is not None:
            written.append(Path(path))
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def noting_outputs() -> Iterator[list[Path]]:
    """The files that the block has written so far, in order: whoever interrupts it wants to know."""
    written: list[Path] = []
    token = _WRITTEN.set(written)
    try:
        yield written
    finally:
        _WRITTEN.reset(token)


def _require_writable(folder: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"nothing can be written into {str(folder)!r}: {error.strerror}.") from error
