"""The peers' side of deciding.py: decide a round and learn from its reward, again and again.

    deciding_peers.py river|vw ROUNDS.npz

The rounds are held in each peer's own form, so that only deciding and learning is timed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from importlib.metadata import version

import numpy as np

from peers import serve


def river_linucb(contexts: np.ndarray, rewards: np.ndarray) -> Callable[[], None]:
    """LinUCB from dictionaries of features; river has no contextual policy with propensities."""
    from river.bandit import LinUCBDisjoint

    policy, arms = LinUCBDisjoint(seed=0), list(range(rewards.shape[1]))
    records = [{f"x{i}": value for i, value in enumerate(row)} for row in contexts.tolist()]
    earned = rewards.tolist()

    def run() -> None:
        for record, own in zip(records, earned, strict=True):
            arm = policy.pull(arms, context=record)
            policy.update(arm, record, own[arm])

    return run


def vw_explorer(contexts: np.ndarray, rewards: np.ndarray) -> Callable[[], None]:
    """--cb_explore_adf, ε-greedy, with interactions of context and action; text is written before."""
    from vowpalwabbit import Workspace

    workspace = Workspace("--cb_explore_adf --epsilon 0.05 -q ca --quiet")
    words = [" ".join(f"{i}:{value:.6g}" for i, value in enumerate(row)) for row in contexts.tolist()]
    earned, generator = rewards.tolist(), random.Random(0)
    arms = [f"|a {arm}" for arm in range(rewards.shape[1])]
    choices = range(len(arms))

    def run() -> None:
        for features, own in zip(words, earned, strict=True):
            lines = [f"shared |c {features}", *arms]
            probs = workspace.predict(lines)
            arm = generator.choices(choices, probs)[0]
            lines[1 + arm] = f"0:{-own[arm]:g}:{probs[arm]:g} |a {arm}"
            workspace.learn(lines)

    return run


PEERS = {
    "river": ("river LinUCBDisjoint", "river", river_linucb),
    "vw": ("Vowpal Wabbit cb_explore_adf", "vowpalwabbit", vw_explorer),
}


def main(name: str, path: str) -> None:
    """Make one warm-up turn, then measure on request."""
    label, package, start = PEERS[name]
    rounds = np.load(path)
    run = start(rounds["contexts"], rounds["rewards"])
    run()
    serve({"name": label, "versions": {package: version(package)}}, run)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
