"""Measure time and memory of ``HMMOracle(n_states=5).fit`` for logs of 10⁴ to 10⁷ rounds.

The log is the paper's synthetic problem, stretched so that the state changes nine times at any length. Each size runs
in its own process, on one core. Memory is the peak minus the memory before the log was built.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np

import memory
import seachange as sc
from peers import pin_to_one_core

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
SEGMENTS = 10
N_STATES = 5


def main() -> None:
    """Print the table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path, help="draw the figure here")
    parser.add_argument("--json", type=Path, help="write the result here")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="length of the longest log")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        print(json.dumps(measured(arguments.child)))
        return
    pin_to_one_core()
    print(f"{'rounds':>12}{'seconds':>10}{'ns per round':>14}{'MB':>9}{'log, MB':>9}")
    rows = []
    for n in (size for size in SIZES if size <= arguments.most):
        command = [sys.executable, __file__, "--child", str(n)]
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        rows.append(row)
        seconds, megabytes, log_megabytes = row["seconds"], row["peak"] / 1e6, row["log"] / 1e6
        print(f"{n:12,}{seconds:10.2f}{1e9 * seconds / n:14.0f}{megabytes:9.0f}{log_megabytes:9.0f}", flush=True)
    if arguments.figure is not None:
        draw(rows, arguments.figure)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


def measured(n: int) -> dict[str, float]:
    """Processor time and memory of one fit."""
    log_of(SIZES[0])[1].fit(log_of(SIZES[0])[0])  # compile
    before = memory.resident()
    log, oracle = log_of(n)
    built = memory.resident()
    memory.forget_peak()
    start = time.process_time()
    oracle.fit(log)
    return {
        "rounds": n,
        "seconds": time.process_time() - start,
        "peak": memory.peak() - before,
        "log": built - before,
    }


def log_of(n: int) -> tuple[sc.BanditLog, sc.HMMOracle]:
    """A log of ``n`` rounds, without the logging probabilities of all actions, and an oracle."""
    whole = sc.simulate.Synthetic(seed=0, horizon=n, segment_length=n // SEGMENTS).log(seed=0)
    log = sc.BanditLog.from_arrays(whole.actions, whole.rewards, whole.propensities, n_actions=whole.n_actions)
    return log, sc.HMMOracle(n_states=N_STATES)


def draw(rows: list[dict[str, float]], path: Path) -> None:
    """Draw both on log-log axes, each with a line of slope one through its last point.

    The memory panel omits short logs, which fit into memory that the process already had.
    """
    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    kinds = (("seconds", 1.0, "seconds", 0), ("peak", 1e6, "peak memory, MB", 100_000))
    for panel, (key, unit, title, least) in zip(panels, kinds, strict=True):
        drawn = [row for row in rows if row["rounds"] >= least]
        rounds, values = (np.array([row[column] for row in drawn]) for column in ("rounds", key))
        values = values / unit
        panel.loglog(rounds, values, "o-", label="HMMOracle(n_states=5).fit")
        panel.loglog(rounds, values[-1] * rounds / rounds[-1], "--", color="gray", label="linear in rounds")
        panel.set(xlabel="rounds", title=title)
        panel.legend(frameon=False)
        panel.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
