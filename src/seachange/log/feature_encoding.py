"""Tables of raw features to rows of numbers, as a FeatureSpec says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError
from seachange.kernels.features import cross, one_hot, standardise
from seachange.log.columns import Columns
from seachange.log.features import Category, Feature, FeatureSpec, Flag, Hashed, Number
from seachange.log.raw_columns import RawColumn, as_lists, coded, numbers_of, raw_columns
from seachange.log.validation import LARGEST
from seachange.protocols import Bools, Floats, Ints

if TYPE_CHECKING:
    import polars

    from seachange.log.raw import Pool, RawRounds

# Numbers are brought together for so many rows at a time.
ROWS_TOGETHER = 1 << 13


class TooLarge(NamedTuple):
    """Numbers of a column that are infinite or too large to work with."""

    column: str
    rows: Ints
    values: Floats


def fill(
    features: Sequence[Feature], frame: polars.DataFrame, rows: Floats, there: Collection[str] = ()
) -> list[TooLarge]:
    """Write the features of every row of ``frame`` into ``rows`` (n, at least their number), and ones after them.

    Those of the columns ``there`` have been written before.
    """
    columns = raw_columns(frame)
    numbers: list[tuple[Number | Flag, int]] = []
    first = 0
    for feature in features:
        column = columns.get(feature.column)
        if feature.column in there:
            pass
        elif isinstance(feature, Number | Flag):
            numbers.append((feature, first))
        elif column is None or _empty(column):
            _fill_missing(feature, rows, first)
        elif feature.several:
            _fill_several(feature, column, rows, first)
        else:
            _fill_one_hot(feature, column, rows, first)
        first += len(feature.names)
    if numbers:
        return _fill_numbers(numbers, columns, rows, first)
    if len(there) < len(features):
        rows[:, first:] = 1.0
    return []


def code_of(feature: Category | Hashed) -> Callable[[str], int]:
    """Which of a feature's places a text has."""
    if isinstance(feature, Hashed):
        buckets = feature.buckets
        return lambda text: crc32(text.encode()) % buckets
    codes, other = {value: place for place, value in enumerate(feature.values)}, len(feature.values)
    return lambda text: codes.get(text, other)


def code_of_missing(feature: Category | Hashed) -> int:
    """The place of a value that is missing; -1 where it has none."""
    if feature.marked:
        return len(feature.names) - 1
    return len(feature.values) if isinstance(feature, Category) and not feature.several else -1


def _empty(column: RawColumn) -> bool:
    """Whether there is no value, so that the type of the column says nothing."""
    return column.kind == "nothing" or column.values.null_count() == len(column.values)


def _fill_missing(feature: Category | Hashed, rows: Floats, first: int) -> None:
    one_hot(np.full(len(rows), code_of_missing(feature)), first, len(feature.names), rows)


def _fill_one_hot(feature: Category | Hashed, column: RawColumn, rows: Floats, first: int) -> None:
    if column.kind not in ("text", "number"):
        raise LogError(f"column {feature.column!r} must hold texts; it holds {column.values.dtype}.")
    codes = coded(column.values, code_of(feature))
    one_hot(np.where(codes < 0, code_of_missing(feature), codes), first, len(feature.names), rows)


def _fill_several(feature: Category | Hashed, column: RawColumn, rows: Floats, first: int) -> None:
    if column.kind not in ("texts", "numbers"):
        raise LogError(f"column {feature.column!r} must hold lists of texts; it holds {column.values.dtype}.")
    lists = as_lists(column.values)
    lengths = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
    codes = coded(lists.filter(lists.list.len() > 0).explode(), code_of(feature))
    owners = np.repeat(np.arange(len(rows)), lengths)
    rows[:, first : first + len(feature.names)] = 0.0
    rows[owners[codes >= 0], first + codes[codes >= 0]] = 1.0
    if feature.marked:
        rows[lists.is_null().to_numpy(), first + len(feature.names) - 1] = 1.0


