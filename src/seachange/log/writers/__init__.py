"""From logs to files: one file a format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seachange.errors import LogError
from seachange.log.bandit_log import BanditLog
from seachange.log.writers.dsjson import write_dsjson
from seachange.log.writers.parquet import write_parquet

# Endings of names, and what writes such a file.
WRITERS: dict[str, Callable[[Any, Path], object]] = {
    ".parquet": write_parquet,
    ".dsjson": write_dsjson,
    ".json": write_dsjson,
}


def write_log(log: BanditLog, path: str | Path) -> None:
    """Write a log as the ending of ``path`` says; the file appears whole or not at all."""
    suffix = Path(path).suffix.lower()
    if suffix not in WRITERS:
        raise LogError(f"cannot tell how to write {str(path)!r}; its name should end in {', '.join(WRITERS)}.")
    WRITERS[suffix](log, Path(path))
