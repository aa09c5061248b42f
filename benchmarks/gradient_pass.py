"""Compare one pass for value and gradient of an objective with streaming the features through memory.

Streaming is measured in three ways: the fastest compiled sum, NumPy's sum, and a copy, which also writes. All sides run
with one thread on one core, then with one thread per core.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
from numba import njit

from peers import pin_to_one_core
from seachange.engine import map_in_order
from seachange.log.bandit_log import BanditLog
from seachange.policies.objectives import Objective
from seachange.policies.reward_models import cross_fitted

N_ACTIONS, N_FEATURES = 10, 6


@njit(fastmath=True, nogil=True)
def streamed(values):
    """Sum of all numbers, in the fastest order."""
    total = 0.0
    for i in range(values.size):
        total += values[i]
    return total


def wall(run: Callable[[], object]) -> float:
    """Wall time in milliseconds."""
    before = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - before)


def sides(n: int, dtype: type, workers: int) -> dict[str, Callable[[], object]]:
    """The functions to time, by name."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(n, N_ACTIONS, N_FEATURES)).astype(dtype)
    actions, clicks = generator.integers(N_ACTIONS, size=n), (generator.random(n) < 0.04).astype(float)
    log = BanditLog.from_arrays(actions, clicks, np.full(n, 1 / N_ACTIONS), action_features=features)
    ones, coefs = np.ones(n), generator.normal(size=(1, N_FEATURES))
    robust = Objective(log, ones, cross_fitted(log, ones, 1.0, n_folds=2), workers=workers)
    scores = Objective(log, ones, workers=workers)
    parts = np.array_split(features.reshape(-1), workers)
    copies = [np.empty_like(part) for part in parts]

    def over_parts(function: Callable[[int], object]) -> Callable[[], object]:
        return lambda: list(map_in_order(function, range(workers), workers=workers))

    return {
        "read": over_parts(lambda i: streamed(parts[i])),
        "sum": over_parts(lambda i: parts[i].sum()),
        "copy": over_parts(lambda i: np.copyto(copies[i], parts[i])),
        "DR": lambda: robust.value_and_gradient(coefs),
        "IPS": lambda: scores.value_and_gradient(coefs),
    }


def main() -> None:
    """Print a table by precision and number of cores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=518_400)
    parser.add_argument("--repeats", type=int, default=30, help="number of passes; the best counts")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    print(f"{arguments.rounds:,} rounds, {N_ACTIONS} actions with {N_FEATURES} features each; ms, best of all passes")
    print(
        f"{'':10}{'cores':>6}{'read':>8}{'sum':>8}{'copy':>8}{'all rounds, DR':>16}{'ratios':>20}{'rewarded, IPS':>16}"
    )
    for workers in sorted({1, len(cores)}):
        if workers == 1:
            pin_to_one_core()
        for dtype in (np.float32, np.float64):
            timings = sides(arguments.rounds, dtype, workers)
            best = np.full(len(timings), np.inf)
            for _ in range(arguments.repeats):
                best = np.minimum(best, [wall(each) for each in timings.values()])
            *streams, all_rounds, rewarded = best
            took = "".join(f"{each:8.1f}" for each in streams)
            ratios = "".join(f"{all_rounds / each:6.2f}" for each in streams)
            print(f"{np.dtype(dtype).name:10}{workers:6}{took}{all_rounds:16.1f}{ratios:>20}{rewarded:16.2f}")
        os.sched_setaffinity(0, cores)


if __name__ == "__main__":
    main()
