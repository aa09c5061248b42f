"""Values that move: what a policy would have earned around each time, by windows that forget (Jagerman et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter
from scipy.stats import t as student

from seachange.errors import LogError
from seachange.evaluation.diagnostics import diagnostics_of, require_sound
from seachange.evaluation.support import Judged, distribution_of, membership_of
from seachange.evaluation.terms import Need, terms_of
from seachange.evaluation.time_features import Period, period_of
from seachange.evaluation.value_estimate import FEWEST
from seachange.kernels.together import products_together
from seachange.log.bandit_log import BanditLog, require_propensities, require_rewards
from seachange.log.clusters import Clusters
from seachange.params import Auto, require, require_count
from seachange.protocols import Floats, Ints
from seachange.states.labels import StateLabels

MovingEstimator = Literal["ips", "snips", "dr"]
# Windows that "auto" tries, in shares of the log: each half of the one before, and no shorter than the least.
TRIED, LEAST_WINDOW = 12, 20
# Share of the log that passes before predictions count.
WARM_UP = 0.1


@dataclass(frozen=True, eq=False)
class Moves:
    """What each sequence moved the value of each period by: the square root of their squares' sum is its error."""

    values: Ints  # (c,) the place of the value among those of all periods
    sequences: Ints  # (c,)
    moves: Floats  # (c,)


@dataclass(frozen=True, eq=False)
class ValuesOverTime:
    """What a policy would have earned a round, along the log: the value at a round looks back from it."""

    estimator: str
    rounds: Ints  # (m,) the last round that each value knows, counted along time
    times: npt.NDArray[Any] | None  # (m,) its time
    values: Floats  # (m,)
    std_errors: Floats  # (m,)
    low: Floats  # (m,)
    high: Floats  # (m,)
    effective_samples: Floats  # (m,) (Σ u w)² / Σ (u w)²: rounds that speak for the policy there
    window: int | None  # rounds of a sliding window, or
    half_life: float | None  # rounds after which a round counts half
    reason: str  # why these
    confidence: float
    periods: Ints | None = None  # (m,) the number of each period, from 0 on, where values are of periods
    moves: Moves | None = None  # of periods, where the log has sequences, which may live on from one to the next


@dataclass(frozen=True, eq=False)
class Moving:
    """V̂_t = Σ_s u_ts above_s / Σ_s u_ts below_s, u the share of round s ≤ t in the window that ends at t."""

    order: Ints  # (n,) the rows of the log along time
    places: Ints  # (n,) which sequence a round is of; its own where the log has none
    above: Floats  # (n,)
    below: Floats  # (n,)
    weights: Floats  # (n,) w

    @property
    def n_places(self) -> int:
        """How many sequences there are."""
        return int(self.places.max()) + 1


@dataclass(frozen=True, eq=False)
class _Found:
    """Values with what their errors are made of."""

    values: Floats  # (m,)
    squares: Floats  # (m,) Σ over sequences of what each moved the value by, squared
    effective: Floats  # (m,) rounds that speak for the policy
    independent: Floats  # (m,) the same of sequences, (Σ_g W_g)² / Σ_g W_g², W_g = Σ u w


def evaluate_over_time(
    log: BanditLog,
    policy: Judged,
    estimator: MovingEstimator = "dr",
    *,
    window: int | Auto | None = None,
    half_life: float | Auto | None = None,
    points: int = 200,
    labels: StateLabels | None = None,
    clip: float = np.inf,
    confidence: float = 0.95,
    force: bool = False,
) -> ValuesOverTime:
    """Estimate what ``policy`` would have earned a round, at ``points`` rounds along ``log``.

    V̂_t = Σ_s u_ts y_s / Σ_s u_ts with y the terms of ips or dr, or Σ_s u_ts w_s r_s / Σ_s u_ts w_s for snips.

    window     u_ts = 1 for the last ``window`` rounds: a short one follows changes, a long one varies less
    half_life  u_ts = 2^-((t - s) / half_life): old rounds fade; the same trade

    Give one of them, as a number or "auto" (neither: window="auto"), which takes the one that foretells the next round
    best: E (y_t+1 - V̂_t)² is the noise of y plus the squared error of V̂_t for the value to come. Of those that do about
    as well (within a standard error of their difference) the longest is taken.

    Intervals are V̂ ± t s, pointwise, of the mean value within the window. Where sequences lie side by side, rounds are
    taken in the order of their times, and the rounds of a sequence within the window count together. Raises
    ``RefusedError`` where the log cannot support the policy; ``force`` answers all the same, with a warning.
    """
    require(window is None or half_life is None, "give window or half_life, not both.")
    require_count("points", points)
    moving = _moving(log, policy, estimator, labels, clip, confidence, force)
    fades, length, reason = half_life is not None, window if half_life is None else half_life, "given"
    if length is None or length == "auto":
        length, reason = _choose(moving, fades)
    if fades:
        require(0 < length < np.inf, f"half_life must be positive and finite; got {length}.")
    else:
        require_count("window", length)
    rounds = np.unique(np.linspace(0, len(log), min(points, len(log)) + 1).astype(np.int64)[1:] - 1)
    found = _within(moving, length, fades, rounds)
    window, half_life = (None, float(length)) if fades else (int(length), None)
    return _answer(log, moving, estimator, rounds, found, confidence, reason, window=window, half_life=half_life)


