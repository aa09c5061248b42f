"""Everything that a report tells of a log and a model, in one record: numbers only, for pages and programs alike."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import msgspec
import numpy as np

from seachange.errors import LogError, RefusedError, SeachangeError
from seachange.evaluation.filled_bounds import ModelBounds, model_bounds
from seachange.log.bandit_log import BanditLog
from seachange.model import SwitchingModel
from seachange.params import Params
from seachange.protocols import Floats
from seachange.provenance import Provenance
from seachange.report.answer import Answer, Note, answer_of, noted, told_once
from seachange.report.bounds import bounds_document
from seachange.report.ground import Ground, GroundKind, ground_of
from seachange.report.over_time import Course, Series, course_of
from seachange.report.policy_summary import PolicySummary, summarise_policies
from seachange.report.progress import working
from seachange.report.states import StatesSummary, plain, summarise_states
from seachange.report.states import as_document as states_document
from seachange.report.timeline import seconds_of
from seachange.states.labels import StateLabels

# A round is sure of its state from here on.
SURE = 0.9
# The mean reward along time looks at so many stretches at once, of all that the figure has.
SMOOTHED_OVER = 60
PACKAGES = ("seachange", "numpy", "scipy", "numba", "scikit-learn", "polars")


@dataclass(frozen=True)
class Judging:
    """Which rounds values are of."""

    kind: GroundKind | None  # None where there is no ground for any
    n_rounds: int
    first_round: int
    overlap: str | None  # what the model may have seen of the log
    refusal: str | None
    told: bool = True  # whether it can be told what the model has seen


@dataclass(frozen=True)
class Origin:
    """Where a report comes from."""

    log: str
    model: str
    commands: tuple[str, ...]  # that made this, and that ask more
    propensity_source: str
    n_rounds: int
    n_dropped: int
    time_range: tuple[str, str] | None
    reward_range: tuple[float, float]
    fingerprint: str
    oracle: str
    oracle_settings: dict[str, Any]
    learner: str
    learner_settings: dict[str, Any]
    choice: str | None
    versions: dict[str, str]


@dataclass(frozen=True, eq=False)
class Findings:
    """What a report tells."""

    origin: Origin
    learned_from: Provenance
    judging: Judging
    answer: Answer | None
    notes: tuple[str, ...]  # what was said on the way
    states: StatesSummary
    sure_share: float | None  # of rounds whose state has a probability of SURE at least
    mean_rewards: Floats | None  # (C,) along the bands of the states, smoothed; None where they cannot be placed
    policies: PolicySummary
    course: Course | None
    course_refusal: str | None
    bounds: ModelBounds | None


def find(
    log: BanditLog,
    model: SwitchingModel,
    *,
    log_name: str = "LOG",
    model_name: str = "MODEL",
    commands: Sequence[str] = (),
    confidence: float = 0.95,
    seed: int = 0,
) -> Findings:
    """Ask of ``log`` and ``model`` all that there is to tell; what the log cannot support is refused, with reasons."""
    overlap, ground, refusal = model.provenance.overlap(log), None, None
    notes: list[Note] = []
    try:
        with working("Finding rounds to judge by"), noted(notes):
            ground = ground_of(log, model)
    except RefusedError as error:
        refusal = str(error)
    with working("Judging the policies"):
        answer = None if ground is None else answer_of(ground, confidence, seed)
    with working("Judging them along time"):
        course, course_refusal = _course(ground, answer, confidence)
    with working("Finding the states"):
        labels = model.oracle.predict(log)
        fitted_here = log.fingerprint() == model.provenance.fingerprint
        states = summarise_states(log, model.oracle, labels, confidence, fitted_here)
    n_judged, first = (0, 0) if ground is None else (len(ground.log), ground.first_round)
    return Findings(
        origin=_origin(log, model, log_name, model_name, tuple(commands)),
        learned_from=model.provenance,
        judging=Judging(
            None if ground is None else ground.kind, n_judged, first, overlap, refusal, model.provenance.knows(log)
        ),
        answer=answer,
        notes=(*told_once(notes), *(answer.notes if answer is not None else ())),
        states=states,
        sure_share=_sure_share(labels),
        mean_rewards=_mean_rewards(log, states),
        policies=summarise_policies(log, model.policies, model.labels.counts),
        course=course,
        course_refusal=course_refusal,
        bounds=_bounds(log, model),
    )


def as_document(findings: Findings) -> dict[str, Any]:
    """The same as plain values for JSON; what is not a number is null."""
    answer, course = findings.answer, findings.course
    document = {
        "origin": asdict(findings.origin),
        "learned_from": msgspec.to_builtins(findings.learned_from),
        "judging": asdict(findings.judging),
        "answer": None if answer is None else asdict(answer),
        "notes": findings.notes,
        "states": states_document(findings.states) | {"sure_share": findings.sure_share},
        "policies": asdict(findings.policies),
        "values_over_time": None if course is None else _course_document(course),
        "values_over_time_refusal": findings.course_refusal,
        "bounds": None if findings.bounds is None else bounds_document(findings.bounds),
    }
    return {key: plain(value) for key, value in document.items()}


def _course_document(course: Course) -> dict[str, Any]:
    def told(series: Series | None) -> Any:
        return None if series is None else asdict(series)

    return {
        "axis": course.axis.kind,
        "period": course.period,
        "edges": course.edges,
        "switching": told(course.switching),
        "single": told(course.single),
        "logging": told(course.logging),
        "forecast": None if course.forecast is None else asdict(course.forecast),
        "refusal": course.refusal,
        "forecast_refusal": course.forecast_refusal,
    }


def _course(ground: Ground | None, answer: Answer | None, confidence: float) -> tuple[Course | None, str | None]:
    if ground is None or answer is None:
        return None, None
    best = None if answer.best_single is None else ground.singles[answer.best_single]
    try:
        with noted([]):  # what there is to say was said with the answer
            return course_of(ground, best, confidence), None
    except (RefusedError, LogError) as refusal:
        return None, str(refusal)


def _bounds(log: BanditLog, model: SwitchingModel) -> ModelBounds | None:
    try:
        return model_bounds(log, model)
    except SeachangeError:
        return None


def _sure_share(labels: StateLabels) -> float | None:
    return None if labels.state_probs is None else float((labels.state_probs.max(axis=1) >= SURE).mean())


def _mean_rewards(log: BanditLog, states: StatesSummary) -> Floats | None:
    """Mean reward around each stretch of the bands."""
    columns, n_columns = states.bands, len(states.bands.rounds)
    if states.n_chains == 1:
        places = np.repeat(np.arange(n_columns), columns.rounds)
    elif log.times is not None:
        places = np.searchsorted(columns.edges, seconds_of(log.times)[1], side="right") - 1
    else:
        return None
    seen = ~np.isnan(log.rewards)
    places = np.clip(places, 0, n_columns - 1)[seen]
    sums = np.bincount(places, log.rewards[seen], n_columns), np.bincount(places, minlength=n_columns)
    reach = max(n_columns // SMOOTHED_OVER // 2, 1) if n_columns > SMOOTHED_OVER else 0
    around = np.arange(n_columns)
    low, high = np.maximum(around - reach, 0), np.minimum(around + reach + 1, n_columns)
    totals, counts = ((whole := np.concatenate([[0.0], np.cumsum(each)]))[high] - whole[low] for each in sums)
    return np.asarray(np.divide(totals, counts, out=np.full(n_columns, np.nan), where=counts > 0))


def _origin(log: BanditLog, model: SwitchingModel, log_name: str, model_name: str, commands: tuple[str, ...]) -> Origin:
    rewards = log.rewards
    return Origin(
        log=log_name,
        model=model_name,
        commands=commands,
        propensity_source=log.propensity_source,
        n_rounds=len(log),
        n_dropped=sum(count for _, count in log.dropped),
        time_range=None if log.times is None else (str(log.times.min()), str(log.times.max())),
        reward_range=(float(np.nanmin(rewards)), float(np.nanmax(rewards))),
        fingerprint=log.fingerprint(),
        oracle=type(model.oracle).__name__,
        oracle_settings=_settings(model.oracle),
        learner=type(model.learner).__name__,
        learner_settings=_settings(model.learner),
        choice=None if model.choice is None else model.choice.reason,
        versions={"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    )


def _settings(part: Any) -> dict[str, Any]:
    """Hyperparameters that are words or numbers."""
    settings = part.get_params() if isinstance(part, Params) else {}
    return {name: value for name, value in settings.items() if isinstance(value, str | int | float | bool)}
