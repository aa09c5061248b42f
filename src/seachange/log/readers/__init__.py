"""From files to logs: one file a format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seachange.errors import LogError
from seachange.log.bandit_log import BanditLog
from seachange.log.readers.table import TABLE_READERS, read_table
from seachange.log.validation import OnBadRows

if TYPE_CHECKING:
    from seachange.log.features import FeatureSpec
    from seachange.log.raw import RawLog


def read_log(
    path: str | Path,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    *,
    features: FeatureSpec | None = None,
    action_names: Sequence[str] | None = None,
    missing_rewards: bool = False,
    on_bad_rows: OnBadRows = "raise",
    on_disk: bool = False,
) -> BanditLog:
    """Read a log from a Parquet, CSV, TSV or JSON-lines file; the other words are those of ``BanditLog.from_frame``.

    ``on_disk`` is for logs larger than memory: the log's columns are kept in temporary files and read there.
    """
    from seachange.log.encoding import log_from_raw
    from seachange.log.readers.frame import FrameLog
    from seachange.log.readers.parquet import ParquetLog

    if not Path(path).is_file():
        raise LogError(f"there is no file {str(path)!r}.")
    if Path(path).suffix.lower() not in TABLE_READERS:
        raise LogError(f"cannot tell the format of {str(path)!r}; its name should end in {', '.join(TABLE_READERS)}.")
    raw: RawLog
    if Path(path).suffix.lower() == ".parquet":
        raw = ParquetLog(Path(path), columns or {}, features)
    else:
        raw = FrameLog(read_table(Path(path)), columns or {}, features, source=Path(path).name)
    return log_from_raw(
        raw,
        features,
        action_names=action_names,
        missing_rewards=missing_rewards,
        on_bad_rows=on_bad_rows,
        on_disk=on_disk,
    )
