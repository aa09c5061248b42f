"""Clustering: k-means on points, and merging of segments with similar fits into states."""

import numpy as np
from scipy import special

from seachange.engine import one_thread
from seachange.protocols import Floats, Ints
from seachange.states.labels import by_first_appearance
from seachange.states.segment_fits import Metric, Sums, difference, log_tail

# Points count as equal if they differ by less than this share of the range: k-means cannot resolve such gaps.
SAME_POINT = 1e-6
# With more segments than this, k-means first groups those with similar fits. Fewer groups are made if comparing all
# pairs would take more than MAX_WORK multiplications.
MAX_GROUPS, MAX_WORK = 150, 5e9
# Times that segments are reassigned to the best state and states are refitted.
MAX_PASSES = 20
# For the first grouping, fits are shrunk toward 0 as if by this many rounds per block.
PRIOR_ROUNDS = 2.0


def cluster(points: Floats, n_clusters: int, seed: int, starts: int = 10) -> Ints:
    """(m,) cluster of each of the (m, d) points by k-means; at most one cluster per distinct point."""
    from sklearn.cluster import KMeans

    spread = float(np.ptp(points, axis=0).max())
    rounded = np.round((points - points.min(axis=0)) / (spread or 1.0) / SAME_POINT) * SAME_POINT
    distinct, owners = np.unique(rounded, axis=0, return_inverse=True)
    if len(distinct) <= n_clusters:
        return owners.reshape(-1).astype(np.int64)
    with one_thread():
        means = KMeans(n_clusters, n_init=starts, random_state=seed).fit(rounded)
    return np.asarray(means.labels_, dtype=np.int64)


def merge(segments: Sums, metric: Metric, n_states: int | None, level: float, seed: int) -> Ints:
    """(S,) state of each segment, by first appearance; ``n_states`` None: as many as differ at ``level``."""
    groups = _first_groups(segments, n_states, seed)
    found = _agglomerate(segments.grouped(groups, int(groups.max()) + 1), groups, metric, n_states, level)
    states = renumbered(found[groups])
    for _ in range(MAX_PASSES):
        fits, noise = state_fits(segments.grouped(states, int(states.max()) + 1))
        better = renumbered(best_states(segments, fits, noise))
        if np.array_equal(better, states):
            break
        states = better
    return states


def renumbered(states: Ints) -> Ints:
    """States renumbered by first appearance, without gaps."""
    found = np.unique(states, return_inverse=True)[1].reshape(-1)
    n_states = int(found.max()) + 1
    return np.asarray(np.argsort(by_first_appearance(found, n_states))[found], dtype=np.int64)


def state_fits(states: Sums) -> tuple[Floats, Floats]:
    """(L, B, D) coefficients of each state, shrunk toward 0 as if by one round, and (B,) the common noise variance."""
    total = states.total()
    rounds = np.maximum(total.counts[0], 1)
    coefs = states.coefs(total.average_gram())
    noise = states.squares_about(coefs).sum(axis=0) / rounds
    return coefs, np.maximum(noise, 1e-9 * total.squares[0] / rounds + 1e-300)


def best_states(segments: Sums, coefs: Floats, noise: Floats) -> Ints:
    """(S,) the state whose fit makes each segment most likely; the first one if they tie up to rounding."""
    costs = np.stack([(segments.squares_about(fit[None]) / noise).sum(axis=1) for fit in coefs], axis=1)
    least = costs.min(axis=1, keepdims=True)
    return np.asarray(np.argmax(costs <= least + 1e-9 * (1 + np.abs(least)), axis=1))


def _first_groups(segments: Sums, n_states: int | None, seed: int) -> Ints:
    n_blocks, n_features = segments.moments.shape[1:]
    most = min(MAX_GROUPS, int(np.sqrt(MAX_WORK / (n_blocks * n_features**3))))
    most = max(most, n_states or 1, 2)
    if len(segments) <= most:
        return np.arange(len(segments))
    total = segments.total()
    scale = total.average_gram()
    # In these coordinates, the distance of two fits is that of their predictions.
    shares = np.sqrt(total.counts[0] / total.counts.sum())
    fits = segments.coefs(PRIOR_ROUNDS * n_blocks * scale)
    points = np.einsum("bji,sbj->sbi", np.linalg.cholesky(scale), fits) * shares[:, None]
    return cluster(points.reshape(len(segments), -1), most, seed, starts=1)


def _agglomerate(groups: Sums, members: Ints, metric: Metric, n_states: int | None, level: float) -> Ints:
    """(G,) merged group of each initial group; overwrites ``groups``."""
    sizes = np.bincount(members, minlength=len(groups)).astype(float)
    n_segments, owner = len(members), np.arange(len(groups))
    alive = np.ones(len(groups), dtype=bool)
    tails = np.full((len(groups), len(groups)), -np.inf)
    for first in range(len(groups) - 1):
        tails[first, first + 1 :] = log_tail(*difference(groups[first : first + 1], groups[first + 1 :], metric))
    while alive.sum() > (n_states or 1):
        candidates = tails
        if n_states is None:
            candidates = np.where(tails + _log_ways(sizes, n_segments) > np.log(level), tails, -np.inf)
        first, second = divmod(int(np.argmax(candidates)), len(tails))
        if candidates[first, second] == -np.inf:
            break
        for array in groups:
            array[first] += array[second]
        sizes[first] += sizes[second]
        alive[second] = False
        owner[owner == second] = first
        tails[second, :] = tails[:, second] = -np.inf
        others = np.flatnonzero(alive & (np.arange(len(alive)) != first))
        if len(others):
            values = log_tail(*difference(groups[first : first + 1], groups[others], metric))
            tails[np.minimum(first, others), np.maximum(first, others)] = values
    return owner


def _log_ways(sizes: Floats, n_segments: int) -> Floats:
    """(G, G) log of the number of ways to choose two groups of these sizes: n! / (a! b! (n - a - b)!).

    Groups are formed by similarity, so even segments of one state differ between groups by chance. The test corrects
    for all possible choices of two groups.
    """
    one, other = sizes[:, None], sizes[None, :]
    left = np.maximum(n_segments - one - other, 0)
    ways = special.gammaln(n_segments + 1) - special.gammaln(one + 1) - special.gammaln(other + 1)
    return np.asarray(ways - special.gammaln(left + 1))
