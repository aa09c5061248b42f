"""Where EM starts: windows of the log clustered into states by their regressions; then segments, regrouped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seachange.kernels.pieces import piece_sums
from seachange.kernels.regression import penalised_gram, solve_ridge
from seachange.protocols import Floats, Ints
from seachange.states.chain import Chain
from seachange.states.clustering import cluster
from seachange.states.em import Prior
from seachange.states.expectation import LikeliestStates, expectation
from seachange.states.switching import Rewards, SwitchingRegression

# The fit of a window or segment is drawn to 0 as if by this many rounds of every action.
PRIOR_ROUNDS = 2.0
# Where there are more windows, or their sums would hold more numbers, evenly chosen ones stand for all.
MOST_WINDOWS = 5_000
MOST_NUMBERS = 1 << 20
# States that are tried as the one to split when two others are made one.
SPLITS_TRIED = 2


class Pieces(NamedTuple):
    """Pieces of a chain, windows or segments, each with its own regression."""

    grams: Floats  # (W, B, D, D)
    moments: Floats  # (W, B, D)
    rounds: Floats  # (W,) with a reward
    scale: Floats  # (B, D, D) mean f f' over the pieces: the metric in which predictions differ
    points: Floats  # (W, B D) the regressions, in coordinates in which that metric is the plain one


@dataclass(frozen=True)
class Starts:
    """Starts for EM on a chain, all from what one regression of the whole log leaves unexplained."""

    chain: Chain
    residuals: Floats  # (n,) rewards less what the whole log's regression expects, in the chain's order
    spread: float  # variance of the residuals, more than 0
    rewards: Rewards
    seed: int

    def windows_of(self, width: int) -> Pieces:
        """Windows of ``width`` rounds; a new sequence starts a new window. Where there are too many, some of them."""
        firsts, n = self.chain.firsts, len(self.chain.log)
        counts = -(-np.diff(firsts, append=n) // width)
        places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        numbers, stride = np.arange(len(places)), self._stride(len(places))
        return self._pieces(
            np.repeat(firsts, counts) + width * places, np.where(numbers % stride == 0, numbers // stride, -1)
        )

    def _stride(self, pieces: int) -> int:
        """Every so many of these pieces is taken."""
        n_blocks, n_features = self.chain.joint.shape
        return -(-pieces // max(min(MOST_WINDOWS, MOST_NUMBERS // (n_blocks * n_features**2)), 1))

    def from_windows(
        self, windows: Pieces, n_states: int, prior: Prior, attempt: int = 0
    ) -> SwitchingRegression | None:
        """A sticky model whose states are clusters of windows; None where too few windows differ."""
        clusters = cluster(windows.points, n_states, self.seed + attempt)
        return None if clusters.max() + 1 < n_states else self._model_of(windows, clusters, n_states, prior)

    def regrouped(self, model: SwitchingRegression, shortest: int, prior: Prior) -> list[SwitchingRegression]:
        """Starts near ``model`` with its two most similar states made one, and another state made two.

        Clusters of windows may take one state for two and two for one, and EM cannot undo that; a state may also have
        lost all its rounds. The segments that the model sees, of at least ``shortest`` rounds, straddle no change: the
        states whose segments differ most are split.
        """
        found = LikeliestStates(len(self.chain.log))
        expectation(model, self.chain, found)
        firsts = np.flatnonzero(self.chain.starts | (np.diff(found.states, prepend=found.states[0]) != 0))
        taken = np.flatnonzero(np.diff(firsts, append=len(self.chain.log)) >= shortest)
        if len(taken) <= model.n_states:
            return []
        taken = taken[:: self._stride(len(taken))]
        numbers = np.full(len(firsts), -1)
        numbers[taken] = np.arange(len(taken))
        pieces = self._pieces(firsts, numbers)
        owners = found.states[firsts[taken]].astype(np.int64)
        counts = np.bincount(found.states, minlength=model.n_states)
        keep, free = _most_similar(model.reward_coefs, counts, pieces.scale)
        owners[owners == free] = keep
        candidates = []
        for state in np.unique(owners):
            members = np.flatnonzero(owners == state)
            halves = cluster(pieces.points[members], 2, self.seed)
            if halves.max() == 1:
                clusters = owners.copy()
                clusters[members[halves == 1]] = free
                candidates.append((_gap(pieces.points[members], pieces.rounds[members], halves), clusters))
        candidates.sort(key=lambda candidate: -candidate[0])
        most_promising = (clusters for _, clusters in candidates[:SPLITS_TRIED])
        return [self._model_of(pieces, clusters, model.n_states, prior) for clusters in most_promising]

    def single(self, prior: Prior) -> SwitchingRegression:
        """The start for one state: the regression of the whole log."""
        n_blocks, n_features = self.chain.joint.shape
        nothing = np.zeros((1, n_blocks, n_features))
        whole = Pieces(
            np.zeros((1, n_blocks, n_features, n_features)), nothing, np.zeros(1, np.int64), nothing, nothing
        )
        return self._model_of(whole, np.zeros(1, dtype=np.int64), 1, prior)

    def _model_of(self, pieces: Pieces, clusters: Ints, n_states: int, prior: Prior) -> SwitchingRegression:
        """A sticky model with one regression for every cluster."""
        members = (clusters[:, None] == np.arange(n_states)).astype(float)
        grams, moments = (np.einsum("wz,w...->z...", members, sums) for sums in (pieces.grams, pieces.moments))
        if self.rewards == "bernoulli":
            # Clicks curve the likelihood by their variance; one step of Newton's method from the centre. Where all
            # clicks are alike they have none, but a rate of half a click in all has.
            grams = grams * max(self.spread, 0.5 / len(self.residuals))
        transition = np.full((n_states, n_states), 1 / (prior.stay * max(n_states - 1, 1)))
        np.fill_diagonal(transition, 1 - 1 / prior.stay if n_states > 1 else 1.0)
        return SwitchingRegression(
            initial_probs=np.full(n_states, 1 / n_states),
            transition_matrix=transition,
            reward_coefs=prior.centre + solve_ridge(grams, moments, prior.penalties),
            reward_precisions=penalised_gram(grams, prior.penalties),
            noise_variances=np.empty(0) if self.rewards == "bernoulli" else np.full(n_states, self.spread),
            joint=self.chain.joint,
            rewards=self.rewards,
        )

    def _pieces(self, firsts: Ints, numbers: Ints) -> Pieces:
        """Regressions, drawn to 0, of the pieces that begin at ``firsts`` and have ``numbers``; negative: left out.

        The coordinates are such that two pieces are as far apart as their predictions differ, in the mean square over
        the log, so that the scale of a feature does not matter.
        """
        arrays, n_blocks, taken = self.chain.log.arrays, self.chain.joint.shape[0], numbers >= 0
        begins, ends = firsts[taken], np.append(firsts[1:], len(self.chain.log))[taken]
        grams, moments, _, rounds = piece_sums(arrays.rows, arrays.actions, self.residuals, begins, ends, n_blocks)
        counts = rounds.sum(axis=1)
        scale = grams.sum(axis=0) / max(int(counts.sum()), 1)
        units = np.einsum("bii->i", scale)
        scale += 1e-6 * np.diag(np.where(units > 0, units, 1.0))
        fits = np.linalg.solve(grams + PRIOR_ROUNDS * n_blocks * scale, moments[..., None])[..., 0]
        values, vectors = np.linalg.eigh(scale)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        points = np.einsum("bji,wbj->wbi", root, fits).reshape(len(grams), -1)
        return Pieces(grams, moments, counts, scale, points)


def _most_similar(coefs: Floats, counts: Ints, scale: Floats) -> tuple[int, int]:
    """The two states that cost least to make one: whose predictions differ least, over the rounds they have."""
    gaps = coefs[:, None] - coefs[None, :]
    together = np.maximum(counts[:, None] + counts[None, :], 1)
    costs = np.einsum("yzbi,bij,yzbj->yz", gaps, scale, gaps) * (counts[:, None] * counts[None, :] / together)
    np.fill_diagonal(costs, np.inf)
    first, second = np.unravel_index(int(np.argmin(costs)), costs.shape)
    return int(first), int(second)


def _gap(points: Floats, rounds: Floats, halves: Ints) -> float:
    """How far the means of two halves are apart, in units of the noise of a mean: n_0 n_1 / (n_0 + n_1) |gap|²."""
    sizes = np.bincount(halves, rounds, 2)
    means = np.stack([np.average(points[halves == h], axis=0, weights=rounds[halves == h] + 1e-12) for h in (0, 1)])
    return float(sizes.prod() / sizes.sum() * np.square(means[0] - means[1]).sum())
