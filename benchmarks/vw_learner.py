"""Vowpal Wabbit's side of learning a policy: one pass of --cb_adf --cb_type ips over its own cache file.

vw_learner.py PROBLEM.npz OUT.npz; what the files hold is said in learned.py. Writing the text and the
cache is off the clock; what is on it is the driver reading the cache and learning, with one thread for parsing.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
from vowpalwabbit import Workspace

from learned import Problem, answer_of, write_policy
from peers import serve


def main(path: str, out: str) -> None:
    """Write the cache, learn, write the policy, then measure when asked."""
    problem = Problem.read(path)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = "--cb_adf -q ca --cb_type ips --quiet"
        log, cache, model = folder / "log.txt", folder / "log.cache", folder / "model"
        write_text(log, problem.contexts, problem.n_actions, problem)
        run(f"{arguments} -d {log} --cache_file {cache} -k")
        log.unlink()

        def learn() -> None:
            run(f"{arguments} --passes 1 --cache_file {cache} -f {model}")

        learn()
        write_policy(out, predicted(folder, model, problem))
        serve(answer_of("vw cb_adf", "--cb_type ips, one pass", out, {"vowpalwabbit": version("vowpalwabbit")}), learn)


def run(arguments: str) -> None:
    """The driver: all of a file, as the command of the same name runs it."""
    Workspace(arguments).finish()


def predicted(folder: Path, model: Path, problem: Problem) -> np.ndarray:
    """The greedy policy on the test contexts, one-hot."""
    test, said = folder / "test.txt", folder / "said.txt"
    write_text(test, problem.test_contexts, problem.n_actions)
    run(f"--quiet -t -i {model} -d {test} -p {said}")
    lines = [line for line in said.read_text().splitlines() if line.strip()]
    actions = np.array([int(line.split(":")[0]) for line in lines])  # best first
    return np.eye(problem.n_actions)[actions]


def write_text(path: Path, contexts: np.ndarray, n_actions: int, logged: Problem | None = None) -> None:
    """Contexts in VW's text format, with what was logged where it is given; costs are rewards with a minus."""
    features = (" ".join(f"{i}:{value:.6g}" for i, value in enumerate(row)) for row in contexts.tolist())
    if logged is None:
        labels = [(-1, "")] * len(contexts)
    else:
        columns = (logged.actions.tolist(), logged.rewards.tolist(), logged.propensities.tolist())
        labels = [(action, f"{-reward:g}:{p:g}") for action, reward, p in zip(*columns, strict=True)]
    with path.open("w") as file:
        for (action, cost), words in zip(labels, features, strict=True):
            file.write(adf_lines(action, cost, words, n_actions))


def adf_lines(chosen: int, cost: str, words: str, n_actions: int) -> str:
    """A shared line, then a line an action, the logged one (none where ``chosen`` is -1) with cost and probability."""
    lines = [f"shared |c {words}"]
    lines += [f"0:{cost} |a {action}" if action == chosen else f"|a {action}" for action in range(n_actions)]
    return "\n".join([*lines, "", ""])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
