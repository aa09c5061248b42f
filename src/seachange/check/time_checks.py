"""Times: order, units, gaps, and timestamps that cannot be right."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from seachange.check.counters import Largest, SeenKeys
from seachange.check.log_check import Check, Finding, TimeCheck, share_finding
from seachange.check.numeric_rounds import Rounds, hashes_of
from seachange.protocols import Bools, Floats, Ints

if TYPE_CHECKING:
    from seachange.check.tally import Tally

UNITS = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}  # of numbers since 1970
EARLIEST, LATEST = 315_532_800.0, 4_102_444_800.0  # the years 1980 and 2100, between which times are
DAY = 86_400.0
GAPS = 12  # the longest gaps that are kept
# A gap is reported if it is this many times longer than the others and the mean, among enough steps; at most this many.
LONGER, FEWEST_STEPS, MOST_GAPS = 10.0, 50, 5
NIGHT = 16 * 3600.0  # a shorter gap may be a night
# Rule → title, evidence, fix.
TEXTS = {
    "time-mixed-units": (
        "Timestamps have mixed units", "have a timestamp in another unit than the first rounds ({unit})",
        "Log all timestamps in one unit.",
    ),
    "time-impossible": (
        "Timestamps are impossible", "have a timestamp before 1980 or otherwise out of range",
        "Log the time of the decision, or remove those rounds.",
    ),
    "time-future": (
        "Timestamps are in the future", "have a timestamp in the future",
        "Check the clock and the time zone of the machine that writes the log.",
    ),
}  # fmt: skip


class TimeChecks(Check):
    """The range of times, and where they go backwards, jump ahead or make no sense."""

    def __init__(self) -> None:
        self.dated: bool | None = None
        self.unit: str | None = None  # of numbers that are times since 1970
        self.lowest, self.highest = np.inf, -np.inf
        self.gaps = Largest(GAPS)
        self.n_steps = 0
        self.in_order = True  # in file order, ignoring sequences
        self.n_same = 0  # rounds at the same time as the previous one
        self.has_sequences = False
        self._now = time.time()
        self._last: float = np.nan
        self._sequences = SeenKeys(np.float64)

    @property
    def scale(self) -> float:
        """Units per second."""
        return UNITS[self.unit] if self.unit else 1.0

    @property
    def since_1970(self) -> bool:
        """Whether the times can be shown as dates."""
        return bool(self.dated) or self.unit is not None

    def add(self, rounds: Rounds) -> None:
        """Count the times of a part."""
        self.has_sequences |= rounds.raw.sequence is not None
        if rounds.times is None:
            return
        times = rounds.times.copy()
        known = np.isfinite(times)
        if self.dated is None and known.any():
            self.dated = rounds.dated
            counts = np.bincount(_units_of(times[known]) + 1, minlength=len(UNITS) + 1)
            self.unit = None if rounds.dated else (None, *UNITS)[int(counts.argmax())]
        self._remove_impossible(rounds, times, known)
        known = np.isfinite(times)
        if known.any():
            self.lowest = min(self.lowest, float(times[known].min()))
            self.highest = max(self.highest, float(times[known].max()))
            self._add_order(rounds, times, known)

    def _remove_impossible(self, rounds: Rounds, times: Floats, known: Bools) -> None:
        """Count impossible times, and set them to NaN: they say nothing about order."""
        if not self.since_1970:
            return
        with np.errstate(invalid="ignore"):
            seconds = times / self.scale
            future = known & (seconds > self._now + DAY)
            other = known & (seconds < EARLIEST)
            if not rounds.dated:
                other |= future & (seconds > LATEST)
                future &= ~other
        unit = list(UNITS).index(self.unit or "seconds")
        mixed = other & (not rounds.dated) & ~np.isin(_units_of(times), [-1, unit])
        rounds.report("time-mixed-units", mixed)
        rounds.report("time-impossible", other & ~mixed)
        rounds.report("time-future", future)
        times[other | future] = np.nan

    def _add_order(self, rounds: Rounds, times: Floats, known: Bools) -> None:
        rows = np.flatnonzero(known)
        steps = np.diff(times[rows], prepend=self._last)
        self._last = float(times[rows][-1])
        with np.errstate(invalid="ignore"):
            self.n_same += int((steps == 0).sum())
            backwards = steps < 0
        self.in_order &= not backwards.any()
        self.n_steps += int(np.isfinite(steps).sum())
        self.gaps.add(steps, rounds.raw.source, rounds.raw.lines[rows])
        if rounds.raw.sequence is not None:
            keys = hashes_of(rounds.raw.sequence.to_frame())[rows]
            with np.errstate(invalid="ignore"):
                backwards = times[rows] < self._sequences.before(keys, times[rows])
        rounds.report("time-backwards", rows[backwards])

    def summary(self, n_rounds: int) -> TimeCheck | None:
        """When the rounds took place."""
        if not np.isfinite(self.lowest):
            return None
        span = (self.highest - self.lowest) / self.scale
        return TimeCheck(
            first=self.lowest / self.scale,
            last=self.highest / self.scale,
            dated=self.since_1970,
            rounds_a_day=n_rounds / span * DAY if self.since_1970 and span > 0 else None,
        )

    def findings(self, tally: "Tally") -> Iterator[Finding]:
        """Impossible times, wrong order, gaps, and units other than seconds."""
        broken, n = tally.broken, tally.n_logged
        for rule, (title, evidence, fix) in TEXTS.items():
            if count := broken.counts[rule]:
                evidence, places = evidence.format(unit=self.unit), broken.first(rule)
                yield share_finding(rule, "warning", title, count, n, "round", evidence, fix, places)
        if count := broken.counts["time-backwards"]:
            where = " within their sequence" if self.has_sequences else ""
            share = self._sequences.share
            sample = "" if share == 1 else f" (in {share:.2g} of the sequences)"
            yield share_finding(
                "time-backwards", "warning", "Time goes backwards", count, n, "round",
                f"are earlier than the previous round{where}{sample}",
                "Sort the log by time: `seachange check LOG --fix OUT`.", broken.first("time-backwards"),
            )  # fmt: skip
        elif self.in_order:
            yield from self._gap_findings()
        if self.unit not in (None, "seconds"):
            yield Finding(
                "time-unit", "note", "Timestamps are not in seconds",
                f"Timestamps look like {self.unit} since 1970, with {self.lowest:.0f} as the first.",
                "Convert them to seconds or dates before you ask for hours or days.",
                numbers={"lowest": self.lowest},
            )  # fmt: skip

    def _gap_findings(self) -> Iterator[Finding]:
        lengths = np.array(self.gaps.values)
        if self.n_steps < FEWEST_STEPS or len(lengths) < MOST_GAPS + 1:
            return
        mean = (self.highest - self.lowest - lengths[:MOST_GAPS].sum()) / max(self.n_steps - MOST_GAPS, 1)
        count = max((i for i in range(1, MOST_GAPS + 1) if lengths[i - 1] > LONGER * max(lengths[i], mean)), default=0)
        if count:
            longest, other = lengths[0] / self.scale, lengths[count] / self.scale
            up_to, others = (duration_text(length, self.since_1970) for length in (longest, other))
            yield Finding(
                "time-gap", "note" if self.since_1970 and longest < NIGHT else "warning", "The log has gaps in time",
                f"The log has {count} gap{'s' if count > 1 else ''} of up to {up_to}; "
                f"all other steps are at most {others}.",
                "If rounds are missing there, add them; nothing is learned about that time otherwise.", count,
                self.gaps.places(count), numbers={"count": count, "longest": longest, "other": other},
            )  # fmt: skip


def _units_of(times: Floats) -> Ints:
    """(n,) the index of the unit in which each is a time between 1980 and 2100; -1: in none."""
    units = np.full(len(times), -1)
    with np.errstate(invalid="ignore"):
        for i, scale in enumerate(UNITS.values()):
            units[(times >= EARLIEST * scale) & (times <= LATEST * scale)] = i
    return units


def duration_text(seconds: float, dated: bool) -> str:
    """A duration in a convenient unit."""
    if not dated:
        return f"{seconds:.4g}"
    for size, name in ((DAY, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.3g} seconds"
