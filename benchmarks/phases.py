"""Time the phases of our EM iteration: each kernel of the E-step separately, on one core."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from peers import pin_to_one_core, timed
from problems import PROBLEMS, Form, Problem
from seachange.states import expectation as e_step
from seachange.states.em import NOISE_FLOOR, maximization
from seachange.states.expectation import Chain

PHASES = {
    "evidences": "emission",
    "forward": "forward",
    "backward": "backward",
    "regression_sums": "sums",
    "blocked_sums": "sums",
}


def main() -> None:
    """Print a table of phases per problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="SYM", help="problems to run: any of S, Y, and M")
    parser.add_argument("--repeats", type=int, default=10, help="number of iterations; the best counts")
    arguments = parser.parse_args()
    pin_to_one_core()
    columns = ("emission", "forward", "backward", "sums", "m-step", "rest", "iteration", "first sums")
    print(f"{'ms':36}" + "".join(f"{column:>11}" for column in columns))
    for name in arguments.sets:
        problem = PROBLEMS[name]()
        for form in problem.forms:
            with threadpool_limits(1):
                found = phases(problem, form, arguments.repeats)
            print(
                f"{name + ', ' + form.name:36}" + "".join(f"{1e3 * found.get(column, 0.0):11.2f}" for column in columns)
            )


def phases(problem: Problem, form: Form, repeats: int) -> dict[str, float]:
    """Seconds per phase in the fastest of ``repeats`` iterations of a short run of EM."""
    chain, model = Chain(form.log), form.start
    workspace, floor = e_step.Workspace.for_chain(chain, model), NOISE_FLOOR * float(np.var(form.log.rewards))
    tiles = [tile for span in chain.spans for section in span for tile in section.tiles]
    first_sums = timed(lambda: [chain.block_sums(tile) for tile in tiles])
    e_step.expectation(model, chain, workspace=workspace)
    fastest: dict[str, float] = {"iteration": np.inf}
    for _ in range(repeats):
        with kernels_timed() as clock:
            start = time.thread_time()
            statistics = e_step.expectation(model, chain, workspace=workspace)
            e_step_ends = time.thread_time()
            model = maximization(model, statistics, problem.prior, floor)
            ends = time.thread_time()
        if ends - start < fastest["iteration"]:
            rest = e_step_ends - start - sum(clock.values())
            fastest = {**clock, "m-step": ends - e_step_ends, "rest": rest, "iteration": ends - start}
    return {**fastest, "first sums": first_sums}


@contextmanager
def kernels_timed() -> Iterator[dict[str, float]]:
    """Collect the seconds spent in each phase of the E-step."""
    seconds: dict[str, float] = defaultdict(float)
    kernels = {name: getattr(e_step, name) for name in PHASES}

    def on_the_clock(kernel: Callable[..., Any], phase: str) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            before = time.thread_time()
            result = kernel(*arguments)
            seconds[phase] += time.thread_time() - before
            return result

        return run

    for name, kernel in kernels.items():
        setattr(e_step, name, on_the_clock(kernel, PHASES[name]))
    try:
        yield seconds
    finally:
        for name, kernel in kernels.items():
            setattr(e_step, name, kernel)


if __name__ == "__main__":
    main()
