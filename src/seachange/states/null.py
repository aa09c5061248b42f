"""What chance does to the scan of a log without changes: windows, and the surprise of a statistic."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from seachange.protocols import Floats, Ints

# The ladder of windows: steps of 3/2 and 4/3.
RUNGS = (1.0, 1.5)
# The statistic of a window is looked at this often per window.
BINS = 8


def log_tail(statistics: Floats, degrees: Floats) -> Floats:
    """log P(χ²_ν ≥ q); 0 where ν is 0."""
    halves, middles = np.maximum(degrees, 1e-9) / 2, np.maximum(statistics, 0) / 2
    with np.errstate(divide="ignore", under="ignore"):
        tails = np.log(special.gammaincc(halves, middles))
    # Too small for a float: the leading term of its expansion, x^(a - 1) e^(-x) / Γ(a), and a bound on the rest.
    far = np.maximum(middles, 1e-300)
    leading = (halves - 1) * np.log(far) - far - special.gammaln(halves)
    rest = -np.log1p(-np.clip((halves - 1) / far, 0, 0.99))
    return np.where(degrees > 0, np.where(np.isfinite(tails), tails, leading + rest), 0.0)


def log_p_values(statistics: Floats, degrees: Floats, windows: Ints, ladder: Ints, lengths: Ints) -> Floats:
    """log of the probability that chance makes such a statistic anywhere in chains of these lengths; at most 0."""
    comparisons = log_comparisons(statistics, degrees, windows, ladder, lengths)
    return np.asarray(np.minimum(log_tail(statistics, degrees) + comparisons, 0.0))


def log_comparisons(statistics: Floats, degrees: Floats, windows: Ints, ladder: Ints, lengths: Ints) -> Floats:
    """log of how many independent comparisons a scan is worth.

    The statistic of window w forgets at the rate 3 / (2w) a round. In a log without changes it rises above q
    (3 m / 2w) (q - ν) P(χ²_ν ≥ q) times in m rounds, as a process of ν squared Gaussians with that memory does
    (Pickands); a chain adds its first comparison. Every window of the ladder has the same share of the probability.
    """
    order = np.argsort(lengths)
    longer = np.searchsorted(lengths[order], 2 * windows)
    chains = len(lengths) - longer
    rounds = np.append(np.cumsum(lengths[order][::-1])[::-1], 0)[longer] - 2 * windows * chains
    rises = np.minimum(1.5 * np.maximum(statistics - degrees, 1.0) / windows, 1.0)
    return np.asarray(np.log(np.maximum(chains + rises * rounds, 1.0) * len(ladder)))


def normal_deviate(statistic: float, degrees: float) -> float:
    """About how many standard deviations of a normal variable are as rare: the cube root of Wilson and Hilferty."""
    unit = 2 / (9 * degrees)
    return float(((statistic / degrees) ** (1 / 3) - 1 + unit) / math.sqrt(unit))


def least_statistic(
    surprise: float, degrees: float, window: int, ladder: Ints, lengths: Ints, slack: float = 0.0
) -> float:
    """The statistic of ``window`` whose p-value is exp(-surprise), or, with ``slack``, that many nats less surprising.

    At most half of what a single comparison must surprise by is given away: a short log makes few of them.
    """
    given = np.array([degrees]), np.array([window]), ladder, lengths
    statistic = degrees + 2 * surprise
    for _ in range(8):
        known = np.array([statistic])
        # Beyond this many nats a probability is too small for a float.
        total = min(surprise + float(log_comparisons(known, *given)[0]), 600.0)
        total = max(total - slack, total / 2)
        statistic = 2 * float(special.gammainccinv(degrees / 2, math.exp(-total)))
    return statistic


def ladder_for(lengths: Ints, degrees: float, surprise: float) -> Ints:
    """Windows to scan with, each 3/2 or 4/3 of the one before, up to half of the longest chain.

    The first is the least in which a change of two standard deviations can pass for one: it makes half of the variance
    of the 2w rounds, so that the statistic is w. (A statistic cannot exceed the number of its rounds.)
    """
    longest, windows = int(lengths.max()), np.array([8])
    for _ in range(4):
        first = least_statistic(surprise, degrees, int(windows[0]), windows, lengths) if len(windows) else 8.0
        windows = _rungs(max(math.ceil(first), 8), longest)
    return windows


def _rungs(size: int, longest: int) -> Ints:
    windows: list[int] = []
    while 2 * size <= longest:
        windows += [math.ceil(rung * size) for rung in RUNGS if 2 * math.ceil(rung * size) <= longest]
        size *= 2
    return np.array(windows, dtype=np.int64)
