"""The states of a log: segments, changes and their probabilities, rewards, transitions, evidence."""

from dataclasses import dataclass, fields
from typing import Any, Literal

import msgspec
import numpy as np

from seachange.analysis.state_contrasts import Contrast, RewardCells, contrasts, fits_of, reward_cells
from seachange.analysis.timeline import Bands, TimeAxis, bands, dates_or_seconds, time_axis
from seachange.log.bandit_log import BanditLog
from seachange.log.joint_features import ContextKind
from seachange.protocols import Floats, Ints
from seachange.states.change_point import ChangePointOracle
from seachange.states.hmm import HMMOracle
from seachange.states.labels import Clock, StateLabels, chains, clock_of
from seachange.states.new_states import NewRegime
from seachange.states.state_count import StateCount
from seachange.states.switching_regression import SwitchingRegression

CERTAIN = 0.999  # from this probability on, the state of a round is certain
MISSED = 0.2  # a smaller share of segments that are too short to be found is not mentioned
# Fields that have another name or form in the JSON document.
RENAMED = {"n_chains", "action_names", "changes_per_chain", "axis", "bands", "has_probs", "cells", "contrasts"}


@dataclass(frozen=True)
class Change:
    """A change of state."""

    round: int  # first round of the new segment
    time: str | float | None  # of that round
    before: int  # state
    after: int
    low: int | None  # interval for the first round of the new state …
    high: int | None  # … at the requested confidence
    probability: float | None  # HMM: lower bound on the probability that the states before and after are right
    p_value: float | None  # change points: of such a difference anywhere in a log without changes


def changes(log: BanditLog, oracle: Any, labels: StateLabels, confidence: float) -> tuple[Change, ...]:
    """The changes in a log of one chain, with their intervals and probabilities or p-values."""
    rounds, states = labels.change_points, labels.states
    if not len(rounds):
        return ()
    model, cut = getattr(oracle, "model_", None), getattr(oracle, "segmentation_", None)
    low: Any = np.full(len(rounds), None)
    high = probabilities = p_values = low
    if isinstance(model, SwitchingRegression) and labels.state_probs is not None:
        low, high = change_intervals(model, model.filter(log), labels.state_probs, labels, confidence)
        probabilities = change_probabilities(labels.state_probs, labels)
    if cut is not None and np.array_equal(cut.change_points, rounds):
        p_values, low, high = cut.p_values, cut.low, cut.high
    columns = (states[rounds - 1], states[rounds], low, high, probabilities, p_values)
    return tuple(map(Change, rounds.tolist(), log.times_at(rounds), *(column.tolist() for column in columns)))


def change_intervals(
    model: SwitchingRegression, filtered: Floats, posteriors: Floats, labels: StateLabels, confidence: float
) -> tuple[Ints, Ints]:
    """First and last round of an interval that contains each change with this posterior probability.

    A change is where the new state j was entered for good, as seen from u, the first round that is certain to be in j.
    It is at t or earlier if the state was j from t to u:

        p(z_t = … = z_u-1 = j | z_u = j, all rewards) = Π_k=t+1…u F_k-1(j) Φ(j, j) / Σ_i F_k-1(i) Φ(i, j)

    with F the filtered probabilities. The tails on both sides are equal.
    """
    edges = np.concatenate([[0], labels.change_points, [len(labels.states)]])
    tail = (1 - confidence) / 2
    found = np.empty((2, len(labels.change_points)), dtype=np.int64)
    for i, change in enumerate(labels.change_points):
        first, new = edges[i] + 1, labels.states[change]
        probs = posteriors[change : edges[i + 2], new]
        sure = change + int(np.argmax(probs >= min(CERTAIN, probs.max())))
        before = filtered[first:sure]
        stayed = before[:, new] * model.transition_matrix[new, new]
        ratios = stayed / np.maximum(before @ model.transition_matrix[:, new], 1e-300)
        # The probability that the change is at t or earlier, for t from ``first`` to ``sure``.
        reached = np.append(np.cumprod(ratios[::-1])[::-1], 1.0)
        found[:, i] = first + np.searchsorted(reached, (tail, 1 - tail))
    return found[0], found[1]


def change_probabilities(posteriors: Floats, labels: StateLabels) -> Floats:
    """Lower bound on the probability of the old state before each change and the new state after it.

    At the most certain rounds s and u of both segments, it is at least Q_s(i) + Q_u(j) - 1.
    """
    edges = np.concatenate([[0], labels.change_points])
    own = posteriors[np.arange(len(posteriors)), labels.states]
    largest = np.maximum.reduceat(own, edges)
    return np.asarray(np.clip(largest[:-1] + largest[1:] - 1, 0.0, 1.0))


