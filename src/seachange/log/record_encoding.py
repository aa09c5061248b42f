"""One raw record to a context and an action mask, bit-equal to the encoding of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from seachange.errors import LogError, did_you_mean
from seachange.log.feature_types import Category, Feature, Flag, Hashed, Number
from seachange.log.raw import number_in, number_of, text_of, time_of
from seachange.log.validation import LARGEST
from seachange.protocols import Bools, Floats

if TYPE_CHECKING:
    from seachange.log.features import FeatureSpec

Encoded = tuple["Floats | None", "Bools | None"]  # a context and an action mask, as deployers take them
Record = Mapping[str, Any]
Get = Callable[[Record], Any]  # finds a field of a record
Write = Callable[[Record, Any], None]  # writes the features of a record into a row
# The key of a record that lists the actions of its round, if they differ between rounds.
ACTIONS = "actions"
# Formats that cannot tell an empty text from a missing one.
EMPTY_IS_MISSING = ("csv", "tsv")
# Fields that an error lists.
LISTED_FIELDS = 12


class AbsentField(Exception):  # noqa: N818
    """A record lacks a field that the log always had."""


def record_encoder(spec: FeatureSpec) -> Callable[[Record], Encoded]:
    """A function that encodes records following ``spec``."""
    shared, width = _writers(spec, spec.shared), len(spec.shared_names)

    def shared_row(record: Record) -> Floats:
        row = np.zeros(width, dtype=spec.precision)
        try:
            for write in shared:
                write(record, row)
        except AbsentField:
            raise _absent_fields(spec.shared, record, "a record") from None
        return row

    if spec.pool:
        return _list_encoder(spec, shared_row)
    mask_of = _mask_encoder(spec) if spec.listed else None

    def encoded(record: Record) -> Encoded:
        _require_mapping(record)
        return (shared_row(record) if width else None), (None if mask_of is None else mask_of(record))

    return encoded


def _list_encoder(spec: FeatureSpec, shared_row: Callable[[Record], Floats]) -> Callable[[Record], Encoded]:
    own, n_own = _writers(spec, spec.pool), len(spec.pool_names)
    shape = (spec.n_actions, len(spec.context_names))

    def encoded(record: Record) -> Encoded:
        _require_mapping(record)
        actions = _listed_actions(record, spec)
        context, mask = np.zeros(shape, dtype=spec.precision), np.zeros(shape[0], dtype=bool)
        mask[: len(actions)] = True
        try:
            for place, action in enumerate(actions):
                for write in own:
                    write(action, context[place])
        except AbsentField:
            raise _absent_fields(spec.pool, action, f"each of {ACTIONS!r}", f" from the one at index {place}") from None
        if spec.crossed:
            products = shared_row(record)[:, None] * context[: len(actions), None, :n_own]
            context[: len(actions), n_own:] = products.reshape(len(actions), -1)
        return context, mask

    return encoded


def _mask_encoder(spec: FeatureSpec) -> Callable[[Record], Bools]:
    places = {name: place for place, name in enumerate(spec.action_names)}

    def mask_of(record: Record) -> Bools:
        mask = np.zeros(spec.n_actions, dtype=bool)
        actions = _listed_actions(record, spec)
        if not spec.named:
            mask[: len(actions)] = True
            return mask
        for action in actions:
            place = places.get(text_of(action))
            if place is not None:
                mask[place] = True
        if not mask.any():
            known = ", ".join(spec.action_names)
            raise LogError(f"none of the record's {len(actions)} actions is known; the known actions are {known}.")
        return mask

    return mask_of


def _require_mapping(record: Record) -> None:
    if not isinstance(record, Mapping):
        raise LogError(f"a record must be a mapping of columns to values; got a {type(record).__name__}.")


def _listed_actions(record: Record, spec: FeatureSpec) -> Sequence[Any]:
    actions = record.get(ACTIONS)
    if not isinstance(actions, Sequence) or isinstance(actions, str) or len(actions) == 0:
        raise LogError(f"a record must list its available actions under {ACTIONS!r}; this one has {actions!r}.")
    if not spec.named and len(actions) > spec.n_actions:
        raise LogError(f"a record can list at most {spec.n_actions} actions, the most in the log; got {len(actions)}.")
    if spec.pool and not all(isinstance(action, Mapping) for action in actions):
        raise LogError(f"each of {ACTIONS!r} must be a mapping of columns to values.")
    return actions


def code_of(feature: Category | Hashed) -> Callable[[str], int]:
    """Maps a text to its place among the features of ``feature``."""
    if isinstance(feature, Hashed):
        buckets = feature.buckets
        return lambda text: crc32(text.encode()) % buckets
    codes, other = {value: place for place, value in enumerate(feature.values)}, len(feature.values)
    return lambda text: codes.get(text, other)


def code_of_missing(feature: Category | Hashed) -> int:
    """The place of a missing value; -1 if it has none."""
    if feature.marked:
        return len(feature.names) - 1
    return len(feature.values) if isinstance(feature, Category) and not feature.several else -1


def _writers(spec: FeatureSpec, features: Sequence[Feature]) -> list[Write]:
    writers, first = [], 0
    for feature in features:
        get = _getter(feature.column, required=not feature.marked)
        if isinstance(feature, Number | Flag):
            writers.append(_number_writer(feature, get, first))
        elif feature.several:
            writers.append(_texts_writer(feature, get, first))
        else:
            writers.append(_text_writer(feature, get, first, spec.format in EMPTY_IS_MISSING))
        first += len(feature.names)
    return writers


def _number_writer(feature: Number | Flag, get: Get, first: int) -> Write:
    mean, scale = (feature.mean, feature.scale) if isinstance(feature, Number) else (0.0, 1.0)
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
    code, missing, nothing = code_of(feature), code_of_missing(feature), "" if empty_is_missing else None

    def write(record: Record, row: Any) -> None:
        value = get(record)
        absent = value is None or value != value or value == nothing
        place = missing if absent else code(value if type(value) is str else text_of(value))
        if place >= 0:
            row[first + place] = 1.0

    return write


def _texts_writer(feature: Category | Hashed, get: Get, first: int) -> Write:
    code, missing = code_of(feature), code_of_missing(feature)

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
    if "." in column:
        return _nested_getter(column, required)
    if not required:
        return lambda record: record.get(column)

    def get(record: Record) -> Any:
        value = record.get(column)
        if value is None and column not in record:
            raise AbsentField
        return value

    return get


def _nested_getter(column: str, required: bool) -> Get:
    dots = [place for place, letter in enumerate(column) if letter == "."]
    heads = [(column[:dot], _getter(column[dot + 1 :], required)) for dot in dots]

    def get(record: Record) -> Any:
        if column in record:
            return record[column]
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
