"""When each action was there: actions that come late, or leave early."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seachange.check.action_tally import FOLLOWED
from seachange.check.tally import Tally
from seachange.protocols import Bools, Ints

# Chance leaves a stretch without an action as often as e^-25 before it is said not to have been there.
RARITY = 25.0


class Presence(NamedTuple):
    """Of the actions that are followed over time."""

    alive: Bools  # (K, S) slices throughout which an action was there
    late: Ints  # actions that were not there from the beginning
    gone: Ints  # actions that were not there to the end
    firsts: Ints  # (K,) first slice that has it
    lasts: Ints  # (K,) last slice that has it


def presence_of(tally: Tally) -> Presence:
    """Which actions were there when, by their counts alone."""
    count, lengths = tally.slices.count, tally.slices.lengths
    taken = tally.actions.taken.part(min(tally.actions.count, FOLLOWED), count)
    there = taken > 0
    if not there.size:
        nothing = np.empty(0, dtype=np.int64)
        return Presence(there, nothing, nothing, nothing, nothing)
    firsts = there.argmax(axis=1)
    lasts = count - 1 - there[:, ::-1].argmax(axis=1)
    # Had they been there throughout, c rounds would all lie in a share h of the log with probability h^c.
    before = np.concatenate([[0.0], np.cumsum(lengths)]) / max(lengths.sum(), 1)
    counts = taken.sum(axis=1)
    late = -counts * np.log1p(-before[firsts]) > RARITY
    gone = -counts * np.log(before[lasts + 1]) > RARITY
    slices = np.arange(count)
    alive = np.ones(taken.shape, dtype=bool)
    alive[late] &= slices > firsts[late, None]
    alive[gone] &= slices < lasts[gone, None]
    return Presence(alive, np.flatnonzero(late), np.flatnonzero(gone), firsts, lasts)
