"""The types of JSON fields, decided by the head of a file, and values made to fit them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seachange.log.readers.kinds import MOST, Role

if TYPE_CHECKING:
    import polars

INT64 = range(-(2**63), 2**63)


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


def column_of(name: str, values: Sequence[Any], dtype: polars.DataType) -> polars.Series:
    """A column of a field; of another type where a value is, nothing."""
    import polars

    plain = {polars.Int64(): int, polars.Float64(): float, polars.String(): str, polars.Boolean(): bool}.get(dtype)
    if {*map(type, values)} <= {plain, type(None)} and plain is not int:  # integers may be too large
        return polars.Series(name, values, dtype=dtype)
    return polars.Series(name, [fitted(value, dtype) for value in values], dtype=dtype)


def texts_of(name: str, values: Sequence[Any], dtype: polars.DataType) -> polars.Series:
    """A column of a field; where it should be numbers or flags it is their texts, so that what is neither shows."""
    import polars

    if dtype in (polars.Struct, polars.List):
        return column_of(name, values, dtype)
    return polars.Series(name, [text_of(value) for value in values], dtype=polars.String)


def fitted(value: Any, dtype: polars.DataType) -> Any:
    """A value of a type; None where it is of another."""
    import polars

    if value is None or dtype == polars.Null:
        return None
    if isinstance(dtype, polars.Struct):
        if not isinstance(value, dict):
            return None
        return {field.name: fitted(value.get(field.name), field.dtype) for field in dtype.fields}  # type: ignore[arg-type]
    if isinstance(dtype, polars.List):
        return [fitted(item, dtype.inner) for item in value] if isinstance(value, list) else None  # type: ignore[arg-type]
    if dtype == polars.String:
        return text_of(value)
    if dtype == polars.Boolean:
        return value if isinstance(value, bool) else None
    if type(value) not in (int, float):
        return None
    if dtype == polars.Int64:
        return value if type(value) is int and value in INT64 else None
    try:
        return float(value)
    except OverflowError:
        return None


def text_of(value: Any) -> str | None:
    """The text that stands for a value; whole numbers without a decimal point."""
    if value is None or isinstance(value, str):
        return value
    if type(value) is float and math.isfinite(value):
        return str(int(value)) if value == math.floor(value) and abs(value) < 2**53 else repr(value)
    return json.dumps(value, ensure_ascii=False)
