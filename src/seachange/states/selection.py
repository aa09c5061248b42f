"""How many states does a log have."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from seachange.errors import ParameterError
from seachange.states.em import EMResult

# The search ends when this many more states in a row have not lowered the criterion.
PATIENCE = 2


@dataclass(frozen=True)
class StateCount:
    """Evidence for one number of states."""

    n_states: int
    log_likelihood: float
    bic: float


def bic(result: EMResult, n_rounds: int) -> float:
    """Bayesian information criterion, -2 log p + (free parameters) log n; lower is better."""
    return -2 * result.log_likelihood + result.model.n_parameters * math.log(n_rounds)


def choose_n_states(
    fit: Callable[[int], list[EMResult]], most: int, n_rounds: int, shortest_stay: float
) -> tuple[list[EMResult], tuple[StateCount, ...]]:
    """Fit 1, 2, … states until the criterion has stopped falling; the best fit, and what was seen on the way.

    Where a state lasts less than ``shortest_stay`` rounds it follows single rewards; such fits are never chosen.
    """
    fits: list[list[EMResult]] = []
    counts: list[StateCount] = []
    best = 0
    for n_states in range(1, most + 1):
        try:
            results = fit(n_states)
        except ParameterError:
            break
        fits.append(results)
        counts.append(StateCount(n_states, results[0].log_likelihood, bic(results[0], n_rounds)))
        if counts[-1].bic < counts[best].bic and results[0].model.shortest_stay >= shortest_stay:
            best = n_states - 1
        elif n_states - 1 - best >= PATIENCE:
            break
    return fits[best], tuple(counts)
