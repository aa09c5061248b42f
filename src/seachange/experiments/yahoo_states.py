"""What the states of a front page are: how they relate to the hour, and which documents lead in them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seachange.errors import SeachangeWarning
from seachange.protocols import Floats, Ints
from seachange.simulate.clickstream import STEP, Clickstream
from seachange.states.hmm import HMMOracle

HOUR, HOURS = 3_600, 24
# Documents that are named for each state.
LEADERS = 3


class Span(NamedTuple):
    """A state on one day, from hour to hour."""

    day: int
    first: float
    end: float
    state: int


@dataclass(frozen=True)
class StatesFound:
    """The states of a log."""

    n_days: int
    n_states: int
    spans: list[Span]
    leaders: list[list[tuple[int, float]]]  # of each state, the documents that led most, and in how much of its time
    told_by_hour: float  # share of rounds whose state is the likeliest one of their hour of the day
    most_common: float  # the same if only the most common state is guessed


def states_found(world: Clickstream, oracle: HMMOracle, seed: int) -> StatesFound:
    """Fit ``oracle`` to a log of ``world`` and look at its states."""
    log = world.log(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeachangeWarning)
        states = oracle.fit(log).predict(log).states
    times = np.asarray(log.times)
    hours, n_states = (times - times[0]) / HOUR, int(states.max()) + 1
    counts = np.zeros((HOURS, n_states))
    np.add.at(counts, (hours.astype(np.int64) % HOURS, states), 1)
    return StatesFound(
        n_days=int(hours[-1] // HOURS) + 1,
        n_states=n_states,
        spans=_spans(hours, states),
        leaders=_leaders(world, times, states, n_states),
        told_by_hour=float(counts.max(axis=1).sum() / len(times)),
        most_common=float(counts.sum(axis=0).max() / len(times)),
    )


def _spans(hours: Floats, states: Ints) -> list[Span]:
    """Runs of rounds with one state, cut at midnight."""
    days = (hours // HOURS).astype(np.int64)
    firsts = np.flatnonzero((np.diff(states, prepend=-1) != 0) | (np.diff(days, prepend=-1) != 0))
    ends = np.append(hours[firsts[1:]], hours[-1])
    spans = zip(days[firsts].tolist(), hours[firsts].tolist(), ends.tolist(), states[firsts].tolist(), strict=True)
    return [Span(day, first - HOURS * day, min(end - HOURS * day, HOURS), state) for day, first, end, state in spans]


def _leaders(world: Clickstream, times: Ints, states: Ints, n_states: int) -> list[list[tuple[int, float]]]:
    """The documents with the highest click rate of their pool, by state."""
    visits = world.visits
    first = np.flatnonzero(np.diff(visits.times // STEP, prepend=-1))  # a look each minute
    pools = visits.pool_documents[visits.pools[first]]
    rates = np.where(pools >= 0, world.click_rates.at(np.maximum(pools, 0), visits.times[first]), -1.0)
    best = visits.document_ids[pools[np.arange(len(pools)), rates.argmax(axis=1)]]
    minute_states = states[np.minimum(np.searchsorted(times, visits.times[first]), len(states) - 1)]
    return [_most(best[minute_states == state]) for state in range(n_states)]


def _most(documents: Ints) -> list[tuple[int, float]]:
    names, counts = np.unique(documents, return_counts=True)
    order: Sequence[int] = np.argsort(-counts)[:LEADERS].tolist()
    return [(int(names[i]), float(counts[i] / len(documents))) for i in order]
