"""Logs as they are stored: rounds with raw features, before anything is encoded or held to a rule.

    file ──reader──► RawLog ──FeatureSpec──► BanditLog

A reader (one file a format, in ``seachange.log.readers``) only says what a file holds. What its raw features become is
the matter of ``seachange.log.features``; whether the numbers make sense, that of ``seachange.log.validation``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from seachange.protocols import Bools, Floats, Ints

if TYPE_CHECKING:
    import polars

# Rounds of a part, unless a caller wants another number.
PART_ROWS = 1 << 17
# The columns of rounds beside their features.
PER_ROUND = ("action", "reward", "propensity", "time", "sequence", "event")


@dataclass(frozen=True)
class Rejected:
    """A line or row that holds no round."""

    source: str  # the file's name
    line: int  # in that file: lines of text count from 1, rows of a table too
    reason: str  # which rule of the format it breaks
    text: str = ""  # what stands there, cut to a bearable length


@dataclass(frozen=True, eq=False)
class Pool:
    """The actions that every round could choose among, where they differ from round to round."""

    offsets: Ints  # (n + 1,): round t has the actions offsets[t] to offsets[t + 1]
    features: polars.DataFrame  # a row an action of a round: raw features, maybe without any column
    names: polars.Series | None = None  # which action it is; None: an action is its place in the round's list
    probs: Floats | None = None  # (rows,) the whole logging distribution, where the file has it

    @property
    def lengths(self) -> Ints:
        """(n,) how many actions each round has."""
        return np.diff(self.offsets)

    def filter(self, kept: Bools) -> Pool:
        """The lists of the rounds that are kept."""
        import polars

        rows = np.repeat(kept, self.lengths)
        return Pool(
            np.concatenate([[0], np.cumsum(self.lengths[kept])]),
            _filtered(self.features, rows),
            None if self.names is None else self.names.filter(polars.Series(rows)),
            None if self.probs is None else self.probs[rows],
        )


@dataclass(frozen=True, eq=False)
class RawRounds:
    """Rounds that follow each other, with what the file says of them."""

    source: str  # the file's name
    lines: Ints  # (n,) where each round is in that file; lines of text count from 1, rows of a table too
    features: polars.DataFrame  # a row a round: raw features that all actions share, maybe without any column
    action: polars.Series  # its name or number; with a pool, the place in the round's list, from 0 on
    reward: polars.Series
    propensity: polars.Series | None = None
    time: polars.Series | None = None
    sequence: polars.Series | None = None
    event: polars.Series | None = None  # what the log calls the round: no two have the same
    pool: Pool | None = None
    rejected: tuple[Rejected, ...] = ()  # what stood between these rounds and could not be read

    def __len__(self) -> int:
        """Rounds."""
        return len(self.lines)

    def filter(self, kept: Bools) -> RawRounds:
        """The rounds that are kept, and nothing of what could not be read."""
        import polars

        mask = polars.Series(kept)
        columns = {word: getattr(self, word) for word in PER_ROUND}
        held: dict[str, Any] = {word: None if each is None else each.filter(mask) for word, each in columns.items()}
        return RawRounds(
            self.source,
            self.lines[kept],
            _filtered(self.features, kept),
            pool=None if self.pool is None else self.pool.filter(kept),
            **held,
        )


def _filtered(features: polars.DataFrame, kept: Bools) -> polars.DataFrame:
    """The rows that are kept, also of a table without columns."""
    import polars

    return features.filter(polars.Series(kept)) if features.width else polars.DataFrame(height=int(kept.sum()))


class RawLog(Protocol):
    """What a reader opens. Nothing is read before ``parts`` is asked for."""

    @property
    def format(self) -> str:
        """A word: parquet, csv, tsv, json-lines, dsjson, vw, obp, open-bandit, yahoo-r6a, yahoo-r6b, …"""
        ...

    @property
    def columns(self) -> dict[str, str]:
        """Which column or field holds the action, the reward, the propensity, the time, the sequence."""
        ...

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds, in the order of the file, at most ``rows`` at a time; each call starts anew."""
        ...
