"""Rounds that are there twice."""

from __future__ import annotations

from collections.abc import Iterator

from seachange.check.judging_rounds import share_told
from seachange.check.record import Finding
from seachange.check.tally import Tally

# How likely chance may be to have made as many rounds alike.
FALSE_ALARMS = 1e-6
# Times are fine where fewer neighbours than this share one; then those that do and agree in all else are one round.
FINE, FEWEST = 0.01, 3
# A column numbers events if so many of its values are distinct.
DISTINCT = 0.9


def judge_repeats(tally: Tally) -> Iterator[Finding]:
    """Whole rounds, and event ids."""
    repeats, counts, n = tally.repeats, tally.places.counts, tally.n_rounds
    same, share = counts["duplicate-rounds"], repeats.share
    about = "" if share == 1 else f", by the {share:.2g} of all rounds whose repetitions are looked for"
    are_events = repeats.distinct_events.count > DISTINCT * (n - repeats.same_rounds)
    if same and ((are_events and repeats.format_has_events) or _beyond_chance(tally) or _at_fine_times(tally)):
        count = round(repeats.same_rounds)
        yield Finding(
            "duplicate-rounds",
            "warning",
            f"{share_told(count, n, 'round')} "
            f"{'repeats' if count == 1 else 'repeat'} an earlier one in every column{about}.",
            "Written twice, they count twice. --fix OUT keeps the first of each.",
            count,
            tally.places.first("duplicate-rounds"),
        )
    column = repeats.event_column
    repeated = counts["repeated-event-ids"]
    if column and repeated and are_events:
        count = round(repeats.same_events)
        yield Finding(
            "repeated-event-ids",
            "warning",
            f"{share_told(count, n, 'round')} {'has' if count == 1 else 'have'} the {column!r} of an earlier one, but "
            f"not all else.",
            "An event has one decision and one reward: join them before the log is written.",
            count,
            tally.places.first("repeated-event-ids"),
            names=(column,),
        )


def _beyond_chance(tally: Tally) -> bool:
    """Whether rounds that began alike ended alike more often than the logging policy would have it."""
    from scipy.stats import binom

    repeats, same = tally.repeats, tally.places.counts["duplicate-rounds"]
    if repeats.uncertain:  # without propensities the policy may always have done the same
        return False
    return bool(binom.sf(same - 1, repeats.pairs, repeats.expected / max(repeats.pairs, 1)) < FALSE_ALARMS)


def _at_fine_times(tally: Tally) -> bool:
    """Whether nearly no round has the time of another, but those that agree in all else."""
    times, same = tally.times, tally.repeats.same_rounds
    others = times.n_same - same
    return (
        times.in_order and times.n_steps > 0 and same >= FEWEST and 3 * others < same and others < FINE * tally.n_rounds
    )
