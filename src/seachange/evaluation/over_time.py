"""Values along a log: in sliding or fading windows (Jagerman et al. 2019), and by period; features of time."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter
from scipy.stats import t as student

from seachange.errors import LogError
from seachange.evaluation.diagnostics import diagnostics_of, require_sound, weight_limit
from seachange.evaluation.terms import Need, PolicyLike, terms_of
from seachange.evaluation.value_estimate import FEWEST, require_evaluable
from seachange.kernels.action_probs import clustered_products
from seachange.log.bandit_log import BanditLog
from seachange.log.clusters import Clusters
from seachange.params import Auto, Brief, require, require_count
from seachange.protocols import Floats, Ints
from seachange.states.labels import StateLabels

MovingEstimator = Literal["ips", "snips", "dr"]
Period = Literal["hour", "day", "week"]
Recurrence = Literal["hour", "weekday", "hour of the week"]
TimeFeature: TypeAlias = Recurrence | Callable[[npt.NDArray[Any]], npt.ArrayLike]

# "auto" tries this many windows, each half as long as the one before, down to the shortest.
MOST_WINDOWS, SHORTEST_WINDOW = 12, 20
WARM_UP = 0.1  # share of the log before the first prediction that is scored
SECONDS = {"hour": 3600, "day": 86_400, "week": 604_800}
# The length of a unit in seconds, and after how many units it recurs.
RECURRENCES = {"hour": (3600, 24), "weekday": (86_400, 7), "hour of the week": (3600, 168)}
FROM_MONDAY = 3 * 86_400  # the first of January 1970 was a Thursday


@dataclass(frozen=True, eq=False)
class Influences:
    """Each sequence's influence on the value of each period: its error is the root of the sum of their squares."""

    values: Ints  # (c,) the index of the period's value
    sequences: Ints  # (c,)
    influences: Floats  # (c,)


@dataclass(frozen=True, eq=False, repr=False)
class ValuesOverTime(Brief):
    """A policy's mean reward per round along the log; the value at a round looks back from it."""

    estimator: str
    rounds: Ints  # (m,) the last round of each value, in time order
    times: npt.NDArray[Any] | None  # (m,) its time
    values: Floats  # (m,)
    std_errors: Floats  # (m,)
    low: Floats  # (m,)
    high: Floats  # (m,)
    effective_samples: Floats  # (m,) (Σ u w)² / Σ (u w)²: the effective sample size
    window: int | None  # rounds in a sliding window, or
    half_life: float | None  # rounds after which the weight of a round halves
    reason: str  # how these were chosen
    confidence: float
    periods: Ints | None = None  # (m,) the number of each period, from 0, if values are by period
    influences: Influences | None = None  # by period, if the log has sequences, which may span several


@dataclass(frozen=True, eq=False)
class _Terms:
    """V̂_t = Σ_s u_ts numerator_s / Σ_s u_ts denominator_s, u_ts the weight of round s ≤ t in the window ending at t."""

    order: Ints  # (n,) the rows of the log in time order
    sequences: Ints  # (n,) which sequence a round belongs to; its own if the log has none
    numerator: Floats  # (n,)
    denominator: Floats  # (n,)
    weights: Floats  # (n,) w

    @property
    def level(self) -> float:
        """The whole log's value."""
        total = float(self.denominator.sum())
        return float(self.numerator.sum()) / total if total > 0 else 0.0


# Values, the squares that their errors come from (summed over sequences), and the effective numbers of rounds and of
# sequences: (Σ_g W_g)² / Σ_g W_g², W_g = Σ u w. Each is (m,).
_Values: TypeAlias = tuple[Floats, Floats, Floats, Floats]


