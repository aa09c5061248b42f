"""Tables of raw rounds to arrays, following a FeatureSpec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars

from seachange.errors import LogError
from seachange.kernels.feature_rows import cross, one_hot, standardise
from seachange.log.features import (
    Category,
    Feature,
    FeatureSpec,
    Flag,
    Hashed,
    Number,
    code_of,
    code_of_missing,
    scaling,
)
from seachange.log.joint_features import JointFeatures
from seachange.log.raw import (
    Kind,
    RawColumn,
    RawRounds,
    as_lists,
    coded,
    numbers_of,
    raw_columns,
)
from seachange.log.validation import LARGEST, Columns, integers_below
from seachange.protocols import Bools, Floats, Ints

TooLarge = tuple[str, Ints, Any]  # rows of a column with numbers that are too large or infinite, and the first of them
# Rows that are standardized at a time.
BLOCK_ROWS = 1 << 13


def fill(features: Sequence[Feature], frame: polars.DataFrame, rows: Floats) -> list[TooLarge]:
    """Write the features of each row of ``frame`` to ``rows`` (n, at least their number), followed by ones."""
    # The type of a column without values means nothing.
    filled = {name: each for name, each in raw_columns(frame).items() if each.values.null_count() < len(each.values)}
    columns = {name: column for name, column in filled.items() if column.kind != "nothing"}
    numbers: list[tuple[Number | Flag, int]] = []
    first = 0
    for feature in features:
        column = columns.get(feature.column)
        if isinstance(feature, Number | Flag):
            numbers.append((feature, first))
        elif column is None:
            one_hot(np.full(len(rows), code_of_missing(feature)), first, len(feature.names), rows)
        elif feature.several:
            _fill_lists(feature, column, rows, first)
        else:
            _require_kind(column, feature, "text", "text", "number")
            codes = coded(column.values, code_of(feature))
            one_hot(np.where(codes < 0, code_of_missing(feature), codes), first, len(feature.names), rows)
        first += len(feature.names)
    rows[:, first:] = 1.0
    return _fill_numbers(numbers, columns, rows) if numbers else []


def _require_kind(column: RawColumn, feature: Feature, wanted: str, *kinds: Kind) -> None:
    if column.kind not in kinds:
        raise LogError(f"column {feature.column!r} must hold {wanted}; it holds {column.values.dtype}.")


def _fill_lists(feature: Category | Hashed, column: RawColumn, rows: Floats, first: int) -> None:
    _require_kind(column, feature, "lists of text", "texts", "numbers")
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
    means, scales = np.array([scaling(feature) for feature, _ in numbers]).T
    block = np.empty((len(numbers), BLOCK_ROWS))
    n_large = 0
    for start in range(0, len(rows), BLOCK_ROWS):
        end = min(start + BLOCK_ROWS, len(rows))
        for j, array in enumerate(arrays):
            block[j, : end - start] = array[start:end]
        n_large += standardise(block[:, : end - start], means, scales, places, marks, LARGEST, rows[start:end])
    if n_large == 0:
        return []
    large = [np.flatnonzero(np.abs(array.astype(np.float64)) > LARGEST) for array in arrays]
    bad = zip(numbers, arrays, large, strict=True)
    return [(feature.names[0], found, array[found[0]]) for (feature, _), array, found in bad if len(found)]


def _numbers(feature: Number | Flag, column: RawColumn | None, n: int) -> npt.NDArray[Any]:
    """(n,) the raw numbers of a feature, NaN if missing."""
    if column is None:
        return np.full(n, np.nan)
    if feature.place is None:
        _require_kind(column, feature, "numbers", "number", "time")
        return numbers_of(column.values)
    _require_kind(column, feature, "lists of numbers", "numbers")
    return numbers_of(as_lists(column.values).list.get(feature.place, null_on_oob=True))


def fill_pools(spec: FeatureSpec, rounds: RawRounds, rows: Floats) -> list[TooLarge]:
    """Write the features of each action of each round to ``rows`` (n, K, d), which are zeros."""
    pool = rounds.pool
    if pool is None:
        raise LogError("these features describe lists of actions, but this log does not list actions.")
    own = np.empty((len(pool.features), len(spec.pool_names)), dtype=spec.precision)
    large = [(name, pool.owners[bad], value) for name, bad, value in fill(spec.pool, pool.features, own)]
    shared = np.empty((len(rounds), len(spec.shared_names) if spec.crossed else 0), dtype=spec.precision)
    if spec.crossed:
        large += fill(spec.shared, rounds.features, shared)
    cross(own, shared, pool.owners, pool.places, rows)
    return large


def choices_of(spec: FeatureSpec, rounds: RawRounds) -> tuple[Floats | Ints, Bools | None, Floats | None]:
    """The actions that were taken (n,), those that could be (n, K), and their probabilities (n, K).

    Actions that ``spec`` does not know are NaN, as are all in a round whose list is longer than it allows.
    """
    numbers = {name: place for place, name in enumerate(spec.action_names)}
    pool = rounds.pool
    if pool is None:
        codes = coded(rounds.action, lambda name: numbers.get(name, -1))
        return (codes if codes.min(initial=0) >= 0 else np.where(codes < 0, np.nan, codes)), None, None
    taken = floats_of("actions", rounds.action)
    inside = integers_below(taken, pool.lengths)
    if spec.named:
        if pool.names is None:
            raise LogError("these features have named actions, but this log does not name the actions in its lists.")
        columns = coded(pool.names, lambda name: numbers.get(name, -1))
        known = columns >= 0
        chosen = np.where(inside, pool.offsets[:-1] + np.where(inside, taken, 0), 0).astype(np.int64)
        taken = np.where(inside & known[chosen], columns[chosen], np.nan)
    else:
        columns, known = pool.places, pool.places < spec.n_actions
        taken = np.where(inside & (pool.lengths <= spec.n_actions), taken, np.nan)
    cells = pool.owners[known], columns[known]
    mask = np.zeros((len(rounds), spec.n_actions), dtype=bool)
    mask[cells] = True
    if pool.probs is None:
        return taken, mask, None
    probs = np.zeros(mask.shape)
    np.add.at(probs, cells, pool.probs[known])
    return taken, mask, probs


def floats_of(name: str, series: polars.Series) -> Floats:
    """(n,) a column of numbers as float64, NaN if missing."""
    try:
        return np.asarray(series.cast(polars.Float64).to_numpy(), dtype=np.float64)
    except polars.exceptions.PolarsError as error:
        raise LogError(f"{name} must be numbers: {error}.") from error


def times_of(series: polars.Series) -> npt.NDArray[Any]:
    """(n,) times, parsed if they are text."""
    if series.dtype.is_numeric() or series.dtype in (polars.Date, polars.Datetime):
        return np.asarray(series.to_numpy())
    try:
        return np.asarray(series.cast(polars.String).str.to_datetime().to_numpy())
    except polars.exceptions.PolarsError as error:
        raise LogError(f"times must be numbers (seconds) or dates; {series.name!r} is neither: {error}.") from error


def columns_of(spec: FeatureSpec, rounds: RawRounds, joint: JointFeatures, rows: Floats) -> Columns:
    """The columns of ``rounds``, whose contexts are in ``rows``."""
    taken, mask, probs = choices_of(spec, rounds)
    propensities = None if rounds.propensity is None else floats_of("propensities", rounds.propensity)
    if propensities is None and probs is not None:
        propensities = probs[np.arange(len(rounds)), np.nan_to_num(taken).astype(np.int64)]
    return Columns(
        joint,
        rows,
        spec.action_names,
        spec.context_names,
        actions=taken,
        rewards=floats_of("rewards", rounds.reward),
        propensities=propensities,
        action_mask=mask,
        logging_probs=probs,
        times=None if rounds.time is None else times_of(rounds.time),
        sequences=None if rounds.sequence is None else np.asarray(rounds.sequence.to_numpy()),
    )
