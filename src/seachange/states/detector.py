"""The fit detector: changes found by a scan, put in their place, and judged by the fits on both sides."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from seachange.kernels.pieces import places
from seachange.kernels.place_intervals import place_intervals, walk_spreads
from seachange.kernels.scan import bin_scores, pick_peaks, score_shifts
from seachange.protocols import Bools, Floats, Ints
from seachange.states.fits import LEAST_ROUNDS, Series, Sums, difference
from seachange.states.null import BINS, RUNGS, least_statistic, log_p_values, normal_deviate

# The scan lets pass what is this much less surprising than the threshold, in nats: its grid misses the best place.
SLACK = 6.0
# A piece's fit is drawn to that of the whole log as if by this many rounds of every block.
PRIOR_ROUNDS = 1.0
# Rounds of moving changes to their likeliest place before they are judged.
MOVES = 5
# Nats by which the evidence for the true place falls short of the best with probability 0.05: with both sides a random
# walk, (1 - exp(-x))² = 0.95.
DROP = -math.log1p(-math.sqrt(0.95))
# Where the evidence has fallen this many times as far, it does not come back.
PATIENCE = 4.0
# Where pieces would hold more numbers, they are taken a few at a time.
MOST_NUMBERS = 1 << 24


class Changes(NamedTuple):
    """Places of a series where a new segment begins, and how sure that is."""

    places: Ints  # (C,) in order
    log_p_values: Floats  # (C,)
    low: Ints  # (C,) 95 % interval of the place
    high: Ints


def find_changes(series: Series, windows: Ints, surprise: float) -> Changes:
    """Changes of ``series`` that surprise by at least this many nats, given all other changes."""
    found = scan(series, windows, surprise)
    log_ps = np.zeros(len(found))
    # Only changes whose neighbours, or whose own place, have changed are looked at again.
    stale = np.ones(len(found), dtype=bool)
    while stale.any():
        moving = stale.copy()
        for _ in range(MOVES):
            which = np.flatnonzero(moving)
            places_now = found.copy()
            places_now[which] = locate(series, found, which, windows)
            moving = _beside(places_now != found)
            stale |= moving
            found = places_now
            if not moving.any():
                break
        which = np.flatnonzero(stale)
        log_ps[which] = judge(series, found, which, windows)
        keep = _best_of(log_ps, -surprise)
        stale = _beside(~keep)[keep]
        found, log_ps = found[keep], log_ps[keep]
    return Changes(found, log_ps, *intervals(series, found, windows))


def _beside(changed: Bools) -> Bools:
    """Those that changed, and their neighbours."""
    near = changed.copy()
    near[1:] |= changed[:-1]
    near[:-1] |= changed[1:]
    return near


def scan(series: Series, windows: Ints, surprise: float) -> Ints:
    """Candidates: peaks of the statistic at any window, where a shorter window has not seen the same change.

    Places are looked at BINS times a window. A peak of window w is the same change as one that a shorter window has
    found within w / 2 of it.
    """
    lengths = series.ends - series.begins
    windows = windows[2 * windows <= lengths.max()]
    if len(windows) == 0:
        return np.empty(0, dtype=np.int64)
    freedom = series.metric.freedom
    degrees = float(freedom.sum())
    accepted = np.empty(0, dtype=np.int64)
    for window, width, bins in _levels(series, windows):
        least = least_statistic(surprise, degrees, window, windows, lengths, SLACK)
        deviates = score_shifts(*bins.sums, bins.begins, bins.ends, width, freedom, LEAST_ROUNDS)
        above = np.flatnonzero(deviates >= normal_deviate(least, degrees))
        best_first = above[np.argsort(-deviates[above], kind="stable")]
        peaks = bins.places[pick_peaks(best_first, len(deviates), width)]
        if len(accepted):
            after = np.minimum(np.searchsorted(accepted, peaks), len(accepted) - 1)
            nearest = np.minimum(np.abs(accepted[after] - peaks), np.abs(accepted[np.maximum(after - 1, 0)] - peaks))
            peaks = peaks[nearest > window / 2]
        accepted = np.sort(np.concatenate([accepted, peaks]))
    return accepted


class _Bins(NamedTuple):
    places: Ints  # first round of each bin
    begins: Ints  # first bin of each chain
    ends: Ints
    sums: tuple[Floats, Floats, Floats]  # of scores, squares and counts


def _levels(series: Series, windows: Ints) -> Iterator[tuple[int, int, _Bins]]:
    """Each window, how many bins it is wide, and the bins: those of twice the window are pairs of the same."""
    window = int(windows[0])
    width = min(BINS, window)
    bins = _binned(series, window, width)
    scanned = set(windows.tolist())
    while 2 * window <= (series.ends - series.begins).max():
        for rung in RUNGS:
            if int(np.ceil(rung * window)) in scanned:
                yield int(np.ceil(rung * window)), int(rung * width), bins
        window, bins = 2 * window, _paired(bins)


def _binned(series: Series, window: int, width: int) -> _Bins:
    """Bins of window / width rounds, of the chains that hold two windows."""
    lengths = series.ends - series.begins
    long = lengths >= 2 * window
    counts = -(-lengths[long] * width // window)
    ends = np.cumsum(counts)
    begins = ends - counts
    within = np.arange(ends[-1]) - np.repeat(begins, counts)
    starts = np.repeat(series.begins[long], counts) + within * window // width
    stops = np.append(starts[1:], 0)
    stops[ends - 1] = series.ends[long]
    n_blocks, n_features = series.coefs.shape
    scores, squares = np.zeros((ends[-1], n_blocks, n_features)), np.zeros((ends[-1], n_blocks))
    rounds = np.zeros((ends[-1], n_blocks))
    whitening = series.metric.whitening
    bin_scores(series.rows, series.actions, series.residuals, whitening, starts, stops, scores, squares, rounds)
    return _Bins(starts, begins, ends, (scores, squares, rounds))


def _paired(bins: _Bins) -> _Bins:
    counts = bins.ends - bins.begins
    within = np.arange(bins.ends[-1]) - np.repeat(bins.begins, counts)
    first = np.flatnonzero(within % 2 == 0)
    ends = np.cumsum(-(-counts // 2))
    scores, squares, rounds = (np.add.reduceat(array, first) for array in bins.sums)
    return _Bins(bins.places[first], np.append(0, ends[:-1]), ends, (scores, squares, rounds))


def segments_of(series: Series, changes: Ints) -> tuple[Ints, Ints]:
    """Where the segments that ``changes`` cut begin, and where they end."""
    begins = np.union1d(series.begins, changes)
    return begins, np.append(begins[1:], len(series.rewards))


def locate(series: Series, changes: Ints, which: Ints, windows: Ints) -> Ints:
    """The likeliest place of ``which`` changes between their neighbours, given the fits on both sides."""
    begins, ends, spans = _surroundings(series, changes, windows)
    moved = np.empty(len(which), dtype=np.int64)
    for part in _parts(len(which), series):
        each = which[part]
        one, other = _sides(series, begins[each], changes[each], ends[each])
        fits, variances = _side_fits(series, one, other)
        coefs = series.coefs + fits / series.scales
        moved[part] = places(series.rows, series.actions, series.rewards, spans[each], coefs, variances, _clip(series))
    return moved


def intervals(series: Series, changes: Ints, windows: Ints) -> tuple[Ints, Ints]:
    """First and last round of a 95 % interval for the place of each change, between its neighbours.

    The evidence for a place has the fits on both sides integrated out. The true place falls short of the best by what
    two random walks reach at most, one into either side; a place is in the interval if it falls short by less than
    DROP nats. Where the noise scatters more than the likelihood believes, so do the walks, and nats count for less:
    places before the best are believed in as the noise after the change has it, and the other way round.
    """
    if len(changes) == 0:
        return changes, changes
    begins, ends, spans = _surroundings(series, changes, windows)
    # Neighbours that moved may have left a change less room than it had.
    spans = np.stack([np.minimum(spans[:, 0], changes), np.maximum(spans[:, 1], changes)], axis=1)
    found = np.empty((len(changes), 2), dtype=np.int64)
    clip, scales = _clip(series), np.multiply.outer(series.scales, series.scales)
    data = series.rows, series.actions, series.rewards, series.residuals
    for part in _parts(len(changes), series):
        middles = changes[part]
        one, other = _sides(series, begins[part], middles, ends[part])
        fits, variances = _side_fits(series, one, other)
        coefs = fits / series.scales
        inverses = np.stack([np.linalg.inv(side.grams + _prior(series)) / scales for side in (one, other)], axis=1)
        spreads = np.ones((len(middles), 2))
        if clip == 0:
            spreads = walk_spreads(
                series.rows, series.actions, series.residuals, begins[part], middles, ends[part], coefs, variances
            )
        drops = DROP * np.maximum(spreads[:, ::-1], 1.0)
        found[part] = place_intervals(*data, middles, spans[part], coefs, inverses, variances, drops, clip, PATIENCE)
    return found[:, 0], found[:, 1]


def _surroundings(series: Series, changes: Ints, windows: Ints) -> tuple[Ints, Ints, Ints]:
    """Where the segments beside each change begin and end, and (C, 2) between which places it may move."""
    begins, ends = segments_of(series, changes)
    right = np.searchsorted(begins, changes)
    # No segment becomes shorter than the judge can see.
    least = -(-2 * int(windows[0]) // 3) if len(windows) else 1
    spans = np.stack([begins[right - 1] + least, ends[right] - least], axis=1)
    tight = spans[:, 0] >= spans[:, 1]
    spans[tight] = changes[tight, None]
    return begins[right - 1], ends[right], spans


def _sides(series: Series, begins: Ints, changes: Ints, ends: Ints) -> tuple[Sums, Sums]:
    """What the segments before and after each change hold; a segment between two changes is added up once."""
    starts, stops = np.concatenate([begins, changes]), np.concatenate([changes, ends])
    _, first, owner = np.unique(starts, return_index=True, return_inverse=True)
    segments = series.sums(starts[first], stops[first])
    return segments[owner[: len(changes)]], segments[owner[len(changes) :]]


def _side_fits(series: Series, one: Sums, other: Sums) -> tuple[Floats, Floats]:
    """(C, 2, B, D) coefficients of the residuals on both sides of each change, and (C, B) the noise about them."""
    sides = [sums.coefs(_prior(series)) for sums in (one, other)]
    common = series.whole.squares[0] / np.maximum(series.whole.counts[0], 1)
    left = one.squares_about(sides[0]) + other.squares_about(sides[1])
    variances = (left + common) / (one.counts + other.counts + 1)
    return np.stack(sides, axis=1), np.maximum(variances, 1e-9 * common + 1e-300)


def _prior(series: Series) -> Floats:
    """(B, D, D) Gram matrix of PRIOR_ROUNDS average rounds."""
    whole = series.whole
    rounds = np.maximum(whole.counts[0], 1)
    return np.asarray(PRIOR_ROUNDS * whole.grams[0] / rounds[:, None, None] + 1e-9 * np.eye(whole.grams.shape[-1]))


def _clip(series: Series) -> float:
    """How far from 0 and 1 the probability of a click is kept; 0 where rewards are no clicks."""
    if not series.clicks:
        return 0.0
    rate = float(np.nanmean(series.rewards))
    return max(0.05 * min(rate, 1 - rate), 1e-9)


def judge(series: Series, changes: Ints, which: Ints, windows: Ints) -> Floats:
    """log p-value of ``which`` changes: the least over the windows that do not reach into the next segment but one.

    A window is cut to the segments beside the change, of which it may want a third.
    """
    begins, ends = segments_of(series, changes)
    changes = changes[which]
    right = np.searchsorted(begins, changes)
    before, after = changes - begins[right - 1], ends[right] - changes
    each, rung = np.nonzero(windows <= 1.5 * np.minimum(before, after)[:, None])
    reach = windows[rung]
    low, high = changes[each] - np.minimum(reach, before[each]), changes[each] + np.minimum(reach, after[each])
    log_ps = np.zeros(len(changes))
    for part in _parts(len(each), series):
        middle = changes[each[part]]
        statistics, degrees = difference(series.sums(low[part], middle), series.sums(middle, high[part]), series.metric)
        values = log_p_values(statistics, degrees, reach[part], windows, series.ends - series.begins)
        np.minimum.at(log_ps, each[part], values)
    return log_ps


def _best_of(log_ps: Floats, most: float) -> Bools:
    """Which changes stay: of those beside each other that do not surprise, the least surprising goes first."""
    keep = np.ones(len(log_ps), dtype=bool)
    for change in np.argsort(-log_ps, kind="stable"):
        if log_ps[change] <= most:
            break
        keep[change] = not (keep[max(change - 1, 0) : change].all() and keep[change + 1 : change + 2].all())
    return keep


def _parts(n: int, series: Series) -> list[slice]:
    """Runs of pieces few enough to hold the sums of."""
    size = max(MOST_NUMBERS // (len(series.coefs) * series.coefs.shape[1] ** 2), 1)
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
