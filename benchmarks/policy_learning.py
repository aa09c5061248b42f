"""Compare policy learning with Open Bandit Pipeline and Vowpal Wabbit: time and true value of the policies.

All sides learn from the same simulated click log. Values are true click rates on separate contexts. Ratios are a side's
time divided by that of our IPS.
"""

from __future__ import annotations

import argparse
import json
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

OURS: dict[str, Callable[[], Any]] = {
    "ips": sc.IPSLearner,
    "cross-entropy": sc.CrossEntropyLearner,
    "snips": sc.SNIPSLearner,
    "poem": sc.POEMLearner,
    "dm": sc.DMLearner,
    "dr": sc.DRLearner,
    "auto": sc.AutoLearner,
}
PEERS = {"obp_learner.py": 6.0, "vw_learner.py": 15.0}  # target ratio to our IPS
TEST_CONTEXTS = 200_000


def main() -> None:
    """Run all sides, print the table, and write the JSON."""
    arguments = _arguments()
    core = pin_to_one_core()
    world = sc.simulate.Clicks(seed=arguments.seed, horizon=arguments.rounds, quadratic=arguments.quadratic)
    log, contexts = world.log(arguments.seed), world.contexts(TEST_CONTEXTS, np.random.default_rng(9))
    rates = world.click_rates(contexts)
    uniform, best = float(rates.mean()), float(rates[np.arange(len(rates)), world.best_linear_actions(contexts)].mean())
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1), ExitStack() as stack:
        problem = Path(folder) / "problem.npz"
        np.savez(
            problem, contexts=log.contexts, actions=log.actions, rewards=log.rewards, propensities=log.propensities,
            test_contexts=contexts, n_actions=log.n_actions,
        )  # fmt: skip
        sides: dict[str, tuple[Callable[[], float], float, float | None]] = {}
        for name, learner in OURS.items():
            policy = learner().fit(log).policy_
            value = world.value(policy.predict_proba(contexts), contexts)
            sides[f"seachange {name}"] = (lambda learner=learner: timed(lambda: learner().fit(log)), value, None)
        versions = {"seachange": version("seachange")}
        for script, target in PEERS.items():
            out = Path(folder) / f"{script}.npz"
            peer = stack.enter_context(Peer(arguments.peer_python, script, problem, out))
            learned = np.load(out)["actions"]
            value = float(rates[np.arange(len(rates)), learned].mean())
            sides[f"{peer.answer['side']}, {peer.answer['way']}"] = (peer.seconds, value, target)
            versions |= peer.answer["versions"]
        seconds = np.array([[measure() for measure, _, _ in sides.values()] for _ in range(arguments.turns)]).min(
            axis=0
        )
    rows = [
        {"side": side, "seconds": float(took), "ratio": float(took / seconds[0]), "target": target, "value": value,
         "share": (value - uniform) / (best - uniform)}
        for (side, (_, value, target)), took in zip(sides.items(), seconds, strict=True)
    ]  # fmt: skip
    print(
        f"{arguments.rounds:,} rounds, {log.n_actions} actions, {world.n_features} features, "
        f"{log.rewards.mean():.1%} clicks, quadratic {arguments.quadratic:g}; "
        f"uniform {uniform:.4f}, best linear {best:.4f}. Best of {arguments.turns} turns."
    )
    print(f"{'':52}{'seconds':>9}{'ratio':>8}{'target':>8}{'value':>9}{'gain':>8}")
    for row in rows:
        target = "" if row["target"] is None else f"{row['target']:g}"
        print(
            f"{row['side']:52}{row['seconds']:9.3f}{row['ratio']:8.2f}{target:>8}{row['value']:9.4f}{row['share']:8.1%}"
        )
    print(", ".join(f"{name} {number}" for name, number in versions.items()))
    print("All on one core." if core is not None else "Not pinned to a core.")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rows": rows, "versions": versions}, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", type=Path, required=True, help="Python interpreter with the peers")
    parser.add_argument("--rounds", type=int, default=518_400)
    parser.add_argument("--quadratic", type=float, default=0.0, help="size of the quadratic term; 0 is linear")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the result here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
