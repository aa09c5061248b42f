"""Forecasts of the value in a future period from the values of past periods (Thomas et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from seachange.errors import ParameterError
from seachange.evaluation.diagnostics import NoEstimateError, Reason
from seachange.evaluation.over_time.moving_values import Influences, ValuesOverTime
from seachange.params import require, require_count
from seachange.protocols import Floats

# Degrees of the trend, and the weight of a period relative to the next one.
DEGREES, FADES = (0, 1), (1.0, 0.8, 0.5, 0.25)
# Minimum number of past forecasts to choose by.
LEAST_FORECASTS = 5
# At least this share of the squared error remains after the estimates' noise is removed: both come from few periods.
LEAST_SHARE = 0.5


@dataclass(frozen=True, repr=False)
class Forecast:
    """A policy's mean reward per round in a future period."""

    value: float
    std_error: float
    low: float
    high: float
    ahead: int  # periods after the last
    degree: int  # of the trend: 0 a level, 1 a line
    fade: float  # weight of a period relative to the next one
    season: int | None  # length of the season, in periods
    past_error: float  # root mean squared error of such forecasts of past periods' estimates
    n_periods: int
    confidence: float

    def __repr__(self) -> str:
        """The forecast in one line."""
        interval = f"{self.confidence:.0%} interval {self.low:.4g} to {self.high:.4g}"
        return f"Forecast({self.value:.4g}, {interval}, {self.ahead} ahead of {self.n_periods} periods)"


@dataclass(frozen=True, eq=False)
class _Series:
    periods: Floats  # (m,)
    values: Floats  # (m,)
    variances: Floats  # (m,) of the estimates
    influences: Influences | None = None  # of each sequence on these values


def forecast(past: ValuesOverTime, ahead: int = 1, *, season: int | None = None, confidence: float = 0.95) -> Forecast:
    """Forecast the value ``ahead`` periods after the last, from the estimates of past periods.

    V̂_i = φ(i) · β + noise is fitted by weighted least squares in which older periods fade. φ is a level or a line and,
    with a ``season``, its first two harmonics, sin and cos of 2π k i / season. Degree and fade are those whose
    forecasts of past periods, each from the periods before it, had the smallest error.

    The interval is V̂ ± t s for the future value. s² is the mean squared error of past forecasts, each chosen by the
    ones before it, minus the noise of the estimates they predicted, but at least half of it and at least the variance
    of the fit; t has as many degrees of freedom as there were past forecasts. Sequences that span several periods shift
    all of their estimates alike, which past forecasts cannot show; that part of the variance of the fit is added.
    """
    if not isinstance(past, ValuesOverTime):
        raise ParameterError(
            f"a forecast needs the values of past periods; got a {type(past).__name__}. Get them from "
            "sc.evaluate_by_period."
        )
    require_count("ahead", ahead)
    require(season is None or season >= 2, f"season must be at least 2 periods; got {season}.")
    require(0 < confidence < 1, f"confidence must be between 0 and 1; got {confidence}.")
    require(past.periods is not None, "a forecast needs values by period; get them from evaluate_by_period.")
    series = _known(past)
    tried = [(degree, fade) for degree in DEGREES for fade in FADES]
    # All are compared on the same periods: those after enough periods to fit the richest model, plus one.
    first = _features(series.periods, max(DEGREES), season).shape[1] + 1
    needed = first + ahead - 1 + LEAST_FORECASTS
    if len(series.values) < needed:
        raise NoEstimateError((_too_few(past, len(series.values), needed, season),), what="forecast", can_force=False)
    missed = np.stack([_forecast_errors(series, *each, season, ahead, first) for each in tried])
    degree, fade = tried[int(np.argmin(np.square(missed).sum(axis=1)))]
    errors, later = _errors_of_choices(missed), series.variances[first + ahead - 1 :]
    target = series.periods[-1] + ahead
    weights = _fit_weights(series.periods, degree, fade, season, float(target))
    value, variance = float(weights @ series.values), float(weights**2 @ series.variances)
    shared = _shared(series, weights)
    square, noise = float(np.mean(errors**2)), max(float(later.mean()) - shared, 0.0)
    spread = float(np.sqrt(max(square - noise, LEAST_SHARE * square, variance) + shared))
    reach = float(student.ppf(0.5 + confidence / 2, len(errors))) * spread
    return Forecast(
        value=value,
        std_error=spread,
        low=value - reach,
        high=value + reach,
        ahead=ahead,
        degree=degree,
        fade=fade,
        season=season,
        past_error=float(np.sqrt(square)),
        n_periods=len(series.values),
        confidence=confidence,
    )