def _fill_numbers(
    numbers: Sequence[tuple[Number | Flag, int]], columns: Mapping[str, RawColumn], rows: Floats, width: int
) -> list[TooLarge]:
    arrays = [_numbers(feature, columns.get(feature.column), len(rows)) for feature, _ in numbers]
    places = np.array([place for _, place in numbers])
    marks = np.array([place + 1 if feature.marked else -1 for feature, place in numbers])
    means = np.array([feature.mean if isinstance(feature, Number) else 0.0 for feature, _ in numbers])
    scales = np.array([feature.scale if isinstance(feature, Number) else 1.0 for feature, _ in numbers])
    together = np.empty((len(numbers), ROWS_TOGETHER))
    n_large = 0
    for start in range(0, len(rows), ROWS_TOGETHER):
        end = min(start + ROWS_TOGETHER, len(rows))
        for j, array in enumerate(arrays):
            together[j, : end - start] = array[start:end]
        n_large += standardise(together[:, : end - start], means, scales, places, marks, LARGEST, rows[start:end])
        rows[start:end, width:] = 1.0
    return [] if n_large == 0 else _too_large(numbers, arrays)


def _numbers(feature: Number | Flag, column: RawColumn | None, n: int) -> npt.NDArray[Any]:
    """(n,) the raw numbers of a feature, NaN where they are missing."""
    if column is None or _empty(column):
        return np.full(n, np.nan)
    if column.kind != ("number" if feature.place is None else "numbers") and column.kind != "time":
        wanted = "numbers" if feature.place is None else "lists of numbers"
        raise LogError(f"column {feature.column!r} must hold {wanted}; it holds {column.values.dtype}.")
    if feature.place is None:
        return numbers_of(column.values)
    return numbers_of(as_lists(column.values).list.get(feature.place, null_on_oob=True))


def _too_large(numbers: Sequence[tuple[Number | Flag, int]], arrays: Sequence[npt.NDArray[Any]]) -> list[TooLarge]:
    found = []
    for (feature, _), array in zip(numbers, arrays, strict=True):
        rows = np.flatnonzero(np.abs(array.astype(np.float64)) > LARGEST)
        if len(rows):
            found.append(TooLarge(feature.names[0], rows, array[rows]))
    return found


def fill_lists(spec: FeatureSpec, rounds: RawRounds, rows: Floats) -> list[TooLarge]:
    """Write what policies see of every action of every round into ``rows`` (n, K, d), which are zeros."""
    pool = rounds.pool
    if pool is None:
        raise LogError("this log has no features of actions; those of the spec have.")
    own = np.empty((len(pool.features), len(spec.pool_names)), dtype=spec.precision)
    owners, places = owners_and_places(pool)
    large = [bad._replace(rows=owners[bad.rows]) for bad in fill(spec.pool, pool.features, own)]
    shared = np.empty((len(rounds), len(spec.shared_names) if spec.crossed else 0), dtype=spec.precision)
    if spec.crossed:
        large += fill(spec.shared, rounds.features, shared)
    cross(own, shared, owners, places, rows)
    return large


def owners_and_places(pool: Pool) -> tuple[Ints, Ints]:
    """The round of every row of a pool, and its place in the list of that round."""
    owners = np.repeat(np.arange(len(pool.lengths)), pool.lengths)
    return owners, np.arange(len(owners)) - np.repeat(pool.offsets[:-1], pool.lengths)


class Choices(NamedTuple):
    """The actions of rounds: which was taken, which could be, and with which probability."""

    taken: Floats | Ints  # (n,) NaN where it is none of the known ones
    mask: Bools | None  # (n, K)
    probs: Floats | None  # (n, K)


