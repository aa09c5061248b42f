"""The paper's change-point detector, and its segments merged into recurring states."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from seachange.errors import NoChangeWarning, ParameterError, SeachangeWarning
from seachange.kernels.scan import mean_shifts, pick_peaks
from seachange.log.bandit_log import BanditLog, require_rewards
from seachange.params import Auto, Params, require, require_count
from seachange.protocols import Floats, Ints
from seachange.states.clustering import cluster
from seachange.states.labels import StateLabels, by_first_appearance, labels_from_states


@dataclass(frozen=True)
class Segmentation:
    """How the detector cut the log it was fitted on."""

    change_points: Ints  # τ̂_i: first round of each new segment
    segment_values: Floats  # V(π_0) of each segment: its mean reward
    segment_states: Ints  # state of each segment
    state_values: Floats  # (L,) V(π_0) of each state; NaN where no segment was left for it
    window: int  # w that was used
    threshold: float  # c that was used


@dataclass(kw_only=True, eq=False, repr=False)
class ChangePointOracle(Params):
    """Cut a log where the reward it earned changed; merge segments that earned alike.

    A round t is a candidate where |μ⁺_t - μ⁻_t| ≥ c, the mean rewards of the w rounds from t on and before t. The
    largest is a change-point, everything within 2w of it is removed, and so on. Segments become ``n_states`` states by
    k-means on the logging policy's value.

    Rewards lie in an interval of length R, or are (R/2)-sub-Gaussian. Where changes of at least Δ are looked for
    (``min_change``), "auto" is the paper's theorem as its corollary uses it: with segments longer than 4w,

        w = 8 R² log(16 n / δ) / Δ²,  c = Δ / 2

    put at most S w rounds of S segments into the wrong one, with probability 1 - δ. Where nothing is known of Δ, w is a
    fortieth of the log (ten segments of 4w) and c the least that keeps every false alarm away with probability 1 - δ:

        c = R √(log(2 n / δ) / w)
    """

    n_states: int | Auto = "auto"  # k: how many states the segments are merged into; auto: each is its own
    window: int | Auto = "auto"  # w: longer finds smaller changes, later
    threshold: float | Auto = "auto"  # c: higher means fewer false alarms
    statistic: Literal["reward"] = "reward"  # what is compared on both sides of a round
    min_change: float | None = None  # Δ: smallest change of the mean reward worth finding, if that is known
    delta: float = 0.05  # δ: probability of a mistake that the auto values allow
    reward_range: tuple[float, float] | Auto = (
        "auto"  # its length is R; auto: (0, 1), or 2 deviations if rewards leave it
    )
    seed: int = 0  # k-means

    def fit(self, log: BanditLog) -> Self:
        """Find the change-points of ``log`` and the states of its segments."""
        require(self.statistic == "reward", f'statistic must be "reward"; got {self.statistic!r}.')
        require_count("n_states", self.n_states, auto=True)
        window, threshold = self.settings_for(log)
        change_points, values = _segments(log, window, threshold)
        if len(change_points) == 0:
            warnings.warn(_no_change(log, window, threshold), NoChangeWarning, stacklevel=2)
        if self.n_states == "auto":
            n_states, states = len(values), np.arange(len(values))
        else:
            n_states = self.n_states
            clusters = cluster(values[:, None], n_states, self.seed)
            states = np.argsort(by_first_appearance(clusters, n_states))[clusters]
        if len(np.unique(states)) < n_states and len(change_points) > 0:
            warnings.warn(
                f"n_states={n_states}, but the log has only {len(values)} segments; the states left over stay empty.",
                SeachangeWarning,
                stacklevel=2,
            )
        sums, counts = np.bincount(states, values, n_states), np.bincount(states, minlength=n_states)
        state_values = np.divide(sums, counts, out=np.full(n_states, np.nan), where=counts > 0)
        self.segmentation_ = Segmentation(change_points, values, states, state_values, window, threshold)
        return self

    def predict(self, log: BanditLog) -> StateLabels:
        """Cut ``log`` with the settings of the fit; a segment gets the state whose value is nearest."""
        fitted = self.segmentation_
        change_points, values = _segments(log, fitted.window, fitted.threshold)
        states = np.nanargmin(np.abs(values[:, None] - fitted.state_values), axis=1)
        lengths = np.diff(change_points, prepend=0, append=len(log))
        rounds = np.repeat(states, lengths)
        return labels_from_states(rounds, len(fitted.state_values), log, change_points=change_points)

    def settings_for(self, log: BanditLog) -> tuple[int, float]:
        """(w, c) as given or, where "auto", from the theorem."""
        require_rewards(log, "the change-point detector")
        require(0 < self.delta <= 1, f"delta must be in (0, 1]; got {self.delta}.")
        length, change, n = self._reward_length(log), self.min_change, len(log)
        require(change is None or change > 0, f"min_change must be positive; got {change}.")
        if self.window != "auto":
            window = self.window
        elif change is None:
            window = max(n // 40, 1)
        else:
            window = math.ceil(8 * (length / change) ** 2 * math.log(16 * n / self.delta))
        require_count("window", window)
        _require_length(log, window)
        if self.threshold != "auto":
            threshold = self.threshold
        elif change is None:
            threshold = length * math.sqrt(math.log(2 * n / self.delta) / window)
        else:
            threshold = change / 2
            least = length * math.sqrt(2 * math.log(8 * n / self.delta) / window)
            if threshold < least:
                warnings.warn(
                    f"window={window} is too short to tell changes of {change:g} from chance: the theorem needs a "
                    f"threshold of {least:.3g} and min_change / 2 is {threshold:g}. Expect false alarms.",
                    SeachangeWarning,
                    stacklevel=3,
                )
        require(threshold > 0, f"threshold must be positive; got {threshold}.")
        return window, threshold

    def _reward_length(self, log: BanditLog) -> float:
        if self.reward_range != "auto":
            low, high = self.reward_range
            require(high > low, f"reward_range must rise; got {self.reward_range}.")
            return high - low
        rewards = log.arrays.rewards
        if np.nanmin(rewards) >= 0 and np.nanmax(rewards) <= 1:
            return 1.0
        return 2 * float(np.nanstd(rewards))


def _require_length(log: BanditLog, window: int) -> None:
    if 2 * window > len(log):
        raise ParameterError(
            f"window={window} needs at least {2 * window} rounds; the log has {len(log)}. "
            "Give a shorter window, or a larger min_change to look for."
        )


def _no_change(log: BanditLog, window: int, threshold: float) -> str:
    spread = float(np.ptp(log.arrays.rewards))
    if 0 < spread < threshold:
        return (
            f"no evidence of change, and none to be had: a log of {len(log)} rounds is too short for delta, which asks "
            f"for shifts of {threshold:.3g} where rewards spread over {spread:.3g}. Give a threshold."
        )
    return (
        f"no evidence of change: nowhere do the {window} rounds before and after differ by {threshold:.3g} in mean "
        "reward. A lower threshold looks closer."
    )


def _segments(log: BanditLog, window: int, threshold: float) -> tuple[Ints, Floats]:
    """Change-points, and the mean reward of the segments between them."""
    require_rewards(log, "the change-point detector")
    _require_length(log, window)
    if log.sequences is not None and len(np.unique(log.sequences)) > 1:
        raise ParameterError("the reward statistic scans one chain; this log holds several sequences. Use HMMOracle.")
    rewards = log.arrays.rewards
    shifts = mean_shifts(rewards, window)
    candidates = np.flatnonzero(shifts >= threshold)
    best_first = candidates[np.argsort(-shifts[candidates], kind="stable")]
    change_points = np.sort(pick_peaks(best_first, len(log), 2 * window))
    edges = np.concatenate(([0], change_points))
    lengths = np.diff(edges, append=len(log))
    return change_points, np.add.reduceat(rewards, edges) / lengths
