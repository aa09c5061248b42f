"""Drift: rewards and actions over slices of time, and whether a single state is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seachange.check.action_checks import COUNT, FOLLOWED
from seachange.check.counters import SLICES
from seachange.check.log_check import Drift
from seachange.protocols import Floats

if TYPE_CHECKING:
    from seachange.check.tally import Tally

# Rounds of an action in a slice that its mean there needs.
FEWEST = 5
FEWEST_SLICES = 5
# Standard deviations beyond chance: one false alarm in ten thousand logs.
SURE = 4.0
# Slices that are merged to find small, slow changes.
MERGED = 8
# Actions whose share is shown.
SHOWN = 6


def drift_of(tally: Tally) -> Drift | None:
    """The log in slices of time; None if it is too short."""
    count, lengths = tally.slices.count, tally.slices.lengths
    if count < FEWEST_SLICES or not tally.rewards.count:
        return None
    # A short last slice is merged into the one before.
    short = count > 1 and lengths[-1] < lengths[0] / 2

    def by_slice(values: Floats) -> Floats:
        found = values[..., : count - short].copy()
        if short:
            found[..., -1] += values[..., count - 1]
        return found

    observed, sums = by_slice(tally.rewards.observed.values[0]), by_slice(tally.rewards.sums.values[0])
    means = np.divide(sums, observed, out=np.full(len(sums), np.nan), where=observed > 0)
    followed = min(tally.actions.count, FOLLOWED)
    order = np.argsort(-tally.actions.totals[:followed, COUNT], kind="stable")[:SHOWN]
    shares = by_slice(tally.actions.taken.part(followed, SLICES)[order]) / by_slice(lengths)
    names = tally.actions.names
    reward_z = max(_between_slices(tally, 1), _between_slices(tally, MERGED))
    neighbour_z = _between_neighbours(tally)
    return Drift(
        slice_rounds=tally.slices.size,
        mean_rewards=tuple(float(mean) if np.isfinite(mean) else None for mean in means),
        actions=tuple(names[a] for a in order),
        shares=tuple(tuple(float(share) for share in row) for row in shares),
        reward_z=reward_z,
        neighbour_z=neighbour_z,
        changes=max(reward_z, neighbour_z) > SURE,
    )


def _between_slices(tally: Tally, merged: int) -> float:
    """Do actions earn the same in all slices? A χ² of their means, as a z-score (Wilson, Hilferty)."""
    actions, followed = tally.actions, min(tally.actions.count, FOLLOWED)
    n, sums, squares = (
        each.part(followed, SLICES).reshape(followed, -1, merged).sum(axis=2)
        for each in (actions.rewarded, actions.earned, actions.squares)
    )
    totals = n.sum(axis=1, keepdims=True)
    grand = sums.sum(axis=1, keepdims=True) / np.maximum(totals, 1)
    spread = np.maximum(squares.sum(axis=1, keepdims=True) - totals * grand**2, 0) / np.maximum(totals - 1, 1)
    # If a slice expects only a few rewards, its mean is far from normal.
    expects = np.abs(sums.sum(axis=1, keepdims=True)) / np.maximum(totals, 1) * n
    used = (n >= FEWEST) & (spread > 0) & ((expects >= FEWEST) | (tally.rewards.lowest < 0))
    gaps = np.divide(n * np.square(sums / np.maximum(n, 1) - grand), spread, out=np.zeros_like(n), where=used)
    degrees = int((used.sum(axis=1) - 1).clip(min=0).sum())
    if degrees < 3:
        return 0.0
    ratio = float(gaps.sum()) / degrees
    return float((np.cbrt(ratio) - (1 - 2 / (9 * degrees))) / np.sqrt(2 / (9 * degrees)))


def _between_neighbours(tally: Tally) -> float:
    """Are consecutive rewards correlated, beyond the means of their actions?"""
    rewards = tally.rewards
    if rewards.count < 200 or not rewards.product_squares > 0:
        return 0.0
    return float(rewards.products / np.sqrt(rewards.product_squares))
