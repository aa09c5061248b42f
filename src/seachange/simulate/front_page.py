"""An invented front page: a pool of documents that come and go, clicked more or less with the hour and their age.

It stands in for Yahoo!'s R6A, which may not be passed on, and is as that is described: ten days, about 20 documents at
a time, about 4 % of clicks, five memberships for documents and visitors. Two sets of click rates that were read off the
real data are published (Cao et al. 2019, Wei and Srivastava 2018): there the logarithms of rates have a standard
deviation of 0.61 and 0.28 between documents, and of 0.35 and 0.20 over time; here of about 0.42 and 0.30.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from seachange.params import require
from seachange.protocols import Bools, Floats, Ints
from seachange.simulate.visits import Codes, Visits

DAY, HOUR = 86_400, 3_600
# Midnight of 1 May 2009 in California.
FIRST_SECOND = 1_241_161_200
N_TOPICS = 5
FIRST_ID = 900_001
MILLION = 1_000_000  # features have six decimals


@dataclass(frozen=True, eq=False)
class _Documents:
    """All documents there ever are, in the order in which they come."""

    first: Ints  # (D,) seconds since the start
    last: Ints  # (D,) the second in which it is gone
    memberships: Floats  # (D, 5)
    appeal: Floats  # (D,) the logarithm of what it is clicked more than others


@dataclass(frozen=True, kw_only=True, eq=False)
class FrontPage:
    """log rate = b + appeal + Σ_m membership_m (topic_m + swing cos(2π (hour - peak_m) / 24)) - ageing days.

    A visitor clicks exp(taste u · membership) times as often, over the average of visitors.

    ``seed`` draws the documents, the visitors and what they click.
    """

    seed: int = 0
    n_days: int = 10
    places: int = 21  # on the page; between two documents a place is empty for a while
    stay: float = 17 * HOUR  # seconds, of a document on the page, on average
    shortest_stay: int = HOUR
    empty: float = 0.6 * HOUR  # seconds, of a place between two documents, on average
    click_rate: float = 0.04  # of documents shown at random
    appeal: float = 0.2  # standard deviation between documents, whatever their topics
    topics: float = 0.3  # standard deviation between topics
    swing: float = 0.8  # of a topic, with the hour
    ageing: float = 0.3  # a day
    taste: float = 0.8  # of visitors for their own topics
    n_visitors: int = 5_000

    def __post_init__(self) -> None:
        require(self.n_days >= 1, f"n_days must be at least 1; got {self.n_days}.")
        require(self.places >= 2, f"places must be at least 2; got {self.places}.")
        require(0 < self.click_rate < 0.5, f"click_rate must be between 0 and 0.5; got {self.click_rate}.")

    @property
    def seconds(self) -> int:
        """From the first visit to the last."""
        return self.n_days * DAY

    @cached_property
    def documents(self) -> _Documents:
        """Every place of the page has one document after the other."""
        generator = np.random.default_rng([self.seed, 0])
        spans = []
        for _ in range(self.places):
            # The page is old when the first visitor comes.
            time = -int(4 * self.stay)
            while time < self.seconds:
                end = time + self.shortest_stay + int(generator.exponential(self.stay - self.shortest_stay))
                if end > 0:
                    spans.append((max(time, 0), end, time))
                time = end + 1 + int(generator.exponential(self.empty))
        spans.sort()
        born = np.array([span[2] for span in spans])
        n = len(spans)
        memberships = _six_decimals(generator.dirichlet(np.full(N_TOPICS, 0.4), size=n))
        appeal = generator.normal(0, self.appeal, n) + self.ageing * np.minimum(born, 0) / DAY
        return _Documents(np.array([s[0] for s in spans]), np.array([s[1] for s in spans]), memberships, appeal)

    @cached_property
    def peaks(self) -> Floats:
        """(5,) the hour at which each topic is clicked most."""
        generator = np.random.default_rng([self.seed, 1])
        return np.asarray((24 / N_TOPICS * np.arange(N_TOPICS) + generator.uniform(0, 24)) % 24)

    @cached_property
    def topic_appeal(self) -> Floats:
        """(5,) what each topic is clicked more than others, at any hour."""
        return np.random.default_rng([self.seed, 4]).normal(0, self.topics, N_TOPICS)

    def log_rates(self, documents: Ints, times: Ints) -> Floats:
        """(n,) the logarithms of click rates ``times`` seconds after the start, but for b and for the visitor."""
        every = self.documents
        waves = np.cos(2 * np.pi * (times[:, None] / HOUR - self.peaks) / 24)
        age = (times - every.first[documents]) / DAY
        interest = np.einsum("nm,nm->n", every.memberships[documents], self.topic_appeal + self.swing * waves)
        return np.asarray(every.appeal[documents] + interest - self.ageing * age)

    @cached_property
    def level(self) -> float:
        """b."""
        generator = np.random.default_rng([self.seed, 2])
        times = generator.integers(self.seconds, size=100_000)
        pools, pool_documents = self._pools(times)
        shown = _one_of(pool_documents[pools], generator.random(len(times)))
        return float(np.log(self.click_rate / np.exp(self.log_rates(shown, times)).mean()))

    def click_rates(self, documents: Ints, times: Ints) -> Floats:
        """(n,) how often ``documents`` are clicked, ``times`` seconds after the start, by visitors of all kinds."""
        return np.asarray(np.minimum(np.exp(self.level + self.log_rates(documents, times)), 1.0))

    def visits(self) -> Visits:
        """A visit every second."""
        generator = np.random.default_rng([self.seed, 3])
        times, every = np.arange(self.seconds), self.documents
        pools, pool_documents = self._pools(times)
        shown = _one_of(pool_documents[pools], generator.random(len(times)))
        visitors = _six_decimals(generator.dirichlet(np.full(N_TOPICS, 0.6), size=self.n_visitors))
        visitor = generator.integers(self.n_visitors, size=len(times))
        liking = self.taste * np.einsum("nm,nm->n", visitors[visitor], every.memberships[shown])
        # Averaged over visitors, a document is clicked as often as click_rates says.
        average = np.exp(self.taste * visitors @ every.memberships.T).mean(axis=0)
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

    def _pools(self, times: Ints) -> tuple[Ints, Codes]:
        """(n,) which pool there is at ``times``, and the documents of all pools as ``Visits`` has them."""
        first, last = self.documents.first, self.documents.last
        changes = np.unique(np.concatenate([[0], first, last[last < self.seconds]]))
        there: Bools = (first <= changes[:, None]) & (last > changes[:, None])
        numbers: dict[bytes, int] = {}  # a pool comes back when the only change was that a document came and went
        pools = np.array([numbers.setdefault(members.tobytes(), len(numbers)) for members in there])
        padded = np.full((len(numbers), there.sum(axis=1).max()), -1, dtype=np.int32)
        for pool, members in zip(pools, there, strict=True):
            padded[pool, : members.sum()] = np.flatnonzero(members)
        return pools[np.searchsorted(changes, times, side="right") - 1], padded


def _one_of(pools: Codes, uniforms: Floats) -> Ints:
    """One of the documents of each pool."""
    sizes = (pools >= 0).sum(axis=1)
    return np.asarray(pools[np.arange(len(pools)), (uniforms * sizes).astype(np.int64)], dtype=np.int64)


def _six_decimals(memberships: Floats) -> Floats:
    """Rows that sum to one, in whole millionths."""
    millionths = np.round(memberships * MILLION).astype(np.int64)
    largest = millionths.argmax(axis=1)
    millionths[np.arange(len(millionths)), largest] += MILLION - millionths.sum(axis=1)
    return np.asarray(millionths / MILLION)


def _with_constant(memberships: Floats) -> Floats:
    """Feature 1 is always 1; 2 to 6 are the memberships."""
    return np.column_stack([np.ones(len(memberships)), memberships])
