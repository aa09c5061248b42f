"""What there is to know about the states of a log: numbers only, for tables, figures and programs alike."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from seachange.log.bandit_log import BanditLog
from seachange.log.joint import ContextKind
from seachange.protocols import Floats, Ints
from seachange.report.changes import Change, changes
from seachange.report.contrasts import Contrast, contrasts, fits_of
from seachange.report.state_rewards import RewardCells, reward_cells
from seachange.report.timeline import Bands, TimeAxis, bands, seconds_of, time_axis
from seachange.states.change_point import ChangePointOracle
from seachange.states.clock import Clock, clock_of
from seachange.states.hmm import HMMOracle
from seachange.states.labels import StateLabels, chains
from seachange.states.selection import StateCount

OracleKind = Literal["hmm", "change-point", "other"]


@dataclass(frozen=True, eq=False)
class Segments:
    """Runs of rounds between changes, of a log of one chain."""

    starts: Ints  # (S,)
    ends: Ints  # (S,) first round after each
    states: Ints  # (S,)


@dataclass(frozen=True, eq=False)
class Transitions:
    """Where the world goes from each state: of the model where there is one, else as counted in the labels."""

    matrix: Floats  # (L, L) Φ, row = from
    expected_stays: Floats  # (L,) rounds; inf where a state is never left, NaN where it never occurs

    @property
    def leaving(self) -> Floats:
        """(L, L) where to, given that the state is left; NaN in the rows of those that never are."""
        moves = self.matrix - np.diag(np.diag(self.matrix))
        totals = moves.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(moves, totals, out=np.full_like(moves, np.nan), where=totals > 0))


@dataclass(frozen=True, eq=False)
class Evidence:
    """For the number of states."""

    counts: tuple[StateCount, ...]  # each number that was tried; empty where it was given
    bic: float  # of the model; lower is better
    single_state_bic: float
    log_likelihood: float
    of_this_log: bool  # else of the one that the model was learned on


@dataclass(frozen=True, eq=False)
class StatesSummary:
    """The states of a log, as ``seachange states`` tells of them."""

    oracle: OracleKind
    rewards: str | None  # how the HMM takes them to be distributed
    n_rounds: int
    n_dropped: int  # rows that were left out when the log was read; rounds count the others, from 0
    n_chains: int  # independent sequences
    n_states: int  # L
    action_names: tuple[str, ...]
    contexts: ContextKind
    context_names: tuple[str, ...]
    counts: Ints  # (L,) rounds of each state
    visits: Ints  # (L,) segments of each state
    mean_rewards: Floats  # (L,) NaN where there are none
    axis: TimeAxis
    bands: Bands
    has_probs: bool  # whether the bands are posteriors, not just labels
    segments: Segments | None  # None where there are several sequences
    changes: tuple[Change, ...]  # none where there are several sequences
    change_points: Ints
    changes_per_chain: Ints  # (m,) how many sequences have 0, 1, … changes
    cells: RewardCells
    contrasts: tuple[Contrast, ...]  # of each state, those that stand out most first
    transitions: Transitions
    clock: Clock | None  # None where the time is not known or too short
    evidence: Evidence | None  # None unless an HMM was fitted
    confidence: float  # of all intervals

    @property
    def n_actions(self) -> int:
        """K."""
        return len(self.action_names)

    @property
    def in_use(self) -> list[int]:
        """The states that hold a round."""
        return np.flatnonzero(self.counts > 0).tolist()


def summarise_states(
    log: BanditLog,
    oracle: Any,
    labels: StateLabels | None = None,
    confidence: float = 0.95,
    fitted_here: bool = True,
) -> StatesSummary:
    """All that ``seachange states`` shows of ``log``, whose ``labels`` a fitted ``oracle`` made.

    ``fitted_here`` says that it was fitted on this very log; otherwise its evidence is of another one.
    """
    labels = oracle.predict(log) if labels is None else labels
    alone = labels.n_chains == 1
    axis = time_axis(log, labels.n_chains)
    cells = reward_cells(log, labels, confidence)
    totals = np.where(cells.rounds > 0, cells.rounds * cells.means, 0.0).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = totals / cells.rounds.sum(axis=1)
    model = getattr(oracle, "model_", None)
    segments = _segments(labels)
    return StatesSummary(
        oracle=_kind(oracle),
        rewards=getattr(model, "rewards", None),
        n_rounds=len(log),
        n_dropped=sum(count for _, count in log.dropped),
        n_chains=labels.n_chains,
        n_states=labels.n_states,
        action_names=log.action_names,
        contexts=log.joint.kind,
        context_names=log.context_names,
        counts=labels.counts,
        visits=_visits(log, labels),
        mean_rewards=means,
        axis=axis,
        bands=bands(log, labels, axis),
        has_probs=labels.state_probs is not None,
        segments=segments if alone else None,
        changes=changes(log, oracle, labels, confidence) if alone else (),
        change_points=labels.change_points,
        changes_per_chain=_changes_per_chain(log, labels),
        cells=cells,
        contrasts=contrasts(log, fits_of(oracle, cells), labels.counts.astype(np.float64)),
        transitions=_transitions(log, labels, model),
        clock=clock_in(log, labels),
        evidence=_evidence(getattr(oracle, "report_", None), fitted_here),
        confidence=confidence,
    )


def clock_in(log: BanditLog, labels: StateLabels) -> Clock | None:
    """How well the clock tells the states of ``log``; None where it has no dates, too few of them, or one state."""
    if log.times is None or np.count_nonzero(labels.counts) < 2:
        return None
    kind, seconds = seconds_of(log.times)
    return clock_of(seconds, labels.states) if kind == "date" else None


def as_document(summary: StatesSummary) -> dict[str, Any]:
    """The summary as plain values for JSON; what is not a number is null. The keys are told in docs/states.md."""
    axis, cells, segments, moves = summary.axis, summary.cells, summary.segments, summary.transitions
    document = {
        "oracle": summary.oracle,
        "rewards": summary.rewards,
        "n_rounds": summary.n_rounds,
        "n_dropped": summary.n_dropped,
        "n_sequences": summary.n_chains,
        "n_states": summary.n_states,
        "counts": summary.counts,
        "visits": summary.visits,
        "mean_rewards": summary.mean_rewards,
        "actions": summary.action_names,
        "contexts": summary.contexts,
        "context_names": summary.context_names,
        "confidence": summary.confidence,
        "change_points": summary.change_points,
        "changes": [asdict(change) for change in summary.changes],
        "changes_per_sequence": summary.changes_per_chain,
        "segments": None
        if segments is None
        else {"starts": segments.starts, "ends": segments.ends, "states": segments.states},
        "over_time": {
            "axis": axis.kind,
            "edges": summary.bands.edges,
            "rounds": summary.bands.rounds,
            "state_probs": summary.bands.shares,
            "posterior": summary.has_probs,
        },
        "rewards_by_action": {
            "rounds": cells.rounds,
            "means": cells.means,
            "low": cells.low,
            "high": cells.high,
            "rare": cells.rare,
        },
        "distinguishing": [asdict(contrast) for contrast in summary.contrasts],
        "transitions": {
            "matrix": moves.matrix,
            "leaving": moves.leaving,
            "expected_stays": moves.expected_stays,
            "expected_stays_seconds": _seconds(moves.expected_stays, axis),
        },
        "clock": None if summary.clock is None else asdict(summary.clock),
        "evidence": None
        if summary.evidence is None
        else asdict(summary.evidence) | {"counts": [asdict(count) for count in summary.evidence.counts]},
    }
    return {key: plain(value) for key, value in document.items()}


def plain(value: Any) -> Any:
    """A value as JSON has it: lists for arrays, null for what is not a number."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return plain(value.tolist())
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _seconds(stays: Floats, axis: TimeAxis) -> list[float | None] | None:
    if axis.seconds_a_round is None:
        return None
    return [stay * axis.seconds_a_round if np.isfinite(stay) else None for stay in stays.tolist()]


