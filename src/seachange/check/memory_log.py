"""A BanditLog as a raw log, so that it is checked like a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from seachange.log.bandit_log import BanditLog
from seachange.log.raw import PART_ROWS, Pool, RawRounds


class MemoryLog:
    """A BanditLog, whose rounds were validated when it was made."""

    format = "BanditLog"

    def __init__(self, log: BanditLog) -> None:
        self.log = log
        self.columns: dict[str, str] = {}

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds, part by part; rows count from 1."""
        start = 0
        for chunk in self.log.chunks(rows):
            yield _raw(chunk, start)
            start += len(chunk)


def _raw(log: BanditLog, start: int) -> RawRounds:
    import polars

    shared = log.joint.kind == "shared"
    names = polars.Series(log.action_names)
    pool = _pool(log, names)
    return RawRounds(
        source="the log",
        lines=np.arange(start + 1, start + len(log) + 1),
        features=polars.DataFrame(
            {name: log.contexts[:, i] for i, name in enumerate(log.context_names)} if shared else {}
        ),
        action=polars.Series("action", names.gather(log.actions) if pool is None else _places(log)),
        reward=polars.Series("reward", log.rewards),
        propensity=polars.Series("propensity", log.propensities) if log.propensities_known else None,
        time=None if log.times is None else polars.Series("time", _times(log.times)),
        sequence=None if log.sequences is None else polars.Series("sequence", log.sequences),
        pool=pool,
    )


def _pool(log: BanditLog, names: Any) -> Pool | None:
    """The lists of actions, if they differ between rounds or have features or probabilities."""
    import polars

    per_action = log.joint.kind == "per action"
    if not (log.masked or per_action or log.logging_probs is not None):
        return None
    mask = np.broadcast_to(log.arrays.mask, (len(log), log.n_actions))
    rows = log.contexts[mask] if per_action else np.empty((0, 0))
    features = {name: rows[:, i] for i, name in enumerate(log.context_names)} if per_action else {}
    return Pool(
        offsets=np.concatenate([[0], np.cumsum(mask.sum(axis=1))]),
        features=polars.DataFrame(features),
        names=names.gather(np.nonzero(mask)[1]),
        probs=None if log.logging_probs is None else log.logging_probs[mask],
    )


def _times(times: Any) -> Any:
    """Dates in a unit that polars supports."""
    return times.astype("datetime64[us]") if times.dtype.kind == "M" else times


def _places(log: BanditLog) -> Any:
    """(n,) the place of the action taken among the allowed ones."""
    mask = np.broadcast_to(log.arrays.mask, (len(log), log.n_actions))
    return (np.cumsum(mask, axis=1) - 1)[np.arange(len(log)), log.actions]
