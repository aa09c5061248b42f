"""Measure R6A lines read per second on one core, uncompressed and gzipped, and compare with plain Python.

The lines are simulated: pools of 20 articles out of 60, about 1.57 KB per line. The plain reader works like published
ones: ``split``, find the colon, ``float``. The run fails unless both read the same numbers.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from peers import pin_to_one_core
from seachange.datasets.yahoo_r6 import YahooLog
from seachange.formats.sources import blocks_of

POOL, ARTICLES = 20, 60
ORDER = (2, 3, 4, 5, 6, 1)


def main() -> None:
    """Print lines per second for each reader, and its time divided by ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3, help="number of runs; the best counts")
    arguments = parser.parse_args()
    pin_to_one_core()
    with tempfile.TemporaryDirectory() as folder:
        plain, zipped = Path(folder) / "visits", Path(folder) / "visits.gz"
        plain.write_text("".join(visits(arguments.lines)))
        zipped.write_bytes(gzip.compress(plain.read_bytes(), 6))
        require_same(plain)
        megabytes = plain.stat().st_size / 1e6
        sides: dict[str, Callable[[], object]] = {
            "ours": lambda: read(plain),
            "ours, gzipped": lambda: read(zipped),
            "decompression alone": lambda: sum(len(block.text) for block in blocks_of(zipped)),
            "plain Python": lambda: sum(1 for _ in plainly(plain)),
        }
        seconds = {name: min(took(run) for _ in range(arguments.repeats)) for name, run in sides.items()}
    print(f"{arguments.lines:,} lines, {megabytes:,.0f} MB")
    print(f"{'':20}{'lines/s':>12}{'MB/s':>8}{'ratio':>8}")
    for name, each in seconds.items():
        print(f"{name:20}{arguments.lines / each:12,.0f}{megabytes / each:8,.0f}{each / seconds['ours']:8.2f}")


def visits(n: int) -> Iterator[str]:
    """Simulated lines."""
    rng = np.random.default_rng(0)
    articles = [f"|{900_000 + i} {pairs(each)}" for i, each in enumerate(rng.dirichlet(np.ones(5), size=ARTICLES))]
    users = rng.dirichlet(np.ones(5), size=n)
    firsts, places, clicks = rng.integers(ARTICLES - POOL, size=n), rng.integers(POOL, size=n), rng.random(n) < 0.04
    for t in range(n):
        pool = " ".join(articles[firsts[t] : firsts[t] + POOL])
        yield f"{1_241_000_000 + t} {900_000 + firsts[t] + places[t]} {int(clicks[t])} |user {pairs(users[t])} {pool}\n"


def pairs(memberships: np.ndarray) -> str:
    """Six index:value pairs, in the order of the files."""
    values = dict(enumerate((1.0, *memberships), 1))
    return " ".join(f"{index}:{values[index]:.6f}" for index in ORDER)


def read(path: Path) -> int:
    """Count the rounds that our reader finds."""
    return sum(len(part) for part in YahooLog(path).parts())


def plainly(path: Path) -> Iterator[tuple[int, int, int, list[float], list[int], list[list[float]]]]:
    """Time, position of the article shown, click, user, article ids, and article features of every line."""
    with path.open() as lines:
        for line in lines:
            words = line.split()
            if (len(words) - 10) % 7:
                continue
            starts = range(10, len(words), 7)
            ids = [int(words[start][1:]) for start in starts]
            articles = [six(words[start + 1 : start + 7]) for start in starts]
            yield int(words[0]), ids.index(int(words[1])), int(words[2]), six(words[4:10]), ids, articles


def six(words: list[str]) -> list[float]:
    """Values ordered by index."""
    values = [0.0] * 6
    for word in words:
        index, value = word.split(":")
        values[int(index) - 1] = float(value)
    return values


def require_same(path: Path) -> None:
    """Fail unless both readers agree on every line."""
    theirs = plainly(path)
    for part in YahooLog(path).parts():
        assert part.pool is not None
        assert part.pool.names is not None
        ids = part.pool.names.to_numpy().reshape(-1, POOL)
        articles = part.pool.features.to_numpy().reshape(-1, POOL, 6)
        users = part.features.to_numpy()
        for t, (place, click) in enumerate(zip(part.action, part.reward, strict=True)):
            _, their_place, their_click, user, their_ids, their_articles = next(theirs)
            same = (place, click) == (their_place, their_click) and users[t].tolist() == user
            if not same or ids[t].tolist() != their_ids or articles[t].tolist() != their_articles:
                raise SystemExit(f"the readers disagree on line {part.lines[t]}")
    if next(theirs, None) is not None:
        raise SystemExit("our reader missed some lines")


def took(run: Callable[[], object]) -> float:
    """Processor time in seconds."""
    before = time.process_time()
    run()
    return time.process_time() - before


if __name__ == "__main__":
    main()
