"""Visits to a front page: the pool of documents, the one shown, and whether it was clicked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError
from seachange.log.fingerprint import Hashes, mixed
from seachange.log.raw import RawLog, RawRounds
from seachange.protocols import Bools, Floats, Ints

Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Visits:
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

    def where(self, rows: Bools | Ints | slice) -> Visits:
        """A subset of the visits."""
        per_visit = ("times", "days", "pools", "shown", "clicks", "users")
        return replace(self, **{name: getattr(self, name)[rows] for name in per_visit})

    def of_days(self, first: int, end: int) -> Visits:
        """The visits from day ``first`` up to but not including day ``end``."""
        return self.where((self.days >= first) & (self.days < end))

    def one_per_second(self, generator: np.random.Generator) -> Visits:
        """One random visit of each second."""
        starts = np.flatnonzero(np.diff(self.times, prepend=self.times[:1] - 1))
        counts = np.diff(starts, append=len(self))
        return self.where(starts + (generator.random(len(starts)) * counts).astype(np.int64))

    def save(self, path: Path) -> None:
        """Write the visits to a file."""
        with path.open("wb") as file:
            np.savez(file, **{field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def load(cls, path: Path) -> Visits:
        """Read what ``save`` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(**{field.name: arrays[field.name] for field in fields(cls)})


def visits_of(raw: RawLog, *, with_users: bool = True, rejected: Counter[str] | None = None) -> Visits:
    """All visits of a log, in time order; its rounds must have lists of actions with numeric names.

    Without user features, visits need at most a tenth of the memory. ``rejected`` counts rejected lines by reason.
    """
    pools, parts = _Pools(with_users), []
    for part in raw.parts():
        if rejected is not None:
            rejected.update(line.reason for line in part.rejected)
        if len(part):
            parts.append(pools.take(part))
    if not parts:
        raise LogError("this log has no visits.")
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if (np.diff(columns["times"]) < 0).any():
        order = np.argsort(columns["times"], kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
    return Visits(**columns, **pools.tables())


class _Pools:
    """The pools and documents so far; each pool recurs thousands of times and is parsed once."""

    def __init__(self, with_users: bool) -> None:
        self._with_users = with_users
        self._days: dict[str, int] = {}
        self._pools: dict[int, int] = {}
        self._members: list[Codes] = []
        self._documents: dict[int, int] = {}
        self._rows: list[tuple[int, list[float]]] = []  # id and features of each document

    def take(self, rounds: RawRounds) -> dict[str, Any]:
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

        def members(row: int) -> Codes:
            entries = range(pool.offsets[row], pool.offsets[row + 1])
            codes = [self._document(int(marks[i]), int(ids[i]), features[i].tolist()) for i in entries]
            return np.sort(np.array(codes, dtype=np.int32))

        shown = marks[first + rounds.action.to_numpy()]
        users = rounds.features.to_numpy() if self._with_users else np.empty((len(rounds), 0))
        return {
            "times": rounds.time.to_numpy().astype(np.int64),
            "days": np.full(len(rounds), self._days.setdefault(rounds.source, len(self._days)), dtype=np.int16),
            "pools": _numbered(sums, lambda mark, row: self._pool(mark, members, row)),
            "shown": _numbered(shown, lambda mark, row: self._documents[mark]),
            "clicks": rounds.reward.to_numpy() == 1,
            "users": users.astype(np.float32),
        }

    def _pool(self, mark: int, members: Callable[[int], Codes], row: int) -> int:
        if mark not in self._pools:
            self._pools[mark] = len(self._pools)
            self._members.append(members(row))
        return self._pools[mark]

    def _document(self, mark: int, name: int, features: list[float]) -> int:
        if mark not in self._documents:
            self._documents[mark] = len(self._documents)
            self._rows.append((name, features))
        return self._documents[mark]

    def tables(self) -> dict[str, Any]:
        """Pools and documents, as ``Visits`` stores them."""
        padded = np.full((len(self._members), max(map(len, self._members))), -1, dtype=np.int32)
        for row, members in zip(padded, self._members, strict=True):
            row[: len(members)] = members
        return {
            "pool_documents": padded,
            "document_ids": np.array([name for name, _ in self._rows], dtype=np.int64),
            "document_features": np.array([features for _, features in self._rows], dtype=np.float64),
        }


def _numbered(marks: Hashes, number: Callable[[int, int], int]) -> Codes:
    """The number of each mark; ``number`` is called once per mark, in order of first appearance."""
    different, rows, which = np.unique(marks, return_index=True, return_inverse=True)
    numbers = np.empty(len(different), dtype=np.int32)
    for i in np.argsort(rows):
        numbers[i] = number(int(different[i]), int(rows[i]))
    return numbers[which]
