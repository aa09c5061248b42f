"""Vowpal Wabbit's side of learning a policy: one pass of --cb_adf --cb_type ips over its own cache file.

vw_learner.py PROBLEM.npz OUT.npz; see learned.py for the file contents. The time includes reading the cache and
learning, with one parser thread, but not writing the text and the cache.
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
    """Write the cache, learn, write the policy, then measure on request."""
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
    """Run the driver on a whole file, like the vw command."""
    Workspace(arguments).finish()


def predicted(folder: Path, model: Path, problem: Problem) -> np.ndarray:
    """The greedy policy on the test contexts, one-hot."""
    test, predictions = folder / "test.txt", folder / "predictions.txt"
    write_text(test, problem.test_contexts, problem.n_actions)
    run(f"--quiet -t -i {model} -d {test} -p {predictions}")
    lines = [line for line in predictions.read_text().splitlines() if line.strip()]
    actions = np.array([int(line.split(":")[0]) for line in lines])  # best first
    return np.eye(problem.n_actions)[actions]


def write_text(path: Path, contexts: np.ndarray, n_actions: int, logged: Problem | None = None) -> None:
    """Write contexts in VW's text format, with logged actions and costs (negative rewards) if given."""
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
    """A shared line, then one line per action; the logged one (none if ``chosen`` is -1) has cost and probability."""
    lines = [f"shared |c {words}"]
    lines += [f"0:{cost} |a {action}" if action == chosen else f"|a {action}" for action in range(n_actions)]
    return "\n".join([*lines, "", ""])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
