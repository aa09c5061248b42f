"""Values by period: switching, the best single policy and the log itself, and a forecast of the next period."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from seachange.analysis.comparison import SINGLE, Holdout, attempt
from seachange.analysis.timeline import TimeAxis, dates_or_seconds, time_axis
from seachange.errors import LogError, RefusedError
from seachange.evaluation.diagnostics import LEAST_EFFECTIVE, Reason
from seachange.evaluation.future_values import Forecast, forecast
from seachange.evaluation.over_time import SECONDS, Period, ValuesOverTime, along_time, evaluate_by_period
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Bools, Floats, Ints

# A figure needs at least and at most this many periods; without dates, the log is cut into the usual number.
FEWEST, MOST = 8, 60
USUAL = 20
MOSTLY = 0.8  # share of periods that must have a value; otherwise longer periods are tried


@dataclass(frozen=True, eq=False)
class Series:
    """One policy's values by period; NaN for periods with too few rounds."""

    name: str
    values: Floats  # (m,)
    low: Floats  # (m,)
    high: Floats  # (m,)


@dataclass(frozen=True, eq=False)
class ValueSeries:
    """Values over time."""

    axis: TimeAxis
    period: str  # "each day"
    edges: Floats  # (m + 1,) positions on the axis
    switching: Series
    single: Series | None
    logging: Series
    forecast: Forecast | None
    forecast_refusals: tuple[Reason, ...] = ()


def value_series(holdout: Holdout, confidence: float) -> ValueSeries:
    """Values on the rounds of ``holdout``, by hour, day or week if the log has dates, else by number of rounds.

    Raises ``RefusedError`` or ``LogError`` if the log does not support the policies.
    """
    log, axis, model = holdout.log, time_axis(holdout.log, holdout.labels.n_chains), holdout.model
    for period in _periods(log, axis):
        past = evaluate_by_period(log, model.policies, period, labels=holdout.labels, confidence=confidence)
        single = None
        if holdout.switches:
            with suppress(RefusedError, LogError):
                single = evaluate_by_period(log, model.single, period, confidence=confidence)
        if _usable(past).mean() >= MOSTLY:
            break
    next_period, forecast_refusals = attempt(log, partial(forecast, past, confidence=confidence))
    return ValueSeries(
        axis=axis,
        period=past.reason,
        edges=_edges(holdout, axis, past.rounds),
        switching=_series("switching" if holdout.switches else "the policy", past),
        single=None if single is None else _series(SINGLE, single),
        logging=_logged(log, past.rounds),
        forecast=next_period,
        forecast_refusals=forecast_refusals,
    )


def _periods(log: BanditLog, axis: TimeAxis) -> list[int | Period]:
    """Periods to try, shortest first: hours, days or weeks, then numbers of rounds."""
    found: list[int | Period] = []
    times = log.times
    if axis.kind == "date" and times is not None:
        # Periods by time need datetimes or seconds, not milliseconds.
        in_seconds = times.dtype.kind == "M" or float(times.max()) == float(dates_or_seconds(times)[1].max())
        span = float(axis.values[-1] - axis.values[0])
        periods: tuple[Period, ...] = ("hour", "day", "week")
        found += [period for period in periods if in_seconds and FEWEST <= span / SECONDS[period] <= MOST]
    return [*found, *(-(-len(log) // count) for count in (USUAL, FEWEST))]


def _edges(holdout: Holdout, axis: TimeAxis, last: Ints) -> Floats:
    """Where periods begin and end on the axis: a period ends where the next one's first round lies."""
    if holdout.labels.n_chains == 1:
        return np.asarray(axis.at(np.concatenate([[0], last + 1])))
    assert holdout.log.times is not None, "sequences without times have no values over time"
    ordered = dates_or_seconds(holdout.log.times)[1][along_time(holdout.log)]
    return np.concatenate([ordered[:1], ordered[last[:-1] + 1], axis.values[-1:]])


def _usable(past: ValuesOverTime) -> Bools:
    """(m,) which periods have enough rounds."""
    return np.isfinite(past.std_errors) & (past.effective_samples >= LEAST_EFFECTIVE)


def _series(name: str, past: ValuesOverTime) -> Series:
    return Series(name, *(np.where(_usable(past), each, np.nan) for each in (past.values, past.low, past.high)))


def _logged(log: BanditLog, last: Ints) -> Series:
    """Mean rewards of the log, without intervals: the series itself shows their noise."""
    starts = np.concatenate([[0], last[:-1] + 1])
    sums = np.add.reduceat(log.arrays.rewards[along_time(log)], starts)
    nothing = np.full(len(starts), np.nan)
    return Series("the logging policy", sums / np.diff(np.append(starts, len(log))), nothing, nothing)
