"""Values by period, for figures: switching, the best single policy and the log itself; and what comes next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seachange.errors import LogError, RefusedError
from seachange.evaluation.diagnostics import LEAST_EFFECTIVE
from seachange.evaluation.forecasting import Forecast, forecast
from seachange.evaluation.over_time import ValuesOverTime, along_time, evaluate_by_period
from seachange.evaluation.time_features import SECONDS, Period
from seachange.protocols import Bools, Floats, Ints
from seachange.report.ground import Ground, SinglePolicy
from seachange.report.timeline import TimeAxis, seconds_of, time_axis

# Fewer periods show no course, more are no figure.
FEWEST, MOST = 8, 60
USUAL = 20
# Share of periods that must have a value; else they are made longer.
MOSTLY = 0.8


@dataclass(frozen=True, eq=False)
class Series:
    """The values of one policy by period; NaN where too few rounds speak of it."""

    name: str
    values: Floats  # (m,)
    low: Floats  # (m,)
    high: Floats  # (m,)


@dataclass(frozen=True, eq=False)
class Course:
    """Values along time."""

    axis: TimeAxis
    period: str  # "each day"
    edges: Floats  # (m + 1,) positions on the axis
    switching: Series | None
    single: Series | None
    logging: Series
    forecast: Forecast | None
    refusal: str | None  # why there is no value of switching
    forecast_refusal: str | None


def course_of(ground: Ground, best: SinglePolicy | None, confidence: float) -> Course:
    """The course of values on the rounds of ``ground``, in hours, days or weeks where there are dates, else in rounds.

    Raises ``RefusedError`` or ``LogError`` where the log can speak of neither policy.
    """
    axis = time_axis(ground.log, ground.labels.n_chains)
    refusal, forecast_refusal, next_one, switching, single = None, None, None, None, None
    for period in _periods(ground, axis):
        if not ground.told_states:
            switching = evaluate_by_period(
                ground.log, ground.model.policies, period, labels=ground.labels, confidence=confidence
            )
        single = _by_period(ground, best, period, confidence)
        known = switching if switching is not None else single
        if known is None or _known(known).mean() >= MOSTLY:
            break
    if known is None:
        raise RefusedError("no value: the log can speak of none of these policies by period.")
    if switching is None:
        refusal = (
            "the states of these rounds were found with the help of their rewards: values by period would be those of "
            "a policy that is told the states, which no deployment is"
        )
    else:
        try:
            next_one = forecast(switching, confidence=confidence)
        except RefusedError as error:
            forecast_refusal = str(error)
    return Course(
        axis=axis,
        period=known.reason,
        edges=_edges(ground, axis, known.rounds),
        switching=None if switching is None else _series("switching" if ground.switches else "the policy", switching),
        single=None if single is None or best is None else _series(best.name, single),
        logging=_logged(ground, known.rounds),
        forecast=next_one,
        refusal=refusal,
        forecast_refusal=forecast_refusal,
    )


def _by_period(
    ground: Ground, best: SinglePolicy | None, period: int | Period, confidence: float
) -> ValuesOverTime | None:
    if best is None:
        return None
    try:
        return evaluate_by_period(ground.log, best.policy, period, labels=best.labels, confidence=confidence)
    except (RefusedError, LogError):
        return None


def _periods(ground: Ground, axis: TimeAxis) -> list[int | Period]:
    """Periods that would make a figure, shortest first: hours, days or weeks; else as many rounds as make a few."""
    found: list[int | Period] = []
    if axis.kind == "date" and ground.log.times is not None and _in_seconds(ground):
        span = float(axis.values[-1] - axis.values[0])
        periods: tuple[Period, ...] = ("hour", "day", "week")
        found += [period for period in periods if FEWEST <= span / SECONDS[period] <= MOST]
    return [*found, *(max(-(-len(ground.log) // count), 1) for count in (USUAL, FEWEST))]


def _in_seconds(ground: Ground) -> bool:
    """Whether periods by time know the unit of these dates: datetimes, or numbers of seconds."""
    times = ground.log.times
    assert times is not None, "asked of logs with times"
    return times.dtype.kind == "M" or float(times.max()) == float(seconds_of(times)[1].max())


def _edges(ground: Ground, axis: TimeAxis, last: Ints) -> Floats:
    """Where periods begin and end on the axis: a period ends where the next one's first round lies."""
    if ground.labels.n_chains == 1:
        return np.asarray(axis.at(np.concatenate([[0], last + 1])))
    assert ground.log.times is not None, "sequences without times have no values along time"
    ordered = seconds_of(ground.log.times)[1][along_time(ground.log)]
    return np.concatenate([ordered[:1], ordered[last[:-1] + 1], axis.values[-1:]])


def _known(past: ValuesOverTime) -> Bools:
    """(m,) of which periods enough rounds speak."""
    return np.asarray(np.isfinite(past.std_errors) & (past.effective_samples >= LEAST_EFFECTIVE))


def _series(name: str, past: ValuesOverTime) -> Series:
    return Series(name, *(np.where(_known(past), each, np.nan) for each in (past.values, past.low, past.high)))


def _logged(ground: Ground, last: Ints) -> Series:
    """Mean rewards of the log; their noise is seen in the series itself."""
    rewards = ground.log.arrays.rewards[along_time(ground.log)]
    starts = np.concatenate([[0], last[:-1] + 1])
    means = np.add.reduceat(rewards, starts) / np.diff(np.append(starts, len(rewards)))
    nothing = np.full(len(means), np.nan)
    return Series("the logging policy", means, nothing, nothing)