def _kind(oracle: Any) -> OracleKind:
    if isinstance(oracle, HMMOracle):
        return "hmm"
    return "change-point" if isinstance(oracle, ChangePointOracle) else "other"


def _segments(labels: StateLabels) -> Segments:
    starts = np.concatenate([[0], labels.change_points]).astype(np.int64)
    return Segments(starts, np.append(starts[1:], len(labels.states)), labels.states[starts])


def _visits(log: BanditLog, labels: StateLabels) -> Ints:
    """(L,) how many segments each state has."""
    order, starts = chains(log)
    begin = np.zeros(len(log), dtype=bool)
    begin[order[starts]] = True
    begin[labels.change_points] = True
    return np.bincount(labels.states[begin], minlength=labels.n_states)


def _changes_per_chain(log: BanditLog, labels: StateLabels) -> Ints:
    order, starts = chains(log)
    place = np.empty(len(log), dtype=np.int64)
    place[order] = np.cumsum(starts) - 1
    return np.bincount(np.bincount(place[labels.change_points], minlength=labels.n_chains))


def _transitions(log: BanditLog, labels: StateLabels, model: Any) -> Transitions:
    if model is not None:
        stays = np.where(np.diag(model.transition_matrix) < 1, model.expected_stays, np.inf)
        return Transitions(model.transition_matrix, stays)
    order, starts = chains(log)
    states, size = labels.states[order], labels.n_states
    pairs = (states[:-1] * size + states[1:])[~starts[1:]]
    moves = np.bincount(pairs, minlength=size * size).reshape(size, size).astype(np.float64)
    rounds = moves.sum(axis=1, keepdims=True)
    matrix = np.divide(moves, rounds, out=np.full_like(moves, np.nan), where=rounds > 0)
    left = moves.sum(axis=1) - np.diag(moves)
    with np.errstate(invalid="ignore", divide="ignore"):
        return Transitions(matrix, np.where(labels.counts > 0, labels.counts / left, np.nan))


def _evidence(report: Any, fitted_here: bool) -> Evidence | None:
    if report is None:
        return None
    counts = tuple(report.state_counts)
    return Evidence(counts, report.bic, report.single_state_bic, report.log_likelihood, fitted_here)
