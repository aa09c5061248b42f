"""Compare the change-point detectors with skchange's MovingWindow, on one core.

Both sides get the same rewards and window; our fit statistic also gets the actions. Ratios are the peer's time divided
by ours. The exit code is 1 if a side misses changes.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import timeit
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import seachange as sc
from peers import pin_to_one_core
from seachange.errors import SeachangeWarning
from seachange.kernels.change_scans import mean_shifts, pick_peaks
from seachange.states.detector import scan
from seachange.states.segment_fits import series_of

WINDOW = 500
SEGMENT = 50_000  # rounds between changes
N_ACTIONS = 5


def main() -> int:
    """Run both sides, print the table, and write the JSON; return 1 if a side misses changes."""
    arguments = _arguments()
    core = pin_to_one_core()
    rows = []
    for n in arguments.rounds:
        log = world(n)
        truth = n // SEGMENT - 1
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rewards.npy"
            np.save(path, log.rewards)
            command = [arguments.peer_python, Path(__file__).with_name("skchange_window.py"), path]
            command += [str(WINDOW), str(arguments.repeats)]
            peer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        sides = [run_ours(name, way, arguments.repeats) for name, way in ways(log).items()]
        sides.append({"name": "skchange MovingWindow", **peer["side"]})
        rows += [side | {"rounds": n, "true_changes": truth} for side in sides]
    versions = {name: version(name) for name in ("seachange", "numba", "numpy")}
    versions |= {f"peer {name}": number for name, number in peer["versions"].items()}
    print(table(rows, versions, core))
    if arguments.json:
        machine = {"machine": platform.processor() or platform.machine(), "python": platform.python_version()}
        arguments.json.write_text(json.dumps({"rows": rows, "versions": versions, **machine}, indent=2))
    # The scan of the fit statistic is permissive: its candidates are tested later.
    tested = [row for row in rows if "fit: scan" not in row["name"]]
    wrong = [row for row in tested if abs(row["changes"] - row["true_changes"]) > 0.05 * row["true_changes"] + 1]
    for row in wrong:
        print(f"{row['name']} found {row['changes']} changes; the log has {row['true_changes']}.", file=sys.stderr)
    return 1 if wrong else 0


def world(n: int) -> sc.BanditLog:
    """Rewards from N(μ(a, z), 1), because the peer assumes variance 1; two alternating states with different means."""
    generator = np.random.default_rng(0)
    actions = generator.integers(N_ACTIONS, size=n)
    means = np.array([[0.0, 0.1, 0.0, 0.1, 0.0], [1.2, 0.8, 0.6, 0.7, 0.9]])
    rewards = means[np.arange(n) // SEGMENT % 2, actions] + generator.normal(0, 1, n)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / N_ACTIONS), n_actions=N_ACTIONS)


def ways(log: sc.BanditLog) -> dict[str, Any]:
    """Our detectors: scan and peaks only, like the peer, and whole fits with states and intervals."""
    begins, ends = np.array([0]), np.array([len(log)])
    threshold = 0.4  # half of a change of 0.8

    def reward_scan() -> int:
        shifts = mean_shifts(log.rewards, WINDOW, begins, ends)
        candidates = np.flatnonzero(shifts >= threshold)
        best_first = candidates[np.argsort(-shifts[candidates], kind="stable")]
        return len(pick_peaks(best_first, len(log), 2 * WINDOW))

    def fit_scan() -> int:
        return len(scan(series_of(log), np.array([WINDOW]), -np.log(0.05)))

    def whole(**settings: Any) -> int:
        return len(sc.ChangePointOracle(**settings).fit(log).segmentation_.change_points)

    return {
        "reward: scan and peaks": reward_scan,
        "fit: scan and peaks": fit_scan,
        "reward: whole fit": lambda: whole(statistic="reward", window=WINDOW, threshold=threshold, n_states=2),
        "fit: whole fit, window 500": lambda: whole(window=WINDOW, n_states=2),
        "fit: whole fit, all windows": lambda: whole(n_states=2),
    }


def run_ours(name: str, run: Any, repeats: int) -> dict[str, Any]:
    """Time one of our detectors after a warm-up."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", SeachangeWarning)
        changes = run()
        seconds = min(timeit.repeat(run, repeat=repeats, number=1))
    return {"name": f"seachange, {name}", "way": "", "seconds": seconds, "changes": changes}


def table(rows: list[dict[str, Any]], versions: dict[str, str], core: int | None) -> str:
    """The result as text."""
    where = "not pinned to a core" if core is None else f"pinned to core {core}"
    lines = [f"Change points, window {WINDOW}; best of all repeats; {where}."]
    lines += [", ".join(f"{name} {number}" for name, number in versions.items()), ""]
    lines += [f"{'':42}{'rounds':>12}{'ms':>10}{'ratio':>8}{'found':>8}{'true':>7}"]
    for row in rows:
        peer = next(r for r in rows if r["rounds"] == row["rounds"] and r["name"].startswith("skchange"))
        ratio = peer["seconds"] / row["seconds"]
        lines.append(
            f"{row['name']:42}{row['rounds']:>12,}{1e3 * row['seconds']:>10.1f}{ratio:>8.1f}"
            f"{row['changes']:>8}{row['true_changes']:>7}  {row['way']}"
        )
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", type=Path, required=True, help="Python interpreter with skchange")
    parser.add_argument("--json", type=Path, help="write the result here")
    parser.add_argument("--rounds", type=int, nargs="+", default=[100_000, 10_000_000], help="log lengths")
    parser.add_argument("--repeats", type=int, default=5, help="number of runs; the fastest counts")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
