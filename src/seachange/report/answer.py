"""What switching would earn against the policy that logged and against the best single one, or why nobody can say."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

from seachange.errors import LogError, RefusedError, SeachangeWarning
from seachange.evaluation.adaptive import OnlineEstimate, evaluate_online
from seachange.evaluation.diagnostics import Diagnostics, diagnose
from seachange.evaluation.differences import Difference, difference_at_worst, evaluate_difference
from seachange.evaluation.estimators import evaluate, evaluate_logging, evaluate_states
from seachange.evaluation.value_estimate import ValueEstimate
from seachange.report.ground import Ground, SinglePolicy

# The answer is by the first; the others stand beside it.
ESTIMATORS = ("dr", "snips", "ips", "dm")

# How messages begin that are about one state.
OF_A_STATE = re.compile(r"(state \d+): (.*)", re.DOTALL)

Found = TypeVar("Found")
Note: TypeAlias = tuple[str, str]  # what it is about, and the message


@dataclass(frozen=True)
class Judged:
    """A policy's value, or why there is none."""

    name: str
    estimate: ValueEstimate | None
    refusal: str | None = None


@dataclass(frozen=True)
class Answer:
    """Values of the rounds that a model may be judged on."""

    switching: Judged
    logging: Judged
    singles: tuple[Judged, ...]
    best_single: int | None  # the place of the one with the largest value, None where none has any
    over_logging: Difference | None
    over_single: Difference | None
    others: tuple[ValueEstimate, ...]  # the switching policy by other estimators
    by_state: tuple[ValueEstimate | None, ...]  # each state's policy in the rounds of its state; empty with one state
    online: OnlineEstimate | None  # the deployment itself, led along the log
    online_refusal: str | None
    diagnostics: Diagnostics | None
    notes: tuple[str, ...]  # what was said on the way


def answer_of(ground: Ground, confidence: float, seed: int) -> Answer:
    """All values of ``ground``; what is refused is told with its cure."""
    notes: list[Note] = []
    log, policies, labels = ground.log, ground.model.policies, ground.labels
    name, online = "switching" if ground.switches else "the policy", None
    logging = _judged("the logging policy", lambda: evaluate_logging(log, confidence), notes)
    if ground.switches:
        online = _judged("the deployment", lambda: _led_along(ground, confidence, seed), notes)
    with noted(notes, name):
        whole, refusal = _tried(lambda: evaluate(log, policies, ESTIMATORS, confidence=confidence, labels=labels))
        found, _ = _tried(lambda: diagnose(log, policies, labels))
    singles = tuple(_judged(each.name, partial(_alone, ground, each, confidence), notes) for each in ground.singles)
    by_state: list[ValueEstimate | None] | None = None
    if ground.switches and whole is not None and not ground.told_states:
        with noted(notes):
            by_state, _ = _tried(lambda: evaluate_states(log, policies, labels, confidence=confidence))
    switching = Judged(name, whole[0] if whole else None, refusal)
    if ground.told_states and online is not None:
        switching = Judged(name, online.estimate, online.refusal)
    values = [single.estimate.value if single.estimate else float("-inf") for single in singles]
    best = values.index(max(values)) if values and max(values) > float("-inf") else None
    differences = _differences(ground, switching, logging, None if best is None else (singles[best], best), confidence)
    return Answer(
        switching=switching,
        logging=logging,
        singles=singles,
        best_single=best,
        over_logging=differences[0],
        over_single=differences[1],
        others=tuple(whole or ()) if not ground.told_states else (),
        by_state=tuple(by_state or ()),
        online=online.estimate if online is not None and isinstance(online.estimate, OnlineEstimate) else None,
        online_refusal=None if online is None else online.refusal,
        diagnostics=found,
        notes=told_once(notes),
    )


def _differences(
    ground: Ground, switching: Judged, logging: Judged, best: tuple[Judged, int] | None, confidence: float
) -> tuple[Difference | None, Difference | None]:
    """How much more switching would earn than the log did, and than the best single policy."""
    if switching.estimate is None or logging.estimate is None:
        return None, None
    single = None if best is None or best[0].estimate is None else best[0].estimate
    if ground.told_states:
        over = None if single is None else difference_at_worst(switching.estimate, single)
        return difference_at_worst(switching.estimate, logging.estimate), over
    log, policies, labels = ground.log, ground.model.policies, ground.labels
    with noted([]):
        over_logging = evaluate_difference(log, policies, labels=labels, confidence=confidence)
        if best is None or single is None:
            return over_logging, None
        other = ground.singles[best[1]]
        over_single = evaluate_difference(
            log, policies, other.policy, labels=labels, other_labels=other.labels, confidence=confidence
        )
    return over_logging, over_single


def _alone(ground: Ground, single: SinglePolicy, confidence: float) -> ValueEstimate:
    return evaluate(ground.log, single.policy, ESTIMATORS[:1], labels=single.labels, confidence=confidence)[0]


def _led_along(ground: Ground, confidence: float, seed: int) -> OnlineEstimate:
    return evaluate_online(ground.log, ground.model.deployer(), "dr-ns", confidence=confidence, seed=seed)


def _judged(name: str, judge: Callable[[], ValueEstimate], notes: list[Note]) -> Judged:
    with noted(notes, name):
        return Judged(name, *_tried(judge))


def _tried(ask: Callable[[], Found]) -> tuple[Found | None, str | None]:
    """An answer, or why it is refused."""
    try:
        return ask(), None
    except (RefusedError, LogError) as refusal:
        return None, str(refusal)


@contextmanager
def noted(notes: list[Note], about: str = "") -> Iterator[None]:
    """Warnings of ours become ``notes``, which say what they are about."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", SeachangeWarning)
        yield
    for each in said:
        if issubclass(each.category, SeachangeWarning):
            state = OF_A_STATE.match(str(each.message))
            notes.append((state[1], state[2]) if state else (about, str(each.message)))


def told_once(notes: list[Note]) -> tuple[str, ...]:
    """Notes as sentences; what is true of several is said once, of none in particular."""
    about: dict[str, set[str]] = {}
    for subject, message in notes:
        about.setdefault(message, set()).add(subject)
    alone = {message: next(iter(subjects)) for message, subjects in about.items() if len(subjects) == 1}
    return tuple(f"{alone[message]}: {message}" if alone.get(message) else message for message in about)