def _known(past: ValuesOverTime) -> _Series:
    """The periods with a known value."""
    assert past.periods is not None, "checked before"
    known, influences = np.isfinite(past.std_errors), past.influences
    if influences is not None:
        kept, index = known[influences.values], np.cumsum(known) - 1
        influences = Influences(index[influences.values[kept]], influences.sequences[kept], influences.influences[kept])
    return _Series(past.periods[known].astype(float), past.values[known], np.square(past.std_errors[known]), influences)


def _too_few(past: ValuesOverTime, count: int, needed: int, season: int | None) -> Reason:
    unknown = int(np.isinf(past.std_errors).sum())
    units = "rounds" if past.influences is None else "sequences"
    more = f" ({unknown} more have too few {units}; longer periods would help those)" if unknown else ""
    return Reason(
        "past periods",
        f"A forecast needs {needed} past periods with a value, and there are {count}{more}.",
        ("use a longer log", "use shorter periods", *(("drop the season",) if season else ())),
        {"periods": count, "needed": needed},
    )


def _features(periods: Floats, degree: int, season: int | None) -> Floats:
    """φ(i): powers of i and, with a season, its harmonics."""
    columns = [periods**power for power in range(degree + 1)]
    for k in (1, 2):
        if season is not None and 2 * k <= season:
            angles = 2 * np.pi * k * periods / season
            columns += [np.cos(angles)] if 2 * k == season else [np.cos(angles), np.sin(angles)]
    return np.stack(columns, axis=1)


def _fit_weights(periods: Floats, degree: int, fade: float, season: int | None, target: float) -> Floats:
    """(m,) weight of each period in the forecast: φ(target) · β̂ = weights · V̂."""
    # Counted from the target, so that powers stay small and the level is the forecast.
    features = _features(periods - target, degree, season)
    weights = fade ** (periods[-1] - periods)
    row = _features(np.zeros(1), degree, season)[0]
    # Fading may leave fewer periods than coefficients: a tiny ridge selects the minimum-norm fit.
    gram = (features * weights[:, None]).T @ features
    gram[np.diag_indices_from(gram)] *= 1 + 1e-9
    return np.asarray(np.linalg.solve(gram, row) @ (features * weights[:, None]).T)


def _shared(series: _Series, weights: Floats) -> float:
    """Σ_g (Σ_i weight_i m_gi)² - Σ_gi (weight_i m_gi)²: variance from sequences g that influence several periods i."""
    if series.influences is None:
        return 0.0
    weighted = weights[series.influences.values] * series.influences.influences
    sums = np.bincount(series.influences.sequences, weighted)
    return max(float(sums @ sums - weighted @ weighted), 0.0)


def _forecast_errors(series: _Series, degree: int, fade: float, season: int | None, ahead: int, first: int) -> Floats:
    """Errors of forecasts of past periods, each made ``ahead`` periods before."""
    errors = []
    for i in range(first + ahead - 1, len(series.values)):
        known = i - ahead + 1
        weights = _fit_weights(series.periods[:known], degree, fade, season, float(series.periods[i]))
        errors.append(series.values[i] - weights @ series.values[:known])
    return np.array(errors)


def _errors_of_choices(missed: Floats) -> Floats:
    """(m,) errors of always using the kind of forecast, of (kinds, m), with the smallest error so far.

    The errors of the kind chosen in the end would be too small: it was chosen for them.
    """
    before = np.cumsum(np.square(missed), axis=1) - np.square(missed)
    return np.asarray(missed[np.argmin(before, axis=0), np.arange(missed.shape[1])])
