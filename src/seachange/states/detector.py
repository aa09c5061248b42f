"""Change-point detectors: a scan of regression fits with windows of many lengths, and the paper's scan of mean rewards.

The first part is the null distribution: the p-value of a statistic in a log without changes, and the windows to scan.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import special

from seachange.kernels import change_scans
from seachange.log.bandit_log import BanditLog
from seachange.params import require
from seachange.protocols import Bools, Floats, Ints
from seachange.states.labels import places_in_chains
from seachange.states.segment_fits import LEAST_ROUNDS, Series, Sums, chain_lengths, difference, log_tail

# The window grid grows by factors of 3/2 and 4/3.
GRID_STEPS = (1.0, 1.5)
# Positions per window at which the statistic is computed.
BINS = 8
# The scan keeps candidates this many nats below the threshold, because its grid misses the best position.
SLACK = 6.0
# Iterations of moving changes to their most likely position before they are tested.
MAX_MOVES = 5
# Iterations of measuring the autocorrelation of the noise.
MAX_PASSES = 10
# States do not make noise that stays correlated for less than this share of the shortest window.
FAST = 0.15
# The gain of a lost change that is due to chance, beyond that of its place and its coefficients: see decision 6.
CHANCE = -1.5
# The evidence for the true position is this many nats below the best with probability 0.05: if both sides are random
# walks, (1 - exp(-x))² = 0.95.
DROP = -math.log1p(-math.sqrt(0.95))
# Once the evidence has dropped this many times as far, it does not recover.
PATIENCE = 4.0
# Segments are processed in batches if their sums would hold more numbers than this.
MAX_NUMBERS = 1 << 24


def log_p_values(statistics: Floats, degrees: Floats, windows: Ints, grid: Ints, lengths: Ints) -> Floats:
    """log of the probability that chains of these lengths, without changes, have a statistic this large anywhere."""
    comparisons = log_comparisons(statistics, degrees, windows, grid, lengths)
    return np.asarray(np.minimum(log_tail(statistics, degrees) + comparisons, 0.0))


def log_comparisons(statistics: Floats, degrees: Floats, windows: Ints, grid: Ints, lengths: Ints) -> Floats:
    """log of the number of independent comparisons in a scan.

    The autocorrelation of the statistic of window w decays at rate 3 / (2w) per round. Without changes it crosses q
    upward (3 m / 2w) (q - ν) P(χ²_ν ≥ q) times in m rounds, like a sum of ν squared Gaussian processes with that
    autocorrelation (Pickands); each chain adds its first comparison. The windows of the grid share the error equally.
    """
    order = np.argsort(lengths)
    longer = np.searchsorted(lengths[order], 2 * windows)
    chains = len(lengths) - longer
    rounds = np.append(np.cumsum(lengths[order][::-1])[::-1], 0)[longer] - 2 * windows * chains
    crossings = np.minimum(1.5 * np.maximum(statistics - degrees, 1.0) / windows, 1.0)
    return np.asarray(np.log(np.maximum(chains + crossings * rounds, 1.0) * len(grid)))


def critical_value(
    threshold: float, degrees: float, window: int, grid: Ints, lengths: Ints, slack: float = 0.0
) -> float:
    """The statistic of ``window`` with p-value exp(-threshold), or, with ``slack``, that many nats less significant.

    The slack is at most half of the nats that a single comparison needs: in a short log there are few comparisons.
    """
    statistic = degrees + 2 * threshold
    for _ in range(8):
        given = np.array([statistic]), np.array([degrees]), np.array([window])
        # Beyond 600 nats a probability underflows.
        total = min(threshold + float(log_comparisons(*given, grid, lengths)[0]), 600.0)
        total = max(total - slack, total / 2)
        statistic = 2 * float(special.gammainccinv(degrees / 2, math.exp(-total)))
    return statistic


def window_grid(lengths: Ints, degrees: float, threshold: float) -> Ints:
    """Windows to scan with, each 3/2 or 4/3 of the previous one, up to half of the longest chain.

    The first is the shortest in which a change of two standard deviations can be significant: it explains half of
    the variance of the 2w rounds, so its statistic is w. (A statistic cannot exceed the number of its rounds.)
    """
    longest, windows = int(lengths.max()), np.array([8])
    for _ in range(4):
        first = critical_value(threshold, degrees, int(windows[0]), windows, lengths) if len(windows) else 8.0
        size, found = max(math.ceil(first), 8), []
        while 2 * size <= longest:
            found += [math.ceil(step * size) for step in GRID_STEPS if 2 * math.ceil(step * size) <= longest]
            size *= 2
        windows = np.array(found, dtype=np.int64)
    return windows


class Changes(NamedTuple):
    """Positions in a series at which a new segment begins, with p-values and intervals."""

    positions: Ints  # (C,) in order
    log_p_values: Floats  # (C,)
    low: Ints  # (C,) 95% interval of the position
    high: Ints


def find_changes(series: Series, windows: Ints, threshold: float) -> tuple[Changes, Series]:
    """Changes of ``series`` with a p-value of at most exp(-threshold), and the series with the noise of their tests.

    Autocorrelated noise looks like changes, and changes look like autocorrelated noise. Noise is first taken to be
    independent. Its autocorrelation is then measured within the segments found, and changes are found again, until it
    no longer grows, or until real changes would be lost.
    """
    found: list[tuple[Changes, Series, Floats]] = []
    for _ in range(MAX_PASSES):
        changes = _find(series, windows, threshold)
        errors = series.errors_within(*segments_of(series, changes.positions))
        if found and _loses_changes(series, found[-1][0].positions, changes.positions, found[-1][2], errors, windows):
            break
        found.append((changes, series, errors))
        noise = series.noise_of(errors)
        if noise.overall <= 1.02 * series.noise.overall:
            break
        series = replace(series, noise=noise)
    return found[-1][:2]


def _loses_changes(series: Series, before: Ints, after: Ints, small: Floats, large: Floats, windows: Ints) -> bool:
    """Whether most changes lost from ``before`` to ``after`` are real, given the errors (n,) with and without them.

    The noise of ``series`` was measured with them. If it lasts long enough to be states, the gain in likelihood that
    each lost change has in this noise decides. By chance, the best of n / C places gains about 2 log(n / C), plus 1 for
    each coefficient. Real changes can be among many false ones, so it is the median gain that counts.
    """
    cells = np.append(0, (before[1:] + before[:-1]) // 2)
    lost = np.bincount(np.searchsorted(cells, after, side="right") - 1, minlength=len(cells)) == 0
    if len(before) == 0 or not lost.any() or series.noise.lasts <= FAST * windows[0]:
        return False
    worse = np.square(series.noise.innovations(large)) - np.square(series.noise.innovations(small))
    gain = np.median(np.add.reduceat(worse, cells)[lost])
    return bool(gain > 2 * np.log(len(small) / lost.sum()) + series.coefs.size + CHANCE)


def _find(series: Series, windows: Ints, threshold: float) -> Changes:
    """Changes that are significant, given all other changes."""
    found = scan(series, windows, threshold)
    while True:
        for _ in range(MAX_MOVES):
            before, found = found, locate(series, found, windows)
            if np.array_equal(before, found):
                break
        log_ps = p_values_of(series, found, windows)
        keep = _significant(log_ps, -threshold)
        if keep.all():
            return Changes(found, log_ps, *intervals(series, found, windows))
        found = found[keep]


def scan(series: Series, windows: Ints, threshold: float) -> Ints:
    """Candidates: peaks of the statistic in any window, unless a shorter window has found the same change.

    The statistic is computed BINS times per window. A peak of window w is the same change as one that a shorter window
    has found within w / 2 of it.
    """
    lengths = series.ends - series.begins
    windows = windows[2 * windows <= lengths.max()]
    if len(windows) == 0:
        return np.empty(0, dtype=np.int64)
    freedom = series.metric.freedom
    degrees = float(freedom.sum())
    accepted = np.empty(0, dtype=np.int64)
    for window, width, bins in _levels(series, windows):
        least = critical_value(threshold, degrees, window, windows, lengths, SLACK)
        # Like the kernel's: the normal deviate of the same tail probability, by the Wilson-Hilferty cube root.
        unit = 2 / (9 * degrees)
        lowest = ((least * series.noise.within / degrees) ** (1 / 3) - 1 + unit) / math.sqrt(unit)
        deviates = change_scans.score_shifts(*bins.sums, bins.begins, bins.ends, width, freedom, LEAST_ROUNDS)
        above = np.flatnonzero(deviates >= lowest)
        best_first = above[np.argsort(-deviates[above], kind="stable")]
        peaks = bins.starts[change_scans.pick_peaks(best_first, len(deviates), width)]
        if len(accepted):
            after = np.minimum(np.searchsorted(accepted, peaks), len(accepted) - 1)
            nearest = np.minimum(np.abs(accepted[after] - peaks), np.abs(accepted[np.maximum(after - 1, 0)] - peaks))
            peaks = peaks[nearest > window / 2]
        accepted = np.sort(np.concatenate([accepted, peaks]))
    return accepted


class _Bins(NamedTuple):
    starts: Ints  # first round of each bin
    begins: Ints  # first bin of each chain
    ends: Ints
    sums: Sequence[Floats]  # of scores, squares and counts


def _levels(series: Series, windows: Ints) -> Iterator[tuple[int, int, _Bins]]:
    """Each window, its width in bins, and the bins; when the window doubles, pairs of bins are joined."""
    window = int(windows[0])
    width = min(BINS, window)
    bins = _binned(series, window, width)
    scanned = set(windows.tolist())
    while 2 * window <= (series.ends - series.begins).max():
        for step in GRID_STEPS:
            if int(np.ceil(step * window)) in scanned:
                yield int(np.ceil(step * window)), int(step * width), bins
        window, bins = 2 * window, _paired(bins)


def _binned(series: Series, window: int, width: int) -> _Bins:
    """Bins of window / width rounds, in the chains with at least two windows."""
    lengths = series.ends - series.begins
    long = lengths >= 2 * window
    counts = -(-lengths[long] * width // window)
    ends = np.cumsum(counts)
    begins = ends - counts
    starts = np.repeat(series.begins[long], counts) + places_in_chains(begins, ends[-1]) * window // width
    stops = np.append(starts[1:], 0)
    stops[ends - 1] = series.ends[long]
    n_blocks, n_features = series.coefs.shape
    sums = [np.zeros((ends[-1], n_blocks, *shape)) for shape in ((n_features,), (), ())]
    change_scans.bin_scores(*series.data, series.metric.whitening, starts, stops, *sums)
    return _Bins(starts, begins, ends, sums)


def _paired(bins: _Bins) -> _Bins:
    first = np.flatnonzero(places_in_chains(bins.begins, bins.ends[-1]) % 2 == 0)
    ends = np.cumsum(-(-(bins.ends - bins.begins) // 2))
    sums = [np.add.reduceat(array, first) for array in bins.sums]
    return _Bins(bins.starts[first], np.append(0, ends[:-1]), ends, sums)


def segments_of(series: Series, changes: Ints) -> tuple[Ints, Ints]:
    """Where the segments between ``changes`` begin and end."""
    begins = np.union1d(series.begins, changes)
    return begins, np.append(begins[1:], len(series.rewards))


def locate(series: Series, changes: Ints, windows: Ints) -> Ints:
    """The most likely positions of changes between their neighbors, given the fits on both sides."""
    begins, ends, spans = _neighborhoods(series, changes, windows)
    moved = np.empty(len(changes), dtype=np.int64)
    for batch in _batches(len(changes), series):
        fits, variances = _side_fits(series, *_side_sums(series, begins[batch], changes[batch], ends[batch]))
        coefs, data = series.coefs + series.units.raw_coefs(fits), (series.rows, series.actions, series.rewards)
        moved[batch] = change_scans.best_positions(*data, spans[batch], coefs, variances, series.clip)
    return moved


def intervals(series: Series, changes: Ints, windows: Ints) -> tuple[Ints, Ints]:
    """First and last round of a 95% interval for the position of each change, between its neighbors.

    The evidence for a position has the fits on both sides integrated out. The evidence for the true position is below
    the best by the maximum of two random walks, one into each side; the interval contains the positions less than DROP
    nats below the best. If the noise varies more than the likelihood assumes, or is autocorrelated, so do the walks,
    and DROP grows with them: before the best position by the noise after the change, and vice versa.
    """
    if len(changes) == 0:
        return changes, changes
    begins, ends, spans = _neighborhoods(series, changes, windows)
    # Neighbors may have moved closer since the change was located.
    spans = np.stack([np.minimum(spans[:, 0], changes), np.maximum(spans[:, 1], changes)], axis=1)
    found = np.empty((len(changes), 2), dtype=np.int64)
    clip, units = series.clip, series.units
    data = series.rows, series.actions, series.rewards, series.residuals
    for batch in _batches(len(changes), series):
        middles = changes[batch]
        sides = _side_sums(series, begins[batch], middles, ends[batch])
        deviations, variances = _side_fits(series, *sides)
        coefs, prior = units.raw_coefs(deviations), series.whole.average_gram()
        own = np.stack([np.linalg.inv(side.grams + prior) for side in sides], axis=1, dtype=np.float64)
        inverses = units.raw_inverses(own)
        spreads = np.ones((len(middles), 2))
        if clip == 0:
            places = begins[batch], middles, ends[batch]
            spreads = change_scans.likelihood_spreads(*series.data, *places, coefs, variances)
        fits = coefs, inverses, variances, DROP * series.noise.overall * np.maximum(spreads[:, ::-1], 1.0)
        found[batch] = change_scans.position_intervals(*data, middles, spans[batch], *fits, clip, PATIENCE)
    return found[:, 0], found[:, 1]


def _neighborhoods(series: Series, changes: Ints, windows: Ints) -> tuple[Ints, Ints, Ints]:
    """Begin of the segment before each change, end of the one after it, and (C, 2) the range of its position."""
    begins, ends = segments_of(series, changes)
    right = np.searchsorted(begins, changes)
    # Segments stay long enough to be tested.
    least = -(-2 * int(windows[0]) // 3) if len(windows) else 1
    spans = np.stack([begins[right - 1] + least, ends[right] - least], axis=1)
    tight = spans[:, 0] >= spans[:, 1]
    spans[tight] = changes[tight, None]
    return begins[right - 1], ends[right], spans


def _side_sums(series: Series, begins: Ints, changes: Ints, ends: Ints) -> tuple[Sums, Sums]:
    """Sums of the segments before and after each change; a segment between two changes is summed once."""
    starts, stops = np.concatenate([begins, changes]), np.concatenate([changes, ends])
    _, first, owner = np.unique(starts, return_index=True, return_inverse=True)
    segments = series.sums(starts[first], stops[first])
    return segments[owner[: len(changes)]], segments[owner[len(changes) :]]


def _side_fits(series: Series, one: Sums, other: Sums) -> tuple[Floats, Floats]:
    """(C, 2, B, D) coefficients of the residuals on both sides, shrunk as if by one round, and (C, B) the noise."""
    sides = [sums.coefs(series.whole.average_gram()) for sums in (one, other)]
    common = series.whole.squares[0] / np.maximum(series.whole.counts[0], 1)
    left = one.squares_about(sides[0]) + other.squares_about(sides[1])
    variances = (left + common) / (one.counts + other.counts + 1)
    return np.stack(sides, axis=1), np.maximum(variances, 1e-9 * common + 1e-300)


def p_values_of(series: Series, changes: Ints, windows: Ints) -> Floats:
    """log p-value of each change: the smallest over all windows, each cut to the adjacent segments.

    At most a third of a window may be cut off.
    """
    begins, ends = segments_of(series, changes)
    right = np.searchsorted(begins, changes)
    before, after = changes - begins[right - 1], ends[right] - changes
    each, rung = np.nonzero(windows <= 1.5 * np.minimum(before, after)[:, None])
    reach = windows[rung]
    low, high = changes[each] - np.minimum(reach, before[each]), changes[each] + np.minimum(reach, after[each])
    log_ps = np.zeros(len(changes))
    for batch in _batches(len(each), series):
        middle = changes[each[batch]]
        sides = series.sums(low[batch], middle), series.sums(middle, high[batch])
        statistics, degrees = difference(*sides, series.metric)
        values = log_p_values(statistics, degrees, reach[batch], windows, series.ends - series.begins)
        np.minimum.at(log_ps, each[batch], values)
    return log_ps


def _significant(log_ps: Floats, most: float) -> Bools:
    """Which changes to keep; of adjacent changes that are not significant, only the least significant is dropped."""
    keep = np.ones(len(log_ps), dtype=bool)
    for change in np.argsort(-log_ps, kind="stable"):
        if log_ps[change] <= most:
            break
        keep[change] = not (keep[max(change - 1, 0) : change].all() and keep[change + 1 : change + 2].all())
    return keep


def _batches(n: int, series: Series) -> list[slice]:
    """Slices of segments whose sums fit into memory."""
    size = max(MAX_NUMBERS // (len(series.coefs) * series.coefs.shape[1] ** 2), 1)
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def find_reward_changes(series: Series, window: int, threshold: float, length: float) -> Changes:
    """The paper's Algorithm 1: rounds with |μ⁺ - μ⁻| ≥ c, largest first, none within 2w of one already taken.

    The p-value of a shift x is the theorem's bound on the probability that rewards of range R = ``length`` shift that
    much anywhere by chance, 2 n exp(-w x² / R²), if they are independent. Intervals are those of ``find_changes``.
    """
    n = len(series.rewards)
    shifts = change_scans.mean_shifts(series.rewards, window, series.begins, series.ends)
    candidates = np.flatnonzero(shifts >= threshold)
    best_first = candidates[np.argsort(-shifts[candidates], kind="stable")]
    found: Ints = np.sort(change_scans.pick_peaks(best_first, n, 2 * window))
    log_ps = np.minimum(np.log(2 * n) - window * np.square(shifts[found] / length), 0.0)
    return Changes(found, log_ps, *intervals(series, found, np.array([window])))


def require_length(log: BanditLog, window: int) -> None:
    """Raise if no chain of ``log`` has at least two windows."""
    longest, what = int(chain_lengths(log).max()), "the log" if log.sequences is None else "the longest sequence"
    require(
        2 * window <= longest,
        f"window={window} needs at least {2 * window} rounds; {what} has {longest}. Use a shorter window or a larger "
        "min_change.",
    )