OracleKind = Literal["hmm", "change-point", "other"]


@dataclass(frozen=True, eq=False)
class Transitions:
    """Transitions between states: those of the model if there is one, else counted in the labels."""

    matrix: Floats  # (L, L) Φ, row = from
    expected_stays: Floats  # (L,) rounds; inf if a state is never left, NaN if it never occurs
    shortest_segment: float | None = None  # HMM: rounds needed to tell the states apart

    @property
    def leaving(self) -> Floats:
        """(L, L) the next state, given that the state is left; NaN in the rows of states that never are."""
        moves = self.matrix - np.diag(np.diag(self.matrix))
        totals = moves.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(moves, totals, out=np.full_like(moves, np.nan), where=totals > 0))


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence for the number of states."""

    counts: tuple[StateCount, ...]  # each number tried; empty if the number was given
    bic: float  # of the model; lower is better
    single_state_bic: float
    log_likelihood: float
    of_this_log: bool  # otherwise of the log the model was learned from


@dataclass(frozen=True, eq=False)
class StatesSummary:
    """The states of a log, as ``seachange states`` shows them."""

    oracle: OracleKind
    rewards: str | None  # the HMM's reward distribution
    n_rounds: int
    n_dropped: int  # rows dropped when the log was read; rounds number the others from 0
    n_chains: int  # independent sequences
    n_states: int  # L
    action_names: tuple[str, ...]
    contexts: ContextKind
    context_names: tuple[str, ...]
    counts: Ints  # (L,) rounds of each state
    segment_counts: Ints  # (L,) segments of each state
    mean_rewards: Floats  # (L,) NaN without rounds
    axis: TimeAxis
    bands: Bands
    has_probs: bool  # whether the bands are posteriors, not just labels
    segments: dict[str, Ints] | None  # "starts", "ends" and "states"; None with several sequences
    changes: tuple[Change, ...]  # empty with several sequences
    change_points: Ints
    changes_per_chain: Ints  # (m,) how many sequences have 0, 1, … changes
    cells: RewardCells
    contrasts: tuple[Contrast, ...]  # by state, the most significant first
    transitions: Transitions
    clock: Clock | None  # None if times are unknown or too short
    evidence: Evidence | None  # None unless an HMM was fitted
    new_regimes: tuple[NewRegime, ...]  # that no state of the model explains; empty if the log has several sequences
    confidence: float  # of all intervals

    @property
    def n_actions(self) -> int:
        """K."""
        return len(self.action_names)

    @property
    def in_use(self) -> list[int]:
        """The states that hold a round."""
        return np.flatnonzero(self.counts > 0).tolist()

    @property
    def missed_segments(self) -> str:
        """A sentence about segments that are too short to be found; empty if there are few."""
        rounds, stay = self.transitions.shortest_segment, self.transitions.expected_stays.min()
        if rounds is None or -np.expm1(-rounds / stay) < MISSED:
            return ""
        if rounds > max(self.n_rounds, stay):  # the log may be shorter than those the model was learned from
            return "Some states are hard to distinguish: they predict almost the same rewards."
        time = f"It takes about {np.ceil(rounds):,.0f} rounds to tell the states apart."
        return f"{time} Shorter segments are often missed; stays include them."


def summarize_states(
    log: BanditLog,
    oracle: Any,
    labels: StateLabels | None = None,
    confidence: float = 0.95,
    fitted_here: bool = True,
    new_regimes: tuple[NewRegime, ...] = (),
) -> StatesSummary:
    """Summarize the states that a fitted ``oracle`` finds in ``log``.

    ``fitted_here`` says whether it was fitted on this log; otherwise its evidence is about another one. ``new_regimes``
    are those that a model finds in it.
    """
    labels = oracle.predict(log) if labels is None else labels
    alone = labels.n_chains == 1
    axis = time_axis(log, labels.n_chains)
    cells = reward_cells(log, labels, confidence)
    totals = np.where(cells.rounds > 0, cells.rounds * cells.means, 0.0).sum(axis=1)
    model, report = getattr(oracle, "model_", None), getattr(oracle, "report_", None)
    order, first = chains(log)
    chain = np.cumsum(first)[np.argsort(order)] - 1
    starts = np.union1d(order[first], labels.change_points)
    segments = {"starts": starts, "ends": np.append(starts[1:], len(log)), "states": labels.states[starts]}
    evidence = report and Evidence(
        tuple(report.state_counts), report.bic, report.single_state_bic, report.log_likelihood, fitted_here
    )
    kinds: dict[type, OracleKind] = {HMMOracle: "hmm", ChangePointOracle: "change-point"}
    return StatesSummary(
        oracle=kinds.get(type(oracle), "other"),
        rewards=getattr(model, "rewards", None),
        n_rounds=len(log),
        n_dropped=sum(count for _, count in log.dropped),
        n_chains=labels.n_chains,
        n_states=labels.n_states,
        action_names=log.action_names,
        contexts=log.joint.kind,
        context_names=log.context_names,
        counts=labels.counts,
        segment_counts=np.bincount(labels.states[starts], minlength=labels.n_states),
        mean_rewards=totals / np.where(cells.rounds.any(axis=1), cells.rounds.sum(axis=1), np.nan),
        axis=axis,
        bands=bands(log, labels, axis),
        has_probs=labels.state_probs is not None,
        segments=segments if alone else None,
        changes=changes(log, oracle, labels, confidence) if alone else (),
        change_points=labels.change_points,
        changes_per_chain=np.bincount(np.bincount(chain[labels.change_points], minlength=labels.n_chains)),
        cells=cells,
        contrasts=contrasts(log, fits_of(oracle, cells), labels.counts.astype(np.float64)),
        transitions=_transitions(log, labels, model),
        clock=clock_in(log, labels),
        evidence=evidence,
        new_regimes=new_regimes,
        confidence=confidence,
    )


def clock_in(log: BanditLog, labels: StateLabels) -> Clock | None:
    """How well the time of day predicts the states of ``log``; None without dates, with few dates or one state."""
    if log.times is None or np.count_nonzero(labels.counts) < 2:
        return None
    kind, seconds = dates_or_seconds(log.times)
    return clock_of(seconds, labels.states) if kind == "date" else None


def as_document(summary: StatesSummary) -> dict[str, Any]:
    """The summary as JSON values, with null for NaN. docs/states.md describes the keys."""
    bands, cells, moves, pace = summary.bands, summary.cells, summary.transitions, summary.axis.seconds_per_round
    stays = moves.expected_stays.tolist()
    return json_value(  # type: ignore[no-any-return]
        {field.name: getattr(summary, field.name) for field in fields(summary) if field.name not in RENAMED}
        | {
            "n_sequences": summary.n_chains,
            "actions": summary.action_names,
            "changes_per_sequence": summary.changes_per_chain,
            "over_time": {
                "axis": summary.axis.kind,
                "edges": bands.edges,
                "rounds": bands.rounds,
                "state_probs": bands.shares,
                "posterior": summary.has_probs,
            },
            "rewards_by_action": {name: getattr(cells, name) for name in ("rounds", "means", "low", "high", "rare")},
            "distinguishing": summary.contrasts,
            "transitions": {
                "matrix": moves.matrix,
                "leaving": moves.leaving,
                "expected_stays": stays,
                "expected_stays_seconds": None if pace is None else [stay * pace for stay in stays],
                "shortest_segment": moves.shortest_segment,
            },
        }
    )


def json_value(value: Any) -> Any:
    """A value as JSON has it: lists for arrays, objects for records, null for NaN and infinity."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=lambda array: array.tolist()))


def _transitions(log: BanditLog, labels: StateLabels, model: Any) -> Transitions:
    if model is not None:
        stays = np.where(np.diag(model.transition_matrix) < 1, model.expected_stays, np.inf)
        return Transitions(model.transition_matrix, stays, model.shortest_segment(log) if len(stays) > 1 else None)
    order, starts = chains(log)
    states, size = labels.states[order], labels.n_states
    pairs = (states[:-1] * size + states[1:])[~starts[1:]]
    moves = np.bincount(pairs, minlength=size * size).reshape(size, size).astype(np.float64)
    rounds = moves.sum(axis=1, keepdims=True)
    matrix = np.divide(moves, rounds, out=np.full_like(moves, np.nan), where=rounds > 0)
    left = moves.sum(axis=1) - np.diag(moves)
    with np.errstate(invalid="ignore", divide="ignore"):
        return Transitions(matrix, np.where(labels.counts > 0, labels.counts / left, np.nan))
