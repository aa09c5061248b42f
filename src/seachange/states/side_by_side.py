"""The E-step over short chains, many of which run side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from seachange.kernels.regression import plain_sums, unpacked
from seachange.kernels.rows import SIDE_BY_SIDE, columns_for
from seachange.kernels.short_chains import run_groups
from seachange.log.joint import LogArrays
from seachange.protocols import Bools, Floats, Ints


class ShortChains(NamedTuple):
    """Chains, longest first, of which ``SIDE_BY_SIDE`` make a group."""

    firsts: Ints  # where they start
    widths: Ints  # (m, longest) how many chains of a group have a round t
    plain_sums: Floats  # (m, D (D + 3) / 2) of the groups, or (m, 0) where they are not kept
    even: Bools  # (m,) whether they can be used

    @classmethod
    def of(cls, firsts: Ints, n: int) -> ShortChains:
        """Those that start at ``firsts``, one after the other, the last of which ends at ``n``."""
        lengths = np.diff(firsts, append=n)
        order = np.argsort(-lengths, kind="stable")
        n_groups = -(-len(firsts) // SIDE_BY_SIDE)
        widths = np.zeros((n_groups, lengths[order[0]]), dtype=np.int64)
        for group in range(n_groups):
            own = lengths[order[group * SIDE_BY_SIDE : (group + 1) * SIDE_BY_SIDE]]
            widths[group, : own[0]] = np.searchsorted(-own, -np.arange(own[0]))
        return cls(firsts[order], widths, np.empty((n_groups, 0)), np.zeros(n_groups, dtype=bool))

    def with_sums(self, arrays: LogArrays) -> ShortChains:
        """The same with their plain sums."""
        sums, even = plain_sums(arrays.rows, arrays.actions, arrays.rewards, list(self._rounds()))
        return self._replace(plain_sums=sums, even=even)

    def _rounds(self) -> Iterator[Ints]:
        """All rounds of each group."""
        for group, widths in enumerate(self.widths):
            firsts = self.firsts[group * SIDE_BY_SIDE :]
            yield np.concatenate([firsts[:width] + t for t, width in enumerate(widths)])


def short_chains(
    arrays: LogArrays,
    chains: ShortChains,
    coefs: Floats,
    variances: Floats,
    initial: Floats,
    transition: Floats,
    posteriors: Floats,
) -> tuple[float, Floats, Floats, Floats, Floats, Floats]:
    """Log-likelihood, first states (L,), pairs (L, L), Gram matrices, moments and totals of whole chains.

    For features in one block (B = 1). ``posteriors`` (n, L) receives p(z_t | all rewards), nothing where it is (0, L).
    """
    n_states, n_features = coefs.shape[0], coefs.shape[2]
    longest, clicks = chains.widths.shape[1], variances.size == 0
    features, filtered = columns_for(n_features, longest), columns_for(n_states, longest)
    seen, inverses = columns_for(1, longest)[0], np.empty((longest, SIDE_BY_SIDE))
    evidence = np.empty((longest, n_states, SIDE_BY_SIDE))
    scores = np.empty((longest if clicks else 0, n_states, SIDE_BY_SIDE))
    first_states, pairs = np.zeros(n_states), np.zeros((n_states, n_states))
    sums, totals = np.zeros((n_states, n_features * (n_features + 3) // 2)), np.zeros((n_states, 2))
    likelihood = run_groups(
        arrays.rows, arrays.actions, arrays.rewards, *chains, coefs, 0.5 / variances, 0.5 * np.log(variances), initial,
        transition, transition.T.copy(), features, seen, evidence, filtered, inverses, scores, np.empty(sums.shape),
        posteriors, first_states, pairs, sums, totals,
    )  # fmt: skip
    grams, moments = unpacked(sums, n_features)
    return likelihood, first_states, pairs, grams[:, None], moments[:, None], totals
