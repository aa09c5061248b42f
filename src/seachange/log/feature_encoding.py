"""Tables of raw features to arrays, following a FeatureSpec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError
from seachange.kernels.feature_rows import cross, one_hot, standardize
from seachange.log.arrays import Columns
from seachange.log.feature_types import Category, Feature, Flag, Hashed, Number
from seachange.log.raw import RawColumn, as_lists, coded, numbers_of, raw_columns
from seachange.log.record_encoding import code_of, code_of_missing
from seachange.log.validation import LARGEST
from seachange.protocols import Bools, Floats, Ints

if TYPE_CHECKING:
    import polars

    from seachange.log.features import FeatureSpec
    from seachange.log.raw import Pool, RawRounds

# Rows that are standardized at a time.
BLOCK_ROWS = 1 << 13


class TooLarge(NamedTuple):
    """Numbers of a column that are infinite or too large to work with."""

    column: str
    rows: Ints
    value: Any  # in the first of them


def fill(features: Sequence[Feature], frame: polars.DataFrame, rows: Floats) -> list[TooLarge]:
    """Write the features of each row of ``frame`` to ``rows`` (n, at least their number), followed by ones."""
    columns = raw_columns(frame)
    numbers: list[tuple[Number | Flag, int]] = []
    first = 0
    for feature in features:
        column = columns.get(feature.column)
        if isinstance(feature, Number | Flag):
            numbers.append((feature, first))
        elif column is None or _empty(column):
            one_hot(np.full(len(rows), code_of_missing(feature)), first, len(feature.names), rows)
        elif feature.several:
            _fill_lists(feature, column, rows, first)
        else:
            _fill_one_hot(feature, column, rows, first)
        first += len(feature.names)
    rows[:, first:] = 1.0
    return _fill_numbers(numbers, columns, rows) if numbers else []


def _empty(column: RawColumn) -> bool:
    """Whether there are no values, so that the column's type means nothing."""
    return column.kind == "nothing" or column.values.null_count() == len(column.values)


def _fill_one_hot(feature: Category | Hashed, column: RawColumn, rows: Floats, first: int) -> None:
    if column.kind not in ("text", "number"):
        raise LogError(f"column {feature.column!r} must hold text; it holds {column.values.dtype}.")
    codes = coded(column.values, code_of(feature))
    one_hot(np.where(codes < 0, code_of_missing(feature), codes), first, len(feature.names), rows)


def _fill_lists(feature: Category | Hashed, column: RawColumn, rows: Floats, first: int) -> None:
    if column.kind not in ("texts", "numbers"):
        raise LogError(f"column {feature.column!r} must hold lists of text; it holds {column.values.dtype}.")
    lists = as_lists(column.values)
    lengths = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
    codes = coded(lists.filter(lists.list.len() > 0).explode(), code_of(feature))
    owners = np.repeat(np.arange(len(rows)), lengths)
    rows[:, first : first + len(feature.names)] = 0.0
    rows[owners[codes >= 0], first + codes[codes >= 0]] = 1.0
    if feature.marked:
        rows[lists.is_null().to_numpy(), first + len(feature.names) - 1] = 1.0


def _fill_numbers(
    numbers: Sequence[tuple[Number | Flag, int]], columns: Mapping[str, RawColumn], rows: Floats
) -> list[TooLarge]:
    arrays = [_numbers(feature, columns.get(feature.column), len(rows)) for feature, _ in numbers]
    places = np.array([place for _, place in numbers])
    marks = np.array([place + 1 if feature.marked else -1 for feature, place in numbers])
    means = np.array([feature.mean if isinstance(feature, Number) else 0.0 for feature, _ in numbers])
    scales = np.array([feature.scale if isinstance(feature, Number) else 1.0 for feature, _ in numbers])
    block = np.empty((len(numbers), BLOCK_ROWS))
    n_large = 0
    for start in range(0, len(rows), BLOCK_ROWS):
        end = min(start + BLOCK_ROWS, len(rows))
        for j, array in enumerate(arrays):
            block[j, : end - start] = array[start:end]
        n_large += standardize(block[:, : end - start], means, scales, places, marks, LARGEST, rows[start:end])
    return [] if n_large == 0 else _too_large(numbers, arrays)


