"""The paper's semi-synthetic world: visits to a front page, with the click rates of its documents at that time."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from seachange.errors import Fix, LogError, ParameterError
from seachange.kernels.feature_rows import draw_documents
from seachange.log.bandit_log import BanditLog
from seachange.log.fingerprint import Hashes, mixed
from seachange.log.raw import RawLog, RawRounds
from seachange.params import Brief, require
from seachange.protocols import Bools, Floats, Ints
from seachange.simulate.rollout import Rounds

Codes = npt.NDArray[np.int32]
DocumentFeatures = Literal["documents", "crossed", "identity"]
STEP = 60  # seconds between the centers of windows
IDENTITY = 15  # random features of a document's identity, enough to tell the documents of a few pools apart
IDENTITY_FIX = Fix('Use features="identity".', "Use --features identity.")


@dataclass(frozen=True, eq=False, repr=False)
class Visits(Brief):
    """n visits, P different pools, D documents; a document whose features change counts again."""

    times: Ints  # (n,) seconds, non-decreasing
    days: npt.NDArray[np.int16]  # (n,) from 0; one file per day
    pools: Codes  # (n,) rows of ``pool_documents``
    shown: Codes  # (n,) documents
    clicks: Bools  # (n,)
    users: npt.NDArray[np.float32]  # (n, u) user features
    pool_documents: Codes  # (P, largest) in ascending order, padded with -1
    document_ids: Ints  # (D,) as in the files
    document_features: Floats  # (D, d)

    def __len__(self) -> int:
        """Number of visits."""
        return len(self.times)

    @cached_property
    def pool_sizes(self) -> Ints:
        """(P,)."""
        return np.asarray((self.pool_documents >= 0).sum(axis=1))

    def where(self, rows: Bools | Ints | slice) -> Self:
        """A subset of the visits."""
        per_visit = ("times", "days", "pools", "shown", "clicks", "users")
        return replace(self, **{name: getattr(self, name)[rows] for name in per_visit})

    def of_days(self, first: int, end: int) -> Self:
        """The visits from day ``first`` up to but not including day ``end``."""
        return self.where((self.days >= first) & (self.days < end))

    def one_per_second(self, generator: np.random.Generator) -> Self:
        """One random visit of each second."""
        starts = np.flatnonzero(np.diff(self.times, prepend=self.times[:1] - 1))
        counts = np.diff(starts, append=len(self))
        return self.where(starts + (generator.random(len(starts)) * counts).astype(np.int64))

    def save(self, path: Path) -> None:
        """Write the visits to a file."""
        with path.open("wb") as file:
            np.savez(file, **{field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what ``save`` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(**{field.name: arrays[field.name] for field in fields(cls)})


def visits_of(raw: RawLog, *, with_users: bool = True, rejected: Counter[str] | None = None) -> Visits:
    """All visits of a log, in time order; its rounds must have lists of actions with numeric names.

    Without user features, visits need at most a tenth of the memory. ``rejected`` counts rejected lines by reason.
    """
    pools, parts = _Pools(), []
    for part in raw.parts():
        if rejected is not None:
            rejected.update(line.reason for line in part.rejected)
        if len(part):
            parts.append(pools.take(part, with_users))
    if not parts:
        raise LogError("this log has no visits.")
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if (np.diff(columns["times"]) < 0).any():
        order = np.argsort(columns["times"], kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
    ids, features = zip(*pools.documents, strict=True)
    return Visits(
        **columns,
        pool_documents=padded(pools.members),
        document_ids=np.array(ids, dtype=np.int64),
        document_features=np.array(features, dtype=np.float64),
    )


class _Pools:
    """The pools and documents so far; each pool recurs thousands of times and is parsed once."""

    def __init__(self) -> None:
        self.members: list[list[int]] = []  # the documents of each pool
        self.documents: list[tuple[int, list[float]]] = []  # id and features of each document
        self._days: dict[str, int] = {}
        self._pool_numbers: dict[int, int] = {}
        self._document_numbers: dict[int, int] = {}

    def take(self, rounds: RawRounds, with_users: bool) -> dict[str, Any]:
        """The visits of one part of the log."""
        pool = rounds.pool
        if pool is None or pool.names is None or rounds.time is None:
            raise LogError("every visit needs a time and a list of documents, as in Yahoo!'s R6A and R6B.")
        ids, first = pool.names.to_numpy(), pool.offsets[:-1]
        features = pool.features.to_numpy() if pool.features.width else np.empty((len(ids), 0))
        with np.errstate(over="ignore"):
            marks = mixed(ids.astype(np.uint64))
            for column in features.T:
                marks = mixed(marks ^ np.ascontiguousarray(column).view(np.uint64))
            sums = np.add.reduceat(marks, first)  # the order on the line does not matter

        def document_number(entry: int) -> int:
            number = self._document_numbers.setdefault(int(marks[entry]), len(self.documents))
            if number == len(self.documents):
                self.documents.append((int(ids[entry]), features[entry].tolist()))
            return number

        def pool_number(mark: int, row: int) -> int:
            number = self._pool_numbers.setdefault(mark, len(self.members))
            if number == len(self.members):
                self.members.append(sorted(map(document_number, range(pool.offsets[row], pool.offsets[row + 1]))))
            return number

        shown = marks[first + rounds.action.to_numpy()]
        users = rounds.features.to_numpy() if with_users else np.empty((len(rounds), 0))
        return {
            "times": rounds.time.to_numpy().astype(np.int64),
            "days": np.full(len(rounds), self._days.setdefault(rounds.source, len(self._days)), dtype=np.int16),
            "pools": _numbered(sums, pool_number),
            "shown": _numbered(shown, lambda mark, row: self._document_numbers[mark]),
            "clicks": rounds.reward.to_numpy() == 1,
            "users": users.astype(np.float32),
        }


def padded(pools: Sequence[Sequence[int]]) -> Codes:
    """(P, largest) the documents of every pool, as ``Visits`` stores them."""
    return np.ascontiguousarray(np.array(list(zip_longest(*pools, fillvalue=-1)), dtype=np.int32).T)


def _numbered(marks: Hashes, number: Callable[[int, int], int]) -> Codes:
    """The number of each mark; ``number`` is called once per mark, in order of first appearance."""
    different, rows, which = np.unique(marks, return_index=True, return_inverse=True)
    numbers, order = np.empty(len(different), dtype=np.int32), np.argsort(rows)
    numbers[order] = list(map(number, different[order].tolist(), rows[order].tolist()))
    return numbers[which]


@dataclass(frozen=True, eq=False, repr=False)
class ClickRates(Brief):
    """The click rate of each document in a window around each minute."""

    start: int  # the time of the first minute
    document_rows: Ints  # (D,) rows of ``rates``; documents with the same id share a row
    rates: npt.NDArray[np.float32]  # (documents, minutes)

    @classmethod
    def of(cls, visits: Visits, *, window: float = 43_200.0, smoothing: float = 100.0) -> Self:
        """(clicks + s r) / (impressions + s) in ``window`` seconds around a minute (less at the ends of ``visits``).

        ``smoothing`` s adds s impressions at the overall click rate r, so that a document with few impressions does not
        get a rate of 0. In half a day of Yahoo!'s data a document has 100,000 impressions.
        """
        require(window > 0, f"window must be positive; got {window}.")
        require(smoothing >= 0, f"smoothing must be at least 0; got {smoothing}.")
        ids, rows = np.unique(visits.document_ids, return_inverse=True)
        start = int(visits.times[0])
        minutes = (visits.times - start) // STEP
        shape = len(ids), int(minutes[-1]) + 1
        places, half = rows[visits.shown] * shape[1] + minutes, max(1, round(window / STEP / 2))
        begins, ends = (np.clip(np.arange(shape[1]) + offset, 0, shape[1]) for offset in (-half, half))

        def around(weights: Bools | None) -> Floats:
            sums = np.bincount(places, weights, minlength=shape[0] * shape[1]).reshape(shape)
            before = np.insert(np.cumsum(sums, axis=1, dtype=np.float64), 0, 0.0, axis=1)
            return np.asarray(before[:, ends] - before[:, begins])

        overall, shows, clicks = float(visits.clicks.mean()), around(None), around(visits.clicks)
        rates = np.divide(clicks + smoothing * overall, shows + smoothing, where=shows + smoothing > 0,
                          out=np.full(shows.shape, overall))  # fmt: skip
        return cls(start, rows, rates.astype(np.float32))

    def at(self, documents: Codes, times: Ints) -> Floats:
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
            yield Rounds.with_clicks(self._features(part, mine), self.click_rates.at(mine, part.times), generator)

    def logging_value(self, seed: int) -> float:
        """Clicks per round in ``rounds(seed, …)`` of documents shown at random."""
        return float(self._rates(seed).mean())

    def oracle_value(self, seed: int) -> float:
        """Clicks per round of a policy that knows every click rate."""
        return float(self._rates(seed).max(axis=1).mean())

    def _rates(self, seed: int) -> Floats:
        visits, documents, _ = self._sampled(np.random.default_rng([seed, 1]))
        return self.click_rates.at(documents, visits.times)

    def _sampled(self, generator: np.random.Generator) -> tuple[Visits, Codes, Ints]:
        """One visit per second, its documents (n, K) and the index of the one that was shown (n,)."""
        visits = self._usable.one_per_second(generator)
        uniforms = generator.random((len(visits), self.n_documents))
        documents, actions = np.empty(uniforms.shape, dtype=np.int32), np.empty(len(visits), dtype=np.int64)
        draw_documents(visits.pool_documents, visits.pools, visits.shown, uniforms, documents, actions)
        return visits, documents, actions

    def _features(self, visits: Visits, documents: Codes) -> Any:
        """(n, K, d) features of every document of a round, in single precision."""
        own = self._document_rows[documents]
        if self.features == "crossed":
            own = own[:, :, None, :] * visits.users[:, None, :, None]
        return own.reshape(*documents.shape, -1)
