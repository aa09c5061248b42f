"""Values in the future: forecasts from past periods, and values at times like those in the log."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from seachange.errors import Fix, ParameterError
from seachange.evaluation.diagnostics import (
    LEAST_EFFECTIVE,
    SURPRISING,
    NoEstimateError,
    Reason,
    diagnostics_of,
    require_sound,
)
from seachange.evaluation.formulas import Parts
from seachange.evaluation.over_time import TimeFeature, ValuesOverTime, features_of, moments_of, seconds_of, times_of
from seachange.evaluation.terms import (
    FOLDS,
    PolicyLike,
    Support,
    SupportSums,
    distribution_of,
    effective_samples,
    slices_of,
    terms_of,
)
from seachange.evaluation.value_estimate import (
    FEWEST,
    ValueEstimate,
    influences,
    normal_interval,
    require_confidence,
    require_evaluable,
    standard_error,
)
from seachange.log.bandit_log import BanditLog
from seachange.log.clusters import Clusters
from seachange.params import require, require_count
from seachange.protocols import Bools, Floats, Ints
from seachange.states.labels import StateLabels

# Degrees of the trend, and the weight of a period relative to the next one.
DEGREES, FADES = (0, 1), (1.0, 0.8, 0.5, 0.25)
LEAST_FORECASTS = 5  # minimum number of past forecasts to choose by
# At least this share of the squared error remains after the estimates' noise is removed: both come from few periods.
LEAST_SHARE = 0.5
SHRINKAGE = 20.0  # pseudo-rounds that shrink an action's reward at a time toward its reward at any time
FEW_TIMES = 8  # with fewer similar times, the variation between them is unknown
ROUNDING = 1e-9  # relative differences of means below this are rounding


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
    past_error: float  # root mean squared error of this kind of forecast of past periods' estimates
    n_periods: int
    confidence: float

    def __repr__(self) -> str:
        interval = f"{self.confidence:.0%} interval {self.low:.4g} to {self.high:.4g}"
        return f"Forecast({self.value:.4g}, {interval}, {self.ahead} ahead of {self.n_periods} periods)"


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
    if not isinstance(past, ValuesOverTime) or past.periods is None:
        given = "values over time" if isinstance(past, ValuesOverTime) else f"a {type(past).__name__}"
        raise ParameterError(
            f"a forecast needs the values of past periods; got {given}. Get them from sc.evaluate_by_period."
        )
    require_count("ahead", ahead)
    require(season is None or season >= 2, f"season must be at least 2 periods; got {season}.")
    require_confidence(confidence)
    known = np.isfinite(past.std_errors)
    periods, values = past.periods[known].astype(np.float64), past.values[known]
    variances = np.square(past.std_errors[known])
    tried = [(degree, fade) for degree in DEGREES for fade in FADES]
    # All are compared on the same periods: those after enough periods to fit the richest model, plus one.
    first = _features(periods, max(DEGREES), season).shape[1] + 1
    needed = first + ahead - 1 + LEAST_FORECASTS
    if len(values) < needed:
        raise NoEstimateError((_too_few(past, len(values), needed, season),), what="forecast", can_force=False)
    later = range(first + ahead - 1, len(values))

    def error(i: int, degree: int, fade: float) -> float:
        """The error of a forecast of period i, made ``ahead`` periods before."""
        before = i - ahead + 1
        weights = _fit_weights(periods[:before], degree, fade, season, periods[i])
        return float(values[i] - weights @ values[:before])

    misses = np.array([[error(i, *each) for i in later] for each in tried])
    degree, fade = tried[int(np.argmin(np.square(misses).sum(axis=1)))]
    # The errors of the kind chosen in the end would be too small: it was chosen for them. Instead, each forecast is of
    # the kind with the smallest error before it.
    before = np.cumsum(np.square(misses), axis=1) - np.square(misses)
    errors = misses[np.argmin(before, axis=0), np.arange(len(later))]
    weights = _fit_weights(periods, degree, fade, season, float(periods[-1] + ahead))
    value, shared = float(weights @ values), _shared_variance(past, known, weights)
    square, noise = float(np.mean(errors**2)), max(float(variances[later.start :].mean()) - shared, 0.0)
    variance = max(square - noise, LEAST_SHARE * square, float(weights**2 @ variances)) + shared
    spread, past_error = float(np.sqrt(variance)), float(np.sqrt(square))
    reach = float(student.ppf(0.5 + confidence / 2, len(errors))) * spread
    choice = (ahead, degree, fade, season, past_error, len(values))
    return Forecast(value, spread, value - reach, value + reach, *choice, confidence)


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


def _shared_variance(past: ValuesOverTime, known: Bools, weights: Floats) -> float:
    """Σ_g (Σ_i weight_i m_gi)² - Σ_gi (weight_i m_gi)²: variance from sequences g that influence several periods i.

    Only ``known`` periods have a weight.
    """
    if past.influences is None:
        return 0.0
    of_period, kept = np.zeros(len(known)), known[past.influences.values]
    of_period[known] = weights
    weighted = of_period[past.influences.values[kept]] * past.influences.influences[kept]
    sums = np.bincount(past.influences.sequences[kept], weighted)
    return max(float(sums @ sums - weighted @ weighted), 0.0)


@dataclass(frozen=True, kw_only=True, repr=False)
class FutureEstimate(ValueEstimate):
    """A policy's mean reward per round at a future time."""

    share: float  # of the log's rounds that are at similar times
    n_alike: int  # how many those are
    notes: tuple[str, ...] = ()


