"""Parquet files: reading them in parts, and writing logs with one row per round."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from seachange.errors import LogError
from seachange.formats.nested_fields import fields_in, lifting, path_to, paths_to
from seachange.formats.table import HEAD_ROWS, TableBlock, TableLog
from seachange.formats.value_types import INTEGER_NAME, TextType, Use
from seachange.log.bandit_log import BanditLog
from seachange.outputs import written_whole

MAGIC = b"PAR1"


def looks_like(path: Path, head: bytes) -> bool:
    """Whether a file starts like Parquet."""
    return head.startswith(MAGIC)


class ParquetLog(TableLog):
    """One Parquet file or a data set of them."""

    format = "parquet"

    def _names_by_file(self) -> Mapping[Path, Collection[str]]:
        self._read_schemas()
        if nested := self._nested({name for schema in self._schemas.values() for name in schema.names()}):
            self._paths = paths_to(nested, list(self._schemas.values()))
            self._read_schemas()
        _require_alike(self._schemas)
        return self._schemas

    def _read_schemas(self) -> None:
        self._schemas: dict[Path, pl.Schema] = {}
        for path in self.paths:
            with _reading(path):
                self._schemas[path] = self._table(path).collect_schema()

    def _fields(self) -> list[str]:
        return fields_in(list(self._schemas.values()))

    def _head(self) -> pl.DataFrame:
        with _reading(self.paths[0]):
            first = self._columns_of(self.paths[0], self._available).head(HEAD_ROWS).collect()
        others = [pl.DataFrame(schema=schema) for schema in self._schemas.values()]
        return pl.concat([first, *others], how="diagonal_relaxed")

    def _text_type(self, name: str, sample: pl.Series, use: Use) -> TextType | None:
        kind = super()._text_type(name, sample, use)
        open_type = kind is not None and name not in self._fixed_types and use != "measure"
        stored = any(name in schema for schema in self._schemas.values())
        return "text" if open_type and stored else kind  # what is stored as text is text

    def _table(self, path: Path) -> pl.LazyFrame:
        """Scan a file, with nested fields that the user named as columns."""
        scan = _scan(path)
        if not self._paths:
            return scan
        types = scan.collect_schema()
        return scan.select(lifting(types, {name: found for name in self._paths if (found := path_to(name, types))}))

    def _columns_of(self, path: Path, columns: Sequence[str]) -> pl.LazyFrame:
        present = [name for name in columns if name in self._schemas[path]]
        texts = [name for name in present if self._schemas[path][name] in (pl.Categorical, pl.Enum)]
        scan = self._table(path).select(present)
        return scan.with_columns(pl.col(texts).cast(pl.String)) if texts else scan

    def _blocks(self, rows: int) -> Iterator[Sequence[TableBlock]]:
        for path in self.paths:
            with _reading(path):
                start = 1
                for frame in self._columns_of(path, self.needed).collect_batches(chunk_size=rows, lazy=True):
                    yield [TableBlock(path, np.arange(start, start + len(frame)), frame, _row_text(frame))]
                    start += len(frame)


def write_parquet(log: BanditLog, path: str | Path) -> None:
    """Write the rounds of a log, with contexts as numbers; the file appears complete or not at all."""
    if log.joint.kind == "per action" or log.masked:
        raise LogError(
            "a table has no place for features of each action or for actions that could not be shown; "
            "write this log as .dsjson."
        )
    # As numbers if all are, so that they keep their order when they are read.
    numbers = all(re.fullmatch(INTEGER_NAME, name) for name in log.action_names)
    names = pl.Series([int(name) if numbers else name for name in log.action_names])
    with written_whole(path) as unfinished, TemporaryDirectory(prefix="seachange-") as folder:
        parts = []
        for i, part in enumerate(log.chunks()):
            parts.append(Path(folder) / f"{i}.parquet")
            _frame(part, names).write_parquet(parts[-1])
        if not parts:
            raise LogError("the log is empty: there is nothing to write.")
        pl.concat([_scan(part) for part in parts]).sink_parquet(unfinished)


def _frame(log: BanditLog, action_names: pl.Series) -> pl.DataFrame:
    columns = {
        "action": action_names.gather(log.actions),
        "reward": log.rewards,
        "propensity": log.propensities if log.propensities_known else None,
        "time": log.times if log.times is None or log.times.dtype.kind != "M" else log.times.astype("datetime64[us]"),
        "sequence": log.sequences,
    }
    roles = pl.DataFrame({role: column for role, column in columns.items() if column is not None})
    if twice := {*roles.columns} & {*log.context_names}:
        raise LogError(f"two columns cannot both be named {min(twice)!r}: it is also a feature. Rename one.")
    return roles.hstack(pl.DataFrame(log.contexts, schema=list(log.context_names)))


def _row_text(frame: pl.DataFrame) -> Any:
    return lambda row: str(frame.row(row, named=True))


def _scan(path: Path) -> pl.LazyFrame:
    return pl.scan_parquet(path, glob=False, hive_partitioning=False)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise LogError(f"{str(path)!r} cannot be read as Parquet: {error}.") from error


def _require_alike(schemas: Mapping[Path, pl.Schema]) -> None:
    """Raise a LogError if a column has different types in different files."""
    seen: dict[str, tuple[str, Path]] = {}
    for path, schema in schemas.items():
        for name, dtype in schema.items():
            kind = _kind(dtype)
            first, other = seen.setdefault(name, (kind, path)) if kind else (kind, path)
            if kind != first:
                raise LogError(
                    f"a column must have the same type in all files of a data set; {name!r} is {first} in "
                    f"{other.name!r} and {kind} in {path.name!r}."
                )


def _kind(dtype: pl.DataType) -> str:
    """Name a type for errors; empty for a column without values."""
    if dtype == pl.Null:
        return ""
    if dtype.is_numeric() or dtype == pl.Boolean:
        return "numbers"
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        return "text"
    return "times" if dtype.is_temporal() else str(dtype.base_type()).lower()
