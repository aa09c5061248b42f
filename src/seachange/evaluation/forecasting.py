"""The value of the next period, foretold from those of past periods (Thomas et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from seachange.errors import ParameterError, RefusedError
from seachange.evaluation.over_time import Moves, ValuesOverTime
from seachange.params import require, require_count
from seachange.protocols import Floats

# Degrees of the trend, and how much a period counts beside the one after it.
DEGREES, FADES = (0, 1), (1.0, 0.8, 0.5, 0.25)
# Past forecasts that a choice is made by, at least.
LEAST_FORECASTS = 5
# What is left of a squared error, at least, without the noise of what was missed: both are known from few periods.
LEAST_SHARE = 0.5


@dataclass(frozen=True, repr=False)
class Forecast:
    """What a policy would earn a round in a period that is still to come."""

    value: float
    std_error: float
    low: float
    high: float
    ahead: int  # periods after the last
    degree: int  # of the trend: 0 a level, 1 a line
    fade: float  # what a period counts beside the one after it
    season: int | None  # periods after which all recurs
    past_error: float  # root mean square of what such forecasts missed the estimates of past periods by
    n_periods: int
    confidence: float

    def __repr__(self) -> str:
        """The answer in a line."""
        interval = f"{self.confidence:.0%} interval {self.low:.4g} to {self.high:.4g}"
        return f"Forecast({self.value:.4g}, {interval}, {self.ahead} ahead of {self.n_periods} periods)"


@dataclass(frozen=True, eq=False)
class _Series:
    periods: Floats  # (m,)
    values: Floats  # (m,)
    variances: Floats  # (m,) of the estimates
    moves: Moves | None = None  # what each sequence moved them by, of which these m are some


def forecast(past: ValuesOverTime, ahead: int = 1, *, season: int | None = None, confidence: float = 0.95) -> Forecast:
    """Foretell the value of the period ``ahead`` of the last, from the estimates of past periods.

    V̂_i = φ(i) · β + noise is fitted by least squares in which older periods fade, with φ a level or a line and, where
    there is a ``season``, its first two waves: sin and cos of 2π k i / season. Degree and fading are those whose
    forecasts of past periods, each from the ones before it, missed least.

    The interval is V̂ ± t s for the value to come: s² is the mean square of what past forecasts missed, each chosen by
    the ones before it, without the noise of the estimates they missed, but no less than half of it nor than the
    variance of the fit; t has as many degrees of freedom as there were past forecasts. Sequences that live through
    several periods move all of their estimates alike, which no past forecast missed: that part of the variance of the
    fit is added.
    """
    if not isinstance(past, ValuesOverTime):
        raise ParameterError(
            f"a forecast needs the values of past periods, which sc.evaluate_by_period gives; got a "
            f"{type(past).__name__}."
        )
    require_count("ahead", ahead)
    require(season is None or season >= 2, f"season must be at least 2 periods; got {season}.")
    require(0 < confidence < 1, f"confidence must be between 0 and 1; got {confidence}.")
    require(past.periods is not None, "a forecast needs values of periods: evaluate_by_period gives them.")
    series = _known(past)
    tried = [(degree, fade) for degree in DEGREES for fade in FADES]
    # All are compared on the same periods: those before which the richest can be fitted, with one to spare.
    first = _features(series.periods, max(DEGREES), season).shape[1] + 1
    if len(series.values) < first + ahead - 1 + LEAST_FORECASTS:
        raise RefusedError(
            f"no forecast: it needs {first + ahead - 1 + LEAST_FORECASTS} past periods with a value, and there are "
            f"{len(series.values)}{_unknown(past)}. A longer log, shorter periods{', or no season' if season else ''} "
            "would cure it."
        )
    missed = np.stack([_missed(series, *each, season, ahead, first) for each in tried])
    degree, fade = tried[int(np.argmin(np.square(missed).sum(axis=1)))]
    errors, later = _missed_by_the_chosen(missed), series.variances[first + ahead - 1 :]
    target = series.periods[-1] + ahead
    pull = _pull(series.periods, degree, fade, season, float(target))
    value, variance, shared = float(pull @ series.values), float(pull**2 @ series.variances), _shared(series, pull)
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
    """The periods of which something is known."""
    assert past.periods is not None, "asked before"
    known = np.isfinite(past.std_errors)
    moves = past.moves
    if moves is not None:
        kept, place = known[moves.values], np.cumsum(known) - 1
        moves = Moves(place[moves.values[kept]], moves.sequences[kept], moves.moves[kept])
    return _Series(past.periods[known].astype(float), past.values[known], np.square(past.std_errors[known]), moves)


def _unknown(past: ValuesOverTime) -> str:
    """The periods of which nothing is known, if any, in words."""
    count = int(np.isinf(past.std_errors).sum())
    what = "rounds" if past.moves is None else "sequences"
    return f" ({count} more have too few {what} for one: there, longer periods would)" if count else ""


def _features(periods: Floats, degree: int, season: int | None) -> Floats:
    """φ(i): powers of i, and where there is a season its waves."""
    columns = [periods**power for power in range(degree + 1)]
    for k in (1, 2):
        if season is not None and 2 * k <= season:
            angles = 2 * np.pi * k * periods / season
            columns += [np.cos(angles)] if 2 * k == season else [np.cos(angles), np.sin(angles)]
    return np.stack(columns, axis=1)


def _pull(periods: Floats, degree: int, fade: float, season: int | None, target: float) -> Floats:
    """(m,) how much each period says of the target: φ(target) · β̂ = pull · V̂."""
    # Counted from the target, so that powers stay small and the level is the value foretold.
    features = _features(periods - target, degree, season)
    weights = fade ** (periods[-1] - periods)
    row = _features(np.zeros(1), degree, season)[0]
    # Fading may leave fewer periods than coefficients: a whiff of ridge keeps them at what the shortest fit says.
    gram = (features * weights[:, None]).T @ features
    gram[np.diag_indices_from(gram)] *= 1 + 1e-9
    return np.asarray(np.linalg.solve(gram, row) @ (features * weights[:, None]).T)


def _shared(series: _Series, pull: Floats) -> float:
    """Σ_g (Σ_i pull_i m_gi)² - Σ_gi (pull_i m_gi)²: of sequences g that move several periods i."""
    if series.moves is None:
        return 0.0
    moved = pull[series.moves.values] * series.moves.moves
    together = np.bincount(series.moves.sequences, moved)
    return max(float(together @ together - moved @ moved), 0.0)


def _missed(series: _Series, degree: int, fade: float, season: int | None, ahead: int, first: int) -> Floats:
    """What forecasts of past periods missed them by, each made ``ahead`` of it."""
    errors = []
    for i in range(first + ahead - 1, len(series.values)):
        known = i - ahead + 1
        pull = _pull(series.periods[:known], degree, fade, season, float(series.periods[i]))
        errors.append(series.values[i] - pull @ series.values[:known])
    return np.array(errors)


def _missed_by_the_chosen(missed: Floats) -> Floats:
    """(m,) what would have been missed by always taking the kind of forecast, of (kinds, m), that missed least so far.

    The kind that is chosen in the end looks better in hindsight than it is.
    """
    before = np.cumsum(np.square(missed), axis=1) - np.square(missed)
    return np.asarray(missed[np.argmin(before, axis=0), np.arange(missed.shape[1])])
