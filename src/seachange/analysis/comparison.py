"""Switching compared with the logging policy and with the best single policy, or why no estimate can be given."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

from seachange.analysis.holdout import Baseline, Holdout
from seachange.errors import Fix, LogError, RefusedError, SeachangeWarning
from seachange.evaluation.diagnostics import Diagnostics, EstimateWarning, NoEstimateError, Reason, diagnose
from seachange.evaluation.estimators import (
    Difference,
    evaluate,
    evaluate_difference,
    evaluate_logging,
    evaluate_states,
    reasons_of,
    worst_case_difference,
)
from seachange.evaluation.online import evaluate_online
from seachange.evaluation.value_estimate import ValueEstimate
from seachange.log.bandit_log import BanditLog

# The first one gives the headline; the others are listed beside it.
ESTIMATORS = ("dr", "snips", "ips", "dm")
NO_PROPENSITIES = Reason(
    "propensities",
    "The log has no propensities, and estimating the value of another policy needs them.",
    (
        Fix('name their column with columns={"propensity": ...}', "name their column with --columns propensity=COLUMN"),
        Fix("estimate them with sc.estimate_propensities", "estimate them with --estimate-propensities"),
    ),
)
Role = Literal["logging", "single", "switching", "deployment"]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Note:
    """Something to know about the values of a report."""

    subject: str  # the policy or state it is about; empty if it is about several
    reason: Reason
    intro: str = ""


@dataclass(frozen=True)
class PolicyValue:
    """A policy's value, or why there is none."""

    role: Role
    name: str
    estimate: ValueEstimate | None
    refusals: tuple[Reason, ...] = ()
    pooled: bool = False  # learned without states


@dataclass(frozen=True)
class Comparison:
    """The values of all policies on held-out rounds."""

    switching: PolicyValue
    logging: PolicyValue
    singles: tuple[PolicyValue, ...]
    best_single: int | None  # the index of the one with the largest value; None if none has a value
    over_logging: Difference | None
    over_single: Difference | None
    others: tuple[ValueEstimate, ...]  # the switching policy by all estimators
    by_state: tuple[ValueEstimate | None, ...]  # each state's policy in the rounds of its state; empty with one state
    online: PolicyValue | None  # the deployment, replayed on the log
    diagnostics: Diagnostics | None
    notes: tuple[Note, ...]


def compare_policies(holdout: Holdout, confidence: float, seed: int) -> Comparison:
    """Estimate all values on ``holdout``; those that the log cannot support come with reasons instead."""
    notes: list[Note] = []
    log, policies, labels = holdout.log, holdout.model.policies, holdout.labels
    name, online = "switching" if holdout.switches else "the policy", None

    def value(role: Role, name: str, estimate: Callable[[], ValueEstimate], pooled: bool = False) -> PolicyValue:
        with collect_notes(notes, name):
            return PolicyValue(role, name, *_attempt(log, estimate), pooled)

    def single(baseline: Baseline) -> PolicyValue:
        def estimate() -> ValueEstimate:
            return evaluate(log, baseline.policy, ESTIMATORS[:1], labels=baseline.labels, confidence=confidence)[0]

        return value("single", baseline.name, estimate, baseline.pooled)

    logging = value("logging", "the logging policy", lambda: evaluate_logging(log, confidence))
    if holdout.switches:
        deployer = holdout.model.deployer()
        online = value(
            "deployment",
            "the deployment, replayed on the log",
            lambda: evaluate_online(log, deployer, "dr-ns", confidence=confidence, seed=seed),
        )
    with collect_notes(notes, name):
        whole, refusals = _attempt(
            log, lambda: evaluate(log, policies, ESTIMATORS, confidence=confidence, labels=labels)
        )
        diagnostics, _ = _attempt(log, lambda: diagnose(log, policies, labels))
    singles = tuple(single(each) for each in holdout.baselines)
    by_state: list[ValueEstimate | None] | None = None
    if holdout.switches and whole is not None and not holdout.hindsight:
        with collect_notes(notes):
            by_state, _ = _attempt(log, lambda: evaluate_states(log, policies, labels, confidence=confidence))
    switching = PolicyValue("switching", name, whole[0] if whole else None, refusals)
    if holdout.hindsight and online is not None:
        switching = PolicyValue("switching", name, online.estimate, online.refusals)
    values = [each.estimate.value if each.estimate else float("-inf") for each in singles]
    best = values.index(max(values)) if values and max(values) > float("-inf") else None
    best_value = None if best is None else singles[best].estimate
    over_logging, over_single = _differences(
        holdout, switching.estimate, logging.estimate, best_value, holdout.baselines[best or 0 :][:1], confidence
    )
    return Comparison(
        switching=switching,
        logging=logging,
        singles=singles,
        best_single=best,
        over_logging=over_logging,
        over_single=over_single,
        others=tuple(whole or ()) if not holdout.hindsight else (),
        by_state=tuple(by_state or ()),
        online=online,
        diagnostics=diagnostics,
        notes=merge_notes(notes),
    )


def _differences(
    holdout: Holdout, switching: ValueEstimate | None, logging: ValueEstimate | None, single: ValueEstimate | None,
    baseline: tuple[Baseline, ...], confidence: float,
) -> tuple[Difference | None, Difference | None]:  # fmt: skip
    """How much more switching would earn than the log did, and than the best single policy."""
    if switching is None or logging is None:
        return None, None
    if holdout.hindsight:
        over_single = None if single is None else worst_case_difference(switching, single)
        return worst_case_difference(switching, logging), over_single
    log, policies, labels = holdout.log, holdout.model.policies, holdout.labels
    with collect_notes([]):
        over_logging = evaluate_difference(log, policies, labels=labels, confidence=confidence)
        if single is None:
            return over_logging, None
        other = baseline[0]
        over_single = evaluate_difference(
            log, policies, other.policy, labels=labels, other_labels=other.labels, confidence=confidence
        )
    return over_logging, over_single


def _attempt(log: BanditLog, estimate: Callable[[], Result]) -> tuple[Result | None, tuple[Reason, ...]]:
    """A result, or the reasons why there is none."""
    try:
        return estimate(), ()
    except (RefusedError, LogError) as error:
        return None, refusals_of(error, log)


def refusals_of(error: RefusedError | LogError, log: BanditLog) -> tuple[Reason, ...]:
    """The reasons in an error."""
    if isinstance(error, NoEstimateError):
        return error.reasons
    return (NO_PROPENSITIES,) if not log.propensities_known else (Reason("log", error.problem, hint=error.fix),)


@contextmanager
def collect_notes(notes: list[Note], subject: str = "") -> Iterator[None]:
    """Collect our warnings as ``notes`` about ``subject``, or about the state that a warning names."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SeachangeWarning)
        yield
    for each in caught:
        if issubclass(each.category, SeachangeWarning):
            state = each.message.state if isinstance(each.message, EstimateWarning) else None
            reasons, intro = reasons_of(each.message)
            about = subject if state is None else f"state {state}"
            notes += [Note(about, reason, intro) for reason in reasons]


def merge_notes(notes: list[Note]) -> tuple[Note, ...]:
    """Each note once; one that is about several subjects names none."""
    subjects: dict[str, set[str]] = {}
    for note in notes:
        subjects.setdefault(f"{note.intro}{note.reason}", set()).add(note.subject)
    merged = {}
    for note in notes:
        key = f"{note.intro}{note.reason}"
        merged[key] = Note(note.subject if len(subjects[key]) == 1 else "", note.reason, note.intro)
    return tuple(merged.values())
