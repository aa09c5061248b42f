"""Parquet files, a part at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seachange.errors import LogError
from seachange.log.readers.kinds import Kind, Role
from seachange.log.readers.nested import fields_in, lifting, path_to, paths_to
from seachange.log.readers.table_log import HEAD_ROWS, Block, TableLog

if TYPE_CHECKING:
    import polars

    from seachange.log.features import FeatureSpec

MAGIC = b"PAR1"


def looks_like(path: Path, head: bytes) -> bool:
    """Whether a file begins as Parquet does."""
    return head.startswith(MAGIC)


class ParquetLog(TableLog):
    """One Parquet file or a data set of them."""

    format = "parquet"

    def __init__(
        self,
        path: Path | Sequence[Path],
        columns: Mapping[str, str | Sequence[str]] | None = None,
        features: FeatureSpec | None = None,
    ) -> None:
        self._schemas: dict[Path, polars.Schema] = {}
        super().__init__(path, columns, features)
        self._require_places({path: schema.names() for path, schema in self._schemas.items()})
        _require_alike(self._schemas)
        self._rows = {path: _rows(path) for path in self.paths}
        self.n_rounds = sum(self._rows.values())
        # Columns are of the same types in every part; None where they differ.
        self.likely_rounds = self.n_rounds if len({*map(str, self._schemas.values())}) == 1 else None

    def _names(self) -> list[str]:
        import polars

        for path in self.paths:
            with _reading(path):
                self._schemas[path] = polars.scan_parquet(path, glob=False, hive_partitioning=False).collect_schema()
        if nested := self._nested({name for schema in self._schemas.values() for name in schema.names()}):
            self._paths = paths_to(nested, list(self._schemas.values()))
            for path in self.paths:
                with _reading(path):
                    self._schemas[path] = self._table(path).collect_schema()
        return list(dict.fromkeys(name for schema in self._schemas.values() for name in schema.names()))

    def _fields(self) -> list[str]:
        return fields_in(list(self._schemas.values()))

    def _head(self) -> polars.DataFrame:
        import polars

        with _reading(self.paths[0]):
            first = self._scan(self.paths[0], self._available).head(HEAD_ROWS).collect()
        others = [polars.DataFrame(schema=schema) for schema in self._schemas.values()]
        return polars.concat([first, *others], how="diagonal_relaxed")

    def _kind(self, name: str, sample: polars.Series, role: Role) -> Kind | None:
        kind = super()._kind(name, sample, role)
        if name in self._wanted:
            return kind
        held = any(name in schema for schema in self._schemas.values())
        return "text" if kind is not None and held and role != "measure" else kind  # what is stored as text is text

    def _table(self, path: Path) -> polars.LazyFrame:
        """A file, with the fields that are asked for as columns."""
        import polars

        scan = polars.scan_parquet(path, glob=False, hive_partitioning=False)
        if not self._paths:
            return scan
        types = scan.collect_schema()
        return scan.select(lifting(types, {name: held for name in self._paths if (held := path_to(name, types))}))

    def _scan(self, path: Path, columns: Sequence[str]) -> polars.LazyFrame:
        import polars

        held = [name for name in columns if name in self._schemas[path]]
        texts = [name for name in held if self._schemas[path][name] in (polars.Categorical, polars.Enum)]
        scan = self._table(path).select(held)
        return scan.with_columns(polars.col(texts).cast(polars.String)) if texts else scan

    def _blocks(self, rows: int) -> Iterator[Block]:
        for path in self.paths:
            with _reading(path):
                start = 1
                # Batches are where the file's groups of rows are: nothing is unpacked twice, and few are joined.
                for frame in self._scan(path, self.needed).collect_batches(lazy=True):
                    for first, end in _cuts(frame, rows):
                        piece = frame[first:end]
                        yield Block(path, np.arange(start + first, start + end), piece, _row_text(piece))
                    start += len(frame)


def _cuts(frame: polars.DataFrame, rows: int) -> Iterator[tuple[int, int]]:
    """Pieces of at most ``rows`` rows that end where a piece of memory does, so that nothing need be copied."""
    ends = np.cumsum(frame.to_series(0).chunk_lengths())
    first = 0
    while first < len(frame):
        end = int(ends[ends <= first + rows].max(initial=0))
        if end - first < max(1, rows // 2):
            end = min(first + rows, len(frame))
        yield first, end
        first = end


def _row_text(frame: polars.DataFrame) -> Any:
    return lambda row: str(frame.row(row, named=True))


def _rows(path: Path) -> int:
    import polars

    with _reading(path):
        return int(polars.scan_parquet(path, glob=False, hive_partitioning=False).select(polars.len()).collect().item())


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    import polars

    try:
        yield
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        raise LogError(f"{str(path)!r} cannot be read as Parquet: {error}.") from error


def _require_alike(schemas: Mapping[Path, polars.Schema]) -> None:
    """Raise where a column is of one kind in one file and of another kind in another."""
    seen: dict[str, tuple[str, Path]] = {}
    for path, schema in schemas.items():
        for name, dtype in schema.items():
            kind = _kind(dtype)
            held, other = seen.setdefault(name, (kind, path))
            if kind != held and "nothing" not in (kind, held):
                raise LogError(
                    f"a column must be of one kind in all files of a data set; {name!r} is {held} in {other.name!r} "
                    f"and {kind} in {path.name!r}."
                )
            if held == "nothing":
                seen[name] = (kind, path)


def _kind(dtype: polars.DataType) -> str:
    import polars

    if dtype == polars.Null:
        return "nothing"
    if dtype.is_numeric() or dtype == polars.Boolean:
        return "numbers"
    if dtype in (polars.String, polars.Categorical, polars.Enum):
        return "text"
    return "times" if dtype.is_temporal() else str(dtype.base_type()).lower()
