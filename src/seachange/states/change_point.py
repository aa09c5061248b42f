"""ChangePointOracle: split a log at changes of its rewards, and merge the segments into recurring states."""

import math
from dataclasses import dataclass, fields
from typing import Annotated, Literal, Self

import msgspec
import numpy as np

from seachange.errors import ModelFileError, NoChangeWarning, warn
from seachange.log.bandit_log import BanditLog, require_rewards, require_rounds
from seachange.log.joint_features import JointFeatures
from seachange.params import Auto, Brief, Params, require, require_count
from seachange.protocols import Floats, Ints
from seachange.registry import LARGEST_SAVED, ORACLES, Arrays, SavedPart
from seachange.states import detector
from seachange.states.clustering import best_states, cluster, merge, renumbered, state_fits
from seachange.states.labels import StateLabels, labels_from_states
from seachange.states.segment_fits import Series, Sums, chain_lengths, series_of

Statistic = Literal["fit", "reward"]


@dataclass(frozen=True, repr=False)
class Segmentation(Brief):
    """Segments and states of the log that the oracle was fitted on.

    The first segment of a chain starts at its first round, which is not a change point.
    """

    statistic: Statistic
    windows: Ints  # w: windows that were scanned
    threshold: float  # threshold used: -log of the p-value, or c
    change_points: Ints  # (C,) τ̂_i: first round of each new segment
    p_values: Floats  # (C,) probability of a change this large anywhere in a log without changes
    low: Ints  # (C,) 95% interval of the position
    high: Ints
    segment_starts: Ints  # (S,) first round of each segment
    segment_values: Floats  # (S,) V(π_0) of each segment: its mean reward
    segment_states: Ints  # (S,) state of each segment
    state_values: Floats  # (L,) V(π_0) of each state: its mean reward; NaN for a state without segments
    state_coefs: Floats  # (L, B, D) reward fit of each state; NaN as above
    state_precisions: Floats  # (L, B, D, D) Σ f f' over the rounds of each state
    state_rounds: Floats  # (L, B) rounds with a reward
    noise_variances: Floats  # (B,) variance of the rewards around the fits
    long_run_variance: float = 1.0  # fit only: of that noise, in units of its variance; above 1 if autocorrelated

    @classmethod
    def restore(cls, part: SavedPart, joint: JointFeatures, labels: StateLabels) -> Self:
        """The segmentation that a model file holds."""
        learned, n_states, n_rounds = part.learned(_Learned), labels.n_states, labels.n_rounds
        paper = learned.statistic == "reward"
        n_blocks, n_features = shape = (1, 1) if paper else joint.shape
        change_points = part.indices("change_points", None, 1, n_rounds, rising=True)
        starts = part.indices("segment_starts", None, 0, n_rounds)
        n_changes, n_segments = len(change_points), len(starts)
        found = cls(
            statistic=learned.statistic,
            threshold=learned.threshold,
            long_run_variance=learned.long_run_variance,
            windows=part.indices("windows", 1 if paper else None, 1, n_rounds + 1, rising=True),
            change_points=change_points,
            p_values=part.floats("p_values", (n_changes,), low=0.0, high=1.0, nan=True),
            low=part.indices("low", n_changes, 0, n_rounds + 1),
            high=part.indices("high", n_changes, 0, n_rounds + 1),
            segment_starts=starts,
            segment_values=part.floats("segment_values", (n_segments,)),
            segment_states=part.indices("segment_states", n_segments, 0, n_states),
            state_values=part.floats("state_values", (n_states,), nan=True),
            state_coefs=part.floats("state_coefs", (n_states, *shape), nan=True),
            state_precisions=part.floats("state_precisions", (n_states, *shape, n_features)),
            state_rounds=part.floats("state_rounds", (n_states, n_blocks), low=0.0),
            noise_variances=part.floats("noise_variances", (n_blocks,), low=1e-300),
        )
        known = ~np.isnan(found.state_values)
        if n_segments == 0 or not known.any() or np.isnan(found.state_coefs[known]).any():
            raise ModelFileError("its change-point oracle must have a segment and the fit of a state.")
        return found


class _Learned(msgspec.Struct):
    """What a model file holds of a fit, apart from arrays."""

    statistic: Statistic
    threshold: Annotated[float, msgspec.Meta(gt=0, le=LARGEST_SAVED)]
    long_run_variance: Annotated[float, msgspec.Meta(ge=1, le=LARGEST_SAVED)]