def _numbers(feature: Number | Flag, column: RawColumn | None, n: int) -> npt.NDArray[Any]:
    """(n,) the raw numbers of a feature, NaN if missing."""
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
            found.append(TooLarge(feature.names[0], rows, array[rows[0]]))
    return found


def fill_pools(spec: FeatureSpec, rounds: RawRounds, rows: Floats) -> list[TooLarge]:
    """Write the features of each action of each round to ``rows`` (n, K, d), which are zeros."""
    pool = rounds.pool
    if pool is None:
        raise LogError("these features describe lists of actions, but this log has no such lists.")
    own = np.empty((len(pool.features), len(spec.pool_names)), dtype=spec.precision)
    owners, places = owners_and_places(pool)
    large = [bad._replace(rows=owners[bad.rows]) for bad in fill(spec.pool, pool.features, own)]
    shared = np.empty((len(rounds), len(spec.shared_names) if spec.crossed else 0), dtype=spec.precision)
    if spec.crossed:
        large += fill(spec.shared, rounds.features, shared)
    cross(own, shared, owners, places, rows)
    return large


def owners_and_places(pool: Pool) -> tuple[Ints, Ints]:
    """The round of each row of a pool, and its place in that round's list."""
    owners = np.repeat(np.arange(len(pool.lengths)), pool.lengths)
    return owners, np.arange(len(owners)) - np.repeat(pool.offsets[:-1], pool.lengths)


class Choices(NamedTuple):
    """The actions of rounds: the one taken, those allowed, and their probabilities."""

    taken: Floats | Ints  # (n,) NaN if it is not a known action
    mask: Bools | None  # (n, K)
    probs: Floats | None  # (n, K)


def choices_of(spec: FeatureSpec, rounds: RawRounds) -> Choices:
    """Actions by their names or places. In a round whose list is longer than ``spec`` allows, no action is known."""
    numbers = {name: place for place, name in enumerate(spec.action_names)}
    pool = rounds.pool
    if pool is None:
        codes = coded(rounds.action, lambda name: numbers.get(name, -1))
        return Choices(codes if codes.min(initial=0) >= 0 else np.where(codes < 0, np.nan, codes), None, None)
    taken, first, lengths = floats_of("actions", rounds.action), pool.offsets[:-1], pool.lengths
    with np.errstate(invalid="ignore"):
        inside = (taken >= 0) & (taken < lengths) & (taken == np.floor(taken))
    owners, place = owners_and_places(pool)
    if spec.named:
        if pool.names is None:
            raise LogError("these features have named actions, but this log does not name the actions in its lists.")
        columns = coded(pool.names, lambda name: numbers.get(name, -1))
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


def floats_of(name: str, series: polars.Series) -> Floats:
    """(n,) a column of numbers as float64, NaN if missing."""
    import polars

    try:
        return np.asarray(series.cast(polars.Float64).to_numpy(), dtype=np.float64)
    except polars.exceptions.PolarsError as error:
        raise LogError(f"{name} must be numbers: {error}.") from error


def times_of(series: polars.Series) -> npt.NDArray[Any]:
    """(n,) times, parsed if they are text."""
    import polars

    if series.dtype.is_numeric() or series.dtype in (polars.Date, polars.Datetime):
        return np.asarray(series.to_numpy())
    try:
        return np.asarray(series.cast(polars.String).str.to_datetime().to_numpy())
    except polars.exceptions.PolarsError as error:
        raise LogError(f"times must be numbers (seconds) or dates; {series.name!r} is neither: {error}.") from error


def columns_of(spec: FeatureSpec, rounds: RawRounds) -> Columns:
    """The columns of ``rounds`` without their contexts."""
    taken, mask, probs = choices_of(spec, rounds)
    propensities = None if rounds.propensity is None else floats_of("propensities", rounds.propensity)
    if propensities is None and probs is not None:
        propensities = probs[np.arange(len(rounds)), np.nan_to_num(taken).astype(np.int64)]
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
