"""Lines that cannot be read, rules that single rounds break, and rounds that were logged twice.

Two rounds with the same context at the same time may be two visitors. If they were, the logging policy would choose the
same action for both only with the propensity of that action. If it did so nearly every time, and the rewards agree too,
they are one round that was written twice.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import polars

from seachange.check.counters import OTHER, SAME, Hashes, RuleCounts, SeenKeys, Slices
from seachange.check.log_check import Check, Finding, Severity, share_finding
from seachange.check.numeric_rounds import Rounds, hashes_of
from seachange.formats.column_roles import ROW_NUMBERS
from seachange.log.column_statistics import Distinct
from seachange.log.raw import UNREADABLE, RawRounds
from seachange.log.validation import RULES
from seachange.protocols import Bools

if TYPE_CHECKING:
    from seachange.check.tally import Tally

DROP = "To drop these rounds, use `seachange learn LOG --drop-bad-rows`, or `seachange check LOG --fix OUT`."
MOST_BAD = 0.5  # a log with a larger share of bad rounds cannot be saved by dropping them
MOST_FILES, MOST_QUOTED = 100, 3  # files that are named, and reasons for unreadable lines that are quoted
# Typical names of columns with one identifier per event.
EVENTS = "event|request|decision|impression|interaction|round|row|record|log|message|click|trace|uu|gu"
EVENT_IDS = re.compile(rf"({EVENTS})?[ _-]?(id|uuid|guid)", re.IGNORECASE)
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio: spreads the bits of a product
FALSE_ALARMS = 1e-6  # the probability of a false alarm
FINE, FEWEST = 0.01, 3  # times identify rounds if fewer neighbors share one, and at least 3 duplicates do
DISTINCT = 0.9  # a column identifies events if this share of its values is distinct


class RoundChecks(Check):
    """Files, unreadable lines and rules about single rounds."""

    def __init__(self, slices: Slices) -> None:
        self.files: list[str] = []
        self.n_files = self.n_bad = self.n_unreadable = 0
        self.quoted: list[str] = []  # why lines could not be read
        self.missing_rewards = slices.sums()
        self._file = ""

    def add_source(self, raw: RawRounds, broken: RuleCounts) -> None:
        """Count the file and the rejected lines of a part."""
        if raw.source != self._file and raw.source not in self.files:
            self.n_files += 1
            self.files = [*self.files, raw.source][:MOST_FILES]
        self._file = raw.source
        self.n_unreadable += len(raw.rejected)
        for each in raw.rejected:
            broken.add(each.rule, each.source, np.array([each.line]))
            if each.rule == UNREADABLE and len(self.quoted) < MOST_QUOTED and each.reason not in self.quoted:
                self.quoted.append(each.reason)

    def add(self, rounds: Rounds) -> None:
        """Count the rounds that break a rule."""
        for rule, rows in rounds.broken.items():
            rounds.report(rule, rows)
        self.n_bad += int(rounds.bad.sum())
        self.missing_rewards.add(rounds.slices[np.isnan(rounds.rewards)])

    def findings(self, tally: "Tally") -> Iterator[Finding]:
        """Broken rules, unreadable lines, and logs that are mostly bad."""
        n, counts = tally.n_logged, tally.broken.counts
        # Rules about rounds whose cause is a finding about the whole column.
        percents, pending = tally.propensities.percents(tally), self.rewards_pending(tally)
        explained = {"propensity-above-one"} if percents else set()
        explained |= {"reward-missing"} if pending else set()
        fix = f"If the format was detected incorrectly, pass --format. {DROP}"
        found = [(UNREADABLE, "Lines cannot be read", "line", f"cannot be read: {'; '.join(self.quoted)}", fix)]
        for name, rule in RULES.items():
            found.append((name, rule.title, "round", rule.evidence, f"{rule.advice} {DROP}".strip()))
        for name, title, thing, evidence, fix in found:
            if (count := counts[name]) and name not in explained:
                severity: Severity = "error" if count > MOST_BAD * n else "warning"
                places = tally.broken.first(name)
                yield share_finding(name, severity, title, count, n, thing, evidence, fix, places)
        hopeless = any(counts[name] > MOST_BAD * n for name in RULES)
        if self.n_bad > MOST_BAD * n and not hopeless and not explained:
            fix = "The rest would be a biased sample. Fix the code that writes the log."
            title = "Most rounds are bad"
            yield share_finding("mostly-bad", "error", title, self.n_bad, n, "round", "break a rule", fix)

    def rewards_pending(self, tally: "Tally") -> bool:
        """Whether rewards are missing at the end of the log and almost nowhere else."""
        missing, count = tally.broken.counts["reward-missing"], tally.slices.count
        if missing < 20 or count < 10:
            return False
        lost = self.missing_rewards.values[0, :count] / tally.slices.lengths
        late = lost > 0.5
        start = int(late.argmax())
        # From some slice of the last third nearly all are missing, and before it nearly none.
        before = lost[: max(start - 1, 1)].max()
        return bool(late.any() and start >= 2 * count / 3 and late[start:].all() and before < 0.01)


def round_hashes(raw: RawRounds) -> tuple[Hashes, Hashes]:
    """(n,) of each round before the choice was made, and of the whole round."""
    columns = [raw.features[name] for name in raw.features.columns if not ROW_NUMBERS.fullmatch(name)]
    columns += [column for column in (raw.time, raw.sequence, raw.event) if column is not None]
    keys = _of_columns(columns, len(raw))
    if raw.pool is not None:
        names = [] if raw.pool.names is None else [raw.pool.names]
        of_pool = _of_columns([*raw.pool.features.iter_columns(), *names], int(raw.pool.offsets[-1]))
        sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(of_pool, dtype=np.uint64)])
        keys = keys + (sums[raw.pool.offsets[1:]] - sums[raw.pool.offsets[:-1]]) * SPREAD
    choice = [column for column in (raw.action, raw.reward, raw.propensity) if column is not None]
    return keys, (keys * SPREAD) ^ _of_columns(choice, len(raw))


def _of_columns(columns: list[polars.Series], height: int) -> Hashes:
    if not columns:
        return np.full(height, 1, dtype=np.uint64)
    return hashes_of(polars.DataFrame([each.alias(str(i)) for i, each in enumerate(columns)]))


class RepeatChecks(Check):
    """Rounds and event identifiers that occur again."""

    def __init__(self) -> None:
        self.pairs = 0  # rounds that equal an earlier one before the choice
        self.expected = 0.0  # of these, how many would make the same choice by chance
        self.uncertain = 0  # pairs without a propensity
        self.same_rounds = self.same_events = 0.0  # estimated totals
        self.event_column: str | None = None
        self.format_has_events = False  # the format itself identifies events
        self.distinct_events = Distinct()
        self._rounds, self._events = SeenKeys(), SeenKeys()

    @property
    def share(self) -> float:
        """Of the rounds that are compared."""
        return self._rounds.share

    def add(self, rounds: Rounds) -> None:
        """Compare a part with what came before."""
        keys, wholes = round_hashes(rounds.raw)
        found = self._rounds.repeats(keys, wholes)
        again = (found == OTHER) | (found == SAME)
        self.pairs += int(again.sum())
        chances = np.full(int(again.sum()), np.nan) if rounds.propensities is None else rounds.propensities[again]
        self.uncertain += int(np.isnan(chances).sum())
        self.expected += float(np.nansum(chances))
        self.same_rounds += int((found == SAME).sum()) / self._rounds.share
        rounds.report("duplicate-rounds", found == SAME)
        self._add_events(rounds, wholes, found == SAME)

    def _add_events(self, rounds: Rounds, wholes: Hashes, same: Bools) -> None:
        column = self._events_of(rounds.raw)
        if column is None:
            return
        hashes, known = hashes_of(column.to_frame()), column.is_not_null().to_numpy()
        self.distinct_events.add(hashes[known])
        found = self._events.repeats(hashes, wholes)
        again = (found == OTHER) & known & ~same
        self.same_events += int(again.sum()) / self._events.share
        rounds.report("repeated-event-ids", again)

    def _events_of(self, raw: RawRounds) -> polars.Series | None:
        if raw.event is not None:
            self.event_column, self.format_has_events = raw.event.name, True
            return raw.event
        if self.event_column is None:
            named = [name for name in raw.features.columns if EVENT_IDS.fullmatch(name)]
            self.event_column = named[0] if named else ""
        return raw.features[self.event_column] if self.event_column in raw.features.columns else None

    def findings(self, tally: "Tally") -> Iterator[Finding]:
        """Duplicate rounds and repeated event identifiers."""
        broken, n = tally.broken, tally.n_logged
        same = broken.counts["duplicate-rounds"]
        are_events = self.distinct_events.count > DISTINCT * (tally.n_rounds - self.same_rounds)
        by_id = are_events and self.format_has_events
        if same and (by_id or self._beyond_chance(same) or self._at_fine_times(tally)):
            count = round(self.same_rounds)
            sample = "" if self.share == 1 else f" (estimated from {self.share:.2g} of all rounds)"
            yield share_finding(
                "duplicate-rounds", "warning", "Rounds are logged twice", count, n, "round",
                f"are exact copies of an earlier one{sample}",
                "Keep the first of each: `seachange check LOG --fix OUT`.", broken.first("duplicate-rounds"),
                compared=self.share,
            )  # fmt: skip
        if self.event_column and broken.counts["repeated-event-ids"] and are_events:
            count = round(self.same_events)
            yield share_finding(
                "repeated-event-ids", "warning", "Event identifiers are not unique", count, n, "round",
                f"have the {self.event_column!r} of an earlier round but other values",
                "Join each event's decision and reward into one round before logging it.",
                broken.first("repeated-event-ids"), (self.event_column,),
            )  # fmt: skip

    def _beyond_chance(self, same: int) -> bool:
        """Whether rounds with the same context have the same outcome more often than the logging policy explains."""
        from scipy.stats import binom

        if self.uncertain:  # without propensities, the policy may always make the same choice
            return False
        return bool(binom.sf(same - 1, self.pairs, self.expected / max(self.pairs, 1)) < FALSE_ALARMS)

    def _at_fine_times(self, tally: "Tally") -> bool:
        """Whether almost no rounds share a time, except those that agree in everything."""
        times, same = tally.times, self.same_rounds
        others = times.n_same - same
        fine = 3 * others < same and others < FINE * tally.n_rounds
        return times.in_order and times.n_steps > 0 and same >= FEWEST and fine
