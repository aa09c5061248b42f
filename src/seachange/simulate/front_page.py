"""A simulated front page: documents come and go, and their click rates change with the hour and their age.

It stands in for Yahoo!'s R6A, which cannot be redistributed, and follows its description: ten days, about 20 documents
at a time, a click rate of about 4%, five topic memberships for documents and users. Two sets of click rates estimated
from the real data are published (Cao et al. 2019, Wei and Srivastava 2018). Their logarithms have standard deviations
of 0.61 and 0.28 between documents and 0.35 and 0.20 over time; here they are about 0.42 and 0.30.
"""

import datetime as dt
import gzip
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars

from seachange.outputs import written_whole
from seachange.params import require
from seachange.protocols import Bools, Floats, Ints
from seachange.simulate.clickstream import Codes, Visits, padded

DAY, HOUR = 86_400, 3_600
FIRST_SECOND = 1_241_161_200  # midnight of May 1, 2009, in California
N_TOPICS = 5
FIRST_ID = 900_001
N_SLOTS = 21  # of the page; a slot is empty for a while between two documents
STAY, SHORTEST_STAY = 17 * HOUR, HOUR  # seconds of a document on the page: the mean, and the minimum
EMPTY = 0.6 * HOUR  # mean seconds between two documents
CLICK_RATE = 0.04  # of documents shown at random
APPEAL_SPREAD, TOPIC_SPREAD = 0.2, 0.3  # standard deviations between documents of one topic, and between topics
SWING = 0.8  # of a topic over the day
AGING = 0.3  # per day
TASTE = 0.8  # of users for their own topics
N_VISITORS = 5_000
MILLION = 1_000_000  # features have six decimals


@dataclass(frozen=True, eq=False)
class _Documents:
    """All documents, in order of appearance."""

    first: Ints  # (D,) seconds since the start
    last: Ints  # (D,) the first second without it
    memberships: Floats  # (D, 5)
    appeal: Floats  # (D,) log of the click rate relative to other documents


