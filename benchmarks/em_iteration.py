"""Time one EM iteration of the switching regression against dynamax's LinearRegressionHMM, on one core.

Both sides get the paper's synthetic log, the same start and the same priors. A ratio says how many times as long as
Seachange a side takes. Exits with 1 where the sides do not compute the same thing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import seachange as sc
from seachange.states.em import NOISE_FLOOR, Prior, maximisation
from seachange.states.starts import window_start, windows_of
from seachange.states.switching import Chain, SwitchingRegression, Workspace, expectation

N_STATES = 5
WINDOW = 2_000
ITERATIONS = 10  # of EM from the start make one repeat, on both sides
RIDGE = 1e-9  # dynamax has no prior on the weights; this is as good as none
# How far apart likelihoods (relative) and parameters after one iteration (absolute) may be. Float32 adds up 100,000
# logarithms in single precision.
TOLERANCES = {"float64": 1e-6, "float32": 1e-3}
# XLA runs a loop that touches more bytes than this piece by piece; dynamax's float64 scans are faster as one kernel.
TUNED_XLA_FLAGS = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000"
OWN_LOG, SAME_MATRIX = "seachange float64, the log as it is", "seachange float64, as a matrix"
# Precision, and whether we tune what dynamax ships: another smoother in its E-step, an internal option of XLA.
PEERS = {
    "dynamax float64, as shipped": ("float64", False),
    "dynamax float64, tuned by us": ("float64", True),
    "dynamax float32, tuned by us": ("float32", True),
}


@dataclass(frozen=True)
class Side:
    """What one side did in one round."""

    name: str
    way: str
    seconds: float  # an iteration, median over the repeats
    log_likelihood: float  # at the start
    initial_probs: list[float]  # after one iteration, as all that follow
    transition_matrix: list[list[float]]
    weights: list[list[float]]  # (L, K - 1)
    biases: list[float]  # (L,)


def main() -> int:
    """Run the rounds, print the table, write the json; 1 where the sides disagree."""
    arguments = _arguments()
    core = pin_to_one_core()
    log = sc.simulate.Synthetic(seed=0).log(seed=0)
    # Dynamax adds an intercept of its own: with the last action's column its M-step would be singular.
    features = np.eye(log.n_actions)[log.actions][:, :-1]
    start = window_start(Chain(log), windows_of(Chain(log), WINDOW), N_STATES, prior_for(log), seed=0)
    matrix_log, matrix_start = as_matrix(log, start, features)

    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        problem = Path(folder) / "problem.npz"
        write_problem(problem, matrix_log, matrix_start, features)
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
            peers = [ask_peer(arguments.peer_python, problem, name, arguments.repeats) for name in PEERS]
            ours = [
                run_ours(OWN_LOG, log, start, arguments.repeats),
                run_ours(SAME_MATRIX, matrix_log, matrix_start, arguments.repeats),
            ]
            rounds.append([*ours, *(peer["side"] for peer in peers)])
            peer_versions = peers[0]["versions"]

    best = [min(sides, key=lambda side: side.seconds) for sides in zip(*rounds, strict=True)]
    disagreements = [line for side in best[1:] for line in differences(best[0], side)]
    versions = {name: version(name) for name in ("seachange", "numba", "numpy")} | peer_versions
    setting = f"{len(log):,} rounds, {N_STATES} states, {features.shape[1]} features and an intercept"
    print(table(best, setting, versions, core, arguments))
    for line in disagreements:
        print(f"DISAGREE: {line}")
    if arguments.json is not None:
        report = {
            "setting": setting,
            "core": core,
            "processor": platform.processor() or platform.machine(),
            "rounds": arguments.rounds,
            "repeats": arguments.repeats,
            "iterations_a_repeat": ITERATIONS,
            "versions": versions,
            "sides": [
                summary(side, best, medians) for side, medians in zip(best, zip(*rounds, strict=True), strict=True)
            ],
            "agree": not disagreements,
            "disagreements": disagreements,
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 1 if disagreements else 0


def as_matrix(
    log: sc.BanditLog, start: SwitchingRegression, features: np.ndarray
) -> tuple[sc.BanditLog, SwitchingRegression]:
    """The same problem as a regression on ``features`` and an intercept, which stands for the last action."""
    nothing = np.zeros(len(log), dtype=np.int64)
    matrix_log = sc.BanditLog.from_arrays(nothing, log.rewards, nothing + 1.0, contexts=features, n_actions=1)
    levels = start.reward_coefs[:, :, 0]
    coefs = np.concatenate([levels[:, :-1] - levels[:, -1:], levels[:, -1:]], axis=1)[:, None, :]
    return matrix_log, replace(start, reward_coefs=coefs, joint=matrix_log.joint)


def prior_for(log: sc.BanditLog) -> Prior:
    """The prior of ours; that of moves and first state is dynamax's too."""
    return Prior(penalties=np.full(log.joint.shape[1], RIDGE), visits=1.0, stay=10_000.0)


