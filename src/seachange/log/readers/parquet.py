"""Parquet files, a part at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seachange.errors import LogError
from seachange.log.bandit_log import CHUNK_ROWS, BanditLog
from seachange.log.readers.frame import distinct_actions, places_of


def parquet_parts(
    path: Path, columns: Mapping[str, str | Sequence[str]], action_names: Sequence[str] | None, **rules: Any
) -> Iterator[BanditLog]:
    """The log in the file at ``path``, in parts that are read when they are asked for."""
    import polars

    if path.suffix.lower() != ".parquet":
        raise LogError(f"on_disk needs a Parquet file; {str(path)!r} is none.")
    try:
        table = polars.scan_parquet(path)
        schema = table.collect_schema()
        rows = table.select(polars.len()).collect().item()
        if action_names is None:
            action = places_of(schema.names(), columns)["action"]
            action_names = distinct_actions(table.select(polars.col(action).unique()).collect()[action])
    except (polars.exceptions.PolarsError, OSError) as error:
        raise LogError(f"{str(path)!r} cannot be read as .parquet: {error}.") from error
    for start in range(0, rows, CHUNK_ROWS):
        frame = table.slice(start, CHUNK_ROWS).collect()
        try:
            part = BanditLog.from_frame(frame, columns, action_names=action_names, **rules)
        except LogError as error:
            raise LogError(f"in the rows from {start:,} on: {error}") from error
        # What the first part took for contexts the others must have too.
        columns = {**columns, "contexts": part.context_names}
        yield part
