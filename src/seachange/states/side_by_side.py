"""The E-step over short chains, many of which run side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seachange.kernels.regression import unpacked
from seachange.kernels.rows import SIDE_BY_SIDE, columns_for
from seachange.kernels.short_chains import backward_group, forward_group, gather_chains, sum_group
from seachange.log.joint import LogArrays
from seachange.protocols import Bools, Floats, Ints


class Group(NamedTuple):
    """Chains that run side by side, longest first."""

    firsts: Ints
    lengths: Ints
    widths: Ints  # how many of them have a round t

    @property
    def rounds(self) -> Ints:
        """All their rounds, one chain after the other."""
        ends = np.cumsum(self.lengths)
        return np.arange(ends[-1]) + np.repeat(self.firsts - ends + self.lengths, self.lengths)


class ShortChains(NamedTuple):
    """Groups of chains, longest first, with their ``plain_sums``."""

    groups: Sequence[Group]
    sums: Floats  # (m, D (D + 3) / 2), or (m, 0) where they are not kept
    even: Bools  # (m,) whether they can be used


def groups_of(firsts: Ints, n: int) -> list[Group]:
    """``SIDE_BY_SIDE`` chains at a time of those that start at ``firsts``, the last of which ends at ``n``."""
    lengths = np.diff(firsts, append=n)
    order = np.argsort(-lengths, kind="stable")
    groups = []
    for start in range(0, firsts.size, SIDE_BY_SIDE):
        members = order[start : start + SIDE_BY_SIDE]
        own = lengths[members]
        groups.append(Group(firsts[members], own, np.searchsorted(-own, -np.arange(own[0]))))
    return groups


def short_chains(
    arrays: LogArrays,
    chains: ShortChains,
    coefs: Floats,
    variances: Floats,
    initial: Floats,
    transition: Floats,
    posteriors: Floats | None,
) -> tuple[float, Floats, Floats, Floats, Floats, Floats]:
    """Log-likelihood, first states (L,), pairs (L, L), Gram matrices, moments and totals of whole chains.

    For features in one block (B = 1). ``posteriors`` (n, L) receives p(z_t | all rewards), where it is given.
    """
    n_states, n_features = coefs.shape[0], coefs.shape[2]
    longest, clicks = chains.groups[0].widths.size, variances.size == 0
    features, filtered = columns_for(n_features, longest), columns_for(n_states, longest)
    seen, inverses = columns_for(1, longest)[0], np.empty((longest, SIDE_BY_SIDE))
    evidence = np.empty((longest, n_states, SIDE_BY_SIDE))
    scores = np.empty((longest if clicks else 0, n_states, SIDE_BY_SIDE))
    halves, log_deviations, arrivals = 0.5 / variances, 0.5 * np.log(variances), transition.T.copy()
    likelihood, first_states, pairs = 0.0, np.zeros(n_states), np.zeros((n_states, n_states))
    sums, totals = np.zeros((n_states, n_features * (n_features + 3) // 2)), np.zeros((n_states, 2))
    own = np.empty(sums.shape)
    for group, plain, even in zip(*chains, strict=True):
        gather_chains(arrays.rows, arrays.actions, arrays.rewards, group.firsts, group.widths, features, seen)
        likelihood += forward_group(
            features, seen, group.widths, coefs, halves, log_deviations, initial, arrivals, evidence, filtered,
            inverses, scores,
        )  # fmt: skip
        backward_group(group.widths, transition, evidence, filtered, inverses, first_states, pairs)
        if posteriors is not None:
            for t, width in enumerate(group.widths):
                posteriors[group.firsts[:width] + t] = filtered[:, t * SIDE_BY_SIDE :][:, :width].T
        sum_group(features, seen, group.widths, filtered, scores, plain, even, own, sums, totals)
    grams, moments = unpacked(sums, n_features)
    return likelihood, first_states, pairs, grams[:, None], moments[:, None], totals
