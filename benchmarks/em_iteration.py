"""Compare one EM iteration of the switching regression with its peers, on one core.

All sides get the same data, start, and priors. Ratios are a side's time divided by ours. The exit code is 1 if sides
disagree.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from peers import Peer, pin_to_one_core, timed
from problems import PROBLEMS, Form, Problem
from seachange.states.em import NOISE_FLOOR, maximization
from seachange.states.expectation import Chain, Workspace, expectation
from seachange.states.switching_regression import SwitchingRegression

# Allowed differences of likelihoods (relative) and of parameters after one iteration (absolute). Float32 sums hundreds
# of thousands of logarithms in single precision.
TOLERANCES = {"float64": 1e-6, "float32": 1e-3}
# (float64, tuned): tuned tries another smoother, wide sums, and an internal XLA option.
DYNAMAX = {
    "dynamax float64, as shipped": (True, False),
    "dynamax float64, tuned by us": (True, True),
    "dynamax float32, tuned by us": (False, True),
}
HMMLEARN = "hmmlearn forward-backward alone"
# Target ratios.
TARGETS = {
    ("S", "dynamax float64, as shipped"): 5.0,
    ("Y", "dynamax float64, as shipped"): 10.0,
    ("M", "dynamax float64, as shipped"): 8.0,
    ("S", HMMLEARN): 1.0,
    ("M", HMMLEARN): 1.0,
}


@dataclass(frozen=True)
class Side:
    """The result of one side and a function that measures it."""

    name: str
    answer: dict[str, Any]
    measure: Callable[[], float]  # seconds for the problem's iterations


@dataclass(frozen=True)
class Row:
    """The measurements of one side."""

    set: str
    side: str
    way: str
    seconds: float  # per iteration, best turn
    ratio: float  # to our first form, best turns
    ratio_to_matrix: float
    median_ratio: float  # within turns
    log_likelihood: float  # at the start


def main() -> int:
    """Run every problem, print the tables, and write the JSON; return 1 if sides disagree."""
    arguments = _arguments()
    core = pin_to_one_core()
    rows: list[Row] = []
    disagreements: list[str] = []
    versions = {name: version(name) for name in ("seachange", "numba", "numpy")}
    for name in arguments.sets:
        with threadpool_limits(1):
            found, wrong, peer_versions = run(name, PROBLEMS[name](), arguments)
        rows, disagreements, versions = rows + found, disagreements + wrong, versions | peer_versions
    print(", ".join(f"{name} {number}" for name, number in versions.items()))
    print("All on one core." if core is not None else "Not pinned to a core.", *disagreements, sep="\n")
    if arguments.json is not None:
        report = {
            "processor": platform.processor() or platform.machine(),
            "core": core,
            "versions": versions,
            "rows": [asdict(row) for row in rows],
            "disagreements": disagreements,
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 1 if disagreements else 0


def run(name: str, problem: Problem, arguments: argparse.Namespace) -> tuple[list[Row], list[str], dict[str, str]]:
    """Run all sides in turn on one problem."""
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        problem.write(path)
        sides = [our_side(problem, form) for form in problem.forms]
        for peer_name, (x64, tuned) in DYNAMAX.items():
            ways = "all" if tuned else "shipped"
            peer = Peer(arguments.peer_python, "dynamax_em.py", path, problem.iterations, ways, x64=x64, tuned=tuned)
            stack.enter_context(peer)
            sides.append(Side(peer_name, peer.answer, peer.seconds))
        peer = stack.enter_context(Peer(arguments.peer_python, "hmmlearn_em.py", path, problem.iterations))
        sides.append(Side(HMMLEARN, peer.answer, peer.seconds))
        seconds = np.empty((arguments.turns[name], len(sides)))
        for turn in seconds:
            turn[:] = [side.measure() / problem.iterations for side in sides]
    rows = rows_of(name, sides, seconds, matrix=len(problem.forms) - 1)
    print(table(problem.title, rows, arguments.turns[name]), flush=True)
    wrong = [line for side in sides[1:] for line in differences(name, sides[0], side)]
    versions: dict[str, str] = {}
    for side in sides:
        versions |= side.answer.get("versions", {})
    return rows, wrong, versions


def our_side(problem: Problem, form: Form) -> Side:
    """``expectation`` and ``maximization`` as EM calls them; compilation is excluded."""
    chain = Chain(form.log)
    workspace, floor = Workspace.for_chain(chain, form.start), NOISE_FLOOR * float(np.var(form.log.rewards))

    def run() -> SwitchingRegression:
        model = form.start
        for _ in range(problem.iterations):
            model = maximization(model, expectation(model, chain, workspace=workspace), problem.prior, floor)
        return model

    run()
    statistics = expectation(form.start, chain, workspace=workspace)
    after = maximization(form.start, statistics, problem.prior, floor)
    # One block with an intercept, or one level per action: expressed in the peers' matrix form.
    one_block = form.log.n_actions == 1
    coefs = after.reward_coefs[:, 0] if one_block else after.reward_coefs[:, :, 0]
    answer = {
        "way": "expectation + maximization",
        "log_likelihood": statistics.log_likelihood,
        "initial_probs": after.initial_probs,
        "transition_matrix": after.transition_matrix,
        "weights": coefs[:, :-1] - (0.0 if one_block else coefs[:, -1:]),
        "biases": coefs[:, -1],
    }
    return Side(f"seachange float64, {form.name}", answer, lambda: timed(run))


def rows_of(name: str, sides: list[Side], seconds: np.ndarray, matrix: int) -> list[Row]:
    """One row per side, from seconds (turns, sides)."""
    best, within = seconds.min(axis=0), np.median(seconds / seconds[:, :1], axis=0)
    return [
        Row(
            set=name,
            side=side.name,
            way=side.answer["way"],
            seconds=float(best[i]),
            ratio=float(best[i] / best[0]),
            ratio_to_matrix=float(best[i] / best[matrix]),
            median_ratio=float(within[i]),
            log_likelihood=side.answer["log_likelihood"],
        )
        for i, side in enumerate(sides)
    ]


def differences(name: str, ours: Side, other: Side) -> list[str]:
    """List disagreements between ``other`` and ``ours``."""
    tolerance = TOLERANCES["float32" if "float32" in other.name else "float64"]
    relative = abs(other.answer["log_likelihood"] / ours.answer["log_likelihood"] - 1.0)
    lines = [] if relative <= tolerance else [f"DISAGREE on {name}: log-likelihood of {other.name} by {relative:.1e}"]
    for field in ("initial_probs", "transition_matrix", "weights", "biases"):
        if field in other.answer:
            gap = float(np.max(np.abs(np.subtract(ours.answer[field], other.answer[field]))))
            if not gap <= tolerance:
                lines.append(f"DISAGREE on {name}: {field} of {other.name} after one iteration by {gap:.1e}")
    return lines


def table(title: str, rows: list[Row], turns: int) -> str:
    """The result as text."""
    lines = [
        f"{title}. Best of {turns} turns.",
        f"{'':36}{'ms':>9}{'ratio':>8}{'target':>8}{'median':>9}{'to matrix':>11}{'log-likelihood':>18}  variant",
    ]
    for row in rows:
        target = TARGETS.get((row.set, row.side))
        lines.append(
            f"{row.side:36}{1e3 * row.seconds:9.2f}{row.ratio:8.2f}{'' if target is None else format(target, '.0f'):>8}"
            f"{row.median_ratio:9.2f}{row.ratio_to_matrix:11.2f}{row.log_likelihood:18.4f}  {row.way}"
        )
    return "\n".join([*lines, ""])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", type=Path, required=True, help="Python interpreter with the peers")
    parser.add_argument("--sets", default="SYM", help="problems to run: any of S, Y, and M")
    parser.add_argument("--json", type=Path, help="write the result here")
    parser.add_argument("--turns", type=json.loads, default={"S": 20, "Y": 3, "M": 8}, help="turns per problem (JSON)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