def evaluate_future(
    log: BanditLog,
    policy: PolicyLike,
    at: npt.ArrayLike,
    *,
    recurs: TimeFeature = "weekday",
    contexts: Literal["all", "alike"] = "all",
    labels: StateLabels | None = None,
    confidence: float = 0.95,
    force: bool = False,
) -> FutureEstimate:
    """Estimate what ``policy`` would earn per round at the time ``at``, which may be in the future.

    V̂ = 1/n Σ_i [1{φ(t_i) = φ(t')} / p̂(φ(t')) w_i (r_i - f̂(x_i, t_i, a_i)) + Σ_a π(a | x_i) f̂(x_i, t', a)]

    ``recurs`` is φ: "hour", "weekday", "hour of the week", or a function from times to labels (holidays, say); ``at``
    is one time or several (seconds, datetime64, "2026-03-28T12:00"), over which the value is averaged. f̂ = r̂(x, a) +
    the extra reward of action a at φ, both fitted on other blocks of time. Anything that φ does not capture, such as a
    trend, is not predicted.

    ``contexts`` says which contexts to expect: those of "all" rounds, or only of rounds at similar times ("alike") if
    contexts also depend on φ; a note says when they do. ``labels`` are for a ``PolicySet``, as in ``evaluate``:
    future states are assumed to be distributed as in the log.

    Raises ``RefusedError`` if too few rounds are at similar times, or if those rounds cannot support the policy;
    ``force`` returns an estimate anyway, with a warning.
    """
    require(contexts in ("all", "alike"), f'contexts must be "all" or "alike"; got {contexts!r}.')
    require_evaluable(log, confidence, "evaluating a policy at a future time")
    logged = times_of(log, "a value at a future time")
    moments = moments_of(at)
    cells, future, alike = _similar_times(logged, moments, recurs)
    weights, residuals, direct, support = _terms(log, policy, labels, cells, future, alike)
    weights, here = alike * weights, alike > 0
    effective, clusters, notes = effective_samples(weights), Clusters(log), []
    if past := int((seconds_of(moments) <= seconds_of(logged).max()).sum()):
        who = "The time is" if len(moments) == 1 else f"{past} of {len(moments)} times {'is' if past == 1 else 'are'}"
        notes.append(f"{who} not after the log. The value is that of all similar times, not of that time alone.")
    if effective < LEAST_EFFECTIVE and not force:
        raise NoEstimateError((_too_few_similar(effective, len(log), recurs),))
    require_sound(diagnostics_of(log.take(np.flatnonzero(here)), support, np.inf, clips=False), force)
    # Each fold has its own f̂, so contexts are compared within folds.
    folds = clusters.folds(FOLDS)
    level = (np.bincount(folds, direct) / np.maximum(np.bincount(folds), 1))[folds]
    apart = Parts(None, alike * (direct - level), alike)
    gap = max(SURPRISING * standard_error(influences(apart, clusters)), ROUNDING * float(np.abs(level).max()))
    if contexts == "all" and log.joint.kind != "none" and abs(apart.value) > gap:
        notes.append("Contexts at that time differ from those of all rounds; this value assumes those of all rounds.")
    n_times = int((np.diff(here[np.argsort(logged, kind="stable")].astype(np.int64), prepend=0) > 0).sum())
    if n_times < FEW_TIMES:
        notes.append(
            f"Only {n_times} past time{' matches' if n_times == 1 else 's match'}, too few to measure how they vary, "
            "so the interval reflects only the noise in rewards. Use a longer log."
        )
    corrections, n_alike = weights * residuals, int(here.sum())
    parts = Parts(corrections + direct) if contexts == "all" else Parts(corrections, alike * direct, alike)
    known = min(effective, float(weights.sum())) >= FEWEST
    error = standard_error(influences(parts, clusters)) if known else np.inf
    interval = normal_interval(parts.value, error, clusters, confidence)
    numbers = (parts.value, error, *interval, effective, float(weights.max()))
    return FutureEstimate(
        "opfv", *numbers, confidence=confidence, share=n_alike / len(log), n_alike=n_alike, notes=tuple(notes)
    )


