"""One pass over a log in bounded memory, and the result of the check."""

from dataclasses import replace

from seachange.check.action_checks import ActionChecks
from seachange.check.context_checks import ContextChecks
from seachange.check.counters import RuleCounts, Slices
from seachange.check.log_check import Check, Finding, LogCheck, next_command
from seachange.check.numeric_rounds import numeric_rounds
from seachange.check.propensity_checks import PropensityChecks
from seachange.check.reward_checks import LearnabilityChecks, RewardChecks, drift_of, learnability_of
from seachange.check.round_checks import RepeatChecks, RoundChecks
from seachange.check.time_checks import TimeChecks
from seachange.formats.table import TableLog
from seachange.log.raw import RawLog, RawRounds

FEW_BACKWARDS = 0.01  # with a larger share of rounds out of order, nothing can be said about changes over time
CHECKS: list[type[Check]] = [LearnabilityChecks]  # a new check is registered here
ORDER = {"error": 0, "warning": 1, "note": 2}  # findings, worst first


class Tally:
    """What the pass has counted so far, by subject."""

    def __init__(self) -> None:
        self.slices, self.broken = Slices(), RuleCounts()
        self.rounds, self.repeats, self.times = RoundChecks(self.slices), RepeatChecks(), TimeChecks()
        self.actions = ActionChecks(self.slices)
        self.rewards = RewardChecks(self.slices, self.actions)
        self.propensities, self.contexts = PropensityChecks(self.slices), ContextChecks(self.slices)
        self.findings: list[Finding] = []
        # Later checks may use the counts and findings of earlier ones.
        of_rounds, of_choices = (self.rounds, self.repeats, self.times), (self.actions, self.rewards)
        others = (self.propensities, self.contexts, *(check() for check in CHECKS))
        self.checks: tuple[Check, ...] = (*of_rounds, *of_choices, *others)

    @property
    def n_rounds(self) -> int:
        """Rounds that could be read so far."""
        return self.slices.n_rounds

    @property
    def n_logged(self) -> int:
        """All rounds so far, including lines that cannot be read."""
        return self.n_rounds + self.rounds.n_unreadable

    @property
    def in_order(self) -> bool:
        """Whether rounds are in time order, except for a few."""
        return self.broken.counts["time-backwards"] <= FEW_BACKWARDS * self.n_rounds

    def add(self, raw: RawRounds) -> None:
        """Count a part."""
        self.rounds.add_source(raw, self.broken)
        if not len(raw):
            return
        rounds = numeric_rounds(raw)
        rounds.slices, rounds.codes = self.slices.extend(len(raw)), self.actions.code(rounds.names)
        rounds.counts = self.broken
        for check in self.checks:
            check.add(rounds)


def assessed(raw: RawLog, name: str) -> LogCheck:
    """The result of the check of ``raw``, which commands call ``name``."""
    tally = Tally()
    if isinstance(raw, TableLog):
        raw.every_column = True
    for part in raw.parts():
        tally.add(part)
    for check in tally.checks if tally.n_rounds else (tally.rounds,):
        tally.findings += check.findings(tally)
    if not tally.n_rounds:
        empty = "The log has 0 rounds.", "Check the path and the format."
        tally.findings.append(Finding("no-rounds", "error", "The log is empty", *empty))
    contexts = tuple(each.summary(tally) for each in tally.contexts.columns)
    result = LogCheck(
        log=name,
        format=raw.format,
        columns=dict(raw.columns),
        n_rounds=tally.n_logged,
        n_usable=tally.n_rounds - tally.rounds.n_bad,
        files=tuple(tally.rounds.files),
        n_files=tally.rounds.n_files,
        n_actions=tally.actions.count,
        actions=tally.actions.summaries(tally),
        n_contexts=len(contexts),
        contexts=contexts,
        chosen_contexts=getattr(raw, "chosen_contexts", False),
        pool=tally.contexts.pool,
        rewards=tally.rewards.summary(),
        times=tally.times.summary(tally.n_rounds),
        propensities=tally.propensities.summary(tally),
        drift=drift_of(tally) if tally.in_order else None,
        learnability=learnability_of(tally),
        findings=tuple(sorted(tally.findings, key=lambda each: ORDER[each.severity])),
        next_command="",
        duplicates_seen=tally.repeats.share,
    )
    return replace(result, next_command=next_command(result))
