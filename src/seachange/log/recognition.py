"""A few rounds by which a log is known again, also where only some of them come back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from seachange.log.bandit_log import BanditLog

Hashes = npt.NDArray[np.uint64]
# Rounds that are remembered: those with the least hashes, which are as good as chosen by chance.
REMEMBERED = 512
# Rounds that are mostly like others say nothing about whose they are.
MOSTLY_DISTINCT = 0.95
# So many rounds that would be remembered, if they had been there, it takes to say whether they were.
ENOUGH = 5
# The golden ratio's and David Stafford's constants of the generator SplitMix64, which spreads bits evenly.
STEP, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def remembered(log: BanditLog) -> tuple[int, ...]:
    """The least hashes of the rounds of ``log``; none where its rounds are too much alike to be told apart."""
    least = np.empty(0, dtype=np.uint64)
    for chunk in log.chunks():
        least = np.sort(np.concatenate([least, round_hashes(chunk)]))[: 2 * REMEMBERED]
    distinct = np.unique(least)
    return tuple(distinct[:REMEMBERED].tolist()) if len(distinct) >= MOSTLY_DISTINCT * len(least) else ()


def share_known(log: BanditLog, hashes: tuple[int, ...]) -> float | None:
    """Which share of the rounds of ``log`` is among those that ``hashes`` remember; None where that cannot be told."""
    known = np.array(hashes, dtype=np.uint64)
    # Where fewer are remembered than could be, they are all there were.
    limit = known[-1] if len(known) == REMEMBERED else np.iinfo(np.uint64).max if len(known) else np.uint64(0)
    below = [found[found <= limit] for found in (round_hashes(chunk) for chunk in log.chunks())]
    candidates = np.concatenate(below)
    return float(np.isin(candidates, known).mean()) if len(candidates) >= ENOUGH else None


def round_hashes(log: BanditLog) -> Hashes:
    """(n,) 64 bits of the action, the reward and the features of every round."""
    with np.errstate(over="ignore"):
        hashes = mixed(log.actions.astype(np.uint64)) ^ _bits(log.rewards)
        rows = log.arrays.rows
        for column in rows.reshape(len(rows), -1).T if len(rows) == len(log) else ():
            hashes = mixed(hashes + STEP) ^ _bits(column)
        return mixed(hashes)


def _bits(values: npt.NDArray[np.floating]) -> Hashes:
    return (np.ascontiguousarray(values, dtype=np.float64) + 0.0).view(np.uint64)  # -0 is 0


def mixed(values: Hashes) -> Hashes:
    """Values whose bits are spread evenly."""
    values = (values ^ (values >> np.uint64(30))) * FIRST
    values = (values ^ (values >> np.uint64(27))) * SECOND
    return values ^ (values >> np.uint64(31))
