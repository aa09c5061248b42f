"""From files to logs: one file a format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seachange.errors import LogError
from seachange.log.bandit_log import BanditLog
from seachange.log.readers.parquet import parquet_parts
from seachange.log.readers.table import TABLE_READERS, read_table
from seachange.log.spool import spooled
from seachange.log.validation import OnBadRows


def read_log(
    path: str | Path,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    *,
    action_names: Sequence[str] | None = None,
    missing_rewards: bool = False,
    on_bad_rows: OnBadRows = "raise",
    on_disk: bool = False,
) -> BanditLog:
    """Read a log from a Parquet, CSV, TSV or JSON-lines file; the other words are those of ``BanditLog.from_frame``.

    ``on_disk`` is for Parquet files larger than memory: the log's columns are kept in temporary files and read there.
    """
    if not Path(path).is_file():
        raise LogError(f"there is no file {str(path)!r}.")
    if Path(path).suffix.lower() not in TABLE_READERS:
        raise LogError(f"cannot tell the format of {str(path)!r}; its name should end in {', '.join(TABLE_READERS)}.")
    rules: dict[str, Any] = {"missing_rewards": missing_rewards, "on_bad_rows": on_bad_rows}
    if on_disk:
        return spooled(parquet_parts(Path(path), columns or {}, action_names, **rules))
    return BanditLog.from_frame(read_table(Path(path)), columns, action_names=action_names, **rules)
