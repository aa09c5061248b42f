"""Files into a BanditLog: Parquet against polars alone, text against loops of Python's own modules.

Ours is the whole of ``seachange.read_log``; the others only read. Every side runs in a process of its own, so that the
peak of its memory is its own; they take turns, and each keeps its least seconds and its least work (the processor's
seconds, of all cores, which other programs disturb less). Ours and polars use all cores, the loops one. Peaks are the
largest of all turns, over the arrays of the log.
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
BLOCK = 10_000  # decisions of dsjson that come again every day
FEW = 1_000  # rounds of the log that is read first, so that compiling is off the clock


def main() -> None:
    """Print seconds, ratios and peaks."""
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
            for name, rows in (("log", arguments.rows), ("few", FEW)):
                written(Path(folder) / name, word, rows)
            runs: dict[str, list[dict[str, float]]] = {side: [] for side in ("seachange", *PEERS[word])}
            for _ in range(arguments.turns):
                for side, found in runs.items():
                    found.append(in_its_own_process(side, folder))
        results.append({"set": word, "rows": arguments.rows, "load": os.getloadavg()[0], "sides": best(runs)})
        print(told(results[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


def written(path: Path, word: str, rows: int) -> None:
    """A log of 20 columns: an action, a reward, a propensity and features; or as many decisions in dsjson."""
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
    """What one side measures."""
    command = [sys.executable, __file__, "--side", side, folder]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(answer.stdout)
    return result


def measured(side: str, folder: str) -> dict[str, float]:
    """Seconds and bytes of one side."""
    import polars  # noqa: F401 (its import is off the clock)

    from memory import forget_peak, peak, resident

    read, path = SIDES[side], Path(folder) / "log"
    warnings.simplefilter("ignore")  # dsjson has a field that is no feature
    if side == "seachange":
        read(path.with_name("few"))
    forget_peak()
    before = resident()
    start, start_of_work = time.perf_counter(), time.process_time()
    held = read(path)
    seconds, work = time.perf_counter() - start, time.process_time() - start_of_work
    return {"seconds": seconds, "work": work, "peak": peak() - before, "arrays": arrays_of(held)}


def by_seachange(path: Path) -> Any:
    """The whole way into a log."""
    import seachange

    return seachange.read_log(path)


def by_polars(path: Path) -> Any:
    """All columns, by polars alone."""
    import polars

    return polars.read_parquet(path)


def by_csv_loop(path: Path) -> list[list[float]]:
    """Every row of the csv module, its numbers as numbers."""
    with path.open(newline="") as file:
        rows = csv.reader(file)
        next(rows)
        return [[float(field) for field in row] for row in rows]


def by_json_loop(path: Path) -> list[list[Any]]:
    """Every line through json.loads; of CSV, the same rows as JSON lines."""
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


def arrays_of(held: Any) -> int:
    """Bytes of what a side holds in the end; 0 where it holds objects of Python."""
    if isinstance(held, list):
        return 0
    if hasattr(held, "estimated_size"):
        return int(held.estimated_size())
    arrays = (*held.arrays, held.logging_probs, held.times, held.sequences)
    return sum(array.nbytes for array in arrays if array is not None)


def best(runs: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """The best turns of every side, its worst peak, and how it compares with ours."""
    found = {
        side: {
            "seconds": min(run["seconds"] for run in own),
            "work": min(run["work"] for run in own),
            "peak": max(run["peak"] for run in own),
            "arrays": own[0]["arrays"],
        }
        for side, own in runs.items()
    }
    for side in found.values():
        side["of_ours"] = side["seconds"] / found["seachange"]["seconds"]
        side["work_of_ours"] = side["work"] / found["seachange"]["work"]
    return found


def told(result: dict[str, Any]) -> str:
    """A line a side."""
    lines = [f"{result['set']}, {result['rows']:,} rounds (load {result['load']:.1f})"]
    for name, side in result["sides"].items():
        ratios = f"{side['of_ours']:.2f} of ours by the wall, {side['work_of_ours']:.2f} by work"
        over = f", over its arrays {side['peak'] / side['arrays']:.2f}" if side["arrays"] else ""
        times = f"{side['seconds']:7.2f} s, work {side['work']:7.2f} s"
        lines.append(f"  {name:10s} {times}  {ratios}  peak {side['peak'] / 1e6:,.0f} MB{over}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
