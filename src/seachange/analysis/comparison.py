"""Switching compared with the logging policy and the best single policy, on rounds the model was not learned from."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

import numpy as np

from seachange.errors import Fix, LogError, RefusedError, SeachangeError, SeachangeWarning, UnmatchedStatesWarning
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
from seachange.evaluation.terms import PolicyLike
from seachange.evaluation.value_estimate import ValueEstimate
from seachange.learning import learn
from seachange.log.bandit_log import BanditLog
from seachange.model import SwitchingModel
from seachange.model_file import seconds_of
from seachange.params import require
from seachange.policies.per_state import PolicySet, policies_of
from seachange.policies.reward_models import folds_of
from seachange.protocols import Policy
from seachange.states.hmm import HMMOracle
from seachange.states.labels import KnownStates, StateLabels, labels_from_states

# If a model was learned from the whole log, a similar one is learned from this share and evaluated on the rest.
TRAINING_SHARE = 0.6
BLOCKS = 3  # blocks of time; a policy without states is learned from all but one of them and evaluated on that one
# Why nothing is evaluated on its own training data.
IN_SAMPLE_BIAS = "policies look better than they really are on the rounds they were learned from"

POOLED = "one policy learned from all rounds"

HoldoutKind = Literal["unseen", "rest", "held out"]
ESTIMATORS = ("dr", "snips", "ips", "dm")  # the first one gives the headline; the others are listed beside it
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
class Baseline:
    """A policy that never switches."""

    name: str
    policy: PolicyLike
    labels: StateLabels | None = None  # the block of time of each round, if each block has its own policy
    pooled: bool = False  # learned without states


@dataclass(frozen=True, eq=False)
class Holdout:
    """A model and rounds that it was not learned from."""

    kind: HoldoutKind  # a new log; the rounds after its own; or a similar model, on rounds that it has not seen
    model: SwitchingModel
    log: BanditLog
    labels: StateLabels  # known before each reward, if the oracle allows it
    first_round: int  # in the original log
    baselines: tuple[Baseline, ...]

    @property
    def switches(self) -> bool:
        """Whether there is more than one state."""
        return self.model.n_states > 1

    @property
    def hindsight(self) -> bool:
        """Whether the labels use rewards that a deployment would not have yet."""
        return self.switches and self.labels.from_rewards


def holdout_of(log: BanditLog, model: SwitchingModel) -> Holdout:
    """The rounds of ``log`` that are new to ``model``, or else the last rounds, with a model learned from the rest.

    Raises ``RefusedError`` if neither is possible.
    """
    if not isinstance(model.oracle, KnownStates):
        model.require_own_features(log)
    seen = _rounds_seen(log, model)
    if seen == 0:
        return Holdout("unseen", model, log, _labels_ahead(model, log), 0, _baselines(model, log))
    if seen < len(log):
        later, labels = log[seen:], _from_round(_labels_ahead(model, log), log, seen)
        return Holdout("rest", model, later, labels, seen, _baselines(model, later))
    try:
        return _relearned(log, model, round(TRAINING_SHARE * len(log)))
    except SeachangeError as error:
        problem = "The model was learned from these rounds, and a similar model cannot be learned from the first "
        problem += f"{TRAINING_SHARE:.0%} of them: {str(error).rstrip('.')}."
        raise NoEstimateError((Reason("holdout", problem, ("use a later log",)),), can_force=False) from error


def _relearned(log: BanditLog, model: SwitchingModel, cut: int) -> Holdout:
    """A model learned the same way from the rounds before ``cut``, to be evaluated on those after it."""
    training, later, oracle = log[:cut], log[cut:], model.oracle
    if isinstance(oracle, KnownStates):
        same = model.labels.n_rounds == len(log)
        require(same, f"the model knows the states of {model.labels.n_rounds:,} rounds; the log has {len(log):,}.")
        similar, labels = learn(training, KnownStates(model.labels.states[:cut]), objective=model.learner), model.labels
    else:
        fresh = oracle.clone()  # type: ignore[attr-defined]
        if isinstance(oracle, HMMOracle):  # the same numbering of states
            fresh.set_params(n_states=model.n_states, align_to=oracle, **_usual_effort(oracle))
        with warnings.catch_warnings():
            # Only the numbers of the states are taken over.
            warnings.simplefilter("ignore", UnmatchedStatesWarning)
            similar = learn(training, fresh, objective=model.learner)
        labels = _labels_ahead(similar, log)
    baselines: tuple[Baseline, ...] = ()
    if similar.n_states > 1:
        pooled = learn(training, oracle="none", objective=model.learner).policies[0]
        baselines = (Baseline(POOLED, pooled, pooled=True), *_state_policies(similar))
    return Holdout("held out", similar, later, _from_round(labels, log, cut), cut, baselines)


def _usual_effort(oracle: HMMOracle) -> dict[str, int]:
    """No more restarts and iterations than by default: a model file from a stranger may ask for any number."""
    usual = HMMOracle()
    return {name: min(getattr(oracle, name), getattr(usual, name)) for name in ("restarts", "max_iterations")}


def _rounds_seen(log: BanditLog, model: SwitchingModel) -> int:
    """How many rounds, counted from the first, the model may have been learned from."""
    provenance, n = model.provenance, model.provenance.n_rounds
    if len(log) > n and log[:n].fingerprint() == provenance.fingerprint:
        return n
    if provenance.overlap(log) is None:
        return 0
    span = provenance.seconds
    if log.times is None or span is None or log.fingerprint() == provenance.fingerprint:
        return len(log)
    earlier = np.flatnonzero(seconds_of(log.times) <= span[1])
    return int(earlier[-1]) + 1 if len(earlier) else len(log)


def _baselines(model: SwitchingModel, log: BanditLog) -> tuple[Baseline, ...]:
    """Each state's policy used in every round and, if it can be learned, one policy without states."""
    if model.n_states == 1:
        return ()
    try:
        return (_cross_learned(log, model), *_state_policies(model))
    except SeachangeError:
        return _state_policies(model)


