"""Data frames of any library as logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from seachange.errors import LogError
from seachange.formats.column_roles import context_columns, default_contexts, find_roles
from seachange.formats.nested_fields import fields_in
from seachange.log.raw import PART_ROWS, RawRounds

if TYPE_CHECKING:
    import polars
    from narwhals.typing import IntoDataFrame

    from seachange.log.features import FeatureSpec


class FrameLog:
    """A data frame as a raw log; its rows count from 0."""

    format = "frame"

    def __init__(
        self,
        frame: IntoDataFrame,
        columns: Mapping[str, str | Sequence[str]],
        features: FeatureSpec | None = None,
        source: str = "",
    ) -> None:
        if features is not None:
            columns = features.words(columns)
        self.table = as_polars(frame)
        roles = find_roles(self.table.columns, columns, lambda: fields_in([self.table.schema]))
        self.columns, self.found, self.contexts = roles.columns, roles.found, context_columns(columns)
        self._features = self.contexts
        if self._features is None:
            self._features = default_contexts(self.table.columns, self.columns, dict(self.table.to_dict()))
        self.source = source

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """Yield the rows of the frame, in order."""
        for start in range(0, self.table.height, rows):
            part = self.table.slice(start, rows)
            columns: dict[str, Any] = {role: part[name] for role, name in self.columns.items()}
            lines = np.arange(start, start + part.height)
            yield RawRounds(self.source, lines, part.select(self._features), **columns)


def as_polars(frame: IntoDataFrame) -> polars.DataFrame:
    """Convert a table of any library to polars."""
    import narwhals as nw
    import polars

    try:
        table = nw.from_native(frame, eager_only=True)
    except (TypeError, ValueError) as error:
        raise LogError(f"expected a pandas, polars or Arrow table: {error}.") from error
    if table.implementation.is_polars():
        return cast("polars.DataFrame", table.to_native())
    if table.implementation.is_pyarrow():
        converted = polars.from_arrow(table.to_native())
        return converted if isinstance(converted, polars.DataFrame) else converted.to_frame()
    return polars.DataFrame([_as_series(table[name]) for name in table.columns])


def _as_series(column: Any) -> polars.Series:
    """Convert a column without pyarrow; values of mixed types become text."""
    import narwhals as nw
    import polars

    if (column.dtype.is_numeric() or column.dtype == nw.Boolean) and not column.is_null().any():
        return polars.Series(column.name, column.to_numpy())
    if column.dtype == nw.Datetime and column.dtype.time_zone is None:
        return polars.Series(column.name, column.to_numpy().astype("datetime64[us]"))
    values = [None if value is None or value != value else value for value in column.to_list()]
    try:
        return polars.Series(column.name, values)
    except (TypeError, polars.exceptions.PolarsError):
        return polars.Series(column.name, [None if value is None else str(value) for value in values])
