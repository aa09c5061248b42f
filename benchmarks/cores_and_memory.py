"""Measure the speedup from a second core on problems Y and M, and the peak memory on Y.

The speedup is in wall time, so the machine should be idle. Memory is the peak of the process minus its memory before
the log was built, in multiples of the feature matrix. Each memory measurement runs in its own process.
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
from seachange.states.em import EM
from seachange.states.expectation import Chain, Workspace, expectation

CORES_TARGET = 1.5
MEMORY_TARGET = 1.5
ITERATIONS = 5  # of EM, for the memory measurement


def main() -> None:
    """Print both results and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=10, help="number of measurements with one core and with two")
    parser.add_argument("--json", type=Path, help="write the result here")
    parser.add_argument("--child", choices=MEASURED, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        print(json.dumps(memory_of(MEASURED[arguments.child])))
        return
    print(f"Peak memory on Y, in multiples of the feature matrix (target: at most {MEMORY_TARGET}):")
    report: dict[str, object] = {}
    for what in MEASURED:
        command = [sys.executable, __file__, "--child", what]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        report[what] = found
        print(f"  {what:44}{found['peak']:6.2f}   (log: {found['log']:.2f}; matrix: {found['matrix']:,} bytes)")
    cores, load = os.cpu_count(), os.getloadavg()[0]
    print(f"Speedup of the E-step with two of {cores} cores, load {load:.1f} (target: at least {CORES_TARGET}):")
    for name in ("Y", "M"):
        one, two, within = two_cores(PROBLEMS[name](), arguments.turns)
        report[f"two cores on {name}"] = {"one": one, "two": two, "ratio": one / two, "median_ratio": within}
        print(
            f"  {name}: {1e3 * one:8.1f} ms on one, {1e3 * two:8.1f} ms on two: {one / two:.2f}x (median {within:.2f})"
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def two_cores(problem: Problem, turns: int) -> tuple[float, float, float]:
    """Wall time of an E-step on one core and on two (best turns), and the median ratio within turns."""
    form = problem.forms[-1]
    chain = Chain(form.log)
    workspace = Workspace.for_chain(chain, form.start)

    def seconds(workers: int) -> float:
        before = time.perf_counter()
        expectation(form.start, chain, workspace=workspace, workers=workers)
        return time.perf_counter() - before

    with threadpool_limits(1):
        seconds(2)
        measured = np.array([(seconds(1), seconds(2)) for _ in range(turns)])
    one, two = measured.min(axis=0)
    return float(one), float(two), float(np.median(measured[:, 0] / measured[:, 1]))


def memory_of(run: Callable[[Problem], object]) -> dict[str, float]:
    """Peak memory of ``run`` on Y and memory of the log, in multiples of the feature matrix."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoChangeWarning)  # the log is too short to show one
        run(long_chain(5_000))  # compile
    before = memory.resident()
    problem = replace(long_chain(), features=np.empty((0, 0)))  # drop the peers' copy
    built = memory.resident()
    memory.forget_peak()
    run(problem)
    matrix = problem.forms[0].log.arrays.rows.nbytes
    return {"peak": (memory.peak() - before) / matrix, "log": (built - before) / matrix, "matrix": matrix}


def em(problem: Problem) -> object:
    """Run EM from the problem's start."""
    form = problem.forms[0]
    return EM(Chain(form.log), problem.prior, tolerance=0.0, max_iterations=ITERATIONS).finish(form.start)


def whole_fit(problem: Problem) -> object:
    """Run a complete fit."""
    return sc.HMMOracle(n_states=problem.n_states).fit(problem.forms[0].log)


MEASURED = {f"{ITERATIONS} iterations of EM": em, "HMMOracle(n_states=10).fit": whole_fit}


if __name__ == "__main__":
    main()
