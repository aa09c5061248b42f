"""One raw record to a context and an action mask, as a FeatureSpec says: the same numbers as in a table, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from seachange.errors import LogError
from seachange.log.feature_encoding import code_of, code_of_missing
from seachange.log.features import ACTIONS, Category, Encoded, Feature, FeatureSpec, Flag, Hashed, Number
from seachange.log.raw_columns import moment_of, number_of, text_of
from seachange.log.readers.kinds import number_in
from seachange.log.record_fields import AbsentField, Get, Record, absent_fields, getter
from seachange.log.validation import LARGEST
from seachange.protocols import Bools, Floats

# Writes the features of a record into a row.
Write = Callable[[Record, Any], None]
# Formats in which a text without a letter is no text.
EMPTY_IS_MISSING = ("csv", "tsv")


def encoder_of(spec: FeatureSpec) -> Callable[[Record], Encoded]:
    """What encodes records by ``spec``, made once for many of them."""
    shared, width = _writers(spec, spec.shared), len(spec.shared_names)

    def shared_row(record: Record) -> Floats:
        row = np.zeros(width, dtype=spec.precision)
        try:
            for write in shared:
                write(record, row)
        except AbsentField:
            raise absent_fields(spec.shared, record, "a record") from None
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
        actions = _listed(record, spec)
        context, mask = np.zeros(shape, dtype=spec.precision), np.zeros(shape[0], dtype=bool)
        mask[: len(actions)] = True
        try:
            for place, action in enumerate(actions):
                for write in own:
                    write(action, context[place])
        except AbsentField:
            raise absent_fields(spec.pool, action, f"each of {ACTIONS!r}", f" in that of place {place}") from None
        if spec.crossed:
            products = shared_row(record)[:, None] * context[: len(actions), None, :n_own]
            context[: len(actions), n_own:] = products.reshape(len(actions), -1)
        return context, mask

    return encoded


def _mask_encoder(spec: FeatureSpec) -> Callable[[Record], Bools]:
    places = {name: place for place, name in enumerate(spec.action_names)}

    def mask_of(record: Record) -> Bools:
        mask = np.zeros(spec.n_actions, dtype=bool)
        actions = _listed(record, spec)
        if not spec.named:
            mask[: len(actions)] = True
            return mask
        for action in actions:
            place = places.get(text_of(action))
            if place is not None:
                mask[place] = True
        if not mask.any():
            raise LogError(f"none of the record's {len(actions)} actions is one of {', '.join(spec.action_names)}.")
        return mask

    return mask_of


def _require_mapping(record: Record) -> None:
    if not isinstance(record, Mapping):
        raise LogError(f"a record is a mapping of columns to values; got a {type(record).__name__}.")


def _listed(record: Record, spec: FeatureSpec) -> Sequence[Any]:
    actions = record.get(ACTIONS)
    if not isinstance(actions, Sequence) or isinstance(actions, str) or len(actions) == 0:
        raise LogError(
            f"a record must list the actions that can be chosen under {ACTIONS!r}; this one has {actions!r}."
        )
    if not spec.named and len(actions) > spec.n_actions:
        raise LogError(
            f"a record can list at most {spec.n_actions} actions, as many as the log had; got {len(actions)}."
        )
    if spec.pool and not all(isinstance(action, Mapping) for action in actions):
        raise LogError(f"each of {ACTIONS!r} must be a mapping of its columns to values.")
    return actions


def _writers(spec: FeatureSpec, features: Sequence[Feature]) -> list[Write]:
    writers, first = [], 0
    for feature in features:
        writers.append(_writer(feature, first, spec.format in EMPTY_IS_MISSING))
        first += len(feature.names)
    return writers


def _writer(feature: Feature, first: int, empty_is_missing: bool) -> Write:
    get = getter(feature.column, required=not feature.marked)
    if isinstance(feature, Number | Flag):
        return _number_writer(feature, get, first)
    return (
        _texts_writer(feature, get, first) if feature.several else _text_writer(feature, get, first, empty_is_missing)
    )


def _number_writer(feature: Number | Flag, get: Get, first: int) -> Write:
    mean, scale = (feature.mean, feature.scale) if isinstance(feature, Number) else (0.0, 1.0)
    seconds = isinstance(feature, Number) and feature.seconds
    convert = moment_of if seconds else number_of
    comma, marked, place, label = feature.comma, feature.marked, feature.place, feature.names[0]

    def write(record: Record, row: Any) -> None:
        value = get(record)
        if place is not None and value is not None:
            try:
                if isinstance(value, str):
                    raise TypeError("a text is no list")
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
