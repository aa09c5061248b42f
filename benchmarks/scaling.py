"""Seconds and memory of ``HMMOracle(n_states=5).fit`` against the rounds of the log, from 10⁴ to 10⁷.

The paper's synthetic world, stretched: however long the log, its states change nine times. Each size runs in a process
of its own, on one core. Memory is what the process has at most less what it had before the log was built.
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
    """A table, and the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path, help="where to draw it")
    parser.add_argument("--json", type=Path, help="where to write the result")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="rounds of the longest log")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        print(json.dumps(measured(arguments.child)))
        return
    pin_to_one_core()
    print(f"{'rounds':>12}{'seconds':>10}{'ns a round':>12}{'MB':>9}{'log, MB':>9}")
    rows = []
    for n in (size for size in SIZES if size <= arguments.most):
        command = [sys.executable, __file__, "--child", str(n)]
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        rows.append(row)
        seconds, megabytes, log_megabytes = row["seconds"], row["peak"] / 1e6, row["log"] / 1e6
        print(f"{n:12,}{seconds:10.2f}{1e9 * seconds / n:12.0f}{megabytes:9.0f}{log_megabytes:9.0f}", flush=True)
    if arguments.figure is not None:
        draw(rows, arguments.figure)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


def measured(n: int) -> dict[str, float]:
    """One fit: seconds of the processor, and bytes."""
    log_of(SIZES[0])[1].fit(log_of(SIZES[0])[0])  # compiles
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
    """A log of ``n`` rounds, without its logging policy's probabilities of all actions, and who is to fit it."""
    whole = sc.simulate.Synthetic(seed=0, horizon=n, segment_length=n // SEGMENTS).log(seed=0)
    log = sc.BanditLog.from_arrays(whole.actions, whole.rewards, whole.propensities, n_actions=whole.n_actions)
    return log, sc.HMMOracle(n_states=N_STATES)


def draw(rows: list[dict[str, float]], path: Path) -> None:
    """Both against rounds, log-log, each with a line of slope one through its last point.

    Short logs fit into memory that the process had already.
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
        panel.loglog(rounds, values[-1] * rounds / rounds[-1], "--", color="grey", label="linear in rounds")
        panel.set(xlabel="rounds", title=title)
        panel.legend(frameon=False)
        panel.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