def evaluate_by_period(
    log: BanditLog,
    policy: Judged,
    period: int | Period,
    estimator: MovingEstimator = "dr",
    *,
    labels: StateLabels | None = None,
    clip: float = np.inf,
    confidence: float = 0.95,
    force: bool = False,
) -> ValuesOverTime:
    """Estimate what ``policy`` would have earned a round in each period of ``log``, one after the other.

    ``period`` is a number of rounds, or "hour", "day" or "week" (from Monday on) by the log's times. The last period
    may not be over. Periods without rounds have no value; ``forecast`` knows of them. Where the log has sequences, the
    rounds of a sequence within a period count together. ``force`` is that of ``evaluate_over_time``.
    """
    moving = _moving(log, policy, estimator, labels, clip, confidence, force)
    if isinstance(period, str):
        numbers = period_of(log, period)[moving.order]
    else:
        require_count("period", period)
        numbers = np.arange(len(log)) // period
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    found, moves = _between(moving, starts)
    last, told = np.append(starts[1:], len(log)) - 1, f"{period}" if isinstance(period, str) else f"{period:,} rounds"
    periods, kept = numbers[starts] - numbers[0], moves if log.sequences is not None else None
    return _answer(log, moving, estimator, last, found, confidence, f"each {told}", periods=periods, moves=kept)


def along_time(log: BanditLog) -> Ints:
    """(n,) the rounds in the order of time: that of the log, unless sequences lie side by side."""
    if log.sequences is None:
        return np.arange(len(log))
    if log.times is None:
        raise LogError(
            "values over time need times where the log has sequences: which round of which sequence came first? "
            "Give times, or leave sequences out if the log is in time order."
        )
    return np.argsort(log.times, kind="stable")


def _moving(
    log: BanditLog, policy: Judged, estimator: str, labels: StateLabels | None, clip: float, confidence: float,
    force: bool,
) -> Moving:  # fmt: skip
    """The terms along time, of what may be asked for and the log can support."""
    require(estimator in ("ips", "snips", "dr"), f'estimator must be "ips", "snips" or "dr"; got {estimator!r}.')
    require(0 < confidence < 1, f"confidence must be between 0 and 1; got {confidence}.")
    require(clip > 0, f"clip must be positive; got {clip}.")
    require_rewards(log, "evaluating a policy over time")
    require_propensities(log, "evaluating a policy over time")
    order, places = along_time(log), Clusters(log).places
    probs_of, membership = distribution_of(log, policy, labels, False), membership_of(log, labels, False)
    needs: frozenset[Need] = frozenset({"model"}) if estimator == "dr" else frozenset()
    terms, support = terms_of(log, probs_of, membership, clip, needs)
    require_sound(diagnostics_of(log, support, clip), force)
    above, below = terms.weights * (terms.rewards - terms.modelled) + terms.direct, np.ones(len(log))
    if estimator == "snips":
        above, below = terms.weights * terms.rewards, terms.weights
    own = order if places is None else places[order]
    return Moving(order, own, above[order], below[order], terms.weights[order])


def _answer(
    log: BanditLog, moving: Moving, estimator: str, rounds: Ints, found: _Found, confidence: float, reason: str, *,
    window: int | None = None, half_life: float | None = None, periods: Ints | None = None, moves: Moves | None = None,
) -> ValuesOverTime:  # fmt: skip
    errors, reach = intervals_of(found.squares, found.independent, confidence)
    return ValuesOverTime(
        estimator=estimator,
        rounds=rounds,
        times=None if log.times is None else log.times[moving.order][rounds],
        values=found.values,
        std_errors=errors,
        low=found.values - reach,
        high=found.values + reach,
        effective_samples=found.effective,
        window=window,
        half_life=half_life,
        reason=reason,
        confidence=confidence,
        periods=periods,
        moves=moves,
    )


def intervals_of(squares: Floats, independent: Floats, confidence: float) -> tuple[Floats, Floats]:
    """s = √(squares m / (m - 1)), about a mean of m that are independent, and t s, t with m - 1 degrees of freedom.

    Both are infinite where nearly none speaks.
    """
    degrees = np.maximum(independent, FEWEST) - 1
    errors = np.where(independent < FEWEST, np.inf, np.sqrt(squares * (degrees + 1) / degrees))
    return errors, student.ppf(0.5 + confidence / 2, degrees) * errors


