"""Rounds that are there twice, and whether that is chance.

Two rounds with the same context at the same time may be two visitors. Had they been, the logging policy would have
taken the same action for both only now and then: with the propensity of that action. When it did so nearly every time,
and the rewards agree as well, they are one round that was written twice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from seachange.check.places import Places
from seachange.check.rounds import Rounds, hashes_of
from seachange.check.seen import SeenBefore
from seachange.kernels.repeats import OTHER, SAME
from seachange.log.distinct import Distinct
from seachange.log.raw import RawRounds
from seachange.log.readers.places import ROW_NUMBERS

if TYPE_CHECKING:
    import polars

Hashes = npt.NDArray[np.uint64]
# Names of columns that number events, of which no two are the same.
EVENTS = "event|request|decision|impression|interaction|round|row|record|log|message|click|trace|uu|gu"
EVENT_IDS = re.compile(rf"({EVENTS})?[ _-]?(id|uuid|guid)", re.IGNORECASE)
# An odd number that spreads the bits of a product (2^64 by the golden ratio).
SPREAD = np.uint64(0x9E3779B97F4A7C15)


def hashes_of_rounds(raw: RawRounds) -> tuple[Hashes, Hashes]:
    """(n,) of what a round was before a choice was made, and of all that is written of it."""
    columns = [raw.features[name] for name in raw.features.columns if not ROW_NUMBERS.fullmatch(name)]
    columns += [column for column in (raw.time, raw.sequence, raw.event) if column is not None]
    keys = _of_columns(columns, len(raw))
    if raw.pool is not None:
        rows = int(raw.pool.offsets[-1])
        names = [] if raw.pool.names is None else [raw.pool.names]
        of_pool = _of_columns([*raw.pool.features.iter_columns(), *names], rows)
        sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(of_pool, dtype=np.uint64)])
        keys = keys + (sums[raw.pool.offsets[1:]] - sums[raw.pool.offsets[:-1]]) * SPREAD
    choice = [column for column in (raw.action, raw.reward, raw.propensity) if column is not None]
    return keys, (keys * SPREAD) ^ _of_columns(choice, len(raw))


def _of_columns(columns: list[polars.Series], height: int) -> Hashes:
    import polars

    if not columns:
        return np.full(height, 1, dtype=np.uint64)
    return hashes_of(polars.DataFrame([each.alias(str(i)) for i, each in enumerate(columns)]))


class RepeatTally:
    """Rounds and event ids that come again."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.pairs = 0  # rounds that are like an earlier one but for what was chosen, and came of it
        self.expected = 0.0  # of them by chance with the same choice
        self.uncertain = 0  # pairs without a propensity, of which nothing was expected
        self.same_rounds = self.same_events = 0.0  # how many there are in all, by the share that is looked at
        self.event_column: str | None = None
        self.format_has_events = False  # the column is not only called as if it numbered events
        self.distinct_events = Distinct()
        self._rounds, self._events = SeenBefore(), SeenBefore()

    @property
    def share(self) -> float:
        """Of the rounds whose repetitions are seen."""
        return self._rounds.share

    def add(self, rounds: Rounds) -> None:
        """Take up a part."""
        keys, wholes = hashes_of_rounds(rounds.raw)
        found = self._rounds.repeats(keys, wholes)
        again = (found == OTHER) | (found == SAME)
        self.pairs += int(again.sum())
        if rounds.propensities is None:
            self.uncertain += int(again.sum())
        else:
            chances = rounds.propensities[again]
            self.uncertain += int(np.isnan(chances).sum())
            self.expected += float(np.nansum(chances))
        self.same_rounds += int((found == SAME).sum()) / self._rounds.share
        self.places.add("duplicate-rounds", rounds.raw, found == SAME)
        self._add_events(rounds, wholes, found == SAME)

    def _add_events(self, rounds: Rounds, wholes: Hashes, same: npt.NDArray[np.bool_]) -> None:
        column = self._events_of(rounds.raw)
        if column is None:
            return
        hashes, known = hashes_of(column.to_frame()), column.is_not_null().to_numpy()
        self.distinct_events.add(hashes[known])
        found = self._events.repeats(hashes, wholes)
        again = (found == OTHER) & known & ~same
        self.same_events += int(again.sum()) / self._events.share
        self.places.add("repeated-event-ids", rounds.raw, again)

    def _events_of(self, raw: RawRounds) -> polars.Series | None:
        if raw.event is not None:
            self.event_column, self.format_has_events = raw.event.name, True
            return raw.event
        if self.event_column is None:
            named = [name for name in raw.features.columns if EVENT_IDS.fullmatch(name)]
            self.event_column = named[0] if named else ""
        return raw.features[self.event_column] if self.event_column in raw.features.columns else None
