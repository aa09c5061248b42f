"""The paper's semi-synthetic world: visits of a front page, clicked as often as its documents were at that hour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from seachange.kernels.pools import draw_documents
from seachange.log.bandit_log import BanditLog
from seachange.params import require
from seachange.protocols import Floats, Ints
from seachange.simulate.rounds import Rounds
from seachange.simulate.visits import Visits

DocumentFeatures = Literal["documents", "crossed", "identity"]
STEP = 60  # seconds between the centres of windows
# Numbers of an identity: enough for the documents of a few pools to point in different directions.
IDENTITY = 15


@dataclass(frozen=True, eq=False)
class ClickRates:
    """How often each document was clicked in a window around each minute."""

    start: int  # the time of the first minute
    document_rows: Ints  # (D,) of ``rates``: documents that differ in their features alone have one row
    rates: npt.NDArray[np.float32]  # (documents, minutes)

    @classmethod
    def of(cls, visits: Visits, *, window: float = 43_200.0, smoothing: float = 100.0) -> ClickRates:
        """(clicks + s r) / (shows + s) in ``window`` seconds around a minute, less at the ends of ``visits``.

        ``smoothing`` s adds so many shows at the click rate r of all visits: a document that was hardly shown yet, or
        never clicked, is not taken for one that nobody ever clicks. Half a day of Yahoo!'s has 100,000 shows each.
        """
        require(window > 0, f"window must be positive; got {window}.")
        require(smoothing >= 0, f"smoothing must be at least 0; got {smoothing}.")
        ids, rows = np.unique(visits.document_ids, return_inverse=True)
        start = int(visits.times[0])
        minutes = (visits.times - start) // STEP
        n_minutes = int(minutes[-1]) + 1
        places = rows[visits.shown] * n_minutes + minutes
        half = max(1, round(window / STEP / 2))

        def around(weights: npt.NDArray[np.bool_] | None) -> Floats:
            sums = np.bincount(places, weights, minlength=len(ids) * n_minutes).reshape(len(ids), n_minutes)
            before = np.concatenate([np.zeros((len(ids), 1)), np.cumsum(sums, axis=1)], axis=1)
            ends = np.minimum(np.arange(n_minutes) + half, n_minutes)
            return np.asarray(before[:, ends] - before[:, np.maximum(np.arange(n_minutes) - half, 0)])

        overall, shows, clicks = float(visits.clicks.mean()), around(None), around(visits.clicks)
        rates = np.divide(clicks + smoothing * overall, shows + smoothing, where=shows + smoothing > 0,
                          out=np.full(shows.shape, overall))  # fmt: skip
        return cls(start, rows, rates.astype(np.float32))

    def at(self, documents: npt.NDArray[np.int32], times: Ints) -> Floats:
        """(n, K) the rates of ``documents`` (n, K) at ``times`` (n,)."""
        minutes = np.clip((times - self.start) // STEP, 0, self.rates.shape[1] - 1)
        return self.rates[self.document_rows[documents], minutes[:, None]].astype(np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Clickstream:
    """Every second a visit; ``n_documents`` of its pool to choose from, the one that was shown among them.

    A log holds what was shown and clicked; in deployments a document is clicked with its click rate at that time.
    """

    visits: Visits
    click_rates: ClickRates
    n_documents: int = 10  # K
    # f(x, a): the document's own; these crossed with the visitor's; or 1 and a random vector that only it has.
    features: DocumentFeatures = "documents"

    def __post_init__(self) -> None:
        require(self.n_documents >= 2, f"there must be 2 documents to choose from; got {self.n_documents}.")
        words = get_args(DocumentFeatures)
        require(self.features in words, f"features must be one of {', '.join(words)}; got {self.features!r}.")
        require(
            self.features == "identity" or self.visits.document_features.shape[1] > 0,
            'these documents have no features, as those of R6B: features="identity" tells them apart.',
        )
        require(self.features != "crossed" or self.visits.users.shape[1] > 0, "nothing is known of these visitors.")
        require(len(self._usable) > 0, f"no visit has {self.n_documents} documents to choose from.")

    @cached_property
    def _usable(self) -> Visits:
        """The visits with enough documents."""
        large = self.visits.pool_sizes >= self.n_documents
        return self.visits if large.all() else self.visits.where(large[self.visits.pools])

    @cached_property
    def _document_rows(self) -> Any:
        """(D, d) of every document."""
        if self.features != "identity":
            return self.visits.document_features.astype(np.float32)
        drawn = [np.random.default_rng(name).normal(size=IDENTITY) for name in self.visits.document_ids.tolist()]
        return np.column_stack([np.ones(len(drawn)), np.array(drawn) / np.sqrt(IDENTITY)]).astype(np.float32)

    @property
    def n_actions(self) -> int:
        """K."""
        return self.n_documents

    @cached_property
    def horizon(self) -> int:
        """T: seconds with a visit."""
        return len(np.unique(self._usable.times))

    @property
    def n_too_small(self) -> int:
        """Visits left out as their pools hold fewer documents."""
        return len(self.visits) - len(self._usable)

    def log(self, seed: int) -> BanditLog:
        """The log of a sample of visits: what was shown, each of the documents with the same probability."""
        visits, documents, actions = self._sampled(np.random.default_rng([seed, 0]))
        return BanditLog.from_arrays(
            actions,
            visits.clicks.astype(np.float64),
            np.full(len(visits), 1 / self.n_documents),
            action_features=self._features(visits, documents),
            times=visits.times,
        )

    def rounds(self, seed: int, chunk: int) -> Iterator[Rounds]:
        """Another sample of visits, in which what is clicked is drawn."""
        generator = np.random.default_rng([seed, 1])
        visits, documents, _ = self._sampled(generator)
        for start in range(0, len(visits), chunk):
            part, mine = visits.where(slice(start, start + chunk)), documents[start : start + chunk]
            rates = self.click_rates.at(mine, part.times)
            clicks = (generator.random(rates.shape) < rates).astype(np.float64)
            yield Rounds(self._features(part, mine), rates, clicks, np.zeros(len(part), dtype=np.int64))

    def logging_value(self, seed: int) -> float:
        """Clicks a round in ``rounds(seed, …)`` of documents shown at random."""
        return float(self._rates(seed).mean())

    def oracle_value(self, seed: int) -> float:
        """The same of a policy that is told every click rate."""
        return float(self._rates(seed).max(axis=1).mean())

    def _rates(self, seed: int) -> Floats:
        visits, documents, _ = self._sampled(np.random.default_rng([seed, 1]))
        return self.click_rates.at(documents, visits.times)

    def _sampled(self, generator: np.random.Generator) -> tuple[Visits, npt.NDArray[np.int32], Ints]:
        """A visit a second, its documents (n, K) and the place of the one that was shown (n,)."""
        visits = self._usable.one_a_second(generator)
        documents = np.empty((len(visits), self.n_documents), dtype=np.int32)
        actions = np.empty(len(visits), dtype=np.int64)
        uniforms = generator.random(documents.shape)
        draw_documents(visits.pool_documents, visits.pools, visits.shown, uniforms, documents, actions)
        return visits, documents, actions

    def _features(self, visits: Visits, documents: npt.NDArray[np.int32]) -> Any:
        """(n, K, d) of every document of a round, in single precision."""
        own = self._document_rows[documents]
        if self.features != "crossed":
            return own
        crossed = own[:, :, None, :] * visits.users[:, None, :, None]
        return crossed.reshape(*documents.shape, -1)
