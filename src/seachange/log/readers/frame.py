"""Data frames: which columns are what, and named actions to numbers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError, SeachangeWarning
from seachange.log.validation import OnBadRows

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame

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


def columns_of_frame(
    frame: IntoDataFrame,
    columns: Mapping[str, str | Sequence[str]],
    action_names: Sequence[str] | None,
    on_bad_rows: OnBadRows,
) -> dict[str, Any]:
    """The arguments of ``BanditLog.from_arrays`` that a table holds."""
    import narwhals as nw

    try:
        table = nw.from_native(frame, eager_only=True)
    except (TypeError, ValueError) as error:
        raise LogError(f"a pandas, polars or arrow table is needed: {error}.") from error
    places = places_of(table.columns, columns)
    contexts = columns.get("contexts")
    if contexts is None:
        contexts = _numeric_columns(table, places)
    elif isinstance(contexts, str):
        contexts = [contexts]
    _require_columns(contexts, table.columns)
    actions, names = _numbered(table[places["action"]], action_names, on_bad_rows)
    return {
        "actions": actions,
        "rewards": table[places["reward"]].to_numpy(),
        "propensities": table[places["propensity"]].to_numpy() if "propensity" in places else None,
        "contexts": table.select(list(contexts)).to_numpy() if contexts else None,
        "times": _times(table[places["time"]]) if "time" in places else None,
        "sequences": table[places["sequence"]].to_numpy() if "sequence" in places else None,
        "action_names": names,
        "context_names": list(contexts) if contexts else None,
    }


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


def _numeric_columns(table: Any, places: Mapping[str, str]) -> list[str]:
    """The contexts of a table that does not say which they are."""
    import narwhals as nw

    taken = set(places.values())
    free = [name for name in table.columns if name not in taken and not ROW_NUMBERS.fullmatch(name)]
    if numbers := [name for name in table.columns if name not in taken and ROW_NUMBERS.fullmatch(name)]:
        warnings.warn(
            f"columns {', '.join(map(repr, numbers))} look like the index of a table and are left out of the contexts; "
            "name them as contexts to use them.",
            SeachangeWarning,
            stacklevel=4,
        )
    numeric = [name for name in free if table.schema[name].is_numeric() or table.schema[name] == nw.Boolean]
    if left_out := [name for name in free if name not in numeric]:
        warnings.warn(
            f"columns {', '.join(left_out)} are not numbers and are left out of the contexts; encode them to use them.",
            SeachangeWarning,
            stacklevel=4,
        )
    if "propensity" not in places and (alike := [name for name in numeric if _may_be_propensities(table[name])]):
        warnings.warn(
            f"column {' and '.join(map(repr, alike))} may hold the propensities (the name says so, and the numbers are "
            f'in (0, 1]) and is left out of the contexts. If it does say so: columns={{"propensity": {alike[0]!r}}}, '
            f"or --columns propensity={alike[0]} in a shell; if not, name it as a context to use it.",
            SeachangeWarning,
            stacklevel=4,
        )
        numeric = [name for name in numeric if name not in alike]
    return numeric


def _may_be_propensities(column: Any) -> bool:
    import narwhals as nw

    if column.dtype == nw.Boolean or not LIKE_PROPENSITIES.fullmatch(_bare(column.name)):
        return False
    values = np.asarray(column.to_numpy(), dtype=np.float64)
    seen = values[~np.isnan(values)]
    return len(seen) > 0 and bool(((seen > 0) & (seen <= 1)).all())


def _times(column: Any) -> npt.NDArray[Any]:
    """Times as they are, or parsed where they are text."""
    import narwhals as nw

    if column.dtype not in (nw.String, nw.Object):
        return np.asarray(column.to_numpy())
    try:
        return np.asarray(column.cast(nw.String).str.to_datetime().to_numpy())
    except Exception as error:  # every data frame library has its own error for text that is no time
        raise LogError(f"times must be numbers (seconds) or dates; {column.name!r} is neither: {error}.") from error


def distinct_actions(column: Any) -> list[str]:
    """The names of the actions in a column, in the order in which a log numbers them."""
    import narwhals as nw

    return _numbered(nw.from_native(column, series_only=True), None, "raise")[1]


def _numbered(
    column: Any, action_names: Sequence[str] | None, on_bad_rows: OnBadRows
) -> tuple[npt.NDArray[np.float64], list[str]]:
    """Actions as places in the list of names; NaN where there is none."""
    values = column.to_numpy()
    present = ~column.is_null().to_numpy()
    if values.dtype.kind == "f":
        present &= ~np.isnan(values)
    seen = values[present]
    try:
        distinct, places = np.unique(seen, return_inverse=True)
    except TypeError:  # of mixed types, which have no order but that of their text
        distinct, places = np.unique(seen.astype(str), return_inverse=True)
    if distinct.dtype.kind == "f" and (distinct == np.floor(distinct)).all():
        distinct = distinct.astype(np.int64)
    found = [str(value) for value in distinct]
    names = found if action_names is None else [str(name) for name in action_names]
    order = {name: float(i) for i, name in enumerate(names)}
    strangers = [name for name in found if name not in order]
    if strangers and on_bad_rows == "raise":
        raise LogError(
            f"action {strangers[0]!r} is not one of {', '.join(names)} ({len(strangers)} such actions). "
            'Drop their rows with on_bad_rows="drop".'
        )
    actions = np.full(len(values), np.nan)
    actions[present] = np.array([order.get(name, np.nan) for name in found])[places]
    return actions, names
