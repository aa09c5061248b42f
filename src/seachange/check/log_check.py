"""The result of a check, as plain records that a terminal, a page or a JSON document can show."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from seachange.check.numeric_rounds import Rounds
    from seachange.check.tally import Tally

Severity = Literal["error", "warning", "note"]
TABLES = ("parquet", "csv", "tsv", "json-lines")  # formats whose columns have names that a command can use
# Findings about columns that a model should not use.
USELESS = (
    "reward-leak", "action-leak", "propensity-unnamed", "column-empty", "column-constant", "column-of-ones",
    "identifier", "event-id", "identifier-text",
)  # fmt: skip
MADE_UP = {"no-propensities", "propensity-one", "propensity-constant", "propensity-frequency"}  # better estimated
UNORDERED = {"time-mixed-units", "time-impossible", "time-future"}  # sorting by time would misplace these rounds
SINGULAR = {"have": "has", "are": "is", "equal": "equals", "belong": "belongs"}
MOST_PLACES, MOST_LISTED = 5, 40  # places that a finding lists, and columns that a suggested command may list


@dataclass(frozen=True)
class Place:
    """A place in a file; lines of text and rows of a table count from 1."""

    source: str
    line: int


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a log, or that its owner should know."""

    rule: str  # a stable identifier, such as reward-missing
    severity: Severity  # error: nothing can be learned; warning: repair or look into it; note: good to know
    title: str
    evidence: str  # one sentence with numbers
    fix: str  # what to do: a command, or a change to the log
    count: int = 0  # rounds, columns or actions concerned
    places: tuple[Place, ...] = ()  # the first few
    names: tuple[str, ...] = ()  # of the columns or actions concerned
    numbers: Mapping[str, float] = field(default_factory=dict)  # those in the evidence


class Check:
    """One subject of the check: it counts while the log is read, and reports findings at the end."""

    def add(self, rounds: "Rounds") -> None:
        """Count the next part of the log."""

    def findings(self, tally: "Tally") -> Iterator[Finding]:
        """What is wrong, once all parts were counted; ``tally.findings`` has the findings of earlier checks."""
        raise NotImplementedError


def share_text(count: float, total: float, thing: str) -> str:
    """3 of 10,000 rounds (0.03%)."""
    things = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}s"
    if count == total:
        return f"All {total:,.0f} {things}"
    share = count / max(total, 1)
    digits = ".1%" if 0.001 <= share <= 0.999 else ".2%"
    percent = f"{share:{digits}}" if share >= 0.0001 else f"{100 * share:.1g}%"
    return f"{count:,.0f} of {total:,.0f} {things} ({percent})"


def share_finding(
    rule: str,
    severity: Severity,
    title: str,
    count: int,
    total: int,
    thing: str,
    evidence: str,
    fix: str,
    places: tuple[Place, ...] = (),
    names: tuple[str, ...] = (),
    **numbers: float,
) -> Finding:
    """A finding about ``count`` of ``total`` things; ``evidence`` says what is wrong with them."""
    verb, _, rest = evidence.partition(" ")
    verb = SINGULAR.get(verb, verb) if count == 1 else verb
    sentence = f"{share_text(count, total, thing)} {verb} {rest}."
    numbers = {"count": count, "total": total, **numbers}
    return Finding(rule, severity, title, sentence, fix, count, places, names, numbers)


@dataclass(frozen=True)
class ActionCheck:
    """One action: how often it was taken, its mean reward, and whether its propensities are calibrated."""

    action: str
    n_rounds: int
    share: float
    mean_reward: float | None
    least_propensity: float | None
    mean_weight: float | None  # Σ 1 / p over the rounds that took it, divided by the rounds that could; should be 1
    mean_weight_error: float | None  # its standard error
    effective_samples: float  # (Σ 1 / p)² / Σ 1 / p²: effective sample size of "always this action"


@dataclass(frozen=True)
class ContextCheck:
    """One raw feature."""

    name: str
    kind: str  # number, integer, boolean, text, date, list, record, empty
    n_distinct: int
    distinct_exact: bool  # otherwise estimated to a few percent
    n_missing: int
    lowest: float | None
    highest: float | None
    mean: float | None
    moved: float | None  # share of its variance between slices of time; None if no more than chance


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
    """When the rounds took place."""

    first: float  # seconds since 1970 if ``dated``, else in the log's own unit
    last: float
    dated: bool
    rounds_a_day: float | None


