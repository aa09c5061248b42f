"""Rewards, counted one part of a log after the other."""

from __future__ import annotations

import numpy as np

from seachange.check.record import MOST_PLACES, Place
from seachange.check.rounds import Rounds
from seachange.check.slices import Slices
from seachange.protocols import Floats, Ints

# Powers of two that a reward may have: from 2^-400 on everything is as good as 0.
POWERS, LEAST_POWER = 800, -400


class RewardTally:
    """Moments, sizes and the extremes of rewards."""

    def __init__(self, slices: Slices) -> None:
        self.count = self.zeros = self.ones = self.negative = 0
        self.total = 0.0
        self.lowest, self.highest = np.inf, -np.inf
        self.sizes = np.zeros(POWERS, dtype=np.int64)  # how many have |r| in [2^(i-1), 2^i)
        self.largest: list[tuple[float, Place]] = []
        self.below_zero: list[Place] = []
        self.observed, self.rewarded, self.sums = slices.sums(), slices.sums(), slices.sums()
        # Products of what neighbours earned beyond the mean of their actions.
        self.products = self.product_squares = 0.0
        self._left: float = np.nan

    def add(self, rounds: Rounds, members: Ints) -> None:
        """Take up a part."""
        rewards = rounds.rewards
        finite = np.isfinite(rewards)
        seen = rewards[finite]
        earned = finite & (rewards != 0)
        self.observed.add(members[finite])
        self.rewarded.add(members[earned])
        self.sums.add(members[finite], seen)
        if not len(seen):
            return
        self.count += len(seen)
        self.zeros += int((seen == 0).sum())
        self.ones += int((seen == 1).sum())
        self.negative += int((seen < 0).sum())
        self.total += float(seen.sum())
        self.lowest, self.highest = min(self.lowest, float(seen.min())), max(self.highest, float(seen.max()))
        powers = np.frexp(seen[seen != 0])[1]
        self.sizes += np.bincount(np.clip(powers - LEAST_POWER, 0, POWERS - 1), minlength=POWERS)
        sizes = np.abs(np.nan_to_num(rewards))
        top = np.argsort(-sizes, kind="stable")[:MOST_PLACES]
        lines, source = rounds.raw.lines, rounds.raw.source
        self.largest += [(float(sizes[i]), Place(source, int(lines[i]))) for i in top]
        self.largest = sorted(self.largest, key=lambda each: -each[0])[:MOST_PLACES]
        room = MOST_PLACES - len(self.below_zero)
        self.below_zero += [Place(source, int(lines[i])) for i in np.flatnonzero(finite & (rewards < 0))[:room]]

    def add_neighbours(self, rounds: Rounds, expected: Floats) -> None:
        """Products of what rounds that follow each other earned beyond ``expected`` (n,); by sequence they are not."""
        beyond = np.concatenate([[self._left], rounds.rewards - expected])
        pairs = beyond[1:] * beyond[:-1]
        pairs = pairs[np.isfinite(pairs)]
        self.products += float(pairs.sum())
        self.product_squares += float(np.square(pairs).sum())
        if len(beyond):
            self._left = float(beyond[-1])
