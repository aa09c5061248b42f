"""Time estimates with intervals against Open Bandit Pipeline's bootstrap, 1,000,000 rows, on one core.

Both sides get the same log, the same policy's probabilities and the same reward model. A ratio says how many times as
long as ours the peer takes. Exits with 1 where the values differ, or the widths of the intervals by more than chance
allows.
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
BAR = 10.0
# The ends of a bootstrap's interval are two quantiles of its resamples: standard error of its width, relative, times
# √resamples, for normal estimates; and how many of these errors chance hardly ever makes.
WIDTH_ERROR, SURPRISING = 0.96, 4.5


def main() -> int:
    """Take turns on every estimator, print the table, write the json; 1 where sides disagree."""
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
    print("All on one core." if core is not None else "Not bound to a core.")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rows": rows, "versions": versions}, indent=2) + "\n")
    wrong = [line for row in rows for line in disagreements(row, arguments.resamples)]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


def world(n_rounds: int) -> dict[str, np.ndarray]:
    """Clicks of ten actions, logged softly, and a sharper policy to judge, with a reward model that is a little off."""
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
        "modelled": 0.9 * means,
    }


def compare(
    log: sc.BanditLog, arrays: dict[str, np.ndarray], estimator: str, peer: Peer, turns: int
) -> list[dict[str, Any]]:
    """Both of our intervals and the peer's, in turn."""

    def ours(interval: Any) -> sc.ValueEstimate:
        (estimate,) = sc.evaluate(log, arrays["probs"], (estimator,), interval=interval, modelled=arrays["modelled"])
        return estimate

    found = {interval: ours(interval) for interval in INTERVALS}
    seconds = np.array(
        [[*(timed(lambda way=way: ours(way)) for way in INTERVALS), peer.seconds()] for _ in range(turns)]
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
    """Where the sides do not compute the same thing."""
    lines = []
    if abs(row["value"] - row["peer_value"]) > 1e-9:
        lines.append(f"DISAGREE: {row['estimator']} is {row['value']} here and {row['peer_value']} there")
    off = row["peer_width"] / row["width"] - 1
    # Its bootstrap of SNIPW holds the denominator fixed, which makes other intervals.
    if row["estimator"] != "snips" and abs(off) > SURPRISING * WIDTH_ERROR / np.sqrt(resamples):
        lines.append(f"DISAGREE: width of {row['estimator']}, {row['interval']}, by {off:.1%}")
    return lines


def table(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> str:
    """The result, to read."""
    lines = [
        f"{arguments.rows:,} rows, {N_ACTIONS} actions; the peer's bootstrap of {arguments.resamples}. "
        f"Best of {arguments.turns} turns. Wanted: {BAR:.0f}.",
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
    parser.add_argument("--peer-python", type=Path, required=True, help="the interpreter that has the peers")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--resamples", type=int, default=100, help="of the peer; 100 is its own default")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where to write the result")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
