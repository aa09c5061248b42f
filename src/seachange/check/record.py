"""What a check finds: plain records that become a page on a terminal or a JSON document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
# Formats whose columns have names of their own, which a command may be given.
TABLES = ("parquet", "csv", "tsv", "json-lines")
# Places that a finding names.
MOST_PLACES = 5


@dataclass(frozen=True)
class Place:
    """Where in a file; lines of text count from 1, rows of a table too."""

    source: str
    line: int


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a log, or that its owner should know."""

    rule: str  # its name, always the same: reward-missing
    severity: Severity  # error: nothing can be learned; warning: to be repaired or looked at; note: good to know
    what: str  # in a sentence
    cure: str  # what to do about it
    count: int = 0  # rounds, columns or actions that are concerned
    places: tuple[Place, ...] = ()  # the first few
    names: tuple[str, ...] = ()  # of the columns or actions that are concerned


@dataclass(frozen=True)
class ActionCheck:
    """One action: how often it was taken, what it earned, and whether its propensities add up."""

    action: str
    n_rounds: int
    share: float
    mean_reward: float | None
    least_propensity: float | None
    inverse_mean: float | None  # Σ 1 / p over the rounds that took it, by the rounds that could; 1 expected
    inverse_error: float | None  # standard error of that
    effective_rounds: float  # (Σ 1 / p)² / Σ 1 / p²: what is known of "always this action"
    first_round: int  # counted from 0
    last_round: int


@dataclass(frozen=True)
class ContextCheck:
    """One raw feature."""

    name: str
    kind: str  # number, whole number, yes or no, text, date, list, record
    n_distinct: int
    distinct_exact: bool  # else to a few per cent
    n_missing: int
    lowest: float | None
    highest: float | None
    mean: float | None
    moved: float | None  # share of its variance that lies between slices of time; None: nothing beyond chance


@dataclass(frozen=True)
class RewardCheck:
    """The rewards that are numbers."""

    kind: Literal["clicks", "numbers"]
    n_rewarded: int  # not 0
    share_of_zeros: float
    mean: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class TimeCheck:
    """When the rounds were."""

    first: float  # seconds since 1970 where ``dated``, else in the log's own unit
    last: float
    dated: bool
    rounds_a_day: float | None
    longest_gap: float


@dataclass(frozen=True)
class PropensityCheck:
    """The propensities that are possible."""

    lowest: float
    highest: float
    inverse_sum: float  # Σ 1 / p_t by rounds; the number of actions expected
    uniform_rounds: float  # effective rounds of a policy that takes actions at random
    best_action: str
    best_rounds: float  # effective rounds of always taking the action that earns most


@dataclass(frozen=True)
class Drift:
    """The log over time, at a glance."""

    slice_rounds: int
    mean_rewards: tuple[float | None, ...]  # of each slice of time
    actions: tuple[str, ...]  # most frequent first
    shares: tuple[tuple[float, ...], ...]  # of each of these actions, in each slice
    reward_z: float  # how far the rewards of the same actions differ between slices, in standard deviations of chance
    neighbour_z: float  # the same of rewards that follow each other
    changes: bool  # either is beyond chance: one state does not suffice


@dataclass(frozen=True)
class LearningGround:
    """What the log has for learning, against what learning needs."""

    n_coefs: int  # of one state's reward model
    n_events: int  # rewarded rounds (of clicks: the rarer of rewarded and not)
    needed: int  # events for each state
    most_states: int  # 0: not even one


@dataclass(frozen=True)
class LogCheck:
    """What is in a log, what is wrong with it, and what it can support."""

    log: str
    format: str
    columns: dict[str, str]
    n_rounds: int
    n_usable: int  # rounds that break no rule
    files: tuple[str, ...]  # the first few
    n_files: int
    n_unreadable: int
    n_actions: int
    actions: tuple[ActionCheck, ...]  # most frequent first
    n_contexts: int
    contexts: tuple[ContextCheck, ...]
    pool: tuple[int, int] | None  # least and most actions a round could choose among, where the log says
    rewards: RewardCheck | None
    times: TimeCheck | None
    propensities: PropensityCheck | None
    drift: Drift | None
    ground: LearningGround
    findings: tuple[Finding, ...]  # worst first
    next_command: str
    duplicates_seen: float  # share of the rounds whose repetitions would have been seen

    @property
    def exit_code(self) -> int:
        """0 sound, 1 usable with warnings, 2 not usable."""
        severities = {finding.severity for finding in self.findings}
        return 2 if "error" in severities else 1 if "warning" in severities else 0

    @property
    def verdict(self) -> str:
        """In words."""
        return ("sound", "usable with warnings", "not usable")[self.exit_code]

    def rules(self, *severities: Severity) -> set[str]:
        """The names of the rules that are broken, of these severities or of all."""
        return {each.rule for each in self.findings if not severities or each.severity in severities}
