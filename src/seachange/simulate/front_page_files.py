"""Visits written as the days of Yahoo!'s R6A, with some lines that are broken, as some of theirs are."""

from __future__ import annotations

import datetime as dt
import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from seachange.outputs import written_whole
from seachange.params import require
from seachange.simulate.visits import Visits

if TYPE_CHECKING:
    import polars

NAME = "ydata-fp-td-clicks-v1_0.{:%Y%m%d}.gz"
FIRST_DAY = dt.date(2009, 5, 1)
ORDER = (1, 2, 3, 4, 5, 0)  # features are written as 2 3 4 5 6 1
FASTEST = 1  # of the levels of gzip


def write_days(visits: Visits, folder: Path, *, broken: float = 1e-4, seed: int = 0) -> list[Path]:
    """Write a file for each day of ``visits``; ``broken`` lines come beside those of each visit, on average."""
    require(visits.document_features.shape[1] == len(ORDER), "R6A has six features for each document.")
    generator, paths = np.random.default_rng([seed, 0]), []
    for day in range(int(visits.days[-1]) + 1):
        lines = _lines(visits.of_days(day, day + 1))
        places = np.flatnonzero(generator.random(len(lines)) < broken)
        paths.append(folder / NAME.format(FIRST_DAY + dt.timedelta(day)))
        with written_whole(paths[-1]) as beside, gzip.open(beside, "wb", FASTEST) as file:
            before = 0
            for i, place in enumerate([*places.tolist(), len(lines)]):
                part = lines[before:place]
                if len(part):
                    file.write(part.str.join("\n").item().encode() + b"\n")
                if place < len(lines):
                    file.write(_broken(lines[place], i).encode() + b"\n")
                before = place
    return paths


def _lines(visits: Visits) -> polars.Series:
    """A line for each visit."""
    import polars

    documents = [
        f"|{name} {words}" for name, words in zip(visits.document_ids, _words(visits.document_features), strict=True)
    ]
    pools = [" ".join(documents[i] for i in pool if i >= 0) for pool in visits.pool_documents.tolist()]
    users, which = np.unique(visits.users, axis=0, return_inverse=True)
    frame = polars.DataFrame({
        "time": visits.times,
        "shown": visits.document_ids[visits.shown],
        "click": visits.clicks.astype(np.int8),
        "user": polars.Series(_words(users), dtype=polars.String).gather(which),
        "pool": polars.Series(pools, dtype=polars.String).gather(visits.pools),
    })  # fmt: skip
    return frame.select(polars.format("{} {} {} |user {} {}", "time", "shown", "click", "user", "pool")).to_series()


def _words(features: npt.NDArray[np.floating]) -> list[str]:
    """Six features as R6A has them."""
    return [" ".join(f"{i + 1}:{row[i]:.6f}" for i in ORDER) for row in features.tolist()]


def _broken(line: str, i: int) -> str:
    """A line that is no visit, in one of three ways."""
    words = line.split(" ")
    ways = (line[: len(line) // 2 - 2], " ".join(words[:12] + words[13:]), " ".join([words[0], "1", *words[2:]]))
    return ways[i % len(ways)]
