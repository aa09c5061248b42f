"""The paper's semi-synthetic world: visits to a front page, with the click rates of its documents at that time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from seachange.errors import Fix, ParameterError
from seachange.kernels.feature_rows import draw_documents
from seachange.log.bandit_log import BanditLog
from seachange.params import require
from seachange.protocols import Floats, Ints
from seachange.simulate.rollout import Rounds
from seachange.simulate.visits import Visits

DocumentFeatures = Literal["documents", "crossed", "identity"]
STEP = 60  # seconds between the centers of windows
# Random features of a document's identity, enough to tell the documents of a few pools apart.
IDENTITY = 15
IDENTITY_FIX = Fix('Use features="identity".', "Use --features identity.")


@dataclass(frozen=True, eq=False)
class ClickRates:
    """The click rate of each document in a window around each minute."""

    start: int  # the time of the first minute
    document_rows: Ints  # (D,) rows of ``rates``; documents with the same id share a row
    rates: npt.NDArray[np.float32]  # (documents, minutes)

    @classmethod
    def of(cls, visits: Visits, *, window: float = 43_200.0, smoothing: float = 100.0) -> ClickRates:
        """(clicks + s r) / (impressions + s) in ``window`` seconds around a minute (less at the ends of ``visits``).

        ``smoothing`` s adds s impressions at the overall click rate r, so that a document with few impressions does not
        get a rate of 0. In half a day of Yahoo!'s data a document has 100,000 impressions.
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
    """One visit per second, with ``n_documents`` from its pool to choose from, including the one that was shown.

    A log has what was shown and clicked; in deployments, clicks are drawn with the click rate at that time.
    """

    visits: Visits
    click_rates: ClickRates
    n_documents: int = 10  # K
    # f(x, a): the document's features; their products with the user's; or 1 and a random vector per document.
    features: DocumentFeatures = "documents"

    def __post_init__(self) -> None:
        require(self.n_documents >= 2, f"n_documents must be at least 2; got {self.n_documents}.")
        words = get_args(DocumentFeatures)
        require(self.features in words, f"features must be one of {', '.join(words)}; got {self.features!r}.")
        if self.features != "identity" and not self.visits.document_features.shape[1]:
            raise ParameterError("these documents have no features, as in R6B.", IDENTITY_FIX)
        require(self.features != "crossed" or self.visits.users.shape[1] > 0, "these visits have no user features.")
        require(len(self._usable) > 0, f"no visit has a pool of {self.n_documents} documents.")

    @cached_property
    def _usable(self) -> Visits:
        """The visits whose pools are large enough."""
        large = self.visits.pool_sizes >= self.n_documents
        return self.visits if large.all() else self.visits.where(large[self.visits.pools])

    @cached_property
    def _document_rows(self) -> Any:
        """(D, d) features of every document."""
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
        """T: the seconds with a visit."""
        return len(np.unique(self._usable.times))

    @property
    def n_too_small(self) -> int:
        """The number of visits whose pools are too small."""
        return len(self.visits) - len(self._usable)

    def log(self, seed: int) -> BanditLog:
        """A log of one sampled visit per second; each document is shown with the same probability."""
        visits, documents, actions = self._sampled(np.random.default_rng([seed, 0]))
        return BanditLog.from_arrays(
            actions,
            visits.clicks.astype(np.float64),
            np.full(len(visits), 1 / self.n_documents),
            action_features=self._features(visits, documents),
            times=visits.times,
        )

    def rounds(self, seed: int, chunk: int) -> Iterator[Rounds]:
        """Another sample of visits, with simulated clicks."""
        generator = np.random.default_rng([seed, 1])
        visits, documents, _ = self._sampled(generator)
        for start in range(0, len(visits), chunk):
            part, mine = visits.where(slice(start, start + chunk)), documents[start : start + chunk]
            rates = self.click_rates.at(mine, part.times)
            clicks = (generator.random(rates.shape) < rates).astype(np.float64)
            yield Rounds(self._features(part, mine), rates, clicks, np.zeros(len(part), dtype=np.int64))

    def logging_value(self, seed: int) -> float:
        """Clicks per round in ``rounds(seed, …)`` of documents shown at random."""
        return float(self._rates(seed).mean())

    def oracle_value(self, seed: int) -> float:
        """Clicks per round of a policy that knows every click rate."""
        return float(self._rates(seed).max(axis=1).mean())

    def _rates(self, seed: int) -> Floats:
        visits, documents, _ = self._sampled(np.random.default_rng([seed, 1]))
        return self.click_rates.at(documents, visits.times)

    def _sampled(self, generator: np.random.Generator) -> tuple[Visits, npt.NDArray[np.int32], Ints]:
        """One visit per second, its documents (n, K) and the index of the one that was shown (n,)."""
        visits = self._usable.one_per_second(generator)
        documents = np.empty((len(visits), self.n_documents), dtype=np.int32)
        actions = np.empty(len(visits), dtype=np.int64)
        uniforms = generator.random(documents.shape)
        draw_documents(visits.pool_documents, visits.pools, visits.shown, uniforms, documents, actions)
        return visits, documents, actions

    def _features(self, visits: Visits, documents: npt.NDArray[np.int32]) -> Any:
        """(n, K, d) features of every document of a round, in single precision."""
        own = self._document_rows[documents]
        if self.features != "crossed":
            return own
        crossed = own[:, :, None, :] * visits.users[:, None, :, None]
        return crossed.reshape(*documents.shape, -1)
