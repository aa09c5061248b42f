"""Parquet files, a part at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from seachange.errors import LogError
from seachange.log.raw import PART_ROWS, RawRounds
from seachange.log.readers.frame import FrameLog

if TYPE_CHECKING:
    from seachange.log.features import FeatureSpec


class ParquetLog:
    """A Parquet file as a raw log."""

    format = "parquet"

    def __init__(
        self, path: Path, columns: Mapping[str, str | Sequence[str]], features: FeatureSpec | None = None
    ) -> None:
        import polars

        try:
            self._table = polars.scan_parquet(path)
            self.n_rounds = int(self._table.select(polars.len()).collect().item())
            first = FrameLog(self._table.head(PART_ROWS).collect(), columns, features)
        except (polars.exceptions.PolarsError, OSError) as error:
            raise LogError(f"{str(path)!r} cannot be read as .parquet: {error}.") from error
        self.columns, self.contexts, self.source = first.columns, first.contexts, path.name
        # What the first part took for contexts the others must have too.
        self._words = {**first.columns, "contexts": first.held}

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """The rows of the file, in order."""
        columns = [*self.columns.values(), *self._words["contexts"]]
        for start in range(0, self.n_rounds, rows):
            frame = self._table.select(columns).slice(start, rows).collect()
            for part in FrameLog(frame, self._words, source=self.source).parts(rows):
                yield replace(part, lines=part.lines + start + 1)
