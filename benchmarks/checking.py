"""Measure the memory of `seachange check` over time, on logs of increasing size.

The command runs in its own process, whose memory is sampled twenty times per second. Logs are folders of files with
131,072 rounds and 19 contexts each. Sizes are file sizes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS, N_FEATURES, N_ACTIONS = 1 << 17, 19, 20
EVERY = 0.05
RESULT = "{format:8} {megabytes:6,} MB {rounds:11,} rounds: peak {peak:5.0f} MB, {seconds:5.1f} s"
COMMAND = "from seachange.cli import main; main()"


def main() -> None:
    """Print the peaks and draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[250, 500, 1000, 2000])
    parser.add_argument("--formats", nargs="+", default=["parquet", "csv"], choices=["parquet", "csv"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    results = []
    for word in arguments.formats:
        with tempfile.TemporaryDirectory() as name:
            folder, n_files = Path(name), 0
            for megabytes in sorted(arguments.megabytes):
                while sum(path.stat().st_size for path in folder.iterdir()) < megabytes * 1e6:
                    write(folder / f"{n_files:05}.{word}", n_files)
                    n_files += 1
                results.append({"format": word, "megabytes": megabytes, "rounds": n_files * ROUNDS, **checked(folder)})
                print(RESULT.format(**results[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results))
    if arguments.figure:
        draw(results, arguments.figure)


def write(path: Path, number: int) -> None:
    """Write one file of the log."""
    import numpy as np
    import polars

    rng = np.random.default_rng(number)
    columns = {f"x{i}": rng.normal(size=ROUNDS) for i in range(N_FEATURES)}
    columns |= {"action": rng.integers(N_ACTIONS, size=ROUNDS), "reward": (rng.random(ROUNDS) < 0.1).astype(int)}
    columns |= {"propensity": np.full(ROUNDS, 1 / N_ACTIONS)}
    columns |= {"time": 1_500_000_000 + 10 * (number * ROUNDS + np.arange(ROUNDS))}
    frame = polars.DataFrame(columns)
    frame.write_parquet(path) if path.suffix == ".parquet" else frame.write_csv(path)


def checked(folder: Path) -> dict[str, object]:
    """Run the command; return its peak memory, duration, and memory over time."""
    start, curve = time.perf_counter(), []
    command = [sys.executable, "-c", COMMAND, "check", str(folder), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        status = Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            words = status.read_text().split()
            if "VmHWM:" not in words:  # the process is exiting
                break
            megabytes, peak = (int(words[words.index(f"{field}:") + 1]) / 1024 for field in ("VmRSS", "VmHWM"))
            curve.append((round(time.perf_counter() - start, 2), round(megabytes)))
            time.sleep(EVERY)
        process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"check failed on this log: exit code {process.returncode}")
    return {"peak": peak, "seconds": time.perf_counter() - start, "curve": curve}


def draw(results: list[dict[str, object]], path: Path) -> None:
    """Draw memory over time, one line per size."""
    from matplotlib import pyplot

    formats = list(dict.fromkeys(result["format"] for result in results))
    figure, every = pyplot.subplots(
        1, len(formats), figsize=(10, 3.6), squeeze=False, layout="constrained", sharey=True
    )
    for axes, word in zip(every[0], formats, strict=True):
        mine = [result for result in results if result["format"] == word]
        for place, result in enumerate(mine):
            seconds, megabytes = zip(*result["curve"], strict=True)  # type: ignore[call-overload]
            shade = pyplot.get_cmap("viridis")(0.85 * (1 - place / max(1, len(mine) - 1)))
            axes.plot(seconds, megabytes, color=shade, lw=1.4, label=f"{result['megabytes'] / 1000:g} GB")
        axes.set(title=f"check on {word}", xlabel="seconds", ylim=(0, None))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, title="log")
    every[0, 0].set_ylabel("memory of the process, MB")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
