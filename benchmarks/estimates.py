"""Compare estimates with intervals to Open Bandit Pipeline's bootstrap: 1,000,000 rounds, on one core.

Both sides get the same log, action probabilities, and reward model. Ratios are the peer's time divided by ours. The
exit code is 1 if values differ, or if interval widths differ by more than chance allows.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from threadpoolctl import threadpool_limits

import seachange as sc
from peers import Peer, pin_to_one_core, timed

ESTIMATORS = ("ips", "snips", "dr")
INTERVALS = ("normal", "bootstrap")
N_ACTIONS, N_FEATURES = 10, 6
TARGET = 10.0
# A bootstrap interval is a pair of quantiles of the resamples. For normal estimates, the relative standard error of its
# width is WIDTH_ERROR / √resamples. A difference of more than SURPRISING standard errors is a disagreement.
WIDTH_ERROR, SURPRISING = 0.96, 4.5


def main() -> int:
    """Run every estimator, print the table, and write the JSON; return 1 if sides disagree."""
    arguments = _arguments()
    core = pin_to_one_core()
    arrays = world(arguments.rows)
    log = sc.BanditLog.from_arrays(arrays["actions"], arrays["rewards"], arrays["propensities"], n_actions=N_ACTIONS)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        path = Path(folder) / "problem.npz"
        np.savez(path, **arrays)
        for estimator in ESTIMATORS:
            with Peer(arguments.peer_python, "obp_intervals.py", path, estimator, arguments.resamples) as peer:
                rows += compare(log, arrays, estimator, peer, arguments.turns)
                versions = {"seachange": version("seachange"), **peer.answer["versions"]}
    print(table(rows, arguments))
    print(", ".join(f"{name} {number}" for name, number in versions.items()))
    print("All on one core." if core is not None else "Not pinned to a core.")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rows": rows, "versions": versions}, indent=2) + "\n")
    wrong = [line for row in rows for line in disagreements(row, arguments.resamples)]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


def world(n_rounds: int) -> dict[str, np.ndarray]:
    """Clicks from a soft logging policy, a sharper policy to evaluate, and a slightly biased reward model."""
    generator = np.random.default_rng(0)
    contexts = generator.standard_normal((n_rounds, N_FEATURES))
    scores = contexts @ generator.standard_normal((N_FEATURES, N_ACTIONS)) / np.sqrt(N_FEATURES)
    means = expit(scores - 3.0)
    logging_probs = softmax(0.5 * scores, axis=1)
    actions = np.minimum((logging_probs.cumsum(axis=1) < generator.random((n_rounds, 1))).sum(axis=1), N_ACTIONS - 1)
    everyone = np.arange(n_rounds)
    return {
        "actions": actions,
        "rewards": (generator.random(n_rounds) < means[everyone, actions]).astype(np.float64),
        "propensities": logging_probs[everyone, actions],
        "probs": softmax(2.0 * scores, axis=1),
        "predicted_rewards": 0.9 * means,
    }


def compare(
    log: sc.BanditLog, arrays: dict[str, np.ndarray], estimator: str, peer: Peer, turns: int
) -> list[dict[str, Any]]:
    """Time both of our intervals and the peer's, in turn."""

    def ours(interval: Any) -> sc.ValueEstimate:
        (estimate,) = sc.evaluate(
            log, arrays["probs"], (estimator,), interval=interval, predicted_rewards=arrays["predicted_rewards"]
        )
        return estimate

    found = {interval: ours(interval) for interval in INTERVALS}
    seconds = np.array(
        [[*(timed(lambda kind=kind: ours(kind)) for kind in INTERVALS), peer.seconds()] for _ in range(turns)]
    )
    best, within = seconds.min(axis=0), np.median(seconds[:, -1:] / seconds, axis=0)
    theirs = peer.answer
    return [
        {
            "estimator": estimator,
            "interval": interval,
            "seconds": float(best[i]),
            "peer_seconds": float(best[-1]),
            "ratio": float(best[-1] / best[i]),
            "median_ratio": float(within[i]),
            "value": found[interval].value,
            "peer_value": theirs["value"],
            "width": found[interval].high - found[interval].low,
            "peer_width": theirs["high"] - theirs["low"],
        }
        for i, interval in enumerate(INTERVALS)
    ]


def disagreements(row: dict[str, Any], resamples: int) -> list[str]:
    """List disagreements between the sides."""
    lines = []
    if abs(row["value"] - row["peer_value"]) > 1e-9:
        lines.append(f"DISAGREE: {row['estimator']} is {row['value']} (ours) and {row['peer_value']} (peer)")
    difference = row["peer_width"] / row["width"] - 1
    # The peer's SNIPW bootstrap holds the denominator fixed, so its intervals differ.
    if row["estimator"] != "snips" and abs(difference) > SURPRISING * WIDTH_ERROR / np.sqrt(resamples):
        lines.append(f"DISAGREE: width of {row['estimator']}, {row['interval']}, by {difference:.1%}")
    return lines


def table(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> str:
    """The result as text."""
    lines = [
        f"{arguments.rows:,} rounds, {N_ACTIONS} actions; the peer bootstraps {arguments.resamples} resamples. "
        f"Best of {arguments.turns} turns. Target ratio: {TARGET:.0f}.",
        f"{'':22}{'ms':>9}{'peer ms':>10}{'ratio':>8}{'median':>8}{'width':>11}{'peer width':>12}",
    ]
    lines += [
        f"{row['estimator'] + ', ' + row['interval']:22}{1e3 * row['seconds']:9.1f}{1e3 * row['peer_seconds']:10.0f}"
        f"{row['ratio']:8.1f}{row['median_ratio']:8.1f}{row['width']:11.6f}{row['peer_width']:12.6f}"
        for row in rows
    ]
    return "\n".join([*lines, ""])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", type=Path, required=True, help="Python interpreter with the peers")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument(
        "--resamples", type=int, default=100, help="bootstrap resamples of the peer; 100 is its default"
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the result here")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
