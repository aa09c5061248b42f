"""Values by period: switching, the best single policy and the log itself, and a forecast of the next period."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seachange.analysis.comparison import refusals_of
from seachange.analysis.holdout import Baseline, Holdout
from seachange.analysis.timeline import TimeAxis, seconds_of, time_axis
from seachange.errors import LogError, RefusedError
from seachange.evaluation.diagnostics import LEAST_EFFECTIVE, NoEstimateError, Reason
from seachange.evaluation.future_values import Forecast, forecast
from seachange.evaluation.over_time import SECONDS, Period, ValuesOverTime, along_time, evaluate_by_period
from seachange.protocols import Bools, Floats, Ints

# A figure needs at least and at most this many periods; without dates, the log is cut into the usual number.
FEWEST, MOST = 8, 60
USUAL = 20
# Share of periods that must have a value; otherwise longer periods are tried.
MOSTLY = 0.8
NO_VALUES = Reason("values by period", "The log has too few rounds for values by period.")
HINDSIGHT = Reason(
    "hindsight",
    "The states of these rounds were found using their rewards, so values by period would be those of a policy that "
    "knows the states in advance.",
)


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
    switching: Series | None
    single: Series | None
    logging: Series
    forecast: Forecast | None
    refusals: tuple[Reason, ...] = ()  # why switching has no values
    forecast_refusals: tuple[Reason, ...] = ()


def value_series(holdout: Holdout, best: Baseline | None, confidence: float) -> ValueSeries:
    """Values on the rounds of ``holdout``, by hour, day or week if the log has dates, else by number of rounds.

    Raises ``RefusedError`` or ``LogError`` if the log supports neither policy.
    """
    axis = time_axis(holdout.log, holdout.labels.n_chains)
    forecast_refusals: tuple[Reason, ...] = ()
    next_one, switching, single = None, None, None
    for period in _periods(holdout, axis):
        if not holdout.hindsight:
            switching = evaluate_by_period(
                holdout.log, holdout.model.policies, period, labels=holdout.labels, confidence=confidence
            )
        single = _baseline_values(holdout, best, period, confidence)
        known = switching if switching is not None else single
        if known is None or _known(known).mean() >= MOSTLY:
            break
    if known is None:
        raise NoEstimateError((NO_VALUES,), can_force=False)
    if switching is not None:
        try:
            next_one = forecast(switching, confidence=confidence)
        except RefusedError as error:
            forecast_refusals = refusals_of(error, holdout.log)
    return ValueSeries(
        axis=axis,
        period=known.reason,
        edges=_edges(holdout, axis, known.rounds),
        switching=None if switching is None else _series("switching" if holdout.switches else "the policy", switching),
        single=None if single is None or best is None else _series(best.name, single),
        logging=_logged(holdout, known.rounds),
        forecast=next_one,
        refusals=(HINDSIGHT,) if switching is None else (),
        forecast_refusals=forecast_refusals,
    )


def _baseline_values(
    holdout: Holdout, best: Baseline | None, period: int | Period, confidence: float
) -> ValuesOverTime | None:
    if best is None:
        return None
    try:
        return evaluate_by_period(holdout.log, best.policy, period, labels=best.labels, confidence=confidence)
    except (RefusedError, LogError):
        return None


def _periods(holdout: Holdout, axis: TimeAxis) -> list[int | Period]:
    """Periods to try, shortest first: hours, days or weeks, then numbers of rounds."""
    found: list[int | Period] = []
    times = holdout.log.times
    if axis.kind == "date" and times is not None:
        # Periods by time need datetimes or seconds, not milliseconds.
        in_seconds = times.dtype.kind == "M" or float(times.max()) == float(seconds_of(times)[1].max())
        span = float(axis.values[-1] - axis.values[0])
        periods: tuple[Period, ...] = ("hour", "day", "week")
        found += [period for period in periods if in_seconds and FEWEST <= span / SECONDS[period] <= MOST]
    return [*found, *(max(-(-len(holdout.log) // count), 1) for count in (USUAL, FEWEST))]


def _edges(holdout: Holdout, axis: TimeAxis, last: Ints) -> Floats:
    """Where periods begin and end on the axis: a period ends where the next one's first round lies."""
    if holdout.labels.n_chains == 1:
        return np.asarray(axis.at(np.concatenate([[0], last + 1])))
    assert holdout.log.times is not None, "sequences without times have no values over time"
    ordered = seconds_of(holdout.log.times)[1][along_time(holdout.log)]
    return np.concatenate([ordered[:1], ordered[last[:-1] + 1], axis.values[-1:]])


def _known(past: ValuesOverTime) -> Bools:
    """(m,) which periods have enough rounds."""
    return np.asarray(np.isfinite(past.std_errors) & (past.effective_samples >= LEAST_EFFECTIVE))


def _series(name: str, past: ValuesOverTime) -> Series:
    return Series(name, *(np.where(_known(past), each, np.nan) for each in (past.values, past.low, past.high)))


def _logged(holdout: Holdout, last: Ints) -> Series:
    """Mean rewards of the log, without intervals: the series itself shows their noise."""
    rewards = holdout.log.arrays.rewards[along_time(holdout.log)]
    starts = np.concatenate([[0], last[:-1] + 1])
    means = np.add.reduceat(rewards, starts) / np.diff(np.append(starts, len(rewards)))
    nothing = np.full(len(means), np.nan)
    return Series("the logging policy", means, nothing, nothing)
