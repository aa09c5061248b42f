"""Compare reading files: Parquet with polars alone, text with loops over Python's csv and json modules.

Ours is all of ``seachange.read_log``; the peers only read. Each side runs in its own process, so that its peak memory
is its own. Sides take turns and keep their smallest wall time and CPU time (over all cores, and less affected by other
programs). Seachange and polars use all cores, the loops one. Peaks are the largest over all turns, relative to the
arrays of the log.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

N_FEATURES = 17
BLOCK = 10_000  # dsjson decisions, repeated every day
WARM_UP = 1_000  # rounds of a log that is read first, so that compilation is not timed


def main() -> None:
    """Print times, ratios, and peaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--sets", nargs="+", default=tuple(PEERS), choices=tuple(PEERS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(measured(*arguments.side)))
        return
    results = []
    for word in arguments.sets:
        with tempfile.TemporaryDirectory() as folder:
            for name, rows in (("log", arguments.rows), ("warm_up", WARM_UP)):
                write(Path(folder) / name, word, rows)
            runs: dict[str, list[dict[str, float]]] = {side: [] for side in ("seachange", *PEERS[word])}
            for _ in range(arguments.turns):
                for side, found in runs.items():
                    found.append(in_its_own_process(side, folder))
        results.append({"set": word, "rows": arguments.rows, "load": os.getloadavg()[0], "sides": best(runs)})
        print(text_of(results[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


def write(path: Path, word: str, rows: int) -> None:
    """Write a log with 20 columns (action, reward, propensity, features), or as many dsjson decisions."""
    import numpy as np
    import polars

    if word == "dsjson":
        from reading_dsjson import decision

        block = "".join(json.dumps(decision(t), separators=(",", ":")) + "\n" for t in range(BLOCK))
        with path.open("w") as file:
            for day in range(max(1, rows // BLOCK)):
                file.write(block.replace("2026-03-01", str(date(2026, 3, 1) + timedelta(day))))
        return
    generator = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "action": generator.integers(10, size=rows),
        "reward": generator.integers(2, size=rows),
        "propensity": generator.uniform(0.05, 1, size=rows),
    }
    precision = np.float32 if word == "parquet float32" else np.float64
    columns |= {f"x{i}": generator.normal(size=rows).astype(precision) for i in range(N_FEATURES)}
    frame = polars.DataFrame(columns)
    if word.startswith("parquet"):
        frame.write_parquet(path, compression="uncompressed" if word == "parquet uncompressed" else "zstd")
    elif word == "json lines":
        frame.write_ndjson(path)
    else:
        frame.write_csv(path)
        frame.write_ndjson(path.with_suffix(".jsonl"))


def in_its_own_process(side: str, folder: str) -> dict[str, float]:
    """Measure one side in its own process."""
    command = [sys.executable, __file__, "--side", side, folder]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(answer.stdout)
    return result


def measured(side: str, folder: str) -> dict[str, float]:
    """Time and memory of one side."""
    import polars  # noqa: F401 (import it before the measurement)

    from memory import forget_peak, peak, resident

    read, path = SIDES[side], Path(folder) / "log"
    warnings.simplefilter("ignore")  # dsjson has a field that is not a feature
    if side == "seachange":
        read(path.with_name("warm_up"))
    forget_peak()
    before = resident()
    start, cpu_start = time.perf_counter(), time.process_time()
    result = read(path)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    return {"seconds": seconds, "cpu": cpu, "peak": peak() - before, "arrays": arrays_of(result)}


def by_seachange(path: Path) -> Any:
    """Read the file into a log."""
    import seachange

    return seachange.read_log(path)


def by_polars(path: Path) -> Any:
    """Read all columns with polars alone."""
    import polars

    return polars.read_parquet(path)


def by_csv_loop(path: Path) -> list[list[float]]:
    """Read every row with the csv module and convert its numbers."""
    with path.open(newline="") as file:
        rows = csv.reader(file)
        next(rows)
        return [[float(field) for field in row] for row in rows]


def by_json_loop(path: Path) -> list[list[Any]]:
    """Read every line with json.loads; next to CSV, the same rows as JSON lines."""
    lines = path.with_suffix(".jsonl")
    with (lines if lines.exists() else path).open() as file:
        return [list(json.loads(line).values()) for line in file]


SIDES: dict[str, Callable[[Path], Any]] = {
    "seachange": by_seachange, "polars": by_polars, "csv.reader": by_csv_loop, "json.loads": by_json_loop,
}  # fmt: skip
PEERS = {
    "parquet": ("polars",), "parquet uncompressed": ("polars",), "parquet float32": ("polars",),
    "csv": ("csv.reader", "json.loads"), "json lines": ("json.loads",), "dsjson": ("json.loads",),
}  # fmt: skip


def arrays_of(result: Any) -> int:
    """Bytes of the result; 0 for Python objects."""
    if isinstance(result, list):
        return 0
    if hasattr(result, "estimated_size"):
        return int(result.estimated_size())
    arrays = (*result.arrays, result.logging_probs, result.times, result.sequences)
    return sum(array.nbytes for array in arrays if array is not None)


def best(runs: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """The best times of every side, its largest peak, and its ratios to ours."""
    found = {
        side: {
            "seconds": min(run["seconds"] for run in own),
            "cpu": min(run["cpu"] for run in own),
            "peak": max(run["peak"] for run in own),
            "arrays": own[0]["arrays"],
        }
        for side, own in runs.items()
    }
    for side in found.values():
        side["ratio"] = side["seconds"] / found["seachange"]["seconds"]
        side["cpu_ratio"] = side["cpu"] / found["seachange"]["cpu"]
    return found


def text_of(result: dict[str, Any]) -> str:
    """One line per side."""
    lines = [f"{result['set']}, {result['rows']:,} rounds (load {result['load']:.1f})"]
    for name, side in result["sides"].items():
        ratios = f"ratio {side['ratio']:.2f} (wall), {side['cpu_ratio']:.2f} (CPU)"
        relative = f", {side['peak'] / side['arrays']:.2f}x its arrays" if side["arrays"] else ""
        times = f"{side['seconds']:7.2f} s, CPU {side['cpu']:7.2f} s"
        lines.append(f"  {name:10s} {times}  {ratios}  peak {side['peak'] / 1e6:,.0f} MB{relative}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