def write_problem(path: Path, log: sc.BanditLog, start: SwitchingRegression, features: np.ndarray) -> None:
    """What the peer needs to do the same: data, start, priors."""
    prior = prior_for(log)
    np.savez(
        path,
        features=features,
        rewards=log.rewards,
        initial_probs=start.initial_probs,
        transition_matrix=start.transition_matrix,
        weights=start.reward_coefs[:, 0, :-1],
        biases=start.reward_coefs[:, 0, -1],
        noise_variance=start.noise_variance,
        first_counts=prior.first_counts(N_STATES),
        transition_counts=prior.transition_counts(N_STATES),
    )


def run_ours(name: str, log: sc.BanditLog, start: SwitchingRegression, repeats: int) -> Side:
    """Seachange's side: ``expectation`` and ``maximisation`` as ``run_em`` calls them, compiled off the clock."""
    chain, prior, room = Chain(log), prior_for(log), Workspace.for_chain(Chain(log), N_STATES)
    floor = NOISE_FLOOR * float(np.var(log.rewards))

    def run() -> SwitchingRegression:
        model = start
        for _ in range(ITERATIONS):
            model = maximisation(model, expectation(model, chain, workspace=room), prior, floor)
        return model

    with threadpool_limits(1):
        seconds = median_seconds(run, repeats)
        statistics = expectation(start, chain, workspace=room)
        after = maximisation(start, statistics, prior, floor)
    # One block with an intercept, or one level for each action: the same in the matrix's terms.
    coefs = after.reward_coefs[:, 0] if log.n_actions == 1 else after.reward_coefs[:, :, 0]
    weights = coefs[:, :-1] - (0.0 if log.n_actions == 1 else coefs[:, -1:])
    return Side(
        name=name,
        way="expectation + maximisation",
        seconds=seconds,
        log_likelihood=statistics.log_likelihood,
        initial_probs=after.initial_probs.tolist(),
        transition_matrix=after.transition_matrix.tolist(),
        weights=weights.tolist(),
        biases=coefs[:, -1].tolist(),
    )


def ask_peer(python: Path, problem: Path, name: str, repeats: int) -> dict[str, Any]:
    """Dynamax's side, by its own interpreter, on the core this process is bound to."""
    dtype, tuned = PEERS[name]
    script, smoothers = Path(__file__).with_name("dynamax_em.py"), "all" if tuned else "shipped"
    command = [python, script, problem, str(ITERATIONS), str(repeats), smoothers]
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": "1" if dtype == "float64" else "0",
        "XLA_FLAGS": TUNED_XLA_FLAGS if tuned else "",
    }
    answer = json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)
    return {"side": Side(name=name, **answer["side"]), "versions": answer["versions"]}


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    """Seconds an iteration takes, after a warm-up."""
    run()
    return float(np.median(timeit.repeat(run, repeat=repeats, number=1))) / ITERATIONS


def differences(ours: Side, other: Side) -> list[str]:
    """Where ``other`` does not compute what ``ours`` does."""
    tolerance = TOLERANCES["float32" if "float32" in other.name else "float64"]
    relative = abs(other.log_likelihood / ours.log_likelihood - 1.0)
    lines = []
    if not relative <= tolerance:
        lines.append(
            f"log-likelihood {other.log_likelihood!r} of {other.name} against {ours.log_likelihood!r} of {ours.name}."
        )
    for field in ("initial_probs", "transition_matrix", "weights", "biases"):
        gap = float(np.max(np.abs(np.subtract(getattr(ours, field), getattr(other, field)))))
        if not gap <= tolerance:
            lines.append(f"{field} after one iteration: {other.name} is {gap:.1e} away from {ours.name}.")
    return lines


def table(
    best: list[Side], setting: str, versions: dict[str, str], core: int | None, arguments: argparse.Namespace
) -> str:
    """The result, to read."""
    ours, matrix = best[0].seconds, best[1].seconds
    lines = [
        f"One EM iteration: {setting}.",
        f"Best of {arguments.rounds} rounds; a round gives the median of {arguments.repeats} runs of {ITERATIONS} "
        f"iterations; {'not bound to a core' if core is None else f'all on core {core}'}.",
        ", ".join(f"{name} {number}" for name, number in versions.items()),
        "",
        f"{'':36}{'ms':>8}{'ratio':>7}{'to matrix':>11}{'log-likelihood':>17}  fastest way",
    ]
    lines += [
        f"{side.name:36}{1e3 * side.seconds:8.2f}{side.seconds / ours:7.2f}{side.seconds / matrix:11.2f}"
        f"{side.log_likelihood:17.5f}  {side.way}"
        for side in best
    ]
    return "\n".join(lines)


def summary(side: Side, best: list[Side], rounds: tuple[Side, ...]) -> dict[str, Any]:
    """A side for the json."""
    return asdict(side) | {
        "ratio": side.seconds / best[0].seconds,
        "ratio_to_matrix": side.seconds / best[1].seconds,
        "seconds_by_round": [each.seconds for each in rounds],
    }


def pin_to_one_core() -> int | None:
    """Bind this process and those it starts to one core, where the system can: the last, which is least interrupted."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", type=Path, required=True, help="the interpreter that has dynamax")
    parser.add_argument("--json", type=Path, help="where to write the result")
    parser.add_argument("--rounds", type=int, default=3, help="times the two sides take turns")
    parser.add_argument("--repeats", type=int, default=20, help="runs a round's median is of")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
