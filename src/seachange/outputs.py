"""Output files that appear whole or not at all, and replace others only if asked to."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatch
from pathlib import Path
from secrets import token_hex

from seachange.errors import Fix, OutputError, SeachangeError, require

_WRITTEN: ContextVar[list[Path] | None] = ContextVar("_WRITTEN", default=None)
# Bytes, more than the free part of a disk's last block.
PROBE = 1 << 17


def claim_file(path: str | Path, *, force: bool, inputs: Iterable[Path] = ()) -> Path:
    """Check, before the work starts, that a file can be written at ``path``.

    ``inputs`` are files, folders or glob patterns that are never overwritten, not even with ``force``.
    """
    target, name = Path(path), repr(str(path))
    if target.exists():
        given = any(_belongs_to(target.resolve(), source) for source in inputs)
        require(not given, f"{name} is an input and would be overwritten; choose another output file.", OutputError)
        require(not target.is_dir(), f"{name} is a folder; choose a file.", OutputError)
        # A file would replace the device or the pipe.
        require(target.is_file(), f"{name} is not a regular file; choose another output file.", OutputError)
        if not force:
            raise OutputError(f"{name} already exists.", _overwrite("Overwrite it"))
    _require_writable(target.parent)
    return target


def claim_folder(path: str | Path, *, force: bool) -> Path:
    """Create the folder ``path`` if needed, and check that files can be written into it."""
    target = Path(path)
    require(target.is_dir() or not target.exists(), f"{str(target)!r} is a file; choose a folder.", OutputError)
    if target.is_dir() and any(target.iterdir()) and not force:
        raise OutputError(f"the folder {str(target)!r} is not empty.", _overwrite("Write into it"))
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"the folder {str(target)!r} cannot be created: {error.strerror}.") from error
    _require_writable(target)
    return target


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path that becomes ``path`` if the block succeeds and is deleted if it fails."""
    target = claim_file(path, force=True).resolve()  # a link keeps pointing to the file that is written
    # The name exists before the file does, so no signal can come between creating the file and the cleanup.
    temporary = target.with_name(f".{target.name}.{token_hex(8)}{target.suffix}")
    try:
        temporary.touch(exist_ok=False)
        yield temporary
        temporary.replace(target)
        if (written := _WRITTEN.get()) is not None:
            written.append(Path(path))
    except Exception as error:
        # Libraries report a full disk in many ways, so try to write some more.
        if not isinstance(error, SeachangeError) and (reason := _write_error(temporary)):
            raise OutputError(f"cannot write {str(path)!r}: {reason}.") from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def recorded_outputs() -> Iterator[list[Path]]:
    """List the files that the block has written so far, in order."""
    written: list[Path] = []
    token = _WRITTEN.set(written)
    try:
        yield written
    finally:
        _WRITTEN.reset(token)


def _overwrite(what: str) -> Fix:
    return Fix(f"{what} with force=True.", f"{what} with --force.")


def _belongs_to(file: Path, source: Path) -> bool:
    """Whether ``source`` is the file, a folder around it, or a pattern that matches it."""
    pattern = source.resolve()
    return any(each == pattern or fnmatch(str(each), str(pattern)) for each in (file, *file.parents))


def _write_error(path: Path) -> str | None:
    """Why nothing more can be written to ``path``; None if it can."""
    try:
        with path.open("ab") as file:
            file.write(bytes(PROBE))
    except OSError as error:
        return error.strerror
    return None


def _require_writable(folder: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"cannot write into the folder {str(folder)!r}: {error.strerror}.") from error