@dataclass(frozen=True)
class PropensityCheck:
    """The valid propensities."""

    lowest: float
    highest: float
    inverse_sum: float  # mean of 1 / p_t; should be the number of actions
    uniform_samples: float  # effective sample size of the uniformly random policy
    best_action: str
    best_samples: float  # effective sample size of always taking the action with the highest mean reward


@dataclass(frozen=True)
class Drift:
    """Rewards and actions over time."""

    slice_rounds: int
    mean_rewards: tuple[float | None, ...]  # of each slice of time
    actions: tuple[str, ...]  # most frequent first
    shares: tuple[tuple[float, ...], ...]  # of each of these actions, in each slice
    reward_z: float  # z-score: do rewards of the same action differ between slices?
    neighbour_z: float  # z-score: are consecutive rewards correlated?
    changes: bool  # either is beyond chance: one state is not enough


@dataclass(frozen=True)
class Learnability:
    """The rewarded rounds that the log has, and how many learning needs."""

    n_coefs: int  # of one state's reward model
    n_events: int  # rewarded rounds (for clicks: the rarer of clicks and non-clicks)
    needed: int  # events per state
    most_states: int  # 0: not even one


@dataclass(frozen=True)
class LogCheck:
    """What is in a log, what is wrong with it, and what can be learned from it."""

    log: str
    format: str
    columns: dict[str, str]
    n_rounds: int  # all of them, including lines that cannot be read
    n_usable: int  # rounds that keep all rules
    files: tuple[str, ...]  # the first few
    n_files: int
    n_actions: int
    actions: tuple[ActionCheck, ...]  # most frequent first
    n_contexts: int
    contexts: tuple[ContextCheck, ...]
    chosen_contexts: bool  # whether the user named them
    pool: tuple[int, int] | None  # fewest and most actions per round, if rounds list their actions
    rewards: RewardCheck | None
    times: TimeCheck | None
    propensities: PropensityCheck | None
    drift: Drift | None
    learnability: Learnability
    findings: tuple[Finding, ...]  # worst first
    next_command: str
    duplicates_seen: float  # share of the rounds that were compared for duplicates

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst finding; None if there are none."""
        return self.findings[0].severity if self.findings else None

    @property
    def verdict(self) -> str:
        """Whether the log can be used, in words."""
        return {"error": "not usable", "warning": "usable with warnings"}.get(self.worst or "note", "sound")

    def rules(self, *severities: Severity) -> set[str]:
        """The identifiers of the rules with findings, of these severities or all."""
        return {each.rule for each in self.findings if not severities or each.severity in severities}


def next_command(check: LogCheck) -> str:
    """The command to run next; empty if the log must be repaired by hand first."""
    rules = check.rules()
    if check.worst == "error" or ("time-backwards" in rules and rules & UNORDERED):
        return ""
    if rules & {"time-backwards", "duplicate-rounds"}:
        out = f"{_stem(check.log)}-clean.{'parquet' if check.pool is None else 'dsjson'}"
        return shlex.join(["seachange", "check", check.log, *_columns_option(check), "--fix", out])
    return learn_command(check, check.log, drop_bad_rows=check.n_usable < check.n_rounds)


def learn_command(check: LogCheck, log: str, *, drop_bad_rows: bool) -> str:
    """The command that learns from ``log``, whose check this is."""
    rules = check.rules()
    useless = {name for each in check.findings if each.rule in USELESS for name in each.names}
    kept = [each.name for each in check.contexts if each.name not in useless]
    # Columns that are merely useless are ignored by learn anyway.
    harmful = rules & {"reward-leak", "identifier", "event-id"}
    listed = check.format in TABLES and (harmful or check.chosen_contexts) and 0 < len(kept) <= MOST_LISTED
    options = _columns_option(check, *([f"contexts={'+'.join(kept)}"] if listed else []))
    options += ["--estimate-propensities"] if rules & MADE_UP else []
    options += ["--drop-bad-rows"] if drop_bad_rows else []
    options += ["--oracle", "none"] if "few-rewards" in rules else []
    return shlex.join(["seachange", "learn", log, *options, "-o", f"{_stem(log)}.seachange"])


def _columns_option(check: LogCheck, *more: str) -> list[str]:
    named = dict(check.columns) if check.format in TABLES else {}
    if named and (found := [each.names[0] for each in check.findings if each.rule == "propensity-unnamed"]):
        named["propensity"] = found[0]
    mapping = [*(f"{role}={column}" for role, column in named.items() if role != column), *more]
    return ["--columns", ",".join(mapping)] if mapping else []


def _stem(log: str) -> str:
    return PurePath(log).name.split(".")[0].replace("*", "") or "log"
