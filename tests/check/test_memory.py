"""A log is checked in memory that does not grow with it."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import polars as pl
import pytest

STATUS = Path("/proc/self/status")
ROWS = 1 << 17
# Rounds of 19 contexts are about 150 bytes in a Parquet file.
WIDTH = 19


class Parts:
    """Parquet files one after the other."""

    format = "parquet"

    def __init__(self, folder):
        self.folder = Path(folder)
        self.columns = {word: word for word in ("action", "reward", "propensity", "time")}

    def parts(self, rows=ROWS):
        from seachange.log.raw import RawRounds

        for path in sorted(self.folder.glob("*.parquet")):
            frame = pl.read_parquet(path)
            lines = np.arange(1, len(frame) + 1)
            held = {word: frame[word] for word in self.columns}
            yield RawRounds(source=path.name, lines=lines, features=frame.drop(self.columns), **held)


def write(folder, n_bytes):
    """Files of about so many bytes in all, a part each."""
    folder.mkdir()
    written = number = 0
    while written < n_bytes:
        rng = np.random.default_rng(number)
        columns = {f"x{i}": rng.normal(size=ROWS) for i in range(WIDTH)}
        columns |= {"action": rng.integers(20, size=ROWS), "reward": (rng.random(ROWS) < 0.1).astype(np.int8)}
        columns |= {"propensity": np.full(ROWS, 1 / 20), "time": 1.5e9 + 10.0 * (number * ROWS + np.arange(ROWS))}
        path = folder / f"{number:05}.parquet"
        pl.DataFrame(columns).write_parquet(path)
        written, number = written + path.stat().st_size, number + 1
    return folder


def peak_of(folder):
    """Bytes that a process of its own holds at most while it checks the log, beyond what it held before."""
    done = subprocess.run([sys.executable, __file__, str(folder)], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def resident():
    return 1024 * next(int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith("VmRSS"))


def main(folder):
    """The child's part."""
    from seachange.check import check_log

    before, highest, done = resident(), [0], threading.Event()

    def watch():
        while not done.wait(0.01):
            highest[0] = max(highest[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    found = check_log(Parts(folder))
    done.set()
    watcher.join()
    assert found.worst in (None, "note"), found.findings
    sys.stdout.write(json.dumps([highest[0] - before, found.n_rounds, found.duplicates_seen]))


@pytest.mark.long
@pytest.mark.skipif(not STATUS.exists(), reason="needs /proc/self/status, which says how much memory is used")
def test_memory_stays_the_same_from_a_fifth_to_two_gigabytes(tmp_path):
    small, n_small, _ = peak_of(write(tmp_path / "small", 2e8))
    large, n_large, _ = peak_of(write(tmp_path / "large", 2e9))
    assert n_large > 9 * n_small
    assert large < 1.25 * small


if __name__ == "__main__":
    main(*sys.argv[1:])
