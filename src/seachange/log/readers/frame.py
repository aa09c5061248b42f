"""Data frames: which columns are what."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from seachange.errors import LogError, SeachangeWarning
from seachange.log.raw import PART_ROWS, RawRounds

if TYPE_CHECKING:
    import polars
    from narwhals.typing import IntoDataFrame

    from seachange.log.features import FeatureSpec

# The words of a column mapping, and the column names that are taken for them when the mapping is silent.
COLUMN_WORDS: dict[str, tuple[str, ...]] = {
    "action": ("action",),
    "reward": ("reward",),
    "propensity": ("propensity", "pscore", "propensity_score"),
    "time": ("time", "timestamp"),
    "sequence": ("sequence",),
}
REQUIRED = ("action", "reward")
# Propensities in any spelling, and names that may mean them: letters and digits alone, in lower case.
PROPENSITIES = re.compile(r"propensity|propensities|pscores?|propensityscores?")
LIKE_PROPENSITIES = re.compile(
    r"(logging|logged|action|behaviou?r|policy|selection|label)*"
    r"(p|p0|pi|pi0|π|π0|probs?|proba|probability|probabilities|propensity|propensities|pscores?|propensityscores?)"
)
# What becomes of a pandas index without a name in a file: it numbers rows and is no context.
ROW_NUMBERS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")


class FrameLog:
    """A data frame as a raw log. Its rows count from 0, as those who hold a frame count them."""

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
        self.columns = places_of(self.table.columns, columns)
        self.contexts = columns.get("contexts")
        asked = [self.contexts] if isinstance(self.contexts, str) else self.contexts
        self.held = list(_free_columns(self.table, self.columns) if asked is None else asked)
        _require_columns(self.held, self.table.columns)
        self.source = source

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """The rows of the frame, in order."""
        for start in range(0, self.table.height, rows):
            part = self.table.slice(start, rows)
            held: dict[str, Any] = {word: part[place] for word, place in self.columns.items()}
            yield RawRounds(
                source=self.source,
                lines=np.arange(start, start + part.height),
                features=part.select(self.held),
                **held,
            )


def as_polars(frame: IntoDataFrame) -> polars.DataFrame:
    """A table of any library as one of polars."""
    import narwhals as nw
    import polars

    try:
        table = nw.from_native(frame, eager_only=True)
    except (TypeError, ValueError) as error:
        raise LogError(f"a pandas, polars or arrow table is needed: {error}.") from error
    if table.implementation.is_polars():
        return cast("polars.DataFrame", table.to_native())
    if table.implementation.is_pyarrow():
        converted = polars.from_arrow(table.to_native())
        return converted if isinstance(converted, polars.DataFrame) else converted.to_frame()
    return polars.DataFrame([_as_series(table[name]) for name in table.columns])


def _as_series(column: Any) -> polars.Series:
    """A column as polars has it, without the help of pyarrow; values of mixed types become text."""
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


def places_of(available: Sequence[str], columns: Mapping[str, str | Sequence[str]]) -> dict[str, str]:
    """Which column holds what."""
    unknown = [word for word in columns if word not in COLUMN_WORDS and word != "contexts"]
    if unknown:
        raise LogError(f"columns knows {', '.join((*COLUMN_WORDS, 'contexts'))}; it does not know {unknown[0]!r}.")
    places = {}
    for word, usual in COLUMN_WORDS.items():
        if word in columns:
            place = str(columns[word])
            _require_columns([place], available)
            places[word] = place
        elif found := [name for name in usual if name in available]:
            places[word] = found[0]
    if "propensity" not in places:
        asked = columns.get("contexts") or ()
        spoken_for = {*places.values(), *([asked] if isinstance(asked, str) else asked)}
        free = [name for name in available if name not in spoken_for]
        if spelled := [name for name in free if PROPENSITIES.fullmatch(_bare(name))]:
            places["propensity"] = spelled[0]
    missing = [word for word in REQUIRED if word not in places]
    if missing:
        raise LogError(
            f"the table has no column for {' and '.join(missing)}; it has {', '.join(available)}. "
            f"Say which it is: columns={{{missing[0]!r}: ...}}, or --columns {missing[0]}=... in a shell."
        )
    for word, place in places.items():
        twins = [other for other in places if places[other] == place and other != word]
        if twins:
            raise LogError(f"column {place!r} cannot be both {word} and {twins[0]}.")
    return places


def _require_columns(names: Sequence[str], available: Sequence[str]) -> None:
    absent = [name for name in names if name not in available]
    if absent:
        raise LogError(f"the table has no column {absent[0]!r}; it has {', '.join(available)}.")


def _bare(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _free_columns(table: polars.DataFrame, places: Mapping[str, str]) -> list[str]:
    """The contexts of a table that does not say which they are."""
    taken = set(places.values())
    free = [name for name in table.columns if name not in taken and not ROW_NUMBERS.fullmatch(name)]
    if numbers := [name for name in table.columns if name not in taken and ROW_NUMBERS.fullmatch(name)]:
        warnings.warn(
            f"columns {', '.join(map(repr, numbers))} look like the index of a table and are left out of the contexts; "
            "name them as contexts to use them.",
            SeachangeWarning,
            stacklevel=4,
        )
    if "propensity" not in places and (alike := [name for name in free if _may_be_propensities(table[name])]):
        warnings.warn(
            f"column {' and '.join(map(repr, alike))} may hold the propensities (the name says so, and the numbers are "
            f'in (0, 1]) and is left out of the contexts. If it does say so: columns={{"propensity": {alike[0]!r}}}, '
            f"or --columns propensity={alike[0]} in a shell; if not, name it as a context to use it.",
            SeachangeWarning,
            stacklevel=4,
        )
        free = [name for name in free if name not in alike]
    return free


def _may_be_propensities(column: polars.Series) -> bool:
    if not column.dtype.is_numeric() or not LIKE_PROPENSITIES.fullmatch(_bare(column.name)):
        return False
    seen = column.cast(float).drop_nulls().drop_nans()
    return len(seen) > 0 and bool(((seen > 0) & (seen <= 1)).all())
