"""How sure is a change, and where does it lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats, Ints
from seachange.states.labels import StateLabels
from seachange.states.switching import SwitchingRegression

# A round is sure of its state from here on.
SURE = 0.999


@dataclass(frozen=True)
class Change:
    """A change of the world, as far as the log tells."""

    round: int  # first round of the new segment
    time: str | float | None  # of that round
    before: int  # state
    after: int
    low: int | None  # the first round of the new state lies from here …
    high: int | None  # … to here, with the confidence that was asked for
    probability: float | None  # HMM: at least this sure that the world was in one state before and the other after
    p_value: float | None  # change-points: of such a difference anywhere in a log without any change


def changes(log: BanditLog, oracle: Any, labels: StateLabels, confidence: float) -> tuple[Change, ...]:
    """The changes of a log of one chain, with what its oracle knows of each."""
    rounds = labels.change_points
    model = getattr(oracle, "model_", None)
    low: list[Any] = [None] * len(rounds)
    high, sure, p_values = low[:], low[:], low[:]
    if isinstance(model, SwitchingRegression) and labels.state_probs is not None and len(rounds):
        filtered = model.filter(log)
        low, high = (each.tolist() for each in place_intervals(model, filtered, labels.state_probs, labels, confidence))
        sure = certainties(labels.state_probs, labels).tolist()
    cut = getattr(oracle, "segmentation_", None)
    if cut is not None and np.array_equal(cut.change_points, rounds):
        p_values, low, high = (each.tolist() for each in (cut.p_values, cut.low, cut.high))
    times = [None] * len(rounds) if log.times is None else [_plain(log.times[t]) for t in rounds]
    before = labels.states[rounds - 1].tolist() if len(rounds) else []
    after = labels.states[rounds].tolist()
    return tuple(map(Change, rounds.tolist(), times, before, after, low, high, sure, p_values))


def place_intervals(
    model: SwitchingRegression, filtered: Floats, posteriors: Floats, labels: StateLabels, confidence: float
) -> tuple[Ints, Ints]:
    """First and last round of an interval that holds the place of each change with this posterior probability.

    The place is where the new state j was entered for good, as seen from u, the first round that is sure of it. It is
    t or earlier where the world stayed in j from t to u:

        p(z_t = … = z_u-1 = j | z_u = j, all rewards) = Π_k=t+1…u F_k-1(j) Φ(j, j) / Σ_i F_k-1(i) Φ(i, j)

    with F the filtered probabilities. Its tails are cut off alike.
    """
    edges = np.concatenate([[0], labels.change_points, [len(labels.states)]])
    tail = (1 - confidence) / 2
    found = np.empty((2, len(labels.change_points)), dtype=np.int64)
    for i, change in enumerate(labels.change_points):
        first, new = edges[i] + 1, labels.states[change]
        probs = posteriors[change : edges[i + 2], new]
        sure = change + int(np.argmax(probs >= min(SURE, probs.max())))
        before = filtered[first:sure]
        stayed = before[:, new] * model.transition_matrix[new, new]
        ratios = stayed / np.maximum(before @ model.transition_matrix[:, new], 1e-300)
        # The probability that the place is at most t, for t from ``first`` to ``sure``.
        reached = np.append(np.cumprod(ratios[::-1])[::-1], 1.0)
        found[:, i] = first + np.searchsorted(reached, (tail, 1 - tail))
    return found[0], found[1]


def certainties(posteriors: Floats, labels: StateLabels) -> Floats:
    """A lower bound of p(the world was in the old state before each change, and in the new one after it).

    It was at its surest rounds s and u of both segments with probability Q_s(i) + Q_u(j) - 1 at least.
    """
    edges = np.concatenate([[0], labels.change_points])
    own = posteriors[np.arange(len(posteriors)), labels.states]
    surest = np.maximum.reduceat(own, edges)
    return np.asarray(np.clip(surest[:-1] + surest[1:] - 1, 0.0, 1.0))


def _plain(moment: Any) -> str | float:
    """A time as JSON has it."""
    return str(np.datetime_as_string(moment, unit="auto")) if isinstance(moment, np.datetime64) else moment.item()
