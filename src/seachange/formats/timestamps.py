"""Timestamps in the spellings that logs use, as seconds or as UTC datetimes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from seachange.errors import LogError
from seachange.formats.value_types import SHARE, Converted
from seachange.log.raw import MISSING

if TYPE_CHECKING:
    import polars

Clock = Literal["number", "ms", "us", "ns", "day number", "text", "datetime"]
UNITS = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
# Numbers from here on are in this unit since 1970; as seconds they would be after the year 5000.
LEAST = {"ns": 1e17, "us": 1e14, "ms": 1e11}
# Other orders of day and month are never guessed.
EXAMPLES = "2026-01-31T18:30:00 (with a time zone, or in UTC), 31.01.2026 18:30 or 2026/01/31 18:30"
DAY_NUMBER = r"^(19[7-9]|20[0-9])[0-9](0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])$"  # 20260131
# Polars alone would accept more than this, such as spaces or a second 60.
ISO_8601 = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-5][0-9]([.][0-9]+)?)?([+-][0-9]{2}(:?[0-9]{2})?)?)?$"
FORMATS = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M%#z")
ANOTHER = "Name another column with columns={'time': ...}, or --columns time=... in a shell."


def clock_of(column: polars.Series, source: str) -> tuple[Clock, str | None]:
    """Decide how a column tells the time, from its first values, and return a note if the user should know."""
    import polars

    if column.dtype in (polars.Date, polars.Datetime):
        return "datetime", None
    if column.dtype in (polars.Duration, polars.Null):
        return "number", None
    if column.dtype == polars.String:
        values = column.drop_nulls().str.strip_chars()
        values = values.filter(~values.str.to_lowercase().is_in(MISSING))
        numbers = values.cast(polars.Float64, strict=False)
        if len(values) == 0 or numbers.is_not_null().mean() < SHARE["measure"]:  # type: ignore[operator]
            if len(values) and _parsed(values).is_null().all():
                raise LogError(
                    f"times must be seconds or dates such as {EXAMPLES}; column {column.name!r} of {source} has "
                    f"{values[0]!r}. {ANOTHER}"
                )
            return "text", None
        numbers = numbers.drop_nulls()
    elif column.dtype.is_numeric():
        numbers = column.cast(polars.Float64).drop_nulls()
    else:
        raise LogError(
            f"times must be numbers (seconds) or dates; {column.name!r} of {source} is {column.dtype}. {ANOTHER}"
        )
    if len(numbers) == 0:
        return "number", None
    integers = numbers.cast(polars.Int64, strict=False)
    if (numbers == numbers.floor()).all() and integers.cast(polars.String).str.contains(DAY_NUMBER).all():
        return "day number", f"times in column {column.name!r} are read as days: 20260131 is 2026-01-31."
    size = float(numbers.abs().median() or 0)  # type: ignore[arg-type]
    for unit, least in LEAST.items():
        if size >= least:
            return unit, f"times in column {column.name!r} are read as {UNITS[unit]} since 1970."  # type: ignore[return-value]
    return "number", None


def converted_times(column: polars.Series, clock: Clock) -> Converted:
    """Convert times to seconds or to UTC datetimes without a time zone."""
    import polars

    missing = column.is_null()
    if column.dtype == polars.String:
        missing = (missing | column.str.strip_chars().str.to_lowercase().is_in(MISSING)).fill_null(True)
    if clock == "datetime" and column.dtype in (polars.Date, polars.Datetime):
        values = _in_utc(column)
    elif clock in ("text", "datetime"):
        values = _parsed(column.cast(polars.String).str.strip_chars())
    else:
        values = _of_numbers(column, clock)
    return Converted(values.alias(column.name), values.is_null() & ~missing)


def _of_numbers(column: polars.Series, clock: Clock) -> polars.Series:
    import polars

    if column.dtype == polars.Duration:
        return column.dt.total_microseconds().cast(polars.Float64) / 1e6
    if column.dtype == polars.String:
        column = column.str.strip_chars()
    integers = column.cast(polars.Int64, strict=False)
    if column.dtype.is_float():
        integers = integers.set((integers.cast(column.dtype) != column).fill_null(True), None)
    if clock == "day number":
        return integers.cast(polars.String).str.to_datetime("%Y%m%d", strict=False, time_unit="us")
    numbers = column.cast(polars.Float64, strict=False)
    numbers = numbers.set((~numbers.is_finite()).fill_null(True), None)
    if clock == "number":
        return integers if (integers.is_null() == numbers.is_null()).all() else numbers
    if (integers.is_null() != numbers.is_null()).any():  # fractions of a unit
        integers = (numbers * {"ms": 1e3, "us": 1.0, "ns": 1e-3}[clock]).round().cast(polars.Int64, strict=False)
        clock = "us"
    return integers.cast(polars.Datetime(clock))  # type: ignore[arg-type]


def _parsed(texts: polars.Series) -> polars.Series:
    """Parse ISO 8601, with T or a space in the middle, with a zone or in UTC; also 31.01.2026 and 2026/01/31."""
    import polars

    days = texts.str.replace(r"^([0-9]{2})[.]([0-9]{2})[.]([0-9]{4})", "${3}-${2}-${1}")
    days = days.str.replace(r"^([0-9]{4})/([0-9]{2})/([0-9]{2})", "${1}-${2}-${3}")
    plain = days.str.replace(r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[ t]", "${1}T").str.replace(r"\s*(UTC|GMT|[zZ])$", "+00:00")
    plain = plain.set(~plain.str.contains(ISO_8601).fill_null(False), None)
    values = polars.Series([None], dtype=polars.Datetime("us")).new_from_index(0, len(texts))
    for form in FORMATS:
        left = values.is_null() & plain.is_not_null()
        if not left.any():
            break
        parsed = plain.filter(left).str.to_datetime(form, strict=False, time_unit="us")
        values = values.scatter(left.arg_true(), _in_utc(parsed))
    return values


def _in_utc(column: polars.Series) -> polars.Series:
    import polars

    if column.dtype == polars.Date:
        return column.cast(polars.Datetime("us"))
    if getattr(column.dtype, "time_zone", None) is not None:
        return column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return column
