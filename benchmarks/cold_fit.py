"""Compare a whole fit from a default start with dynamax's: time and likelihood reached.

Ours is ``HMMOracle(n_states=L).fit(log)`` with its defaults. Dynamax's is ``initialize`` with each of its two methods,
then ``fit_em`` until it gains less than our tolerance. Times are processor time on one core; compilation is separate.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import seachange as sc
from peers import pin_to_one_core
from problems import Problem, long_chain, many_chains, synthetic
from seachange.errors import NoChangeWarning
from seachange.states.em import EM
from seachange.states.expectation import Chain

# Y has a tenth of its rounds, so that dynamax finishes within minutes.
PROBLEMS = {"S": synthetic, "Y": lambda: long_chain(51_840), "M": many_chains}
TOLERANCE, MOST_ITERATIONS = 1e-8, 200  # our defaults


def main() -> None:
    """Print one table per problem and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", type=Path, required=True, help="Python interpreter with dynamax")
    parser.add_argument("--sets", default="SYM", help="problems to run: any of S, Y (a tenth of its rounds), and M")
    parser.add_argument("--patience", type=float, default=120.0, help="time limit of the peer, in seconds")
    parser.add_argument("--json", type=Path, help="write the result here")
    arguments = parser.parse_args()
    pin_to_one_core()
    report = {}
    for name in arguments.sets:
        problem = PROBLEMS[name]()
        rows = [ours(problem), *peers(problem, arguments.peer_python, arguments.patience)]
        report[problem.title] = rows
        print(f"{problem.title}. EM from near the truth reaches {from_truth(problem):.1f}.")
        print(
            f"{'':28}{'seconds':>9}{'ratio':>8}{'compiling':>11}{'iterations':>12}{'converged':>11}{'log-likelihood':>17}"
        )
        for row in rows:
            print(
                f"{row['side']:28}{row['seconds']:9.2f}{row['seconds'] / rows[0]['seconds']:8.2f}"
                f"{row['compiling']:11.1f}{row['iterations']:12}{row['converged']!s:>11}{row['log_likelihood']:17.1f}"
            )
        print(flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def ours(problem: Problem) -> dict[str, Any]:
    """Time our fit, after a short one that compiles or loads the kernels."""
    log, oracle = problem.forms[0].log, sc.HMMOracle(n_states=problem.n_states)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoChangeWarning)  # the short log shows no change
        before = time.process_time()
        oracle.fit(log[: len(log) // 100])
        compiling = time.process_time() - before
    before = time.process_time()
    report = oracle.fit(log).report_
    return {
        "side": "seachange",
        "seconds": time.process_time() - before,
        "compiling": compiling,
        "iterations": report.iterations,
        "converged": report.converged,
        "log_likelihood": report.log_likelihood,
    }


def peers(problem: Problem, python: Path, patience: float) -> list[dict[str, Any]]:
    """Time dynamax's fits in its own interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        problem.write(path)
        script = Path(__file__).with_name("dynamax_fit.py")
        command = [python, script, path, problem.n_states, TOLERANCE, MOST_ITERATIONS, patience]
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
        run = subprocess.run(list(map(str, command)), env=environment, check=True, stdout=subprocess.PIPE)
    answer = json.loads(run.stdout)
    return [
        {"side": f"dynamax, start by {row['start']}", "compiling": answer["compiling"], **row} for row in answer["rows"]
    ]


def from_truth(problem: Problem) -> float:
    """The log-likelihood that EM reaches from a start near the truth, for reference."""
    form = problem.forms[0]
    em = EM(Chain(form.log), problem.prior, TOLERANCE, MOST_ITERATIONS)
    return em.finish(form.start).log_likelihood


if __name__ == "__main__":
    main()
