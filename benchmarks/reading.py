"""Reading files: Parquet against polars alone, text against a loop of Python's own modules, memory against the arrays.

Each side runs in a process of its own, so that the peak of its memory is its own; the two take turns, and each keeps
its best. What is read is the raw log, rounds with raw columns. Ours uses all cores and the loops use one: by the work
of all cores, which other programs disturb less than the clock on the wall, the ratio is smaller.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

N_FEATURES = 17
FORMATS = ("parquet", "csv", "json-lines")


def main() -> None:
    """Print seconds, ratios and peaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--sets", nargs="+", default=FORMATS, choices=FORMATS)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(measured(*arguments.side)))
        return
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for word in arguments.sets:
            path = Path(folder) / f"log.{word}"
            written(path, word, arguments.rows)
            sides: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
            for _ in range(arguments.turns):
                for side, runs in sides.items():
                    runs.append(in_its_own_process(side, word, path))
            best = {side: min(runs, key=lambda run: run["seconds"]) for side, runs in sides.items()}
            results.append({"format": word, "rows": arguments.rows, **compared(best)})
            print(told(results[-1]))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


def written(path: Path, word: str, rows: int) -> None:
    """A log of 20 columns: an action, a reward, a propensity and features."""
    import numpy as np
    import polars

    generator = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "action": generator.integers(10, size=rows),
        "reward": generator.integers(2, size=rows),
        "propensity": generator.uniform(0.05, 1, size=rows),
    }
    columns |= {f"x{i}": generator.normal(size=rows) for i in range(N_FEATURES)}
    frame = polars.DataFrame(columns)
    {"parquet": frame.write_parquet, "csv": frame.write_csv, "json-lines": frame.write_ndjson}[word](path)


def in_its_own_process(side: str, word: str, path: Path) -> dict[str, float]:
    """What one side measures."""
    command = [sys.executable, __file__, "--side", side, word, str(path)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(answer.stdout)
    return result


def measured(side: str, word: str, path: str) -> dict[str, float]:
    """Seconds and bytes of one side."""
    import polars  # noqa: F401 (its import is off the clock)

    from memory import forget_peak, peak, resident
    from seachange.log.readers import open_raw

    if side == "ours" and word == "json-lines":
        compiled(path)
    forget_peak()
    before = resident()
    start, start_of_work = time.perf_counter(), time.process_time()
    if side == "ours":
        rows = sum(len(part) for part in open_raw(path).parts())
    else:
        rows = {"parquet": by_polars, "csv": by_csv_loop, "json-lines": by_json_loop}[word](path)
    seconds, work = time.perf_counter() - start, time.process_time() - start_of_work
    return {"seconds": seconds, "work": work, "rows": rows, "peak": peak() - before, "arrays": rows * 20 * 8}


def compiled(path: str) -> None:
    """Compile off the clock, on the first lines."""
    from seachange.log.readers import open_raw

    with tempfile.NamedTemporaryFile(suffix=".jsonl") as few, Path(path).open("rb") as whole:
        few.writelines(whole.readline() for _ in range(10))
        few.flush()
        list(open_raw(few.name).parts())


def by_polars(path: str) -> int:
    """All columns, by polars alone."""
    import polars

    return len(polars.read_parquet(path))


def by_csv_loop(path: str) -> int:
    """Every row of the csv module, its numbers as numbers."""
    with Path(path).open(newline="") as file:
        rows = csv.reader(file)
        next(rows)
        return len([[float(field) for field in row] for row in rows])


def by_json_loop(path: str) -> int:
    """Every line through json.loads."""
    with Path(path).open() as file:
        return len([list(json.loads(line).values()) for line in file])


def compared(best: dict[str, dict[str, float]]) -> dict[str, float]:
    """Both sides beside each other."""
    ours, theirs = best["ours"], best["theirs"]
    return {
        "seconds": ours["seconds"],
        "their_seconds": theirs["seconds"],
        "times_as_fast": theirs["seconds"] / ours["seconds"],
        "times_the_work": theirs["work"] / ours["work"],
        "peak_over_arrays": ours["peak"] / ours["arrays"],
        "their_peak_over_arrays": theirs["peak"] / theirs["arrays"],
    }


def told(result: dict[str, Any]) -> str:
    """A line a format."""
    ratios = f"{result['times_as_fast']:.2f} times as fast ({result['times_the_work']:.2f} by the work of all cores)"
    peaks = f"{result['peak_over_arrays']:.2f} (theirs {result['their_peak_over_arrays']:.2f})"
    return (
        f"{result['format']:10s} {result['rows']:>10,} rows  ours {result['seconds']:.2f} s  theirs "
        f"{result['their_seconds']:.2f} s  {ratios}  peak of memory over the arrays {peaks}"
    )


if __name__ == "__main__":
    main()