def evaluate_over_time(
    log: BanditLog,
    policy: PolicyLike,
    estimator: MovingEstimator = "dr",
    *,
    window: int | Auto | None = None,
    half_life: float | Auto | None = None,
    points: int = 200,
    labels: StateLabels | None = None,
    clip: float | None = None,
    confidence: float = 0.95,
    force: bool = False,
) -> ValuesOverTime:
    """Estimate what ``policy`` would have earned per round, at ``points`` rounds along ``log``.

    V̂_t = Σ_s u_ts y_s / Σ_s u_ts with y the terms of ips or dr, or Σ_s u_ts w_s r_s / Σ_s u_ts w_s for snips.

    window     u_ts = 1 for the last ``window`` rounds: short windows follow changes, long ones vary less
    half_life  u_ts = 2^-((t - s) / half_life): old rounds fade; the same trade-off

    Pass one of them, as a number or "auto" (neither means window="auto"). "auto" picks the length that best predicts
    the next round: E (y_t+1 - V̂_t)² is the noise of y plus the squared error of V̂_t as a forecast. Among lengths within
    one standard error of the best, it picks the longest.

    Intervals are V̂ ± t s, pointwise, for the mean value within the window. If sequences overlap in time, rounds are
    sorted by time, and the rounds of a sequence within the window form a cluster. Raises ``RefusedError`` if the log
    cannot support the policy; ``force`` returns the values anyway, with a warning.
    """
    require(window is None or half_life is None, "pass window or half_life, not both.")
    require_count("points", points)
    terms = _terms(log, policy, estimator, labels, clip, confidence, force)
    fades, length, reason = half_life is not None, window if half_life is None else half_life, "given"
    if length is None or length == "auto":
        length, reason = _choose(terms, fades)
    if fades:
        require(0 < length < np.inf, f"half_life must be positive and finite; got {length}.")
    else:
        require_count("window", length)
    rounds = np.unique(np.linspace(0, len(log), min(points, len(log)) + 1).astype(np.int64)[1:] - 1)
    values = _window_values(terms, length, fades, rounds)
    window, half_life = (None, float(length)) if fades else (int(length), None)
    return _result(log, terms, estimator, rounds, values, confidence, reason, window=window, half_life=half_life)


def evaluate_by_period(
    log: BanditLog,
    policy: PolicyLike,
    period: int | Period,
    estimator: MovingEstimator = "dr",
    *,
    labels: StateLabels | None = None,
    clip: float | None = None,
    confidence: float = 0.95,
    force: bool = False,
) -> ValuesOverTime:
    """Estimate what ``policy`` would have earned per round in each period of ``log``.

    ``period`` is a number of rounds, or "hour", "day" or "week" (starting on Monday) by the log's times. The last
    period may be incomplete. Periods without rounds are left out; ``forecast`` accounts for them. If the log has
    sequences, the rounds of a sequence within a period form a cluster. ``force`` works as in ``evaluate_over_time``.
    """
    terms = _terms(log, policy, estimator, labels, clip, confidence, force)
    if isinstance(period, str):
        require(period in SECONDS, f"period must be a number of rounds or one of {', '.join(SECONDS)}; got {period!r}.")
        seconds = seconds_of(times_of(log, f'period="{period}"'))[terms.order]
        numbers = (seconds + (FROM_MONDAY if period == "week" else 0)) // SECONDS[period]
    else:
        require_count("period", period)
        numbers = np.arange(len(log)) // period
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    values, influences = _period_values(terms, starts)
    last, periods = np.append(starts[1:], len(log)) - 1, numbers[starts] - numbers[0]
    reason = f"by {period}" if isinstance(period, str) else f"in blocks of {period:,} rounds"
    kept = influences if log.sequences is not None else None
    return _result(log, terms, estimator, last, values, confidence, reason, periods=periods, influences=kept)


def along_time(log: BanditLog) -> Ints:
    """(n,) the rounds in time order: that of the log, unless sequences overlap in time."""
    if log.sequences is None:
        return np.arange(len(log))
    return np.argsort(times_of(log, "a value over time of a log with sequences"), kind="stable")


def _terms(
    log: BanditLog, policy: PolicyLike, estimator: str, labels: StateLabels | None, clip: float | None,
    confidence: float, force: bool,
) -> _Terms:  # fmt: skip
    """The terms in time order, after validating arguments and support."""
    require(estimator in ("ips", "snips", "dr"), f'estimator must be "ips", "snips" or "dr"; got {estimator!r}.')
    require_evaluable(log, confidence, "evaluating a policy over time")
    order, clusters = along_time(log), Clusters(log).places
    needs: set[Need] = {"model"} if estimator == "dr" else set()
    clip = weight_limit(log, clip)
    terms, support = terms_of(log, policy, needs, labels=labels, clip=clip)
    require_sound(diagnostics_of(log, support, clip), force)
    numerator, denominator = terms.weights * (terms.rewards - terms.predicted) + terms.direct, np.ones(len(log))
    if estimator == "snips":
        numerator, denominator = terms.weights * terms.rewards, terms.weights
    sequences = order if clusters is None else clusters[order]
    return _Terms(order, sequences, numerator[order], denominator[order], terms.weights[order])