def _too_few_similar(effective: float, n_rounds: int, recurs: TimeFeature) -> Reason:
    often = ("use times that recur more often",) if recurs != "hour" else ()
    fixes = ("use a longer log", *often, "use a policy closer to the logging policy")
    never = ("use a policy whose actions the log took at similar times",)
    return Reason(
        "effective sample size",
        f"The effective sample size at similar times is {effective:.1f} of {n_rounds:,} rounds; at least "
        f"{LEAST_EFFECTIVE:.0f} are needed.",
        fixes if effective > 0 else never,
        {"effective_samples": effective, "needed": LEAST_EFFECTIVE},
    )


def _similar_times(times: npt.NDArray[Any], at: npt.NDArray[Any], recurs: TimeFeature) -> tuple[Ints, Floats, Floats]:
    """(n,) the index of φ(t_i), (C,) the frequency of each φ at the future times, (n,) 1{φ(t_i) = φ(t')} / p̂(φ(t')).

    With several future times, the last is a mean.
    """
    labels, cells = np.unique(features_of(times, recurs), return_inverse=True)
    cells, requested = cells.reshape(-1), features_of(at, recurs)
    missing = requested[~np.isin(requested, labels)]
    if len(missing):
        name = getattr(recurs, "__name__", "value") if callable(recurs) else recurs
        some = ", ".join(map(str, labels[:8]))
        problem = f"The log has no rounds with the {name} {missing[0]!s}; it has {some}."
        coarser = Fix("use a coarser recurs", "use a coarser --recurs")
        reason = Reason("similar times", problem, ("use a longer log", coarser))
        raise NoEstimateError((reason,), can_force=False)
    future = np.bincount(np.searchsorted(labels, requested), minlength=len(labels)) / len(requested)
    return cells, future, (future * len(cells) / np.bincount(cells))[cells]


def _terms(
    log: BanditLog, policy: PolicyLike, labels: StateLabels | None, cells: Ints, future: Floats, alike: Floats
) -> tuple[Floats, Floats, Floats, Support]:
    """(n,) w_i, r_i - f̂(x_i, t_i, a_i), and Σ_a π(a | x_i) f̂(x_i, t', a); the support of rounds at similar times."""
    actions, folds = log.arrays.actions, Clusters(log).folds(FOLDS)
    probs_of, (terms, _) = distribution_of(log, policy, labels), terms_of(log, policy, {"model"}, labels)
    residuals, direct = terms.rewards - terms.predicted, terms.direct.copy()
    # (folds, C, K) what an action earns at φ beyond its usual reward, from other folds; shrunk toward 0.
    shape = (int(folds.max()) + 1, len(future), log.n_actions)
    places = np.ravel_multi_index((folds, cells, actions), shape)
    earned, counts = (np.bincount(places, each, np.prod(shape)).reshape(shape) for each in (residuals, None))
    extra = (earned.sum(axis=0) - earned) / (counts.sum(axis=0) - counts + SHRINKAGE)
    # f̂(x, t', a) = r̂(x, a) + the extra reward of a at the future times.
    expected = np.einsum("c,fca->fa", future, extra)
    sums, before = SupportSums(log.take(np.flatnonzero(alike))), np.concatenate([[0], np.cumsum(alike > 0)])
    for rounds in slices_of(log):
        probs = probs_of(rounds)
        direct[rounds] += np.einsum("ta,ta->t", probs, expected[folds[rounds]])
        sums.add(slice(int(before[rounds.start]), int(before[rounds.stop])), probs[alike[rounds] > 0])
    return terms.weights, residuals - extra[folds, cells, actions], direct, sums.total()
