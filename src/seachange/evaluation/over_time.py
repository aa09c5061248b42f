"""Values that move: what a policy would have earned around each time, by windows that forget (Jagerman et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter
from scipy.stats import norm

from seachange.errors import LogError
from seachange.evaluation.support import Judged, distribution_of, membership_of
from seachange.evaluation.terms import terms_of
from seachange.evaluation.time_features import Period, period_of
from seachange.evaluation.value_estimate import FEWEST
from seachange.log.bandit_log import BanditLog, require_propensities, require_rewards
from seachange.params import Auto, require, require_count
from seachange.protocols import Floats, Ints
from seachange.states.labels import StateLabels

MovingEstimator = Literal["ips", "snips", "dr"]
# Windows that "auto" tries, in shares of the log: each half of the one before, and no shorter than the least.
TRIED, LEAST_WINDOW = 12, 20
# Share of the log that passes before predictions count.
WARM_UP = 0.1


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


@dataclass(frozen=True, eq=False)
class Moving:
    """V̂_t = Σ_s u_ts above_s / Σ_s u_ts below_s, u the share of round s ≤ t in the window that ends at t."""

    above: Floats  # (n,)
    below: Floats  # (n,)
    weights: Floats  # (n,) w


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
) -> ValuesOverTime:
    """Estimate what ``policy`` would have earned a round, at ``points`` rounds along ``log``.

    V̂_t = Σ_s u_ts y_s / Σ_s u_ts with y the terms of ips or dr, or Σ_s u_ts w_s r_s / Σ_s u_ts w_s for snips.

    window     u_ts = 1 for the last ``window`` rounds: a short one follows changes, a long one varies less
    half_life  u_ts = 2^-((t - s) / half_life): old rounds fade; the same trade

    Give one of them, as a number or "auto" (neither: window="auto"), which takes the one that foretells the next round
    best: E (y_t+1 - V̂_t)² is the noise of y plus the squared error of V̂_t for the value to come. Of those that do about
    as well (within a standard error of their difference) the longest is taken.

    Intervals are normal and pointwise, of the mean value within the window. Where sequences lie side by side, rounds
    are taken in the order of their times.
    """
    require(estimator in ("ips", "snips", "dr"), f'estimator must be "ips", "snips" or "dr"; got {estimator!r}.')
    require(window is None or half_life is None, "give window or half_life, not both.")
    require_count("points", points)
    require(0 < confidence < 1, f"confidence must be between 0 and 1; got {confidence}.")
    require(clip > 0, f"clip must be positive; got {clip}.")
    require_rewards(log, "evaluating a policy over time")
    require_propensities(log, "evaluating a policy over time")
    moving, order = _moving(log, policy, estimator, labels, clip)
    fades, length, reason = half_life is not None, window if half_life is None else half_life, "given"
    if length is None or length == "auto":
        length, reason = _choose(moving, fades)
    if fades:
        require(0 < length < np.inf, f"half_life must be positive and finite; got {length}.")
    else:
        require_count("window", length)
    rounds = np.unique(np.linspace(0, len(log), min(points, len(log)) + 1).astype(np.int64)[1:] - 1)
    values, errors, effective = (each[rounds] for each in _values(moving, length, fades))
    reach = float(norm.ppf(0.5 + confidence / 2))
    return ValuesOverTime(
        estimator=estimator,
        rounds=rounds,
        times=None if log.times is None else log.times[order][rounds],
        values=values,
        std_errors=errors,
        low=values - reach * errors,
        high=values + reach * errors,
        effective_samples=effective,
        window=None if fades else int(length),
        half_life=length if fades else None,
        reason=reason,
        confidence=confidence,
    )


def evaluate_by_period(
    log: BanditLog,
    policy: Judged,
    period: int | Period,
    estimator: MovingEstimator = "dr",
    *,
    labels: StateLabels | None = None,
    clip: float = np.inf,
    confidence: float = 0.95,
) -> ValuesOverTime:
    """Estimate what ``policy`` would have earned a round in each period of ``log``, one after the other.

    ``period`` is a number of rounds, or "hour", "day" or "week" (from Monday on) by the log's times. The last period
    may not be over. Periods without rounds have no value; ``forecast`` knows of them.
    """
    require(estimator in ("ips", "snips", "dr"), f'estimator must be "ips", "snips" or "dr"; got {estimator!r}.')
    require(0 < confidence < 1, f"confidence must be between 0 and 1; got {confidence}.")
    require(clip > 0, f"clip must be positive; got {clip}.")
    require_rewards(log, "evaluating a policy over time")
    require_propensities(log, "evaluating a policy over time")
    moving, order = _moving(log, policy, estimator, labels, clip)
    if isinstance(period, str):
        places = period_of(log, period)[order]
    else:
        require_count("period", period)
        places = np.arange(len(log)) // period
    starts = np.flatnonzero(np.diff(places, prepend=places[0] - 1))
    above, below, weights, squares = (
        np.add.reduceat(each, starts)
        for each in (moving.above, moving.below, moving.weights, np.square(moving.weights))
    )
    values = np.divide(above, below, out=np.zeros(len(starts)), where=below > 0)
    spread = moving.above - np.repeat(values, np.diff(starts, append=len(log))) * moving.below
    effective = np.square(weights) / np.maximum(squares, 1e-300)
    errors = np.sqrt(np.add.reduceat(np.square(spread), starts)) / np.maximum(below, 1e-300)
    errors, reach = known_errors(errors, effective), float(norm.ppf(0.5 + confidence / 2))
    last = np.append(starts[1:], len(log)) - 1
    told = f"each {period}" if isinstance(period, str) else f"each {period:,} rounds"
    return ValuesOverTime(
        estimator=estimator,
        rounds=last,
        times=None if log.times is None else log.times[order][last],
        values=values,
        std_errors=errors,
        low=values - reach * errors,
        high=values + reach * errors,
        effective_samples=effective,
        window=None,
        half_life=None,
        reason=told,
        confidence=confidence,
        periods=places[starts] - places[0],
    )


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
    log: BanditLog, policy: Judged, estimator: str, labels: StateLabels | None, clip: float
) -> tuple[Moving, Ints]:
    probs_of, membership = distribution_of(log, policy, labels, False), membership_of(log, labels, False)
    terms, _ = terms_of(log, probs_of, membership, clip, frozenset({"model"}) if estimator == "dr" else frozenset())
    order = along_time(log)
    weights, rewards = terms.weights[order], terms.rewards[order]
    if estimator == "snips":
        return Moving(weights * rewards, weights, weights), order
    above = weights * (rewards - terms.modelled[order]) + terms.direct[order]
    return Moving(above, np.ones(len(log)), weights), order


def _sums(series: Floats, length: float, fades: bool) -> Floats:
    """Σ_s u_ts series_s for every t."""
    if fades:
        return np.asarray(lfilter([1.0], [1.0, -(0.5 ** (1 / length))], series))
    totals, window = np.cumsum(series), int(length)
    totals[window:] -= np.cumsum(series)[:-window] if window < len(series) else 0.0
    return totals


def _values(moving: Moving, length: float, fades: bool) -> tuple[Floats, Floats, Floats]:
    """V̂_t, its standard error and the effective rounds, for every t.

    s² = Σ u² (above - V̂_t below)² / (Σ u below)², from sums of squares about the whole log's value, for precision.
    """
    above, below, weights = moving.above, moving.below, moving.weights
    level = above.sum() / below.sum() if below.sum() > 0 else 0.0
    centred = above - level * below
    # Squares of fading weights fade twice as fast.
    squared = length / 2 if fades else length
    totals = np.maximum(_sums(below, length, fades), 1e-300)
    shift = _sums(centred, length, fades) / totals
    squares = (
        _sums(centred * centred, squared, fades)
        - 2 * shift * _sums(centred * below, squared, fades)
        + shift * shift * _sums(below * below, squared, fades)
    )
    heard = _sums(weights, length, fades)
    effective = heard * heard / np.maximum(_sums(weights * weights, squared, fades), 1e-300)
    return level + shift, known_errors(np.sqrt(np.maximum(squares, 0.0)) / totals, effective), effective


def known_errors(errors: Floats, effective: Floats) -> Floats:
    """Standard errors that were taken about a mean of few rounds, put right; infinite where nearly none speaks."""
    degrees = np.maximum(effective - 1, FEWEST - 1)
    return np.where(effective < FEWEST, np.inf, errors * np.sqrt((degrees + 1) / degrees))


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
        values = _values(moving, length, fades)[0][start - 1 : -1]
        losses.append(np.square(moving.above[start:] - values * moving.below[start:]))
    best = int(np.argmin([loss.mean() for loss in losses]))
    excesses = [loss - losses[best] for loss in losses]
    longest = next(i for i, e in enumerate(excesses) if i == best or e.mean() <= e.std() / np.sqrt(len(e)))
    compared = "as well as any"
    if longest > 0:
        compared = f"{1 - losses[longest].mean() / losses[0].mean():.2%} better than the whole log"
    return lengths[longest], f"a {what} of {lengths[longest]:,} rounds foretells the next round {compared}"