def _result(
    log: BanditLog, terms: _Terms, estimator: str, rounds: Ints, series: _Values, confidence: float, reason: str, *,
    window: int | None = None, half_life: float | None = None, periods: Ints | None = None,
    influences: Influences | None = None,
) -> ValuesOverTime:  # fmt: skip
    """V̂ ± t s, s = √(squares m / (m - 1)) for m independent units; infinite if m is below ``FEWEST``."""
    times = None if log.times is None else log.times[terms.order][rounds]
    values, squares, effective, independent = series
    degrees = np.maximum(independent, FEWEST) - 1
    errors = np.where(independent < FEWEST, np.inf, np.sqrt(squares * (degrees + 1) / degrees))
    reach = student.ppf(0.5 + confidence / 2, degrees) * errors
    ends = (values - reach, values + reach, effective)
    return ValuesOverTime(
        estimator, rounds, times, values, errors, *ends, window, half_life, reason, confidence, periods, influences
    )


def _period_values(terms: _Terms, starts: Ints) -> tuple[_Values, Influences]:
    """The values from one start to the next, and each sequence's influence on them."""
    numerators, denominators, weights, squares = (
        np.add.reduceat(each, starts)
        for each in (terms.numerator, terms.denominator, terms.weights, np.square(terms.weights))
    )
    values, n_sequences = _ratio(numerators, denominators), int(terms.sequences.max()) + 1
    period = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(terms.numerator)))
    spread = _ratio(terms.numerator - values[period] * terms.denominator, denominators[period])
    cells, cell = np.unique(period * n_sequences + terms.sequences, return_inverse=True)
    influences = Influences(cells // n_sequences, cells % n_sequences, _totals(cell, spread))
    clustered = _totals(influences.values, np.square(_totals(cell, terms.weights)))
    spreads = _totals(influences.values, np.square(influences.influences))
    return (values, spreads, _ratio(weights**2, squares), _ratio(weights**2, clustered)), influences


def _totals(groups: Ints, terms: Floats) -> Floats:
    return np.asarray(np.bincount(groups, terms), dtype=np.float64)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    return np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=denominator > 0)


def _window_sums(series: Floats, length: float, fades: bool) -> Floats:
    """Σ_s u_ts series_s for every t."""
    if fades:
        return np.asarray(lfilter([1.0], [1.0, -(0.5 ** (1 / length))], series))
    totals, window = np.cumsum(series), int(length)
    totals[window:] -= np.cumsum(series)[:-window] if window < len(series) else 0.0
    return totals


def _window_means(terms: _Terms, length: float, fades: bool) -> Floats:
    """V̂_t for every t, from sums relative to the whole log's value, for precision."""
    level = terms.level
    sums = _window_sums(terms.numerator - level * terms.denominator, length, fades)
    return level + _ratio(sums, _window_sums(terms.denominator, length, fades))


def _window_values(terms: _Terms, length: float, fades: bool, rounds: Ints) -> _Values:
    """V̂_t at these rounds, with Σ_g (Σ u (numerator - V̂_t denominator))² / (Σ u denominator)², g the sequences."""
    level, n = terms.level, len(terms.numerator)
    centered, denominator, weights = terms.numerator - level * terms.denominator, terms.denominator, terms.weights
    fade, window = (0.5 ** (1 / length), n) if fades else (1.0, min(int(length), n))

    def products(first: Floats, second: Floats, groups: Ints = terms.sequences) -> Floats:
        return np.asarray(clustered_products(groups, int(groups.max()) + 1, first, second, fade, window))[rounds]

    shift = _window_means(terms, length, fades)[rounds] - level
    squares = products(centered, centered) - 2 * shift * products(centered, denominator)
    squares += shift**2 * products(denominator, denominator)
    weight_sums, totals = (_window_sums(each, length, fades)[rounds] for each in (weights, denominator))
    effective = _ratio(weight_sums**2, products(weights, weights, np.arange(n)))
    independent = _ratio(weight_sums**2, products(weights, weights))
    return level + shift, _ratio(np.maximum(squares, 0.0), totals**2), effective, independent


