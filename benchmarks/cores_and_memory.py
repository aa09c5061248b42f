"""Our side alone: two cores against one on the sets Y and M, and the most memory that Y takes.

Two cores are measured by the wall, on a machine that must be idle otherwise. Memory is what the process has at most,
less what it had before the log was built, as a multiple of the feature matrix; each figure from a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import memory
import seachange as sc
from problems import PROBLEMS, Problem, long_chain
from seachange.errors import NoChangeWarning
from seachange.states.chain import Chain
from seachange.states.em import EM
from seachange.states.expectation import Workspace, expectation

CORES_BAR = 1.5
MEMORY_BAR = 1.5
ITERATIONS = 5  # of EM while memory is watched


def main() -> None:
    """Print both, write the json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=10, help="times one core and two take turns")
    parser.add_argument("--json", type=Path, help="where to write the result")
    parser.add_argument("--child", choices=MEASURED, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        print(json.dumps(memory_of(MEASURED[arguments.child])))
        return
    print(f"Memory on Y, as a multiple of the feature matrix (bar {MEMORY_BAR}):")
    report: dict[str, object] = {}
    for what in MEASURED:
        command = [sys.executable, __file__, "--child", what]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        report[what] = found
        print(f"  {what:44}{found['peak']:6.2f}   ({found['log']:.2f} of it the log; matrix {found['matrix']:,} bytes)")
    print(f"Two cores against one, E-step, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} (bar {CORES_BAR}):")
    for name in ("Y", "M"):
        one, two, within = two_cores(PROBLEMS[name](), arguments.turns)
        report[f"two cores on {name}"] = {"one": one, "two": two, "ratio": one / two, "median_ratio": within}
        print(f"  {name}: {1e3 * one:8.1f} ms on one, {1e3 * two:8.1f} on two: {one / two:.2f} × (median {within:.2f})")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def two_cores(problem: Problem, turns: int) -> tuple[float, float, float]:
    """Seconds of the wall for an E-step on one core and on two, best turns; the median of the ratios within turns."""
    form = problem.forms[-1]
    chain = Chain(form.log)
    room = Workspace.for_chain(chain, form.start)

    def seconds(workers: int) -> float:
        before = time.perf_counter()
        expectation(form.start, chain, workspace=room, workers=workers)
        return time.perf_counter() - before

    with threadpool_limits(1):
        seconds(2)
        measured = np.array([(seconds(1), seconds(2)) for _ in range(turns)])
    one, two = measured.min(axis=0)
    return float(one), float(two), float(np.median(measured[:, 0] / measured[:, 1]))


def memory_of(run: Callable[[Problem], object]) -> dict[str, float]:
    """Peak while ``run`` works on Y, and what the log alone takes, in feature matrices."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoChangeWarning)  # of a log too short to show it
        run(long_chain(5_000))  # compiles
    before = memory.resident()
    problem = replace(long_chain(), features=np.empty((0, 0)))  # the peers' copy
    built = memory.resident()
    memory.forget_peak()
    run(problem)
    matrix = problem.forms[0].log.arrays.rows.nbytes
    return {"peak": (memory.peak() - before) / matrix, "log": (built - before) / matrix, "matrix": matrix}


def em(problem: Problem) -> object:
    """EM from the problem's start."""
    form = problem.forms[0]
    return EM(Chain(form.log), problem.prior, tolerance=0.0, most_iterations=ITERATIONS).finish(form.start)


def whole_fit(problem: Problem) -> object:
    """Everything that a user's fit does."""
    return sc.HMMOracle(n_states=problem.n_states).fit(problem.forms[0].log)


MEASURED = {f"{ITERATIONS} iterations of EM": em, "HMMOracle(n_states=10).fit": whole_fit}


if __name__ == "__main__":
    main()