def _state_policies(model: SwitchingModel) -> tuple[Baseline, ...]:
    return tuple(Baseline(f"the policy of state {z} in every round", each) for z, each in enumerate(model.policies))


def _cross_learned(log: BanditLog, model: SwitchingModel) -> Baseline:
    """A policy without states for each block of time, learned from the other blocks with the model's learner."""
    everything = np.ones(len(log))
    blocks, block_of = folds_of(log, everything, BLOCKS), np.zeros(len(log), dtype=np.int64)
    policies: list[Policy] = []
    for i, block in enumerate(blocks):
        block_of[block.span][block.inside] = i
        policies += policies_of(log, [block.without(everything)], model.learner)
    labels = labels_from_states(block_of, len(blocks), log)
    return Baseline(POOLED, PolicySet(tuple(policies)), labels, pooled=True)


def _labels_ahead(model: SwitchingModel, log: BanditLog) -> StateLabels:
    """``model.label_ahead`` without its last warning, on labels that use rewards: the deployment is replayed then."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SeachangeWarning)
        labels = model.label_ahead(log)
    for each in caught[:-1] if labels.from_rewards and model.n_states > 1 else caught:
        warnings.warn(each.message, stacklevel=2)
    return labels


def _from_round(labels: StateLabels, log: BanditLog, first: int) -> StateLabels:
    """The labels of the rounds from ``first`` on."""
    probs = None if labels.state_probs is None else labels.state_probs[first:]
    part = labels_from_states(labels.states[first:], labels.n_states, log[first:], probs)
    return replace(part, from_rewards=labels.from_rewards)


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

    def noted(subject: str, estimate: Callable[[], Result]) -> tuple[Result | None, tuple[Reason, ...]]:
        with collect_notes(notes, subject):
            return attempt(log, estimate)

    def value(role: Role, name: str, estimate: Callable[[], ValueEstimate], pooled: bool = False) -> PolicyValue:
        return PolicyValue(role, name, *noted(name, estimate), pooled)

    def single(baseline: Baseline) -> ValueEstimate:
        return evaluate(log, baseline.policy, ESTIMATORS[:1], labels=baseline.labels, confidence=confidence)[0]

    def replay() -> ValueEstimate:
        return evaluate_online(log, holdout.model.deployer(), "dr-ns", confidence=confidence, seed=seed)

    def difference(other: PolicyValue, baseline: Baseline | None) -> Difference | None:
        """How much more switching would earn than a ``baseline``, or than the log did."""
        if switching.estimate is None or other.estimate is None:
            return None
        if holdout.hindsight:
            return worst_case_difference(switching.estimate, other.estimate)
        policy, blocks = (baseline.policy, baseline.labels) if baseline else (None, None)
        with collect_notes([]):  # the estimates already have these notes
            return evaluate_difference(log, policies, policy, labels=labels, other_labels=blocks, confidence=confidence)

    name = "switching" if holdout.switches else "the policy"
    logging = value("logging", "the logging policy", lambda: evaluate_logging(log, confidence))
    online = value("deployment", "the deployment, replayed on the log", replay) if holdout.switches else None
    found, refusals = noted(name, lambda: evaluate(log, policies, ESTIMATORS, confidence=confidence, labels=labels))
    diagnostics, _ = noted(name, lambda: diagnose(log, policies, labels))
    baselines = holdout.baselines
    singles = tuple(value("single", each.name, partial(single, each), each.pooled) for each in baselines)
    by_state: list[ValueEstimate | None] | None = None
    if holdout.switches and found and not holdout.hindsight:
        by_state, _ = noted("", lambda: evaluate_states(log, policies, labels, confidence=confidence))
    switching = PolicyValue("switching", name, found[0] if found else None, refusals)
    if holdout.hindsight and online is not None:
        switching = replace(online, role="switching", name=name)
    known = [i for i, each in enumerate(singles) if each.estimate]
    best = max(known, key=lambda i: singles[i].estimate.value, default=None)  # type: ignore[union-attr]
    return Comparison(
        switching=switching,
        logging=logging,
        singles=singles,
        best_single=best,
        over_logging=difference(logging, None),
        over_single=None if best is None else difference(singles[best], baselines[best]),
        others=tuple(found or ()) if not holdout.hindsight else (),
        by_state=tuple(by_state or ()),
        online=online,
        diagnostics=diagnostics,
        notes=merge_notes(notes),
    )


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
