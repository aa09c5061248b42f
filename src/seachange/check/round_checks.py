"""Rules that single rounds break, and lines that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from seachange.check.counters import RuleCounts, Slices
from seachange.check.log_check import Check, Finding, Place, share_text
from seachange.check.numeric_rounds import Rounds
from seachange.log.raw import UNREADABLE, RawRounds
from seachange.log.validation import RULES

if TYPE_CHECKING:
    from seachange.check.tally import Tally

DROP = "To drop them: `seachange learn LOG --drop-bad-rows`; to write a cleaned copy: `seachange check LOG --fix OUT`."
# A log with a larger share of bad rounds cannot be saved by dropping them.
MOST_BAD = 0.5
# Files that are named, and reasons for unreadable lines that are quoted.
MOST_FILES, MOST_QUOTED = 100, 3


class RoundChecks(Check):
    """Files, unreadable lines and rules about single rounds."""

    def __init__(self, slices: Slices, broken: RuleCounts) -> None:
        self.broken = broken
        self.files: list[str] = []
        self.n_files = self.n_bad = self.n_unreadable = 0
        self.quoted: list[str] = []  # why lines could not be read
        self.missing_rewards = slices.sums()
        self._file = ""

    def add_source(self, raw: RawRounds) -> None:
        """Count the file and the rejected lines of a part."""
        if raw.source != self._file:
            self._file = raw.source
            if raw.source not in self.files:
                self.n_files += 1
                if len(self.files) < MOST_FILES:
                    self.files.append(raw.source)
        for each in raw.rejected:
            self.n_unreadable += 1
            self.broken.add_place(each.rule, Place(each.source, each.line))
            if each.rule == UNREADABLE and len(self.quoted) < MOST_QUOTED and each.reason not in self.quoted:
                self.quoted.append(each.reason)

    def add(self, rounds: Rounds) -> None:
        """Count the rounds that break a rule."""
        for rule, rows in rounds.broken.items():
            self.broken.add(rule, rounds.raw, rows)
        self.n_bad += int(rounds.bad.sum())
        self.missing_rewards.add(rounds.slices[np.isnan(rounds.rewards)])

    def findings(self, tally: Tally) -> Iterator[Finding]:
        """Broken rules, unreadable lines, and logs that are mostly bad."""
        n, counts = tally.n_rounds + self.n_unreadable, self.broken.counts
        if count := counts[UNREADABLE]:
            yield self._finding(
                UNREADABLE, n, "Lines cannot be read", f"{share_text(count, n, 'line')} cannot be read: "
                f"{'; '.join(self.quoted)}.", f"If the format was detected incorrectly, pass --format. {DROP}",
            )  # fmt: skip
        explained = set(self._explained(tally))
        hopeless = False
        for name, rule in RULES.items():
            if counts[name] and name not in explained:
                hopeless |= counts[name] > MOST_BAD * n
                evidence = f"{share_text(counts[name], n, 'round')} {rule.evidence}."
                yield self._finding(name, n, rule.title, evidence, f"{rule.advice} {DROP}".strip())
        if self.n_bad > MOST_BAD * n and not hopeless and not explained:
            yield Finding(
                "mostly-bad", "error", "Most rounds are bad", f"{share_text(self.n_bad, n, 'round')} break a rule.",
                "The rest would be a biased sample. Fix the code that writes the log.", self.n_bad,
                numbers={"count": self.n_bad, "total": n},
            )  # fmt: skip

    def _finding(self, rule: str, n: int, title: str, evidence: str, fix: str) -> Finding:
        count = self.broken.counts[rule]
        return Finding(
            rule, "error" if count > MOST_BAD * n else "warning", title, evidence, fix, count, self.broken.first(rule),
            numbers={"count": count, "total": n},
        )  # fmt: skip

    def _explained(self, tally: Tally) -> Iterator[str]:
        """Rules about rounds whose cause is a finding about the whole column."""
        if tally.propensities.percents:
            yield "propensity-above-one"
        if self.rewards_pending(tally):
            yield "reward-missing"

    def rewards_pending(self, tally: Tally) -> bool:
        """Whether rewards are missing at the end of the log and almost nowhere else."""
        missing, count = self.broken.counts["reward-missing"], tally.slices.count
        if missing < 20 or count < 10:
            return False
        lost = self.missing_rewards.values[0, :count] / tally.slices.lengths
        late = lost > 0.5
        start = int(late.argmax())
        # From some slice of the last third nearly all are missing, and before it nearly none.
        before = lost[: max(start - 1, 1)].max()
        return bool(late.any() and start >= 2 * count / 3 and late[start:].all() and before < 0.01)
