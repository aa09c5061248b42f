"""A log on disk is fitted in memory that does not grow with it."""

import json
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import seachange as sc
from seachange.log import encoding

STATUS = Path("/proc/self/status")
WIDTH = 8
# Bytes of a round in memory: contexts and their intercept, action, reward, propensity.
ROUND = 8 * (WIDTH + 4)
needs_proc = pytest.mark.skipif(
    not STATUS.exists(), reason="needs /proc/self/status, which says how much memory is used"
)


def write(path, n):
    """Two states of the world that take turns, eight times in all, however long the log."""
    generator = np.random.default_rng(0)
    states, actions = 8 * np.arange(n) // n % 2, generator.integers(3, size=n)
    means = np.array([[0.2, 0.5, 0.8], [0.8, 0.5, 0.2]])[states, actions]
    columns = {"action": actions, "reward": means + generator.normal(0, 0.5, n), "propensity": np.full(n, 1 / 3)}
    columns |= {f"x{i}": generator.normal(size=n) for i in range(WIDTH)}
    pl.DataFrame(columns).write_parquet(path, row_group_size=1 << 14)
    return path


def peak_of(path, warm, chunk_rows):
    """Bytes that a process of its own takes at most to read and fit the log at ``path``, beyond what it had before."""
    command = [sys.executable, __file__, str(path), str(warm), str(chunk_rows)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main(path, warm, chunk_rows):
    """The child's part."""
    warnings.simplefilter("ignore")
    encoding.PART_ROWS = int(chunk_rows)
    fit(warm)  # loads what any fit needs
    before, highest, done = resident(), [0], threading.Event()

    def watch():
        while not done.wait(0.001):
            highest[0] = max(highest[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    fit(path)
    done.set()
    watcher.join()
    sys.stdout.write(json.dumps(highest[0] - before))


def fit(path):
    return sc.HMMOracle(n_states=2, restarts=2, max_iterations=5).fit(sc.read_log(path, on_disk=True))


def resident():
    """Bytes of memory of this process that no file stands behind."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("RssAnon"))
    return 1024 * int(line.split()[1])


def growth(folder, n, chunk_rows):
    """Peaks of ``n`` and of 4n rounds: bytes more for each round more."""
    warm = write(folder / "warm.parquet", 2000)
    few, many = (peak_of(write(folder / f"{size}.parquet", size), warm, chunk_rows) for size in (n, 4 * n))
    assert few > 0
    return (many - few) / (3 * n)


@needs_proc
def test_four_times_the_rounds_on_disk_hardly_take_more_memory(tmp_path):
    assert growth(tmp_path, 300_000, 1 << 14) < 0.35 * ROUND


@needs_proc
@pytest.mark.long
def test_four_million_rounds_on_disk_hardly_take_more_memory_than_one(tmp_path):
    assert growth(tmp_path, 1_000_000, encoding.PART_ROWS) < 0.1 * ROUND


if __name__ == "__main__":
    main(*sys.argv[1:])
