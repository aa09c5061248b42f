"""ChangePointOracle: a log cut where its rewards changed, and its segments merged into recurring states."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from seachange.errors import NoChangeWarning, ParameterError, SeachangeWarning
from seachange.log.bandit_log import BanditLog, require_rewards, require_rounds
from seachange.params import Auto, Params, require, require_count
from seachange.protocols import Floats, Ints
from seachange.states.clustering import cluster
from seachange.states.detector import Changes, find_changes, segments_of
from seachange.states.fits import Series, Sums, chain_lengths, series_of
from seachange.states.labels import StateLabels, labels_from_states
from seachange.states.merging import best_states, merge, renumbered, state_fits
from seachange.states.null import ladder_for
from seachange.states.paper_detector import (
    find_reward_changes,
    no_reward_change,
    require_length,
    reward_length,
    theorem_settings,
)

Statistic = Literal["fit", "reward"]


@dataclass(frozen=True)
class Segmentation:
    """How the detector cut the log it was fitted on, and what the states of its segments are.

    A chain's first segment starts at its first round, which is no change-point.
    """

    statistic: Statistic
    windows: Ints  # w: that were scanned
    threshold: float  # that was used: nats of surprise, or c
    change_points: Ints  # (C,) τ̂_i: first round of each new segment
    p_values: Floats  # (C,) probability that chance makes such a change anywhere in a log without any
    low: Ints  # (C,) 95 % interval of the place
    high: Ints
    segment_starts: Ints  # (S,) first round of each segment
    segment_values: Floats  # (S,) V(π_0) of each segment: its mean reward
    segment_states: Ints  # (S,) state of each segment
    state_values: Floats  # (L,) V(π_0) of each state: its mean reward; NaN where no segment was left for it
    state_coefs: Floats  # (L, B, D) reward fit of each state; NaN as above
    state_precisions: Floats  # (L, B, D, D) Σ f f' over the rounds of each state
    state_rounds: Floats  # (L, B) rounds with a reward
    noise_variances: Floats  # (B,) of the reward about the fits


@dataclass(kw_only=True, eq=False, repr=False)
class ChangePointOracle(Params):
    """Cut a log where its rewards changed; merge segments that behave alike into states.

    **statistic="fit"** compares regressions before and after a round: mean rewards by action where there are no
    contexts, r on f(x, a) where there are. What one fit for both sides costs beside two, in units of the noise, is
    about χ² where nothing changed. Windows of many lengths are scanned; each change then moves to its likeliest place
    between its neighbours and is judged there. Its p-value is the probability that a log of this length without any
    change shows such a difference at any place and window, so that the changes found contain a false one with
    probability ``delta`` at most. ``threshold`` is on -log of that p-value: 3 nats are a p-value of 0.05, and "auto" is
    -log δ. Rounds without a reward are skipped.

    **statistic="reward"** is the paper's detector. A round t is a candidate where |μ⁺_t - μ⁻_t| ≥ c, the mean rewards
    of the w rounds from t on and before t. The largest is a change-point, everything within 2w of it is removed, and
    so on. Rewards lie in an interval of length R, or are (R/2)-sub-Gaussian. Where changes of at least Δ are looked for
    (``min_change``), "auto" is the paper's theorem as its corollary uses it: with segments longer than 4w,

        w = 8 R² log(16 n / δ) / Δ²,  c = Δ / 2

    put at most S w rounds of S segments into the wrong one, with probability 1 - δ. Where nothing is known of Δ, w is a
    fortieth of the log or of its longest sequence (ten segments of 4w), and c the least that keeps every false alarm
    away with probability 1 - δ:

        c = R √(log(2 n / δ) / w)

    **States**: the two groups of segments whose fits (with "reward": mean rewards) differ least become one, until all
    that are left differ with family-wise error ``delta``, or ``n_states`` are left. With "reward" and a number given,
    k-means on the mean rewards, as in the paper. States are numbered by first appearance. Sequences are cut one by one
    and share their states.
    """

    n_states: int | Auto = "auto"  # k: how many states the segments are merged into; auto: as many as differ
    window: int | Auto = "auto"  # w: longer finds smaller changes; fit, auto: a ladder of many
    threshold: float | Auto = "auto"  # fit: nats of surprise; reward: c. Higher means fewer false alarms
    statistic: Statistic = "fit"  # what is compared on both sides of a round
    min_change: float | None = None  # reward only, Δ: smallest change of the mean reward worth finding, if it is known
    delta: float = 0.05  # δ: probability of a mistake that the auto values allow
    reward_range: tuple[float, float] | Auto = "auto"  # reward only: its length is R; auto: (0, 1), or 2 deviations
    seed: int = 0  # k-means

    def fit(self, log: BanditLog) -> Self:
        """Find the change-points of ``log`` and the states of its segments."""
        require_count("n_states", self.n_states, auto=True)
        windows, threshold = self.settings_for(log)
        series = series_of(log, by_action=self.statistic == "fit")
        changes = self._changes(self.statistic, series, windows, threshold)
        segments, values = _segments(series, changes.places)
        given = None if self.n_states == "auto" else self.n_states
        if self.statistic == "reward" and given is not None:
            states = renumbered(cluster(values[:, None], given, self.seed))
        else:
            states = merge(segments, series.metric, given, self.delta, self.seed)
        n_found = int(states.max()) + 1
        if len(changes.places) == 0 and (n_found == 1 or len(windows) == 0):
            warnings.warn(_no_change(series, self.statistic, windows, threshold), NoChangeWarning, stacklevel=2)
        elif given is not None and n_found < given:
            warnings.warn(_too_few_states(given, n_found, len(values)), SeachangeWarning, stacklevel=2)
        self.segmentation_ = self._record(series, changes, windows, threshold, segments, values, states)
        return self

    def predict(self, log: BanditLog) -> StateLabels:
        """Cut ``log`` with the settings of the fit; a segment gets the state whose fit explains it best.

        Where the states are clusters of mean rewards, it gets the one whose segments' mean is nearest to its own.
        """
        fitted = self.segmentation_
        _require_usable(log, fitted.statistic)
        series = series_of(log, by_action=fitted.statistic == "fit")
        if series.coefs.shape != fitted.state_coefs.shape[1:]:
            raise ParameterError(
                f"the oracle was fitted with coefficients of shape {fitted.state_coefs.shape[1:]}; this log has "
                f"{log.joint.description} and {log.n_actions} actions, {series.coefs.shape}."
            )
        if fitted.statistic == "reward":
            require_length(log, int(fitted.windows[0]))
        changes = self._changes(fitted.statistic, series, fitted.windows, fitted.threshold)
        segments, values = _segments(series, changes.places)
        states = self._assigned(series, segments, values)
        begins, ends = segments_of(series, changes.places)
        rounds = np.repeat(states, ends - begins)
        if series.order is not None:
            rounds[series.order] = rounds.copy()
        found = np.sort(series.rounds(changes.places))
        return labels_from_states(rounds, len(fitted.state_values), log, change_points=found, from_rewards=True)

    def settings_for(self, log: BanditLog) -> tuple[Ints, float]:
        """Windows and threshold as given or, where "auto", from the null (fit) or the theorem (reward)."""
        require(self.statistic in ("fit", "reward"), f'statistic must be "fit" or "reward"; got {self.statistic!r}.')
        require(0 < self.delta <= 1, f"delta must be in (0, 1]; got {self.delta}.")
        require(self.threshold == "auto" or self.threshold > 0, f"threshold must be positive; got {self.threshold}.")
        _require_usable(log, self.statistic)
        if self.window != "auto":
            require_count("window", self.window)
        if self.statistic == "fit":
            return self._fit_settings(log)
        window, threshold = theorem_settings(
            log, self.window, self.threshold, self.min_change, self.delta,
            reward_length(log.arrays.rewards, self.reward_range),
        )  # fmt: skip
        return np.array([window]), threshold

    def _fit_settings(self, log: BanditLog) -> tuple[Ints, float]:
        for name, value, default in (
            ("min_change", self.min_change, None),
            ("reward_range", self.reward_range, "auto"),
        ):
            require(value == default, f'{name} belongs to statistic="reward"; statistic="fit" has no use for {value}.')
        # Where delta is 1 anything may be a change; the threshold stays positive.
        threshold = max(-math.log(self.delta), 1e-3) if self.threshold == "auto" else float(self.threshold)
        if self.window == "auto":
            return ladder_for(chain_lengths(log), float(log.joint.size), threshold), threshold
        require_length(log, self.window)
        return np.array([self.window]), threshold

    def _changes(self, statistic: Statistic, series: Series, windows: Ints, threshold: float) -> Changes:
        if statistic == "fit":
            return find_changes(series, windows, threshold)
        length = reward_length(series.rewards, self.reward_range)
        return find_reward_changes(series, int(windows[0]), threshold, length)

    def _assigned(self, series: Series, segments: Sums, values: Floats) -> Ints:
        """(S,) the state of each segment, by the rule that made the states."""
        fitted = self.segmentation_
        if fitted.statistic == "reward" and self.n_states != "auto":
            centres = _means_by(fitted.segment_states, fitted.segment_values, len(fitted.state_values))
            return np.asarray(np.nanargmin(np.abs(values[:, None] - centres), axis=1))
        # Sums are those of what the log's own fit leaves over, in its own units.
        coefs = (fitted.state_coefs - series.coefs) * series.scales
        known = ~np.isnan(fitted.state_values)
        return np.flatnonzero(known)[best_states(segments, coefs[known], fitted.noise_variances)]

    def _record(
        self, series: Series, changes: Changes, windows: Ints, threshold: float, segments: Sums, values: Floats,
        states: Ints,
    ) -> Segmentation:  # fmt: skip
        n_found = int(states.max()) + 1
        n_states = n_found if self.n_states == "auto" else max(self.n_states, n_found)
        by_state = segments.grouped(states, n_states)
        coefs, noise = state_fits(by_state)
        empty = np.bincount(states, minlength=n_states) == 0
        rounds = segments.counts.sum(axis=1)
        # A state without any reward has the log's mean, as its segments do.
        unseen = by_state.counts.sum(axis=1) == 0
        state_values = _means_by(states, values, n_states, np.where(unseen[states], 1.0, rounds))
        order = np.argsort(series.rounds(changes.places))
        found, low, high = (series.rounds(each)[order] for each in (changes.places, changes.low, changes.high))
        return Segmentation(
            statistic=self.statistic,
            windows=windows,
            threshold=threshold,
            change_points=found,
            p_values=np.exp(changes.log_p_values)[order],
            low=low,
            high=high,
            segment_starts=series.rounds(segments_of(series, changes.places)[0]),
            segment_values=values,
            segment_states=states,
            state_values=state_values,
            state_coefs=np.where(empty[:, None, None], np.nan, series.coefs + coefs / series.scales),
            state_precisions=by_state.grams * np.multiply.outer(series.scales, series.scales),
            state_rounds=by_state.counts,
            noise_variances=noise,
        )


def _require_usable(log: BanditLog, statistic: Statistic) -> None:
    require_rounds(log, "the change-point detector")
    if statistic == "reward":
        require_rewards(log, "the change-point detector")


def _segments(series: Series, changes: Ints) -> tuple[Sums, Floats]:
    """What the segments between ``changes`` hold, and their mean reward (the log's where none was observed)."""
    begins, ends = segments_of(series, changes)
    segments = series.sums(begins, ends)
    observed = ~np.isnan(series.rewards)
    sums = np.add.reduceat(np.where(observed, series.rewards, 0.0), begins)
    counts = segments.counts.sum(axis=1)
    return segments, np.where(counts > 0, sums / np.maximum(counts, 1), sums.sum() / max(counts.sum(), 1))


def _means_by(states: Ints, values: Floats, n_states: int, weights: Floats | None = None) -> Floats:
    """(L,) mean of the ``values`` of each state's segments; NaN where it has none."""
    weights = np.ones(len(values)) if weights is None else weights
    with np.errstate(invalid="ignore"):
        return np.bincount(states, weights * values, n_states) / np.bincount(states, weights, n_states)


def _too_few_states(asked: int, found: int, n_segments: int) -> str:
    if n_segments < asked:
        reason = f"the log has only {n_segments} segments"
    else:
        reason = f"the {n_segments} segments of the log are alike enough to make only {found}"
    return f"n_states={asked}, but {reason}; the states left over stay empty."


def _no_change(series: Series, statistic: Statistic, windows: Ints, threshold: float) -> str:
    if statistic == "reward":
        return no_reward_change(series, int(windows[0]), threshold)
    if len(windows) == 0:
        return (
            f"no evidence of change, and none to be had: {(series.ends - series.begins).max()} rounds in a row are "
            "too few for delta. Give a window."
        )
    reach = f"{windows[0]}" if len(windows) == 1 else f"{windows[0]} to {windows[-1]}"
    return (
        f"no evidence of change: nowhere do the fits of the {reach} rounds before and after differ by more than chance "
        f"would have it, with a p-value of {math.exp(-threshold):.2g}. A lower threshold looks closer."
    )