def choices_of(spec: FeatureSpec, rounds: RawRounds) -> Choices:
    """Actions by their names or places. A round whose list is too long for ``spec`` has no known action."""
    places = {name: place for place, name in enumerate(spec.action_names)}
    pool = rounds.pool
    if pool is None:
        return Choices(_numbered(rounds.action, places), None, None)
    taken = floats_of("actions", rounds.action)
    lengths, first = pool.lengths, pool.offsets[:-1]
    with np.errstate(invalid="ignore"):
        inside = (taken >= 0) & (taken < lengths) & (taken == np.floor(taken))
    owners, place = owners_and_places(pool)
    if spec.named:
        if pool.names is None:
            raise LogError("this log does not say which actions its rounds could choose among; the spec names them.")
        columns = coded(pool.names, lambda name: places.get(name, -1))
        known = columns >= 0
        chosen = np.where(inside, first + np.where(inside, taken, 0), 0).astype(np.int64)
        taken = np.where(inside & known[chosen], columns[chosen], np.nan)
    else:
        columns, known = place, place < spec.n_actions
        taken = np.where(inside & (lengths <= spec.n_actions), taken, np.nan)
    mask = np.zeros((len(rounds), spec.n_actions), dtype=bool)
    mask[owners[known], columns[known]] = True
    probs = None
    if pool.probs is not None:
        probs = np.zeros(mask.shape)
        np.add.at(probs, (owners[known], columns[known]), pool.probs[known])
    return Choices(taken, mask, probs)


def _numbered(actions: polars.Series, places: Mapping[str, int]) -> Floats | Ints:
    codes = coded(actions, lambda name: places.get(name, -1))
    return codes if codes.min(initial=0) >= 0 else np.where(codes < 0, np.nan, codes)


def floats_of(name: str, series: polars.Series) -> Floats:
    """(n,) a column of numbers as float64, NaN where they are missing."""
    import polars

    try:
        return np.asarray(series.cast(polars.Float64).to_numpy(), dtype=np.float64)
    except polars.exceptions.PolarsError as error:
        raise LogError(f"{name} must be numbers: {error}.") from error


def times_of(series: polars.Series) -> npt.NDArray[Any]:
    """(n,) times as they are, or parsed where they are text."""
    import polars

    if series.dtype.is_numeric() or series.dtype in (polars.Date, polars.Datetime):
        return np.asarray(series.to_numpy())
    try:
        return np.asarray(series.cast(polars.String).str.to_datetime().to_numpy())
    except polars.exceptions.PolarsError as error:
        raise LogError(f"times must be numbers (seconds) or dates; {series.name!r} is neither: {error}.") from error


def columns_of(spec: FeatureSpec, rounds: RawRounds) -> Columns:
    """The columns of ``rounds`` but for their contexts."""
    taken, mask, probs = choices_of(spec, rounds)
    propensities = None if rounds.propensity is None else floats_of("propensities", rounds.propensity)
    if propensities is None and probs is not None:
        places = np.nan_to_num(taken).astype(np.int64)
        propensities = probs[np.arange(len(rounds)), places]
    return Columns(
        actions=taken,
        rewards=floats_of("rewards", rounds.reward),
        propensities=propensities,
        contexts=None,
        action_features=None,
        action_mask=mask,
        logging_probs=probs,
        times=None if rounds.time is None else times_of(rounds.time),
        sequences=None if rounds.sequence is None else np.asarray(rounds.sequence.to_numpy()),
        n_actions=spec.n_actions,
        action_names=spec.action_names,
        context_names=spec.context_names,
    )


def arguments_of(spec: FeatureSpec, rounds: RawRounds) -> dict[str, Any]:
    """The arguments of ``BanditLog.from_arrays`` for ``rounds``."""
    columns = columns_of(spec, rounds)
    arguments = {field.name: getattr(columns, field.name) for field in fields(columns) if field.name != "made"}
    if spec.pool:
        rows = np.zeros((len(rounds), spec.n_actions, len(spec.context_names)), dtype=spec.precision)
        fill_lists(spec, rounds, rows)
        return arguments | {"action_features": rows}
    rows = np.empty((len(rounds), len(spec.context_names)), dtype=spec.precision)
    fill(spec.shared, rounds.features, rows)
    return arguments | {"contexts": rows}
