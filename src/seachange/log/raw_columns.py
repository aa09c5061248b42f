"""The columns of a raw table, one by one: nested ones flattened, each told by what kind of values it holds."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.protocols import Ints

if TYPE_CHECKING:
    import polars

Kind = Literal["number", "time", "text", "numbers", "texts", "nothing", "other"]
# Whole numbers within so wide a range are looked up in a table.
WIDEST_RANGE = 1 << 16
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class RawColumn(NamedTuple):
    """A column that is no table itself."""

    holder: str  # the column of the table that it is, or is in
    kind: Kind  # "numbers" and "texts" are lists; a time is a moment, and lengths of time are numbers
    values: polars.Series


def raw_columns(frame: polars.DataFrame) -> dict[str, RawColumn]:
    """The columns of ``frame`` by name, nested ones as ``user.age``; a flat one of that name stands before them."""
    import polars

    found: dict[str, RawColumn] = {}
    for name, dtype in frame.schema.items():
        if dtype == polars.Struct:
            for inner, column in raw_columns(frame[name].struct.unnest()).items():
                found.setdefault(f"{name}.{inner}", column._replace(holder=name))
        else:
            found[name] = RawColumn(name, kind_of(dtype), frame[name])
    return found


def kind_of(dtype: Any) -> Kind:
    """What values of a polars type are to a feature."""
    import polars

    if dtype.is_numeric() or dtype in (polars.Boolean, polars.Time, polars.Duration):
        return "number"
    if dtype in (polars.Date, polars.Datetime):
        return "time"
    if dtype in (polars.String, polars.Categorical, polars.Enum):
        return "text"
    if dtype in (polars.List, polars.Array):
        inner = kind_of(dtype.inner)
        return {"number": "numbers", "text": "texts", "nothing": "nothing"}.get(inner, "other")  # type: ignore[return-value]
    return "nothing" if dtype == polars.Null else "other"


def numbers_of(series: polars.Series) -> npt.NDArray[Any]:
    """(n,) a column of numbers, times or lengths of time (both in seconds); NaN where a value is missing."""
    import polars

    dtype, unit = series.dtype, 1.0
    if dtype in (polars.Date, polars.Datetime):
        series, unit = series.cast(polars.Datetime("us")).dt.epoch("us"), 1e6
    elif dtype == polars.Duration:
        series, unit = series.dt.total_microseconds(), 1e6
    elif dtype == polars.Time:
        series, unit = series.cast(polars.Int64), 1e9
    elif dtype == polars.Boolean:
        series = series.cast(polars.UInt8)
    if unit != 1.0 or not (series.dtype.is_float() or series.dtype.is_integer()):
        series = series.cast(polars.Float64)
    # numpy divides; polars would multiply by the inverse, which is not the same to the bit.
    return np.asarray(series.to_numpy() if unit == 1.0 else series.to_numpy() / unit)


def as_lists(series: polars.Series) -> polars.Series:
    """Arrays of one length as lists."""
    import polars

    return series.cast(polars.List(series.dtype.inner)) if isinstance(series.dtype, polars.Array) else series


def number_of(value: Any) -> float:
    """One value as ``numbers_of`` has it; a TypeError or ValueError where it is none."""
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return (aware - EPOCH) // dt.timedelta(microseconds=1) / 1e6
    if isinstance(value, dt.date):
        return (value.toordinal() - EPOCH.toordinal()) * 86400.0
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1) / 1e6
    if isinstance(value, dt.time):
        since = dt.timedelta(hours=value.hour, minutes=value.minute, seconds=value.second)
        return (since // dt.timedelta(microseconds=1) + value.microsecond) * 1000 / 1e9
    if isinstance(value, str):
        raise TypeError(f"{value!r} is text")
    return float(value)


def moment_of(value: Any) -> float:
    """One moment in seconds: an object of ``datetime``, text such as 2026-02-21T12:00, or seconds."""
    if isinstance(value, str):
        parsed = dt.datetime.fromisoformat(value)
        return number_of(parsed)
    return number_of(value)


def text_of(value: Any) -> str:
    """The text that stands for a value of a category: true as JSON has it, 3 for 3.0, no number with an exponent."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating):
        plain = repr(float(value))
        return (format(Decimal(plain), "f") if "e" in plain else plain).removesuffix(".0")
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return str(value)


def distinct_texts(series: polars.Series) -> dict[str, Any]:
    """The values of a column by their text, each once; those that are missing left out."""
    if (span := _span(series)) is not None:
        values, low, high = span
        counts = np.bincount(values.astype(np.int64, copy=False) - low, minlength=high - low + 1)
        return {str(value): value for value in (np.flatnonzero(counts) + low).tolist()}
    if series.dtype.is_float():
        series = series.fill_nan(None)
    return {text_of(value): value for value in series.unique().drop_nulls().to_list()}


def coded(series: polars.Series, code: Callable[[str], int]) -> Ints:
    """(n,) the code of each value by its text; -1 where it is missing."""
    import polars

    if series.dtype in (polars.Categorical, polars.Enum):
        series = series.cast(polars.String)
    if (span := _span(series)) is not None:
        return _looked_up(*span, code)
    if series.dtype.is_float():
        series = series.fill_nan(None)
    distinct = series.unique().drop_nulls()
    if len(distinct) == 0:
        return np.full(len(series), -1)
    codes = polars.Series([code(text_of(value)) for value in distinct.to_list()], dtype=polars.Int64)
    found = series.replace_strict(distinct, codes, default=-1, return_dtype=polars.Int64)
    return np.asarray(found.to_numpy(), dtype=np.int64)


def _span(series: polars.Series) -> tuple[npt.NDArray[Any], int, int] | None:
    """Whole numbers with the least and the largest of them, where none is missing and these are near each other."""
    if not series.dtype.is_integer() or series.null_count() or not len(series):
        return None
    values = series.to_numpy()
    low, high = int(values.min()), int(values.max())
    return (values, low, high) if high - low < WIDEST_RANGE and high < 1 << 63 else None


def _looked_up(values: npt.NDArray[Any], low: int, high: int, code: Callable[[str], int]) -> Ints:
    """The same for whole numbers from ``low`` to ``high``, by a table."""
    places = values.astype(np.int64, copy=False) - low if low else values
    table = np.full(high - low + 1, -1)
    for place in np.flatnonzero(np.bincount(places, minlength=len(table))).tolist():
        table[place] = code(str(place + low))
    return table[places]