@dataclass(frozen=True, kw_only=True, eq=False)
class FrontPage:
    """log rate = b + appeal + Σ_m membership_m (topic_m + swing cos(2π (hour - peak_m) / 24)) - aging days.

    A user's click rate is exp(taste u · membership) times that, relative to the average user. ``seed`` draws the
    documents, the users and the clicks.
    """

    seed: int = 0
    n_days: int = 10

    def __post_init__(self) -> None:
        require(self.n_days >= 1, f"n_days must be at least 1; got {self.n_days}.")

    @property
    def seconds(self) -> int:
        """The length of the simulation."""
        return self.n_days * DAY

    @cached_property
    def documents(self) -> _Documents:
        """The documents of every slot of the page, one after the other."""
        generator = np.random.default_rng([self.seed, 0])
        spans = []
        for _ in range(N_SLOTS):
            # Start early, so that the page is in equilibrium at the first visit.
            time = -int(4 * STAY)
            while time < self.seconds:
                end = time + SHORTEST_STAY + int(generator.exponential(STAY - SHORTEST_STAY))
                if end > 0:
                    spans.append((max(time, 0), end, time))
                time = end + 1 + int(generator.exponential(EMPTY))
        first, last, born = np.array(sorted(spans)).T
        memberships = _six_decimals(generator.dirichlet(np.full(N_TOPICS, 0.4), size=len(spans)))
        appeal = generator.normal(0, APPEAL_SPREAD, len(spans)) + AGING * np.minimum(born, 0) / DAY
        return _Documents(first, last, memberships, appeal)

    @cached_property
    def peaks(self) -> Floats:
        """(5,) the hour at which each topic peaks."""
        generator = np.random.default_rng([self.seed, 1])
        return np.asarray((24 / N_TOPICS * np.arange(N_TOPICS) + generator.uniform(0, 24)) % 24)

    @cached_property
    def topic_appeal(self) -> Floats:
        """(5,) log click rate of each topic, relative to the others."""
        return np.random.default_rng([self.seed, 4]).normal(0, TOPIC_SPREAD, N_TOPICS)

    def log_rates(self, documents: Ints, times: Ints) -> Floats:
        """(n,) log click rates ``times`` seconds after the start, without b and the user."""
        every = self.documents
        waves = np.cos(2 * np.pi * (times[:, None] / HOUR - self.peaks) / 24)
        age = (times - every.first[documents]) / DAY
        interest = np.einsum("nm,nm->n", every.memberships[documents], self.topic_appeal + SWING * waves)
        return np.asarray(every.appeal[documents] + interest - AGING * age)

    @cached_property
    def level(self) -> float:
        """b."""
        generator = np.random.default_rng([self.seed, 2])
        times = generator.integers(self.seconds, size=100_000)
        shown = self._shown(times, generator)[0]
        return float(np.log(CLICK_RATE / np.exp(self.log_rates(shown, times)).mean()))

    def click_rates(self, documents: Ints, times: Ints) -> Floats:
        """(n,) click rates of ``documents``, ``times`` seconds after the start, averaged over users."""
        return np.asarray(np.minimum(np.exp(self.level + self.log_rates(documents, times)), 1.0))

    def visits(self) -> Visits:
        """One visit per second."""
        generator = np.random.default_rng([self.seed, 3])
        times, every = np.arange(self.seconds), self.documents
        shown, pools, pool_documents = self._shown(times, generator)
        visitors = _six_decimals(generator.dirichlet(np.full(N_TOPICS, 0.6), size=N_VISITORS))
        visitor = generator.integers(N_VISITORS, size=len(times))
        liking = TASTE * np.einsum("nm,nm->n", visitors[visitor], every.memberships[shown])
        # So that the average over users is click_rates.
        average = np.exp(TASTE * visitors @ every.memberships.T).mean(axis=0)
        rates = self.click_rates(shown, times) * np.exp(liking) / average[shown]
        return Visits(
            times=FIRST_SECOND + times,
            days=(times // DAY).astype(np.int16),
            pools=pools.astype(np.int32),
            shown=shown.astype(np.int32),
            clicks=generator.random(len(times)) < rates,
            users=_with_constant(visitors)[visitor].astype(np.float32),
            pool_documents=pool_documents,
            document_ids=FIRST_ID + np.arange(len(every.first)),
            document_features=_with_constant(every.memberships),
        )

    def _shown(self, times: Ints, generator: np.random.Generator) -> tuple[Ints, Ints, Codes]:
        """(n,) a random document of the page at ``times``, its pool, and all pools as ``Visits`` stores them."""
        first, last = self.documents.first, self.documents.last
        changes = np.unique(np.concatenate([[0], first, last[last < self.seconds]]))
        there: Bools = (first <= changes[:, None]) & (last > changes[:, None])
        numbers: dict[bytes, int] = {}  # a pool recurs if a document came and went
        at_changes = np.array([numbers.setdefault(members.tobytes(), len(numbers)) for members in there])
        documents = padded([np.flatnonzero(np.frombuffer(pool, dtype=bool)).tolist() for pool in numbers])
        pools = at_changes[np.searchsorted(changes, times, side="right") - 1]
        places = generator.random(len(times)) * (documents >= 0).sum(axis=1)[pools]
        return documents[pools, places.astype(np.int64)].astype(np.int64), pools, documents


def _six_decimals(memberships: Floats) -> Floats:
    """Rows that sum to 1, rounded to six decimals."""
    millionths = np.round(memberships * MILLION).astype(np.int64)
    largest = millionths.argmax(axis=1)
    millionths[np.arange(len(millionths)), largest] += MILLION - millionths.sum(axis=1)
    return np.asarray(millionths / MILLION)


def _with_constant(memberships: Floats) -> Floats:
    """Feature 1 is always 1; 2 to 6 are the memberships."""
    return np.column_stack([np.ones(len(memberships)), memberships])


NAME = "ydata-fp-td-clicks-v1_0.{:%Y%m%d}.gz"
FIRST_DAY = dt.date(2009, 5, 1)
ORDER = (1, 2, 3, 4, 5, 0)  # features are written as 2 3 4 5 6 1
FASTEST = 1  # gzip level


def write_days(visits: Visits, folder: Path, *, broken: float = 1e-4, seed: int = 0) -> list[Path]:
    """Write one file per day of ``visits``, with ``broken`` additional damaged lines per visit on average."""
    require(visits.document_features.shape[1] == len(ORDER), "R6A documents have six features.")
    generator, paths = np.random.default_rng([seed, 0]), []
    for day in range(int(visits.days[-1]) + 1):
        lines = _lines(visits.of_days(day, day + 1))
        places = np.flatnonzero(generator.random(len(lines)) < broken)
        paths.append(folder / NAME.format(FIRST_DAY + dt.timedelta(day)))
        with written_whole(paths[-1]) as temporary, gzip.open(temporary, "wb", FASTEST) as file:
            for i, (before, place) in enumerate(pairwise([0, *places.tolist(), len(lines)])):
                part = lines[before:place].to_list()
                broken_line = [_broken(lines[place], i)] if place < len(lines) else []
                file.writelines(f"{line}\n".encode() for line in [*part, *broken_line])
    return paths


def _lines(visits: Visits) -> polars.Series:
    """One line per visit."""
    features = _words(visits.document_features)
    documents = [f"|{name} {words}" for name, words in zip(visits.document_ids, features, strict=True)]
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
    """Six features in R6A's format."""
    return [" ".join(f"{i + 1}:{row[i]:.6f}" for i in ORDER) for row in features.tolist()]


def _broken(line: str, i: int) -> str:
    """A line damaged in one of three ways."""
    words = line.split(" ")
    ways = (line[: len(line) // 2 - 2], " ".join(words[:12] + words[13:]), " ".join([words[0], "1", *words[2:]]))
    return ways[i % len(ways)]