@ORACLES.register("change-point")
@dataclass(kw_only=True, eq=False, repr=False)
class ChangePointOracle(Params):
    """Split a log at changes of its rewards; merge segments with similar rewards into states.

    **statistic="fit"** compares regressions before and after a round: mean rewards per action without contexts, r on
    f(x, a) with contexts. The cost of one fit for both sides instead of two, in units of the noise, is about χ² if
    nothing changed. Windows of many lengths are scanned. Each change found then moves to its most likely position
    between its neighbors and is tested there. Its p-value is the probability that a log of this length without changes
    differs as much at any position and window, so the probability of a false change is at most ``delta``.
    ``threshold`` applies to -log of the p-value: 3 nats correspond to a p-value of 0.05, and "auto" is -log δ. If
    rewards are autocorrelated around the fits, p-values use the long-run variance of that noise. Rounds without a
    reward are skipped.

    **statistic="reward"** is the paper's detector. Round t is a candidate if |μ⁺_t - μ⁻_t| ≥ c, where μ⁺_t and μ⁻_t are
    the mean rewards of the w rounds from t on and of the w before t. The largest is a change point, everything within
    2w of it is removed, and so on. Rewards lie in an interval of length R, or are (R/2)-sub-Gaussian. To find changes
    of at least Δ (``min_change``), "auto" uses the paper's theorem as its corollary does: if segments are longer than
    4w, then with

        w = 8 R² log(16 n / δ) / Δ²,  c = Δ / 2

    at most S w rounds of S segments are assigned to the wrong segment, with probability 1 - δ. Without Δ, w is 1/40 of
    the log or of its longest sequence (ten segments of 4w), and c is the smallest value that prevents all false alarms
    with probability 1 - δ:

        c = R √(log(2 n / δ) / w)

    **States**: the two groups of segments whose fits (with "reward", mean rewards) differ least are merged, until all
    remaining groups differ at family-wise error ``delta``, or ``n_states`` are left. With "reward" and a given number
    of states, segments are clustered by k-means on their mean rewards, as in the paper. States are numbered by first
    appearance. Each sequence is split separately; all share the same states.
    """

    n_states: int | Auto = "auto"  # k: number of states; auto: as many as differ significantly
    window: int | Auto = "auto"  # w: rounds compared on each side; longer finds smaller changes; auto: see above
    threshold: float | Auto = "auto"  # fit: -log of the p-value; reward: c. Higher means fewer false alarms
    statistic: Statistic = "fit"  # compare regression fits ("fit") or mean rewards ("reward", the paper's detector)
    min_change: float | None = None  # reward only, Δ: smallest change of the mean reward to find
    delta: float = 0.05  # δ: error probability allowed by the auto settings
    reward_range: tuple[float, float] | Auto = "auto"  # reward only: (low, high); auto: (0, 1), or 2 std. deviations
    seed: int = 0  # for k-means

    def fit(self, log: BanditLog) -> Self:
        """Find the change points of ``log`` and the states of its segments."""
        require_count("n_states", self.n_states, auto=True)
        windows, threshold = self.settings_for(log)
        series = series_of(log, by_action=self.statistic == "fit")
        changes, series = self._changes(self.statistic, series, windows, threshold)
        segments, values = _segments(series, changes.positions)
        given = None if self.n_states == "auto" else self.n_states
        if self.statistic == "reward" and given is not None:
            states = renumbered(cluster(values[:, None], given, self.seed))
        else:
            states = merge(segments, series.metric, given, self.delta, self.seed)
        n_found = int(states.max()) + 1
        if len(changes.positions) == 0 and (n_found == 1 or len(windows) == 0):
            warn(_no_change(series, self.statistic, windows, threshold), stacklevel=2, category=NoChangeWarning)
        elif given is not None and n_found < given:
            enough = f"the {len(values)} segments of the log form only {n_found} distinct states"
            reason = f"the log has only {len(values)} segments" if len(values) < given else enough
            message = f"n_states={given}, but {reason}; the remaining states are empty."
            warn(message)
        n_states = n_found if given is None else max(given, n_found)
        by_state = segments.grouped(states, n_states)
        coefs, noise = state_fits(by_state)
        empty = np.bincount(states, minlength=n_states) == 0
        # A state without rewards has the log's mean, like its segments.
        unseen = by_state.counts.sum(axis=1) == 0
        weights = np.where(unseen[states], 1.0, segments.counts.sum(axis=1))
        order = np.argsort(series.rounds(changes.positions))
        found, low, high = (series.rounds(each)[order] for each in (changes.positions, changes.low, changes.high))
        self.segmentation_ = Segmentation(
            statistic=self.statistic,
            windows=windows,
            threshold=threshold,
            change_points=found,
            p_values=np.exp(changes.log_p_values)[order],
            low=low,
            high=high,
            segment_starts=series.rounds(detector.segments_of(series, changes.positions)[0]),
            segment_values=values,
            segment_states=states,
            state_values=_means_by(states, values, n_states, weights),
            state_coefs=np.where(empty[:, None, None], np.nan, series.coefs + series.units.raw_coefs(coefs)),
            state_precisions=series.units.raw_grams(by_state.grams),
            state_rounds=by_state.counts,
            noise_variances=noise,
            long_run_variance=series.noise.overall,
        )
        return self

    def predict(self, log: BanditLog) -> StateLabels:
        """Split ``log`` with the settings of the fit; each segment gets the state that explains its rewards best.

        If states are clusters of mean rewards, it gets the state with the nearest mean.
        """
        fitted = self.segmentation_
        _require_usable(log, fitted.statistic)
        series = series_of(log, by_action=fitted.statistic == "fit")
        shape = fitted.state_coefs.shape[1:]
        require(
            series.coefs.shape == shape,
            f"the oracle was fitted with coefficients of shape {shape}, but this log, with {log.joint.description} and "
            f"{log.n_actions} actions, needs {series.coefs.shape}.",
        )
        if fitted.statistic == "reward":
            detector.require_length(log, int(fitted.windows[0]))
        changes, _ = self._changes(fitted.statistic, series, fitted.windows, fitted.threshold)
        segments, values = _segments(series, changes.positions)
        states = self._assigned(series, segments, values)
        begins, ends = detector.segments_of(series, changes.positions)
        rounds = np.repeat(states, ends - begins)
        if series.order is not None:
            rounds[series.order] = rounds.copy()
        found = np.sort(series.rounds(changes.positions))
        return labels_from_states(rounds, len(fitted.state_values), log, change_points=found, from_rewards=True)

    def learned(self) -> tuple[_Learned, Arrays]:
        """The segmentation."""
        found = self.segmentation_
        arrays = {field.name: getattr(found, field.name) for field in fields(found)}
        return _Learned(*(arrays.pop(name) for name in _Learned.__struct_fields__)), arrays

    @classmethod
    def restore(cls, part: SavedPart, joint: JointFeatures, labels: StateLabels) -> Self:
        """The fitted oracle that a model file holds."""
        oracle = part.restored(cls)
        oracle.segmentation_ = Segmentation.restore(part, joint, labels)
        return oracle

    def settings_for(self, log: BanditLog) -> tuple[Ints, float]:
        """Windows and threshold as given or, if "auto", from the null distribution (fit) or the theorem (reward)."""
        require(self.statistic in ("fit", "reward"), f'statistic must be "fit" or "reward"; got {self.statistic!r}.')
        require(0 < self.delta <= 1, f"delta must be in (0, 1]; got {self.delta}.")
        require(self.threshold == "auto" or self.threshold > 0, f"threshold must be positive; got {self.threshold}.")
        _require_usable(log, self.statistic)
        if self.window != "auto":
            require_count("window", self.window)
        return self._fit_settings(log) if self.statistic == "fit" else self._theorem_settings(log)

    def _fit_settings(self, log: BanditLog) -> tuple[Ints, float]:
        for name, default in (("min_change", None), ("reward_range", "auto")):
            value = getattr(self, name)
            require(value == default, f'{name}={value} needs statistic="reward"; statistic="fit" does not use it.')
        # The threshold stays positive if delta is 1.
        threshold = max(-math.log(self.delta), 1e-3) if self.threshold == "auto" else float(self.threshold)
        if self.window == "auto":
            return detector.window_grid(chain_lengths(log), float(log.joint.size), threshold), threshold
        detector.require_length(log, self.window)
        return np.array([self.window]), threshold

    def _theorem_settings(self, log: BanditLog) -> tuple[Ints, float]:
        """(w, c) of the paper's detector."""
        n, delta, change = len(log), self.delta, self.min_change
        require(change is None or change > 0, f"min_change must be positive; got {change}.")
        length = self._reward_length(log.arrays.rewards)
        if self.window != "auto":
            window = self.window
        elif change is None:
            window = max(int(chain_lengths(log).max()) // 40, 1)
        else:
            window = math.ceil(8 * (length / change) ** 2 * math.log(16 * n / delta))
        detector.require_length(log, window)
        if self.threshold != "auto":
            threshold = float(self.threshold)
        elif change is None:
            threshold = length * math.sqrt(math.log(2 * n / delta) / window)
        else:
            threshold = change / 2
            least = length * math.sqrt(2 * math.log(8 * n / delta) / window)
            if threshold < least:
                warn(
                    f"window={window} is too short to distinguish changes of {change:g} from noise: the theorem needs "
                    f"a threshold of {least:.3g}, but min_change / 2 is {threshold:g}. Expect false alarms, or use a "
                    "longer window.",
                    stacklevel=4,
                )
        return np.array([window]), threshold

    def _reward_length(self, rewards: Floats) -> float:
        """R: the length of the reward range; "auto": 1, or two standard deviations if rewards leave [0, 1]."""
        if self.reward_range != "auto":
            low, high = self.reward_range
            require(high > low, f"reward_range must be (low, high) with low < high; got {self.reward_range}.")
            return high - low
        if rewards.min() >= 0 and rewards.max() <= 1:
            return 1.0
        return 2 * float(rewards.std()) or 1.0

    def _changes(
        self, statistic: Statistic, series: Series, windows: Ints, threshold: float
    ) -> tuple[detector.Changes, Series]:
        if statistic == "fit":
            return detector.find_changes(series, windows, threshold)
        length = self._reward_length(series.rewards)
        return detector.find_reward_changes(series, int(windows[0]), threshold, length), series

    def _assigned(self, series: Series, segments: Sums, values: Floats) -> Ints:
        """(S,) state of each segment, by the same rule as in the fit."""
        fitted = self.segmentation_
        if fitted.statistic == "reward" and self.n_states != "auto":
            centers = _means_by(fitted.segment_states, fitted.segment_values, len(fitted.state_values))
            return np.asarray(np.nanargmin(np.abs(values[:, None] - centers), axis=1))
        # Segment sums are of residuals of this log's own fit, in its own units.
        coefs = series.units.coefs(fitted.state_coefs - series.coefs)
        known = ~np.isnan(fitted.state_values)
        return np.flatnonzero(known)[best_states(segments, coefs[known], fitted.noise_variances)]


def _require_usable(log: BanditLog, statistic: Statistic) -> None:
    require_rounds(log, "the change-point detector")
    if statistic == "reward":
        require_rewards(log, "the change-point detector")


def _segments(series: Series, changes: Ints) -> tuple[Sums, Floats]:
    """Sums and mean rewards of the segments between ``changes``; without rewards, the mean is that of the log."""
    begins, ends = detector.segments_of(series, changes)
    segments = series.sums(begins, ends)
    observed = ~np.isnan(series.rewards)
    sums = np.add.reduceat(np.where(observed, series.rewards, 0.0), begins)
    counts = segments.counts.sum(axis=1)
    return segments, np.where(counts > 0, sums / np.maximum(counts, 1), sums.sum() / max(counts.sum(), 1))


def _means_by(states: Ints, values: Floats, n_states: int, weights: Floats | None = None) -> Floats:
    """(L,) mean of the ``values`` of each state's segments; NaN if it has none."""
    weights = np.ones(len(values)) if weights is None else weights
    with np.errstate(invalid="ignore"):
        return np.bincount(states, weights * values, n_states) / np.bincount(states, weights, n_states)


def _no_change(series: Series, statistic: Statistic, windows: Ints, threshold: float) -> str:
    spread, longest = float(np.ptp(series.rewards)) if statistic == "reward" else 0.0, series.ends - series.begins
    if 0 < spread < threshold:
        return (
            f"no evidence of change: with {len(series.rewards)} rounds, the log is too short for delta. The threshold "
            f"on the mean reward is {threshold:.3g}, but rewards vary by only {spread:.3g}. Set a threshold."
        )
    if len(windows) == 0:
        return f"no evidence of change: {longest.max()} consecutive rounds are too few for delta. Set a window."
    reach = f"{windows[0]}" if len(windows) == 1 else f"{windows[0]} to {windows[-1]}"
    difference = (
        f"mean rewards of the {reach} rounds before and after differ by {threshold:.3g}"
        if statistic == "reward"
        else f"fits of the {reach} rounds before and after differ with a p-value below {math.exp(-threshold):.2g}"
    )
    return f"no evidence of change: at no round do the {difference}. Lower the threshold to find smaller changes."
