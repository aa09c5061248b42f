"""Raw features to arrays, following a FeatureSpec: whole tables, and single records, bit-equal to a table's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import polars

from seachange.errors import LogError, did_you_mean
from seachange.kernels.feature_rows import cross, one_hot, standardise
from seachange.log.features import Category, Encoded, Feature, FeatureSpec, Flag, Hashed, Number
from seachange.log.joint_features import JointFeatures
from seachange.log.raw import (
    Kind,
    RawColumn,
    RawRounds,
    as_lists,
    coded,
    number_in,
    number_of,
    numbers_of,
    raw_columns,
    text_of,
    time_of,
)
from seachange.log.validation import LARGEST, Columns, integers_below
from seachange.protocols import Bools, Floats, Ints

Record = Mapping[str, Any]
Get = Callable[[Record], Any]  # finds a field of a record
Write = Callable[[Record, Any], None]  # writes a feature of a record into a row
TooLarge = tuple[str, Ints, Any]  # rows of a column with numbers that are too large or infinite, and the first of them
# Rows that are standardized at a time.
BLOCK_ROWS = 1 << 13
# The key of a record that lists the actions of its round, if they differ between rounds.
ACTIONS = "actions"
# Formats that cannot tell an empty text from a missing one.
EMPTY_IS_MISSING = ("csv", "tsv")
# Fields that an error lists.
LISTED_FIELDS = 12


def _scaling(feature: Number | Flag) -> tuple[float, float]:
    return (feature.mean, feature.scale) if isinstance(feature, Number) else (0.0, 1.0)


def _code_of(feature: Category | Hashed) -> Callable[[str], int]:
    """Maps a text to its place among the features of ``feature``."""
    if isinstance(feature, Hashed):
        buckets = feature.buckets
        return lambda text: crc32(text.encode()) % buckets
    codes, other = {value: place for place, value in enumerate(feature.values)}, len(feature.values)
    return lambda text: codes.get(text, other)


def _code_of_missing(feature: Category | Hashed) -> int:
    """The place of a missing value; -1 if it has none."""
    if feature.marked:
        return len(feature.names) - 1
    return len(feature.values) if isinstance(feature, Category) and not feature.several else -1


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
            one_hot(np.full(len(rows), _code_of_missing(feature)), first, len(feature.names), rows)
        elif feature.several:
            _fill_lists(feature, column, rows, first)
        else:
            _require_kind(column, feature, "text", "text", "number")
            codes = coded(column.values, _code_of(feature))
            one_hot(np.where(codes < 0, _code_of_missing(feature), codes), first, len(feature.names), rows)
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
    codes = coded(lists.filter(lists.list.len() > 0).explode(), _code_of(feature))
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
    means, scales = np.array([_scaling(feature) for feature, _ in numbers]).T
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


class AbsentField(Exception):  # noqa: N818
    """A record lacks a field that the log always had."""


def record_encoder(spec: FeatureSpec) -> Callable[[Record], Encoded]:
    """A function that encodes records following ``spec``."""
    width, n_own, n_actions = len(spec.shared_names), len(spec.pool_names), spec.n_actions
    write_shared = _row_writer(spec, spec.shared, "a record")
    write_own = _row_writer(spec, spec.pool, f"each of {ACTIONS!r}")
    places = {name: place for place, name in enumerate(spec.action_names)}

    def shared_row(record: Record) -> Floats:
        row = np.zeros(width, dtype=spec.precision)
        write_shared(record, row)
        return row

    def mask_of(actions: Sequence[Any]) -> Bools:
        mask = np.zeros(n_actions, dtype=bool)
        if not spec.named:
            mask[: len(actions)] = True
            return mask
        mask[[places[name] for name in map(text_of, actions) if name in places]] = True
        if not mask.any():
            known = ", ".join(spec.action_names)
            raise LogError(f"none of the record's {len(actions)} actions is known; the known actions are {known}.")
        return mask

    def encoded(record: Record) -> Encoded:
        if not isinstance(record, Mapping):
            raise LogError(f"a record must be a mapping of columns to values; got a {type(record).__name__}.")
        if not spec.pool:
            context = shared_row(record) if width else None
            return context, mask_of(_listed_actions(record, spec)) if spec.listed else None
        actions = _listed_actions(record, spec)
        context = np.zeros((n_actions, len(spec.context_names)), dtype=spec.precision)
        for place, action in enumerate(actions):
            write_own(action, context[place], place)
        if spec.crossed:
            products = shared_row(record)[:, None] * context[: len(actions), None, :n_own]
            context[: len(actions), n_own:] = products.reshape(len(actions), -1)
        return context, mask_of(actions)

    return encoded


def _listed_actions(record: Record, spec: FeatureSpec) -> Sequence[Any]:
    actions = record.get(ACTIONS)
    if not isinstance(actions, Sequence) or isinstance(actions, str) or len(actions) == 0:
        raise LogError(f"a record must list its available actions under {ACTIONS!r}; this one has {actions!r}.")
    if not spec.named and len(actions) > spec.n_actions:
        raise LogError(f"a record can list at most {spec.n_actions} actions, the most in the log; got {len(actions)}.")
    if spec.pool and not all(isinstance(action, Mapping) for action in actions):
        raise LogError(f"each of {ACTIONS!r} must be a mapping of columns to values.")
    return actions


def _row_writer(spec: FeatureSpec, features: Sequence[Feature], whose: str) -> Callable[..., None]:
    """A function that writes all ``features`` of a record into a row of zeros."""
    writers: list[Write] = []
    first = 0
    for feature in features:
        get = _getter(feature.column, required=not feature.marked)
        if isinstance(feature, Number | Flag):
            writers.append(_number_writer(feature, get, first))
        elif feature.several:
            writers.append(_texts_writer(feature, get, first))
        else:
            writers.append(_text_writer(feature, get, first, spec.format in EMPTY_IS_MISSING))
        first += len(feature.names)

    def write_row(record: Record, row: Any, index: int | None = None) -> None:
        try:
            for write in writers:
                write(record, row)
        except AbsentField:
            where = "" if index is None else f" from the one at index {index}"
            raise _absent_fields(features, record, whose, where) from None

    return write_row


def _number_writer(feature: Number | Flag, get: Get, first: int) -> Write:
    mean, scale = _scaling(feature)
    seconds = isinstance(feature, Number) and feature.seconds
    convert = time_of if seconds else number_of
    comma, marked, place, label = feature.comma, feature.marked, feature.place, feature.names[0]

    def write(record: Record, row: Any) -> None:
        value = get(record)
        if place is not None and value is not None:
            try:
                if isinstance(value, str):
                    raise TypeError("text is not a list")
                value = value[place] if place < len(value) else None
            except (TypeError, KeyError) as error:
                raise LogError(f"{feature.column!r} must be a list of numbers; the record has {value!r}.") from error
        try:
            if type(value) is str and not seconds:
                value = number_in(value, comma)
            if value is None or value != value:
                if marked:
                    row[first + 1] = 1.0
                return
            number = value if type(value) is float else convert(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise LogError(f"{label!r} must be a number; the record has {value!r}.") from error
        if not -LARGEST <= number <= LARGEST:
            raise LogError(f"{label!r} must be finite and at most {LARGEST:g} in size; the record has {value!r}.")
        row[first] = (number - mean) / scale

    return write


def _text_writer(feature: Category | Hashed, get: Get, first: int, empty_is_missing: bool) -> Write:
    code, missing, nothing = _code_of(feature), _code_of_missing(feature), "" if empty_is_missing else None

    def write(record: Record, row: Any) -> None:
        value = get(record)
        absent = value is None or value != value or value == nothing
        place = missing if absent else code(value if type(value) is str else text_of(value))
        if place >= 0:
            row[first + place] = 1.0

    return write


def _texts_writer(feature: Category | Hashed, get: Get, first: int) -> Write:
    code, missing = _code_of(feature), _code_of_missing(feature)

    def write(record: Record, row: Any) -> None:
        values = get(record)
        if values is None:
            if missing >= 0:
                row[first + missing] = 1.0
            return
        if isinstance(values, str) or not hasattr(values, "__iter__"):
            raise LogError(f"{feature.column!r} must be a list; the record has {values!r}.")
        for value in values:
            if value is not None and value == value:
                row[first + code(text_of(value))] = 1.0

    return write


def _getter(column: str, required: bool) -> Get:
    """A function that finds a column in a record: under its own name, or nested if it has dots.

    A ``required`` one must be present, though it may be None: otherwise a misspelled name would silently count as
    missing in every round.
    """
    dots = [place for place, letter in enumerate(column) if letter == "."]
    heads = [(column[:dot], _getter(column[dot + 1 :], required)) for dot in dots]

    def get(record: Record) -> Any:
        value = record.get(column)
        if value is not None or column in record:
            return value
        for head, rest in heads:
            inner = record.get(head)
            if isinstance(inner, Mapping):
                return rest(inner)
        if required and not any(head in record and record[head] is None for head, _ in heads):
            raise AbsentField
        return None

    return get


def _absent_fields(features: Iterable[Feature], record: Record, whose: str, where: str = "") -> LogError:
    """The error that names the fields of ``features`` that ``record`` lacks, and its most similar field."""
    wanted = {feature.column: _getter(feature.column, required=True) for feature in features if not feature.marked}
    absent = [column for column, get in wanted.items() if _lacks(record, get)]
    spare = [key for key in _keys(record) if key not in wanted]
    near = ((key, did_you_mean(key, absent)) for key in spare)
    guess = next((f" There is {key!r}.{question}" for key, question in near if question), "")
    verb = "is" if len(absent) == 1 else "are"
    return LogError(
        f"{whose} must have the fields that were always in the log: {_some(list(wanted))}; {_some(absent, repr)} "
        f"{verb} missing{where}.{guess} Pass None for an unknown value."
    )


def _lacks(record: Record, get: Get) -> bool:
    try:
        get(record)
    except AbsentField:
        return True
    return False


def _keys(record: Record, prefix: str = "") -> Iterator[str]:
    """The names of all fields, nested ones with dots."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _some(names: list[str], shown: Callable[[str], str] = str) -> str:
    more = [f"{len(names) - LISTED_FIELDS} more"] if len(names) > LISTED_FIELDS else []
    return ", ".join([*map(shown, names[:LISTED_FIELDS]), *more])
