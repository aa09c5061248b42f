"""The paper's detector: a change is where the mean reward before and after differs."""

from __future__ import annotations

import math
import warnings

import numpy as np

from seachange.errors import ParameterError, SeachangeWarning
from seachange.kernels.scan import mean_shifts, pick_peaks
from seachange.log.bandit_log import BanditLog
from seachange.params import Auto, require
from seachange.protocols import Floats, Ints
from seachange.states.detector import Changes, intervals
from seachange.states.fits import Series, chain_lengths


def theorem_settings(
    log: BanditLog, window: int | Auto, threshold: float | Auto, min_change: float | None, delta: float, length: float
) -> tuple[int, float]:
    """(w, c) as given or, where "auto", from the theorem; see ``ChangePointOracle``."""
    n = len(log)
    require(min_change is None or min_change > 0, f"min_change must be positive; got {min_change}.")
    if window != "auto":
        width = window
    elif min_change is None:
        width = max(int(chain_lengths(log).max()) // 40, 1)
    else:
        width = math.ceil(8 * (length / min_change) ** 2 * math.log(16 * n / delta))
    require_length(log, width)
    if threshold != "auto":
        return width, float(threshold)
    if min_change is None:
        return width, length * math.sqrt(math.log(2 * n / delta) / width)
    least = length * math.sqrt(2 * math.log(8 * n / delta) / width)
    if min_change / 2 < least:
        warnings.warn(
            f"window={width} is too short to tell changes of {min_change:g} from chance: the theorem needs a "
            f"threshold of {least:.3g} and min_change / 2 is {min_change / 2:g}. Expect false alarms.",
            SeachangeWarning,
            stacklevel=4,
        )
    return width, min_change / 2


def reward_length(rewards: Floats, reward_range: tuple[float, float] | Auto) -> float:
    """R: the length of the range of rewards; "auto": 1, or two standard deviations where rewards leave [0, 1]."""
    if reward_range != "auto":
        low, high = reward_range
        require(high > low, f"reward_range must rise; got {reward_range}.")
        return high - low
    if rewards.min() >= 0 and rewards.max() <= 1:
        return 1.0
    return 2 * float(rewards.std()) or 1.0


def require_length(log: BanditLog, window: int) -> None:
    """Raise where no chain of ``log`` holds two windows."""
    longest = int(chain_lengths(log).max())
    if 2 * window > longest:
        what = "the log" if log.sequences is None else "the longest sequence"
        raise ParameterError(
            f"window={window} needs at least {2 * window} rounds; {what} has {longest}. "
            "Give a shorter window, or a larger min_change to look for."
        )


def no_reward_change(series: Series, window: int, threshold: float) -> str:
    """What to tell where nothing was found."""
    spread = float(np.ptp(series.rewards))
    if 0 < spread < threshold:
        return (
            f"no evidence of change, and none to be had: a log of {len(series.rewards)} rounds is too short for delta, "
            f"which asks for shifts of {threshold:.3g} where rewards spread over {spread:.3g}. Give a threshold."
        )
    return (
        f"no evidence of change: nowhere do the {window} rounds before and after differ by {threshold:.3g} in mean "
        "reward. A lower threshold looks closer."
    )


def find_reward_changes(series: Series, window: int, threshold: float, length: float) -> Changes:
    """Algorithm 1: rounds with |μ⁺ - μ⁻| ≥ c, the largest first, nothing within 2w of one that was taken.

    The p-value of a shift x is the theorem's own bound on the probability that rewards of range R = ``length`` shift so
    much anywhere by chance, 2 n exp(-w x² / R²). The interval of a place is that of the fit detector.
    """
    n = len(series.rewards)
    shifts = mean_shifts(series.rewards, window, series.begins, series.ends)
    candidates = np.flatnonzero(shifts >= threshold)
    best_first = candidates[np.argsort(-shifts[candidates], kind="stable")]
    found: Ints = np.sort(pick_peaks(best_first, n, 2 * window))
    log_ps = np.minimum(np.log(2 * n) - window * np.square(shifts[found] / length), 0.0)
    return Changes(found, log_ps, *intervals(series, found, np.array([window])))
