"""Decide and learn from rewards one round at a time, from Python, next to river and Vowpal Wabbit on one core.

Five states, ten actions, six features. Posterior sampling and Exp4.S are frozen: a round costs a decision and an update
of the belief over states. Adaptive sampling also learns in every round, like the peers' linear models. All sides take
turns; the best turn counts. Late rewards: amends per second for rewards that arrive a given number of rounds late, in
random order.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import seachange as sc
from peers import Peer, pin_to_one_core, timed

N_STATES, N_ACTIONS, N_FEATURES = 5, 10, 6
SEED = 0
KINDS = {"posterior": "posterior sampling", "exp4s": "Exp4.S", "adaptive": "adaptive sampling"}
PEERS = ("river", "vw")
PEER_ROUNDS = 2_000  # rounds of a peer's turn
LAGS = (100, 10_000, 100_000)
LATE = 5_000  # late rewards of a measurement


def main() -> int:
    """Measure every side, print the tables, and write the JSON."""
    arguments = _arguments()
    core = pin_to_one_core()
    world = World(arguments.rounds)
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1), ExitStack() as processes:
        path = Path(folder) / "rounds.npz"
        np.savez(path, contexts=world.contexts[:PEER_ROUNDS], rewards=world.rewards[:PEER_ROUNDS])
        started = (Peer(arguments.peer_python, "deciding_peers.py", name, path) for name in PEERS)
        peers = [processes.enter_context(peer) for peer in started]
        runs = world.runs()
        for run in runs.values():
            run()
        found: dict[str, list[float]] = {name: [] for name in (*runs, *(peer.answer["name"] for peer in peers))}
        for _ in range(arguments.turns):
            for name, run in runs.items():
                found[name].append(arguments.rounds / timed(run))
            for peer in peers:
                found[peer.answer["name"]].append(PEER_ROUNDS / peer.seconds())
    rows = [{"name": name, "rounds_per_second": max(rates)} for name, rates in found.items()]
    late = [world.late_rewards(lag, arguments.turns) for lag in LAGS]
    versions = {name: version(name) for name in ("seachange", "numba", "numpy")}
    versions |= {f"peer {name}": number for peer in peers for name, number in peer.answer["versions"].items()}
    print(table(rows, late, versions, core))
    if arguments.json:
        machine = {"machine": platform.processor() or platform.machine(), "python": platform.python_version()}
        result = {"rows": rows, "late": late, "versions": versions, **machine}
        arguments.json.write_text(json.dumps(result, indent=2))
    return 0


class World:
    """Rewards that are linear in the context, in states that follow each other; a model learned from it."""

    def __init__(self, rounds: int) -> None:
        log = _log(3_000)
        self.model = sc.learn(log, sc.HMMOracle(n_states=N_STATES, restarts=1, max_iterations=10), objective="dm")
        generator = np.random.default_rng([SEED, 1])
        self.contexts = generator.normal(size=(rounds, N_FEATURES))
        self.rewards = generator.normal(size=(rounds, N_ACTIONS))
        self.uniforms = generator.random(rounds).tolist()
        names = self.model.encoding.shared_names
        self.records = [dict(zip(names, row, strict=True)) for row in self.contexts.tolist()]

    def runs(self) -> dict[str, Callable[[], None]]:
        """A run through all rounds with every deployer, from arrays and from raw records."""
        runs: dict[str, Callable[[], None]] = {}
        for kind, name in KINDS.items():
            deployer = self.model.deployer(kind, exploration=0.05)
            runs[f"seachange {name}, arrays"] = lambda deployer=deployer: self.from_arrays(deployer)
            runs[f"seachange {name}, records"] = lambda deployer=deployer: self.from_records(deployer)
        return runs

    def from_arrays(self, deployer: Any) -> None:
        """Decide and update in all rounds."""
        state = deployer.init()
        for context, uniform, rewards in zip(self.contexts, self.uniforms, self.rewards, strict=True):
            decision = deployer.act(state, context, uniform)
            state = deployer.update(state, decision, rewards[decision.action])

    def from_records(self, deployer: Any) -> None:
        """The same with ``model.decide``."""
        state, decide = deployer.init(), self.model.decide
        for record, uniform, rewards in zip(self.records, self.uniforms, self.rewards, strict=True):
            decision = decide(deployer, state, record, uniform)
            state = deployer.update(state, decision, rewards[decision.action])

    def late_rewards(self, lag: int, turns: int) -> dict[str, Any]:
        """Updates and amends per second while the last ``lag`` rounds wait for their rewards."""
        deployer = self.model.deployer("posterior", memory=2 * lag)
        waiting, decisions = deployer.init(), []
        for t in range(lag):
            decisions.append(deployer.act(waiting, self.contexts[t % len(self.contexts)], 0.5))
            waiting = deployer.update(waiting, decisions[t], None)
        # The oldest reward stays missing, so that the lag does not shrink.
        order = np.random.default_rng([SEED, lag]).permutation(np.arange(1, lag))[:LATE].tolist()

        def amend() -> None:
            state = waiting
            for t in order:
                state = deployer.amend(state, decisions[t], 0.3)

        def update() -> None:
            state = waiting
            for decision in following:
                state = deployer.update(state, decision, None)

        state, following = waiting, []
        for _ in order:
            following.append(deployer.act(state, self.contexts[0], 0.5))
            state = deployer.update(state, following[-1], None)
        amends, updates = (len(order) / min(timed(run) for _ in range(turns)) for run in (amend, update))
        return {"lag": lag, "amends_per_second": amends, "updates_per_second": updates}


def _log(n: int) -> sc.BanditLog:
    generator = np.random.default_rng(SEED)
    contexts, actions = generator.normal(size=(n, N_FEATURES)), generator.integers(N_ACTIONS, size=n)
    states, coefs = np.arange(n) * N_STATES // n, generator.normal(0, 0.6, (N_STATES, N_ACTIONS, N_FEATURES))
    rewards = np.einsum("nd,nd->n", contexts, coefs[states, actions]) + generator.normal(0, 0.5, n)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / N_ACTIONS), contexts=contexts, n_actions=N_ACTIONS)


def table(rows: list[dict[str, Any]], late: list[dict[str, Any]], versions: dict[str, str], core: int | None) -> str:
    """The results as text."""
    where = "not pinned to a core" if core is None else f"pinned to core {core}"
    lines = [f"Decide and update; best of all turns; {where}."]
    lines += [", ".join(f"{name} {number}" for name, number in versions.items()), ""]
    lines += [f"{'':42}{'rounds per second':>20}"]
    lines += [f"{row['name']:42}{row['rounds_per_second']:>20,.0f}" for row in rows]
    lines += ["", f"{'rewards late by':>20}{'amends per second':>20}{'updates per second':>20}"]
    lines += [f"{row['lag']:>20,}{row['amends_per_second']:>20,.0f}{row['updates_per_second']:>20,.0f}" for row in late]
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", type=Path, required=True, help="Python interpreter with the peers")
    parser.add_argument("--json", type=Path, help="write the result here")
    parser.add_argument("--rounds", type=int, default=20_000, help="rounds of a turn; the peers' have 2,000")
    parser.add_argument("--turns", type=int, default=5, help="number of turns; the fastest counts")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
