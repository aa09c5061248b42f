"""Segments into recurring states: the two groups whose fits differ least become one, until the rest differ."""

from __future__ import annotations

import numpy as np
from scipy import special

from seachange.protocols import Floats, Ints
from seachange.states.clustering import cluster
from seachange.states.fits import Metric, Sums, difference
from seachange.states.labels import by_first_appearance
from seachange.states.null import log_tail

# Where there are more segments, those with nearly the same fit are grouped by k-means before pairs are compared: at
# most so many groups, and so few that all their pairs take no more than so many multiplications.
MOST_GROUPS = 150
MOST_WORK = 5e9
# Segments are put to the state that explains them best, and states fitted anew, at most so often.
LAPS = 20
# For the first grouping a segment is drawn to 0 as if by this many rounds of every block.
PRIOR_ROUNDS = 2.0


def merge(segments: Sums, metric: Metric, n_states: int | None, level: float, seed: int) -> Ints:
    """(S,) state of each segment, numbered by first appearance; None: as many states as differ at ``level``."""
    groups = _first_groups(segments, n_states, seed)
    found = _agglomerate(segments.grouped(groups, int(groups.max()) + 1), groups, metric, n_states, level)
    states = renumbered(found[groups])
    for _ in range(LAPS):
        fits, noise = state_fits(segments.grouped(states, int(states.max()) + 1))
        better = renumbered(best_states(segments, fits, noise))
        if np.array_equal(better, states):
            break
        states = better
    return states


def renumbered(states: Ints) -> Ints:
    """States numbered by first appearance, without gaps."""
    found = np.unique(states, return_inverse=True)[1].reshape(-1)
    n_states = int(found.max()) + 1
    return np.asarray(np.argsort(by_first_appearance(found, n_states))[found], dtype=np.int64)


def state_fits(states: Sums) -> tuple[Floats, Floats]:
    """(L, B, D) coefficients of each state, drawn to 0 as if by one round, and (B,) the noise variance of all."""
    total = states.grouped(np.zeros(len(states), dtype=np.int64), 1)
    rounds = np.maximum(total.counts[0], 1)
    prior = total.grams[0] / rounds[:, None, None] + 1e-9 * np.eye(total.grams.shape[-1])
    coefs = states.coefs(prior)
    noise = states.squares_about(coefs).sum(axis=0) / rounds
    return coefs, np.maximum(noise, 1e-9 * total.squares[0] / rounds + 1e-300)


def best_states(segments: Sums, coefs: Floats, noise: Floats) -> Ints:
    """(S,) the state whose fit makes each segment likeliest."""
    costs = np.stack([(segments.squares_about(fit[None]) / noise).sum(axis=1) for fit in coefs], axis=1)
    # Of states that explain a segment equally well, up to rounding, it gets the first.
    least = costs.min(axis=1, keepdims=True)
    return np.asarray(np.argmax(costs <= least + 1e-9 * (1 + np.abs(least)), axis=1))


def _first_groups(segments: Sums, n_states: int | None, seed: int) -> Ints:
    n_blocks, n_features = segments.moments.shape[1:]
    most = min(MOST_GROUPS, int(np.sqrt(MOST_WORK / (n_blocks * n_features**3))))
    most = max(most, n_states or 1, 2)
    if len(segments) <= most:
        return np.arange(len(segments))
    total = segments.grouped(np.zeros(len(segments), dtype=np.int64), 1)
    scale = total.grams[0] / np.maximum(total.counts[0], 1)[:, None, None] + 1e-9 * np.eye(n_features)
    # In these coordinates fits are as far apart as their predictions; short segments are drawn together.
    shares = np.sqrt(total.counts[0] / total.counts.sum())
    fits = segments.coefs(PRIOR_ROUNDS * n_blocks * scale)
    points = np.einsum("bji,sbj->sbi", np.linalg.cholesky(scale), fits) * shares[:, None]
    return cluster(points.reshape(len(segments), -1), most, seed, starts=1)


def _agglomerate(groups: Sums, members: Ints, metric: Metric, n_states: int | None, level: float) -> Ints:
    """(G,) which of the first groups end up together; ``groups`` is used up."""
    sizes = np.bincount(members, minlength=len(groups)).astype(float)
    n_segments, owner = len(members), np.arange(len(groups))
    alive = np.ones(len(groups), dtype=bool)
    tails = np.full((len(groups), len(groups)), -np.inf)
    for first in range(len(groups) - 1):
        tails[first, first + 1 :] = log_tail(*difference(groups[first : first + 1], groups[first + 1 :], metric))
    while alive.sum() > (n_states or 1):
        alike = tails
        if n_states is None:
            alike = np.where(tails + _log_ways(sizes, n_segments) > np.log(level), tails, -np.inf)
        first, second = divmod(int(np.argmax(alike)), len(tails))
        if alike[first, second] == -np.inf:
            break
        for array in (groups.grams, groups.moments, groups.squares, groups.counts):
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
    """(G, G) log of how many ways there are to take two groups of these sizes from all segments.

    n! / (a! b! (n - a - b)!). Groups are chosen for their likeness, so that chance parts even segments of one state:
    a difference must be too large for any choice.
    """
    one, other = sizes[:, None], sizes[None, :]
    left = np.maximum(n_segments - one - other, 0)
    ways = special.gammaln(n_segments + 1) - special.gammaln(one + 1) - special.gammaln(other + 1)
    return np.asarray(ways - special.gammaln(left + 1))
