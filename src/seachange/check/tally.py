"""One pass over a log: everything that is counted, in bounded memory."""

from __future__ import annotations

from seachange.check.action_checks import ActionChecks
from seachange.check.context_checks import ContextChecks
from seachange.check.counters import RuleCounts, Slices
from seachange.check.learnability import LearnabilityChecks
from seachange.check.log_check import Check, Finding
from seachange.check.numeric_rounds import numeric_rounds
from seachange.check.propensity_checks import PropensityChecks
from seachange.check.repeat_checks import RepeatChecks
from seachange.check.reward_checks import RewardChecks
from seachange.check.round_checks import RoundChecks
from seachange.check.time_checks import TimeChecks
from seachange.log.raw import RawLog, RawRounds

# A new check is registered here.
CHECKS: list[type[Check]] = [LearnabilityChecks]


class Tally:
    """What the pass has counted so far, by subject."""

    def __init__(self) -> None:
        self.slices, self.broken = Slices(), RuleCounts()
        self.rounds = RoundChecks(self.slices, self.broken)
        self.repeats, self.times = RepeatChecks(self.broken), TimeChecks(self.broken)
        self.actions = ActionChecks(self.slices)
        self.rewards = RewardChecks(self.slices, self.actions)
        self.propensities = PropensityChecks(self.slices, self.broken)
        self.contexts = ContextChecks(self.slices)
        self.found: list[Finding] = []
        # Later checks may use the counts and findings of earlier ones.
        self.checks: tuple[Check, ...] = (
            self.rounds,
            self.repeats,
            self.times,
            self.actions,
            self.rewards,
            self.propensities,
            self.contexts,
            *(check() for check in CHECKS),
        )

    @property
    def n_rounds(self) -> int:
        """Rounds so far."""
        return self.slices.n_rounds

    def add(self, raw: RawRounds) -> None:
        """Count a part."""
        self.rounds.add_source(raw)
        if not len(raw):
            return
        rounds = numeric_rounds(raw)
        rounds.slices, rounds.codes = self.slices.extend(len(raw)), self.actions.code(rounds.names)
        for check in self.checks:
            check.add(rounds)

    def find(self) -> None:
        """Fill ``found``, once all parts were counted."""
        checks = self.checks if self.n_rounds else (self.rounds,)
        for check in checks:
            self.found += check.findings(self)
        if not self.n_rounds:
            empty = "The log has 0 rounds.", "Check the path and the format."
            self.found.append(Finding("no-rounds", "error", "The log is empty", *empty))


def tally_of(raw: RawLog) -> Tally:
    """The whole log, part by part."""
    tally = Tally()
    for part in raw.parts():
        tally.add(part)
    tally.find()
    return tally
