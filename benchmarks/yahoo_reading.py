"""Lines of R6A that are read in a second by one core, plain and gzipped, beside a reader in plain Python.

The lines are invented: pools of 20 articles out of 60, about 1.57 KB a line. The plain reader does what published ones
do: split, look for the colon, ``float``. The run fails unless both read the same numbers.
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
from seachange.log.readers.text_blocks import line_blocks
from seachange.log.readers.yahoo import YahooLog

POOL, ARTICLES = 20, 60
ORDER = (2, 3, 4, 5, 6, 1)


def main() -> None:
    """A table of readers: lines a second, and how many times as long as ours they take."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many runs counts")
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
            "unpacking alone": lambda: sum(map(len, line_blocks(zipped))),
            "plain Python": lambda: sum(1 for _ in plainly(plain)),
        }
        seconds = {name: min(took(run) for _ in range(arguments.repeats)) for name, run in sides.items()}
    print(f"{arguments.lines:,} lines, {megabytes:,.0f} MB")
    print(f"{'':18}{'lines a second':>16}{'MB a second':>14}{'ratio':>8}")
    for name, each in seconds.items():
        print(f"{name:18}{arguments.lines / each:16,.0f}{megabytes / each:14,.0f}{each / seconds['ours']:8.2f}")


def visits(n: int) -> Iterator[str]:
    """Invented lines."""
    rng = np.random.default_rng(0)
    articles = [f"|{900_000 + i} {pairs(each)}" for i, each in enumerate(rng.dirichlet(np.ones(5), size=ARTICLES))]
    users = rng.dirichlet(np.ones(5), size=n)
    firsts, places, clicks = rng.integers(ARTICLES - POOL, size=n), rng.integers(POOL, size=n), rng.random(n) < 0.04
    for t in range(n):
        pool = " ".join(articles[firsts[t] : firsts[t] + POOL])
        yield f"{1_241_000_000 + t} {900_000 + firsts[t] + places[t]} {int(clicks[t])} |user {pairs(users[t])} {pool}\n"


def pairs(memberships: np.ndarray) -> str:
    """Six values as the files have them."""
    values = dict(enumerate((1.0, *memberships), 1))
    return " ".join(f"{index}:{values[index]:.6f}" for index in ORDER)


def read(path: Path) -> int:
    """Rounds that our reader finds."""
    return sum(len(part) for part in YahooLog(path).parts())


def plainly(path: Path) -> Iterator[tuple[int, int, int, list[float], list[int], list[list[float]]]]:
    """Time, place of the article shown, click, user, ids and articles of every line."""
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
    """Values by their index."""
    values = [0.0] * 6
    for word in words:
        index, value = word.split(":")
        values[int(index) - 1] = float(value)
    return values


def require_same(path: Path) -> None:
    """Both readers say the same of every line."""
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
                raise SystemExit(f"line {part.lines[t]} is read differently")
    if next(theirs, None) is not None:
        raise SystemExit("some lines were not read")


def took(run: Callable[[], object]) -> float:
    """Seconds of the processor."""
    before = time.process_time()
    run()
    return time.process_time() - before


if __name__ == "__main__":
    main()
