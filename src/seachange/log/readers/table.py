"""Plain tables: Parquet, CSV, TSV, JSON lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seachange.errors import LogError


def read_table(path: Path) -> Any:
    """A polars frame of the file at ``path``."""
    import polars

    try:
        return TABLE_READERS[path.suffix.lower()](path)
    except (polars.exceptions.PolarsError, OSError, ValueError) as error:
        raise LogError(f"{str(path)!r} cannot be read as {path.suffix}: {error}.") from error


def _parquet(path: Path) -> Any:
    import polars

    return polars.read_parquet(path)


def _csv(path: Path, separator: str = ",") -> Any:
    import polars

    return polars.read_csv(path, separator=separator, try_parse_dates=True, infer_schema_length=None)


def _json_lines(path: Path) -> Any:
    import polars

    return polars.read_ndjson(path)


TABLE_READERS: dict[str, Callable[[Path], Any]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".tsv": lambda path: _csv(path, "\t"),
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
}
