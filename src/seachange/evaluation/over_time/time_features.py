"""Time features that recur (hour of the day, day of the week), and periods that do not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError, ParameterError
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Ints

Period = Literal["hour", "day", "week"]
Recurrence = Literal["hour", "weekday", "hour of the week"]
TimeFeature: TypeAlias = Recurrence | Callable[[npt.NDArray[Any]], npt.ArrayLike]

SECONDS = {"hour": 3600, "day": 86_400, "week": 604_800}
# The first of January 1970 was a Thursday.
FROM_MONDAY = 3 * 86_400


def moments_of(times: npt.ArrayLike) -> npt.NDArray[Any]:
    """Times as an array: seconds stay as they are; ISO 8601 text and Python dates become datetime64.

    A date with a time zone is converted to UTC; one without is used as is.
    """
    array = np.atleast_1d(np.asarray(times))
    if array.dtype.kind not in "UO":
        return array
    return np.array([_moment(time) for time in array.tolist()], dtype="datetime64[us]")


def _moment(time: Any) -> np.datetime64:
    try:
        read = datetime.fromisoformat(time) if isinstance(time, str) else time
        if isinstance(read, datetime) and read.tzinfo is not None:
            read = read.astimezone(UTC).replace(tzinfo=None)
        moment = np.datetime64(read, "us")
        if np.isnat(moment):
            raise ValueError("not a time")
        return moment
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"times must be dates such as 2026-03-28T12:00, datetime64, or seconds since 1970; got {time!r}."
        ) from error


def seconds_of(times: npt.ArrayLike) -> Ints:
    """Seconds since 1970, from datetime64 or from seconds."""
    array = np.asarray(times)
    if array.dtype.kind == "M":
        return array.astype("datetime64[s]").astype(np.int64)
    if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise ParameterError(f"times must be datetime64 or seconds since 1970; got {array.dtype}.")
    return np.asarray(np.floor(array), dtype=np.int64)


def times_of(log: BanditLog, purpose: str) -> npt.NDArray[Any]:
    """The log's times, or an error that names what needs them."""
    if log.times is None:
        raise LogError(f"{purpose} needs the times of the rounds; this log has none. Add times to the log.")
    return log.times


def period_of(log: BanditLog, period: Period) -> Ints:
    """(n,) the number of the period each round lies in."""
    if period not in SECONDS:
        raise ParameterError(f"period must be a number of rounds or one of {', '.join(SECONDS)}; got {period!r}.")
    seconds = seconds_of(times_of(log, f'period="{period}"'))
    return (seconds + (FROM_MONDAY if period == "week" else 0)) // SECONDS[period]


def features_of(times: npt.ArrayLike, feature: TimeFeature) -> npt.NDArray[Any]:
    """φ(t) for every time: a label that is equal for times expected to behave alike."""
    array = np.atleast_1d(np.asarray(times))
    if callable(feature):
        labels = np.asarray(feature(array))
        if labels.shape != array.shape:
            raise ParameterError(f"recurs must return one label per time, {array.shape}; got {labels.shape}.")
        return labels
    seconds = seconds_of(array)
    if feature == "hour":
        return seconds // 3600 % 24
    if feature == "weekday":
        return (seconds + FROM_MONDAY) // 86_400 % 7
    if feature == "hour of the week":
        return (seconds + FROM_MONDAY) // 3600 % 168
    raise ParameterError(f'recurs must be "hour", "weekday", "hour of the week" or a function; got {feature!r}.')
