"""The types of JSON fields, decided by the head of a file, and values made to fit them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from seachange.log.features import Feature, Flag, Number
from seachange.log.raw_columns import text_of
from seachange.log.readers.kinds import MOST, Odd, Role, number_in

if TYPE_CHECKING:
    import polars

INT64 = range(-(2**63), 2**63)


def wanted_type(features: Sequence[Feature], holder: str, found: Any) -> Any:
    """The type of the field ``holder`` that ``features`` were made of; ``found`` is the one that it has here."""
    import polars

    own = next((feature for feature in features if feature.column == holder), None)
    if own is not None:
        plain = polars.Float64() if isinstance(own, Number | Flag) else polars.String()
        several = own.place is not None if isinstance(own, Number | Flag) else own.several
        return polars.List(plain) if several else plain
    inner: dict[str, list[Feature]] = {}
    fields = {field.name: field.dtype for field in found.fields} if isinstance(found, polars.Struct) else {}
    for feature in features:
        rest = feature.column.removeprefix(f"{holder}.")
        heads = [rest[:i] for i, letter in enumerate(f"{rest}.") if letter == "."]
        # A name with dots may itself be that of a field.
        head = next((each for each in reversed(heads) if each in fields), heads[0])
        inner.setdefault(head, []).append(msgspec.structs.replace(feature, column=rest))
    return polars.Struct({name: wanted_type(those, name, fields.get(name)) for name, those in inner.items()})


def type_of(values: Sequence[Any], role: Role = "feature") -> polars.DataType:
    """The type of a field: that of all its values, or of most where they are numbers, or text."""
    import polars

    known = [value for value in values if value is not None]
    kinds = {type(value) for value in known}
    if not known:
        return polars.Null()
    if kinds == {dict}:
        keys = dict.fromkeys(key for value in known for key in value)
        fields = {key: type_of([value.get(key) for value in known]) for key in keys}
        return polars.Struct(fields) if fields else polars.Null()
    if kinds == {list}:
        return polars.List(type_of([item for value in known for item in value]))
    if kinds == {bool}:
        return polars.Boolean()
    if kinds == {str}:
        return polars.String()
    numbers = [value for value in known if type(value) in (int, float)]
    if len(numbers) < MOST * len(known):
        return polars.String()
    if any(type(value) is float for value in numbers):
        return polars.Float64()
    if all(value in INT64 for value in numbers):
        return polars.Int64()
    return polars.String() if role == "name" else polars.Float64()


def column_of(name: str, values: Sequence[Any], dtype: polars.DataType, odd: list[Odd] | None = None) -> polars.Series:
    """A column of a field; of another type where a value is, nothing, and ``odd`` takes it down."""
    import polars

    plain = {polars.Int64(): int, polars.Float64(): float, polars.String(): str, polars.Boolean(): bool}.get(dtype)
    if {*map(type, values)} <= {plain, type(None)} and plain is not int:  # integers may be too large
        return polars.Series(name, values, dtype=dtype)
    fitted = []
    for row, value in enumerate(values):
        misfits: list[tuple[str, Any]] = []
        fitted.append(_fitted(value, dtype, name, misfits))
        if odd is not None:
            odd += [Odd(where, row, text_of(misfit)) for where, misfit in misfits]
    return polars.Series(name, fitted, dtype=dtype)


def texts_of(name: str, values: Sequence[Any], dtype: polars.DataType, odd: list[Odd]) -> polars.Series:
    """A column of a field; where it should be numbers or flags it is their texts, so that what is neither shows."""
    import polars

    if dtype in (polars.Struct, polars.List):
        return column_of(name, values, _promoted(dtype, values), odd)
    return polars.Series(name, [None if value is None else text_of(value) for value in values], dtype=polars.String)


def with_numbers(dtype: Any) -> Any:
    """A type with numbers where it has whole ones."""
    import polars

    if isinstance(dtype, polars.Struct):
        return polars.Struct({field.name: with_numbers(field.dtype) for field in dtype.fields})
    if isinstance(dtype, polars.List):
        return polars.List(with_numbers(dtype.inner))
    return polars.Float64() if dtype == polars.Int64 else dtype


def _promoted(dtype: Any, values: Sequence[Any]) -> Any:
    """A type with numbers in the place of whole ones and flags, where some of ``values`` are neither."""
    import polars

    if isinstance(dtype, polars.Struct):
        inside = [value for value in values if isinstance(value, dict)]
        fields = {
            field.name: _promoted(field.dtype, [value.get(field.name) for value in inside]) for field in dtype.fields
        }
        return polars.Struct(fields)
    if isinstance(dtype, polars.List):
        return polars.List(
            _promoted(dtype.inner, [item for value in values if isinstance(value, list) for item in value])
        )
    whole = dtype == polars.Int64 and all(value is None or (type(value) is int and value in INT64) for value in values)
    flags = dtype == polars.Boolean and all(value is None or type(value) is bool for value in values)
    return polars.Float64() if dtype in (polars.Int64, polars.Boolean) and not (whole or flags) else dtype


def _fitted(value: Any, dtype: Any, name: str, misfits: list[tuple[str, Any]]) -> Any:
    """A value of a type; None where it is of another, which goes to the misfits."""
    import polars

    if value is None or dtype == polars.Null:
        return None
    if isinstance(dtype, polars.Struct) and isinstance(value, dict):
        return {
            field.name: _fitted(value.get(field.name), field.dtype, f"{name}.{field.name}", misfits)
            for field in dtype.fields
        }
    if isinstance(dtype, polars.List) and isinstance(value, list):
        return [_fitted(item, dtype.inner, name, misfits) for item in value]
    if dtype == polars.String:
        return text_of(value)
    if dtype == polars.Boolean and isinstance(value, bool):
        return value
    if dtype == polars.Int64 and type(value) is int and value in INT64:
        return value
    if dtype == polars.Float64 and isinstance(value, str | int | float):
        with suppress(ValueError, OverflowError):
            number = number_in(value) if isinstance(value, str) else float(value)
            if number is None or math.isfinite(number):
                return number
    misfits.append((name, value))
    return None
