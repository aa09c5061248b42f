"""Rules about the times of a whole log."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seachange.check.judging_rounds import share_told
from seachange.check.record import Finding, TimeCheck
from seachange.check.tally import Tally
from seachange.check.time_tally import DAY

# A gap is one if it is so many times as long as all but a few others, and as the average.
LONGER, FEWEST_STEPS, MOST_GAPS = 10.0, 50, 5
# The first night of a log is not a gap worth a warning.
NIGHT = 16 * 3600.0


def time_check(tally: Tally) -> TimeCheck | None:
    """When the rounds were."""
    times = tally.times
    if not np.isfinite(times.lowest):
        return None
    span = (times.highest - times.lowest) / times.scale
    return TimeCheck(
        first=times.lowest / times.scale,
        last=times.highest / times.scale,
        dated=times.since_1970,
        rounds_a_day=tally.n_rounds / span * DAY if times.since_1970 and span > 0 else None,
        longest_gap=times.gaps[0][0] / times.scale if times.gaps else 0.0,
    )


def judge_times(tally: Tally) -> Iterator[Finding]:
    """Order, units, gaps, and times that cannot be."""
    times, counts, n = tally.times, tally.places.counts, tally.n_rounds
    said = {
        "time-mixed-units": (
            f"have times in another unit than the first ones ({times.unit})",
            "Write all times in one unit.",
        ),
        "time-impossible": (
            "have a time that cannot be (before 1980, or no time of this log)",
            "Write the time of the round, or leave the rounds out.",
        ),
        "time-future": ("have a time to come", "Check the clock or the time zone of what writes the log."),
    }
    for rule, (what, cure) in said.items():
        if counts[rule]:
            yield Finding(
                rule,
                "warning",
                f"{share_told(counts[rule], n, 'round')} {what}.",
                cure,
                counts[rule],
                tally.places.first(rule),
            )
    if counts["time-backwards"]:
        where = " within their sequence" if tally.has_sequences else ""
        about = "" if times.share_of_chains == 1 else f" (of {times.share_of_chains:.2g} of the sequences)"
        yield Finding(
            "time-backwards",
            "warning",
            f"Time goes backwards{where} at {share_told(counts['time-backwards'], n, 'round')}{about}.",
            "learn needs the order in which things happened. --fix OUT sorts the log by time.",
            counts["time-backwards"],
            tally.places.first("time-backwards"),
        )
    elif times.in_order:
        yield from _gaps(tally)
    if times.unit not in (None, "seconds"):
        yield Finding(
            "time-unit",
            "note",
            f"Times are {times.unit} since 1970, by the look of them; numbers are taken as seconds.",
            "Divide them, or write dates, before you ask for hours or days.",
        )


def _gaps(tally: Tally) -> Iterator[Finding]:
    times = tally.times
    lengths = np.array([length for length, _ in times.gaps])
    if times.n_steps < FEWEST_STEPS or len(lengths) < MOST_GAPS + 1:
        return
    mean = (times.highest - times.lowest - lengths[:MOST_GAPS].sum()) / max(times.n_steps - MOST_GAPS, 1)
    for count in range(MOST_GAPS, 0, -1):
        if lengths[count - 1] > LONGER * max(lengths[count], mean):
            seconds = lengths[0] / times.scale
            places = tuple(place for _, place in times.gaps[:count])
            night = times.since_1970 and seconds < NIGHT
            yield Finding(
                "time-gap",
                "note" if night else "warning",
                f"{count} gap{'s' if count > 1 else ''} in time, the longest {span_told(seconds, times.since_1970)}; "
                f"no other is longer than {span_told(lengths[count] / times.scale, times.since_1970)}.",
                "If rounds are missing there, put them back; nothing is learned about what went on meanwhile.",
                count,
                tuple(sorted(places, key=lambda place: (place.source, place.line))),
            )
            return


def span_told(seconds: float, dated: bool) -> str:
    """A length of time."""
    if not dated:
        return f"{seconds:.4g}"
    for size, name in ((DAY, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.3g} seconds"
