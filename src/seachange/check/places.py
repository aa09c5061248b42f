"""How often a rule is broken, and where first."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from seachange.check.record import MOST_PLACES, Place
from seachange.log.raw import RawRounds
from seachange.protocols import Bools


class Places:
    """A count and the first few places of each rule."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = defaultdict(int)
        self._places: dict[str, list[Place]] = defaultdict(list)

    def add(self, rule: str, raw: RawRounds, rows: Bools) -> None:
        """Take up the rounds of a part that break a rule."""
        count = int(np.count_nonzero(rows))
        if not count:
            return
        self.counts[rule] += count
        room = MOST_PLACES - len(self._places[rule])
        self._places[rule] += [Place(raw.source, int(line)) for line in raw.lines[np.flatnonzero(rows)[:room]]]

    def add_place(self, rule: str, place: Place) -> None:
        """Take up a single place."""
        self.counts[rule] += 1
        if len(self._places[rule]) < MOST_PLACES:
            self._places[rule].append(place)

    def first(self, rule: str) -> tuple[Place, ...]:
        """The first few."""
        return tuple(self._places.get(rule, ()))
