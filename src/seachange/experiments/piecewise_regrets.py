"""Regrets of bandit algorithms on piecewise-stationary Bernoulli arms, next to those of Besson's thesis."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seachange.deploy import rivals
from seachange.experiments.paper_synthetic import std_of
from seachange.protocols import Floats
from seachange.simulate.piecewise import PiecewiseBernoulli
from seachange.simulate.rollout import rollout

# Mean and standard deviation of the final regret over 1,000 runs.
PUBLISHED = {
    "Pb1": {
        "oracle": (37, 37), "klUCB": (270, 76), "Exp3.S": (352, 51), "SW-klUCB": (177, 34), "M-klUCB": (290, 29),
        "CUSUM-klUCB": (148, 32), "GLR-klUCB": (74, 31),
    },
    "Pb2": {
        "oracle": (45, 34), "klUCB": (162, 59), "Exp3.S": (310, 62), "SW-klUCB": (182, 34), "M-klUCB": (534, 93),
        "CUSUM-klUCB": (152, 42), "GLR-klUCB": (113, 34),
    },
    "Pb3": {
        "oracle": (257, 86), "klUCB": (529, 148), "Exp3.S": (665, 93), "SW-klUCB": (1794, 71), "M-klUCB": (645, 141),
        "CUSUM-klUCB": (490, 133), "GLR-klUCB": (513, 97),
    },
}  # fmt: skip
PUBLISHED_RUNS = 1000
METHODS = tuple(PUBLISHED["Pb1"])


@dataclass(frozen=True)
class RegretResult:
    """One algorithm on one problem."""

    problem: str
    method: str
    mean: float
    std: float  # over runs
    published: float
    published_std: float


def rival(world: PiecewiseBernoulli, method: str) -> rivals.Rival:
    """An algorithm with its published settings; tuned ones know the horizon and the number of changes."""
    k, horizon, n_changes = world.n_actions, world.horizon, len(world.change_points)
    window = int(2 * math.sqrt(horizon * math.log(horizon) / n_changes))
    made: dict[str, rivals.Rival] = {
        "oracle": rivals.KLUCB(n_actions=k, restarts=tuple(change - 1 for change in world.change_points)),
        "klUCB": rivals.KLUCB(n_actions=k),
        "Exp3.S": rivals.Exp3S(n_actions=k, horizon=horizon, n_changes=n_changes),
        "SW-klUCB": rivals.SlidingWindowKLUCB(n_actions=k, window=window),
        "M-klUCB": rivals.MonitoredKLUCB(n_actions=k, horizon=horizon, n_changes=n_changes),
        "CUSUM-klUCB": rivals.CUSUMKLUCB(n_actions=k, horizon=horizon, n_changes=n_changes),
        "GLR-klUCB": rivals.GLRKLUCB(n_actions=k, horizon=horizon),
    }
    return made[method]


def regret(seed: int, problem: str, method: str) -> float:
    """The expected regret of one run."""
    world = PiecewiseBernoulli.published(problem)
    earned = rollout(world, rival(world, method), seed).expected_rewards
    return float((world.means.max(axis=1)[world.state_sequence] - earned).sum())


def run(seed: int, problems: Sequence[str]) -> dict[tuple[str, str], float]:
    """One run of every algorithm on every problem."""
    return {(problem, method): regret(seed, problem, method) for problem in problems for method in METHODS}


def summarize(runs: Sequence[dict[tuple[str, str], float]]) -> list[RegretResult]:
    """The table."""
    results = []
    for problem, method in runs[0]:
        found: Floats = np.array([each[problem, method] for each in runs])
        mean = float(found.mean()), std_of(found)
        results.append(RegretResult(problem, method, *mean, *PUBLISHED[problem][method]))
    return results
