"""One pass over all rounds for value and gradient of an objective, beside streaming the features through memory.

Three ways of streaming: the fastest sum that can be compiled, NumPy's sum, and a copy, which writes as well as reads.
"""

from __future__ import annotations

import argparse

import numpy as np
from numba import njit

from peers import pin_to_one_core, timed
from seachange.log.bandit_log import BanditLog
from seachange.policies.objectives import Objective
from seachange.policies.rewards import cross_fitted


@njit(fastmath=True)
def streamed(values):
    """The sum of all numbers, in whatever order is fastest."""
    total = 0.0
    for i in range(values.size):
        total += values[i]
    return total


def main() -> None:
    """A table of objectives by kind of number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=518_400)
    parser.add_argument("--repeats", type=int, default=15, help="the best of so many passes counts")
    arguments = parser.parse_args()
    pin_to_one_core()
    generator = np.random.default_rng(0)
    n, n_actions, n_features = arguments.rounds, 10, 6
    actions, clicks = generator.integers(n_actions, size=n), (generator.random(n) < 0.04).astype(float)
    print(f"{n:,} rounds, {n_actions} actions with {n_features} features each; ms, best of {arguments.repeats}")
    streams = f"{'read':>8}{'sum':>8}{'copy':>8}"
    print(f"{'':10}{'features':>10}{streams}{'all rounds, DR':>16}{'ratios':>20}{'rewarded, IPS':>16}")
    for dtype in (np.float32, np.float64):
        features = generator.normal(size=(n, n_actions, n_features)).astype(dtype)
        log = BanditLog.from_arrays(actions, clicks, np.full(n, 1 / n_actions), action_features=features)
        ones, coefs = np.ones(n), generator.normal(size=log.joint.shape)
        robust = Objective(log, ones, cross_fitted(log, ones, 1.0, n_folds=2))
        scores, flat, room = Objective(log, ones), features.reshape(-1), np.empty(features.size, dtype)
        best = np.full(5, np.inf)
        for _ in range(arguments.repeats):
            passes = (lambda: streamed(flat), lambda: flat.sum(), lambda: np.copyto(room, flat),  # noqa: B023
                      lambda: robust.value_and_gradient(coefs), lambda: scores.value_and_gradient(coefs))  # noqa: B023  # fmt: skip
            best = np.minimum(best, [timed(each) for each in passes])
        *streams, all_rounds, rewarded = 1e3 * best
        took = "".join(f"{each:8.1f}" for each in streams)
        ratios = "".join(f"{all_rounds / each:6.2f}" for each in streams)
        size = f"{features.nbytes / 1e6:.0f} MB"
        print(f"{np.dtype(dtype).name:10}{size:>10}{took}{all_rounds:16.1f}{ratios:>20}{rewarded:16.2f}")


if __name__ == "__main__":
    main()