def _between(moving: Moving, starts: Ints) -> tuple[_Found, Moves]:
    """The values from one start to the next, and what each sequence moved them by."""
    above, below, heard, squares = (
        np.add.reduceat(each, starts)
        for each in (moving.above, moving.below, moving.weights, np.square(moving.weights))
    )
    values, period = _ratio(above, below), np.repeat(np.arange(len(starts)), np.diff(starts, append=len(moving.above)))
    spread = _ratio(moving.above - values[period] * moving.below, below[period])
    cells, cell = np.unique(period * moving.n_places + moving.places, return_inverse=True)
    moves = Moves(cells // moving.n_places, cells % moving.n_places, _totals(cell, spread))
    together = _totals(moves.values, np.square(_totals(cell, moving.weights)))
    return (
        _Found(
            values=values,
            squares=_totals(moves.values, np.square(moves.moves)),
            effective=_ratio(heard**2, squares),
            independent=_ratio(heard**2, together),
        ),
        moves,
    )


def _totals(places: Ints, terms: Floats) -> Floats:
    """The sum of terms at each place."""
    return np.asarray(np.bincount(places, terms), dtype=np.float64)


def _ratio(above: Floats, below: Floats) -> Floats:
    """Above / below; 0 where nothing is below."""
    return np.divide(above, below, out=np.zeros(len(above)), where=below > 0)


def _sums(series: Floats, length: float, fades: bool) -> Floats:
    """Σ_s u_ts series_s for every t."""
    if fades:
        return np.asarray(lfilter([1.0], [1.0, -(0.5 ** (1 / length))], series))
    totals, window = np.cumsum(series), int(length)
    totals[window:] -= np.cumsum(series)[:-window] if window < len(series) else 0.0
    return totals


def _values(moving: Moving, length: float, fades: bool) -> Floats:
    """V̂_t for every t, from sums about the whole log's value, for precision."""
    level = _level(moving)
    above = _sums(moving.above - level * moving.below, length, fades)
    return level + _ratio(above, _sums(moving.below, length, fades))


def _level(moving: Moving) -> float:
    """The whole log's value."""
    total = float(moving.below.sum())
    return float(moving.above.sum()) / total if total > 0 else 0.0


def _within(moving: Moving, length: float, fades: bool, rounds: Ints) -> _Found:
    """V̂_t at these rounds, with Σ_g (Σ u (above - V̂_t below))² / (Σ u below)², g the sequences within the window."""
    level, n = _level(moving), len(moving.above)
    centred, below, weights = moving.above - level * moving.below, moving.below, moving.weights
    fade, window = (0.5 ** (1 / length), n) if fades else (1.0, min(int(length), n))

    def products(first: Floats, second: Floats, places: Ints = moving.places) -> Floats:
        return np.asarray(products_together(places, int(places.max()) + 1, first, second, fade, window))[rounds]

    shift = _values(moving, length, fades)[rounds] - level
    squares = products(centred, centred) - 2 * shift * products(centred, below) + shift**2 * products(below, below)
    heard, totals = (_sums(each, length, fades)[rounds] for each in (weights, below))
    return _Found(
        values=level + shift,
        squares=_ratio(np.maximum(squares, 0.0), totals**2),
        effective=_ratio(heard**2, products(weights, weights, np.arange(n))),
        independent=_ratio(heard**2, products(weights, weights)),
    )


def _grid(n: int) -> list[int]:
    """The whole log, half of it, a quarter, …"""
    lengths = [n >> i for i in range(TRIED) if n >> i >= LEAST_WINDOW]
    return lengths or [n]


def _choose(moving: Moving, fades: bool) -> tuple[int, str]:
    """The length whose values foretell the next round best, or the longest that does about as well."""
    lengths = _grid(len(moving.above))
    start = max(int(WARM_UP * len(moving.above)), 1)
    what = "half-life" if fades else "window"
    if len(moving.above) - start < 2:
        return lengths[0], f"{what} of all rounds: there are too few to compare"
    losses = []
    for length in lengths:
        values = _values(moving, length, fades)[start - 1 : -1]
        losses.append(np.square(moving.above[start:] - values * moving.below[start:]))
    best = int(np.argmin([loss.mean() for loss in losses]))
    excesses = [loss - losses[best] for loss in losses]
    longest = next(i for i, e in enumerate(excesses) if i == best or e.mean() <= _error(e, moving.places[start:]))
    compared = "as well as any"
    if longest > 0:
        compared = f"{1 - losses[longest].mean() / losses[0].mean():.2%} better than the whole log"
    return lengths[longest], f"a {what} of {lengths[longest]:,} rounds foretells the next round {compared}"


def _error(terms: Floats, places: Ints) -> float:
    """The standard error of a mean whose terms count together by place."""
    sums = _totals(places, terms - terms.mean())
    return float(np.sqrt(sums @ sums)) / len(terms)