def _choose(terms: _Terms, fades: bool) -> tuple[int, str]:
    """The length whose values best predict the next round, or the longest that is about as good."""
    n = len(terms.numerator)
    lengths = [n >> i for i in range(MOST_WINDOWS) if n >> i >= SHORTEST_WINDOW] or [n]
    start, name = max(int(WARM_UP * n), 1), "half-life" if fades else "window"
    if n - start < 2:
        return lengths[0], f"a {name} of all rounds: too few to compare"

    def loss(length: int) -> Floats:
        values = _window_means(terms, length, fades)[start - 1 : -1]
        return np.square(terms.numerator[start:] - values * terms.denominator[start:])

    def about_as_good(excess: Floats) -> bool:
        """Whether the mean is within one standard error of 0; sequences are clusters."""
        sums = _totals(terms.sequences[start:], excess - excess.mean())
        return bool(excess.mean() <= np.sqrt(sums @ sums) / len(excess))

    losses = [loss(length) for length in lengths]
    best = int(np.argmin([each.mean() for each in losses]))
    longest = next(i for i, each in enumerate(losses) if i == best or about_as_good(each - losses[best]))
    gain = "as well as any other"
    if longest > 0:
        gain = f"{1 - losses[longest].mean() / losses[0].mean():.2%} better than the whole log"
    return lengths[longest], f"a {name} of {lengths[longest]:,} rounds predicts the next round {gain}"


def moments_of(times: npt.ArrayLike) -> npt.NDArray[Any]:
    """Times as an array: seconds stay as they are; ISO 8601 text and Python dates become datetime64.

    A date with a time zone is converted to UTC; one without is used as is.
    """

    def moment(time: Any) -> np.datetime64:
        try:
            read = datetime.fromisoformat(time) if isinstance(time, str) else time
            if isinstance(read, datetime) and read.tzinfo is not None:
                read = read.astimezone(UTC).replace(tzinfo=None)
            found = np.datetime64(read, "us")
        except (TypeError, ValueError):
            found = np.datetime64("NaT", "us")
        rule = "times must be dates such as 2026-03-28T12:00, datetime64, or seconds since 1970"
        require(not np.isnat(found), f"{rule}; got {time!r}.")
        return found

    array = np.atleast_1d(np.asarray(times))
    return np.array([moment(time) for time in array.tolist()]) if array.dtype.kind in "UO" else array


def seconds_of(times: npt.ArrayLike) -> Ints:
    """Seconds since 1970, from datetime64 or from seconds."""
    array = np.asarray(times)
    if array.dtype.kind == "M":
        return array.astype("datetime64[s]").astype(np.int64)
    valid = array.dtype.kind in "iuf" and bool(np.isfinite(array).all())
    require(valid, f"times must be datetime64 or seconds since 1970; got {array.dtype}.")
    return np.asarray(np.floor(array), dtype=np.int64)


def times_of(log: BanditLog, purpose: str) -> npt.NDArray[Any]:
    """The log's times, or an error that names what needs them."""
    if log.times is None:
        raise LogError(f"{purpose} needs the times of the rounds; this log has none. Add times to the log.")
    return log.times


def features_of(times: npt.ArrayLike, feature: TimeFeature) -> npt.NDArray[Any]:
    """φ(t) for every time: a label that is equal for times expected to behave alike."""
    array = np.atleast_1d(np.asarray(times))
    if callable(feature):
        labels = np.asarray(feature(array))
        rule = f"recurs must return one label per time, {array.shape}; got {labels.shape}."
        require(labels.shape == array.shape, rule)
        return labels
    require(feature in RECURRENCES, f"recurs must be a function or one of {', '.join(RECURRENCES)}; got {feature!r}.")
    unit, count = RECURRENCES[feature]
    return (seconds_of(array) + FROM_MONDAY) // unit % count
