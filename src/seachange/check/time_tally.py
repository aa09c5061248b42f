"""Times, looked at one part of a log after the other."""

from __future__ import annotations

import time

import numpy as np

from seachange.check.places import Places
from seachange.check.record import Place
from seachange.check.rounds import Rounds, hashes_of
from seachange.check.seen import SeenBefore
from seachange.protocols import Bools, Floats, Ints

# What numbers are as times since 1970, if they are: the years 1980 to 2100 in these units.
UNITS = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
EARLIEST, LATEST = 315_532_800.0, 4_102_444_800.0
DAY = 86_400.0
# Gaps that are kept, the longest.
GAPS = 12


class TimeTally:
    """The range of times, where they go backwards, jump ahead, or are no times of this log at all."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.dated: bool | None = None
        self.unit: str | None = None  # of numbers that are times since 1970
        self.lowest, self.highest = np.inf, -np.inf
        self.gaps: list[tuple[float, Place]] = []
        self.n_steps = 0
        self.in_order = True  # in the order of the file, whatever the sequences
        self.n_same = 0  # rounds at the same time as the one before
        self._now = time.time()
        self._last: float = np.nan
        self._chains = SeenBefore(np.float64)

    @property
    def scale(self) -> float:
        """Units of a second."""
        return UNITS[self.unit] if self.unit else 1.0

    @property
    def since_1970(self) -> bool:
        """Whether the times can be told as dates."""
        return bool(self.dated) or self.unit is not None

    def add(self, rounds: Rounds) -> None:
        """Take up a part."""
        if rounds.times is None:
            return
        times = rounds.times.copy()
        known = np.isfinite(times)
        if self.dated is None and known.any():
            self.dated = rounds.dated
            self.unit = None if rounds.dated else _unit_of(times[known])
        self._leave_out(rounds, times, known)
        known = np.isfinite(times)
        if not known.any():
            return
        self.lowest, self.highest = (
            min(self.lowest, float(times[known].min())),
            max(self.highest, float(times[known].max())),
        )
        self._add_order(rounds, times, known)

    def _leave_out(self, rounds: Rounds, times: Floats, known: Bools) -> None:
        """Count times that cannot be, which then say nothing about order."""
        if not self.since_1970:
            return
        with np.errstate(invalid="ignore"):
            seconds = times / self.scale
            future = known & (seconds > self._now + DAY)
            other = known & (seconds < EARLIEST)
            if not rounds.dated:
                other |= future & (seconds > LATEST)
                future &= ~other
        of_units = other & np.isin(_units_of(times), [i for i, unit in enumerate(UNITS) if unit != self.unit])
        if not rounds.dated:
            self.places.add("time-mixed-units", rounds.raw, of_units)
        else:
            of_units = np.zeros(len(times), dtype=bool)
        self.places.add("time-impossible", rounds.raw, other & ~of_units)
        self.places.add("time-future", rounds.raw, future)
        times[other | future] = np.nan

    def _add_order(self, rounds: Rounds, times: Floats, known: Bools) -> None:
        rows = np.flatnonzero(known)
        before = np.concatenate([[self._last], times[rows][:-1]])
        steps = times[rows] - before
        self._last = float(times[rows][-1])
        with np.errstate(invalid="ignore"):
            self.n_same += int((steps == 0).sum())
            backwards = steps < 0
        self.in_order &= not backwards.any()
        self.n_steps += int(np.isfinite(steps).sum())
        self._add_gaps(rounds, rows, steps)
        if rounds.raw.sequence is not None:
            keys = hashes_of(rounds.raw.sequence.to_frame())[rows]
            with np.errstate(invalid="ignore"):
                backwards = times[rows] < self._chains.before(keys, times[rows])
        found = np.zeros(len(times), dtype=bool)
        found[rows] = backwards
        self.places.add("time-backwards", rounds.raw, found)

    @property
    def share_of_chains(self) -> float:
        """Of the sequences whose order is looked at."""
        return self._chains.share

    def _add_gaps(self, rounds: Rounds, rows: Ints, steps: Floats) -> None:
        top = np.argsort(-np.nan_to_num(steps, nan=-np.inf), kind="stable")[:GAPS]
        found = [
            (float(steps[i]), Place(rounds.raw.source, int(rounds.raw.lines[rows[i]]))) for i in top if steps[i] > 0
        ]
        self.gaps = sorted(self.gaps + found, key=lambda each: -each[0])[:GAPS]


def _units_of(times: Floats) -> Ints:
    """(n,) the number of the unit in which each is a time between 1980 and 2100; -1: in none."""
    units = np.full(len(times), -1)
    with np.errstate(invalid="ignore"):
        for i, scale in enumerate(UNITS.values()):
            units[(times >= EARLIEST * scale) & (times <= LATEST * scale)] = i
    return units


def _unit_of(times: Floats) -> str | None:
    """The unit that makes most of ``times`` times between 1980 and 2100; None where they are something else."""
    units = _units_of(times)
    counts = np.bincount(units + 1, minlength=len(UNITS) + 1)
    best = int(counts.argmax())
    return list(UNITS)[best - 1] if best else None
