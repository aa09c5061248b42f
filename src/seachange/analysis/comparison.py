"""Switching compared with the logging policy and the best single policy, on rounds the model was not learned from."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

from seachange.errors import Fix, LogError, RefusedError, SeachangeError, SeachangeWarning
from seachange.evaluation.deployment import Difference, evaluate_deployment
from seachange.evaluation.diagnostics import Diagnostics, EstimateWarning, NoEstimateError, Reason, diagnose
from seachange.evaluation.estimators import evaluate, evaluate_logging, evaluate_states, reasons_of
from seachange.evaluation.value_estimate import ValueEstimate
from seachange.learning import TRAINING_SHARE, relearn
from seachange.log.bandit_log import BanditLog
from seachange.model import SwitchingModel
from seachange.states.labels import StateLabels, labels_from_states

# Why nothing is evaluated on its own training data.
IN_SAMPLE_BIAS = "policies look better than they really are on the rounds they were learned from"
SINGLE = "one policy learned without states"

HoldoutKind = Literal["unseen", "rest", "held out"]
ESTIMATORS = ("dr", "snips", "ips", "dm")
NO_PROPENSITIES = Reason(
    "propensities",
    "The log has no propensities, and estimating the value of another policy needs them.",
    (
        Fix('name their column with columns={"propensity": ...}', "name their column with --columns propensity=COLUMN"),
        Fix("estimate them with sc.estimate_propensities", "estimate them with --estimate-propensities"),
    ),
)
Role = Literal["logging", "single", "switching"]
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Holdout:
    """A model and rounds that it was not learned from."""

    kind: HoldoutKind  # a new log; the rounds after its own; or a similar model, on rounds that it has not seen
    model: SwitchingModel
    log: BanditLog
    labels: StateLabels  # known before each reward
    first_round: int  # in the original log

    @property
    def switches(self) -> bool:
        """Whether there is more than one state."""
        return self.model.n_states > 1


def holdout_of(log: BanditLog, model: SwitchingModel) -> Holdout:
    """The rounds of ``log`` that are new to ``model``, or else the last rounds, with a model learned from the rest.

    Raises ``RefusedError`` if neither is possible.
    """
    model.require_own_features(log)
    seen = model.provenance.rounds_seen(log)
    if seen < len(log):
        kind: HoldoutKind = "unseen" if seen == 0 else "rest"
        return Holdout(kind, model, log[seen:], _from_round(model.label_ahead(log), log, seen), seen)
    cut = round(TRAINING_SHARE * len(log))
    try:
        similar = relearn(log, model, cut)
    except SeachangeError as error:
        problem = "The model was learned from these rounds, and a similar model cannot be learned from the first "
        problem += f"{TRAINING_SHARE:.0%} of them: {str(error).rstrip('.')}."
        raise NoEstimateError((Reason("holdout", problem, ("use a later log",)),), can_force=False) from error
    return Holdout("held out", similar, log[cut:], _from_round(similar.label_ahead(log), log, cut), cut)


def _from_round(labels: StateLabels, log: BanditLog, first: int) -> StateLabels:
    """The labels of the rounds from ``first`` on."""
    probs = None if labels.state_probs is None else labels.state_probs[first:]
    return labels_from_states(labels.states[first:], labels.n_states, log[first:], probs)


# The comparison


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


@dataclass(frozen=True)
class Comparison:
    """The values of all policies on held-out rounds."""

    switching: PolicyValue  # the deployment
    logging: PolicyValue
    single: PolicyValue | None  # None if the model itself is a single policy
    frozen: PolicyValue | None  # the deployment without learning, if it learns
    learning_single: PolicyValue | None  # the single policy if it goes on learning, too
    over_logging: Difference | None
    over_single: Difference | None
    over_learning: Difference | None  # over the single policy that goes on learning
    others: tuple[ValueEstimate, ...]  # the policies mixed by the beliefs of the log, by all estimators
    by_state: tuple[ValueEstimate | None, ...]  # each state's policy in the rounds of its state; empty with one state
    diagnostics: Diagnostics | None
    notes: tuple[Note, ...]


def compare_policies(holdout: Holdout, confidence: float, seed: int) -> Comparison:
    """Estimate all values on ``holdout``; those that the log cannot support come with reasons instead."""
    notes: list[Note] = []
    log, policies, labels = holdout.log, holdout.model.policies, holdout.labels

    def noted(subject: str, estimate: Callable[[], Result]) -> tuple[Result | None, tuple[Reason, ...]]:
        with collect_notes(notes, subject):
            return attempt(log, estimate)

    name: str = "switching" if holdout.switches else "the policy"
    frozen = learning_single = None
    settings: dict[str, Any] = {"confidence": confidence, "seed": seed}
    found, refusals = noted(name, lambda: evaluate_deployment(log, holdout.model, unseen=True, **settings))
    logged, reasons = noted("", lambda: evaluate_logging(log, interval="bootstrap", **settings))
    logging = PolicyValue("logging", "the logging policy", logged if found is None else found.logging, reasons)
    others, _ = noted(name, lambda: evaluate(log, policies, ESTIMATORS, labels=labels, **settings))
    diagnostics, _ = noted(name, lambda: diagnose(log, policies, labels))
    single = None
    by_state: list[ValueEstimate | None] | None = None
    if holdout.switches:
        alone, reasons = (found.single, ()) if found else noted(SINGLE, partial(_single, holdout, settings))
        single = PolicyValue("single", SINGLE, alone, reasons)
        if found and found.frozen and found.learning_single:
            frozen = PolicyValue("switching", "switching, nothing learned after the log", found.frozen)
            learning_single = PolicyValue("single", f"{SINGLE} that goes on learning", found.learning_single)
        if found:
            by_state, _ = noted("", lambda: evaluate_states(log, policies, labels, confidence=confidence))
    return Comparison(
        switching=PolicyValue("switching", name, found, refusals),
        logging=logging,
        single=single,
        frozen=frozen,
        learning_single=learning_single,
        over_logging=None if found is None else found.over_logging,
        over_single=None if found is None or single is None else found.gain,
        over_learning=None if found is None or single is None else found.over_learning,
        others=tuple(others or ()),
        by_state=tuple(by_state or ()),
        diagnostics=diagnostics,
        notes=merge_notes(notes),
    )


def _single(holdout: Holdout, settings: dict[str, Any]) -> ValueEstimate:
    """The value of the best single policy, if that of switching is refused."""
    return evaluate(holdout.log, holdout.model.single, ESTIMATORS[:1], interval="bootstrap", **settings)[0]


def attempt(log: BanditLog, estimate: Callable[[], Result]) -> tuple[Result | None, tuple[Reason, ...]]:
    """An estimate, or the reasons why ``log`` does not support it."""
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
    merged: dict[str, Note] = {}
    for note in notes:
        key = f"{note.intro}{note.reason}"
        same = key not in merged or merged[key].subject == note.subject
        merged[key] = note if same else replace(note, subject="")
    return tuple(merged.values())
