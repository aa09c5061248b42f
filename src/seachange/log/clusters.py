"""The independent units of a log: its sequences if it has any, else its rounds, or groups of rounds that are given."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats, Ints

FIRST_FOLD = 32  # clusters in the first growing fold


@dataclass(frozen=True, eq=False)
class Clusters:
    """Rounds grouped by sequence: rounds of different clusters are independent."""

    log: BanditLog
    groups: Ints | None = None  # (n,) other groups of rounds, numbered in order of appearance

    @cached_property
    def places(self) -> Ints | None:
        """(n,) the cluster of each round, numbered in order of appearance; None if each round is its own."""
        if self.log.sequences is None or self.groups is not None:
            return self.groups
        _, first, place = np.unique(self.log.sequences, return_index=True, return_inverse=True)
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        return np.asarray(rank[place.reshape(-1)], dtype=np.int64)

    @cached_property
    def sizes(self) -> Floats:
        """(G,) rounds of each cluster."""
        return np.ones(len(self.log)) if self.places is None else np.bincount(self.places).astype(np.float64)

    def sums(self, values: Floats) -> Floats:
        """(G,) sums of ``values`` (n,)."""
        return values if self.places is None else np.asarray(np.bincount(self.places, values), dtype=np.float64)

    def folds(self, n_folds: int, weights: Floats | None = None) -> Ints:
        """(n,) the fold of each round: blocks of time with equal ``weights`` (n,), no cluster split.

        The rounds of a single cluster are split like those of a log without sequences.
        """
        whole = self.places is None or len(self.sizes) == 1
        counts = np.ones(len(self.log)) if weights is None else weights
        counts = counts if whole else self.sums(counts)
        before = np.cumsum(counts) - counts
        folds = (before * min(n_folds, len(counts)) / counts.sum()).astype(np.int64)
        # Rounds without weight at the end join the last fold; folds that a large cluster skips are removed.
        folds = np.unique(np.minimum(folds, n_folds - 1), return_inverse=True)[1].reshape(-1)
        return folds if whole else np.asarray(folds[self.places])

    def growing_folds(self) -> Ints:
        """(n,) the fold of each round: each fold has as many clusters as all folds before it.

        Later rounds do not change the folds of earlier ones.
        """
        folds = np.frexp(np.arange(len(self.sizes)) // FIRST_FOLD)[1].astype(np.int64)
        return folds if self.places is None else folds[self.places]

    def largest_so_far(self, values: Floats) -> Floats:
        """(G,) the largest of ``values`` (n,) in each cluster and all before it."""
        tops = values
        if self.places is not None:
            tops = np.full(len(self.sizes), -np.inf)
            np.maximum.at(tops, self.places, values)
        return np.asarray(np.maximum.accumulate(tops), dtype=np.float64)
