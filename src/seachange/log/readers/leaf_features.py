"""Features of rounds and of their items, block after block of a file, whose columns stay the same."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from seachange.errors import SeachangeWarning
from seachange.log.raw import PER_ROUND, Pool, RawRounds, Rejected
from seachange.log.readers.leaf_columns import MOST_COLUMNS, Column, Columns, Shape, column_of
from seachange.log.readers.leaves import Leaves
from seachange.protocols import Bools, Ints

if TYPE_CHECKING:
    import polars

TAG = "_tag"
# A text names the actions if at most one round in so many does not tell them apart; such rounds are none.
ROUNDS_OF_TWINS = 20


class Reasons:
    """Why some rounds of a block are none; the first reason counts."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.texts: dict[int, str] = {}

    def give(self, bad: Bools, reason: str) -> None:
        """To rounds where ``bad``."""
        if bad.any():
            self.give_to(np.flatnonzero(bad), reason)

    def give_to(self, rounds: Ints, reason: str) -> None:
        """To these rounds."""
        for k in rounds.tolist():
            self.texts.setdefault(k, reason)

    def none(self) -> Bools:
        """Where there is no reason."""
        none = np.ones(self.n, bool)
        none[list(self.texts)] = False
        return none


@dataclass(frozen=True, eq=False)
class Features:
    """The features of one block, as they are by themselves."""

    leaves: Leaves
    shared: dict[str, Column]
    items: dict[str, Column]
    n_items: Ints  # of every round

    @property
    def round_of_item(self) -> Ints:
        """The round that an item belongs to."""
        return np.repeat(np.arange(len(self.n_items)), self.n_items)


def features_of(leaves: Leaves, roots: tuple[int, int], n_items: Ints, good: Bools) -> Features:
    """The features below two paths, those of rounds and those of items; rounds that are none have no say in them."""
    shared, items = _paths_by_name(leaves, roots)
    return Features(
        leaves, _columns(leaves, shared, good), _columns(leaves, items, np.repeat(good, n_items)), n_items
    )  # fmt: skip


def _paths_by_name(leaves: Leaves, roots: tuple[int, int]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    places: dict[int, tuple[int, tuple[str, ...]]] = {root: (side, ()) for side, root in enumerate(roots)}
    named: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
    for path in range(1, len(leaves.keys)):
        parent = int(leaves.parents[path])
        if path in places or parent not in places:
            continue
        side, keys = places[parent]
        places[path] = side, (*keys, leaves.key(path))
        if leaves.n_leaves(path):
            named[side].setdefault(leaves.name(places[path][1]), []).append(path)
    return named


def _columns(leaves: Leaves, named: dict[str, list[int]], good: Bools) -> dict[str, Column]:
    columns = {}
    for name, paths in named.items():
        found, kinds = leaves.found(*paths), leaves.kinds(paths[0])
        if len(paths) > 1:
            kinds = found.all_kinds()
        if not good.all():
            mine = good[found.rows]
            if not mine.any():
                continue
            found = found.where(mine)
            kinds = found.all_kinds()
        column = column_of(leaves, found, kinds, len(good))
        if name.endswith("_text") and column.shape == Shape("text", False):
            words = column.values.str.extract_all(r"[^ \t]+")
            column = replace(column, shape=Shape("text", True), values=words)
        columns[name] = column
    return columns


class LineCount:
    """How many lines of a file are behind us."""

    def __init__(self) -> None:
        self.source, self.n_lines = "", 0

    def before(self, source: str, n_lines: int) -> int:
        """The lines before the ``n_lines`` of a file that come next."""
        before = self.n_lines if source == self.source else 0
        self.source, self.n_lines = source, before + n_lines
        return before


class FeaturesSoFar:
    """The columns of a log, and which of them names the items.

    ``named`` says whether one does, where that is known; otherwise the first block shows it.
    """

    def __init__(self, named: bool | None = None) -> None:
        self.named = named
        self.shared, self.items = Columns(), Columns()
        self.begun = False
        self.name_column: str | None = None
        self.left_out = 0

    def frames(
        self, features: Features, reasons: Reasons
    ) -> tuple[polars.DataFrame, polars.DataFrame, polars.Series | None]:
        """Features of the rounds without a reason, those of their items, and the items' names."""
        round_of_item, good = features.round_of_item, reasons.none()
        self.left_out += features.leaves.left_out
        if not self.begun and good.any():
            self.begun = True
            self.name_column = self._name_column(features, good)
        shared, misfits = self.shared.frame(features.leaves, features.shared, len(good))
        for reason, bad in misfits.items():
            reasons.give(bad, reason)
        items, misfits = self.items.frame(features.leaves, features.items, len(round_of_item))
        for reason, bad in misfits.items():
            reasons.give_to(round_of_item[bad], reason)
        names = None
        if self.name_column is not None:
            names = items[self.name_column]
            unclear = round_of_item[_not_names(names, round_of_item)]
            reasons.give_to(unclear, f"{self.name_column} does not tell the actions apart, as it does elsewhere")
            items = items.drop(self.name_column)
        if TAG in items.columns:
            items = items.drop(TAG)
        good = reasons.none()
        if good.all():
            return shared, items, names
        mine = np.repeat(good, features.n_items)
        return shared.filter(good), items.filter(mine), None if names is None else names.filter(mine)

    def _name_column(self, features: Features, good: Bools) -> str | None:
        """The feature that says which action an item is."""
        items, round_of_item = features.items, features.round_of_item
        others = [name for name in items if name != TAG]
        candidate = TAG if TAG in items else others[0] if len(others) == 1 else None
        if self.named is False or candidate is None or items[candidate].shape != Shape("text", False):
            return None
        twins = np.zeros(len(good), bool)
        twins[round_of_item[_not_names(items[candidate].values, round_of_item)]] = True
        is_name = self.named or ROUNDS_OF_TWINS * (twins & good).sum() <= good.sum()
        return candidate if is_name else None

    def warn(self, source: str) -> None:
        """Say what rounds cannot say themselves."""
        named = self.shared.left_out or self.items.left_out
        if named is not None or self.left_out:
            example = "" if named is None else f", {named!r} among them"
            warnings.warn(
                f"features become columns, at most {MOST_COLUMNS:,} of them; {source!r} has more, and those that came "
                f"last are left out{example}. Names that are values (words, identifiers) belong into a text or a list.",
                SeachangeWarning,
                stacklevel=4,
            )


def _not_names(names: polars.Series, round_of_item: Ints) -> Bools:
    """Where a name is missing or is that of another item of the round."""
    import polars

    twice = polars.DataFrame({"round": round_of_item, "name": names}).is_duplicated()
    return np.asarray((names.is_null() | twice).to_numpy(), dtype=bool)


def in_parts(rounds: RawRounds, rows: int) -> Iterator[RawRounds]:
    """Rounds in parts of at most so many; what was rejected goes with the rounds before it."""
    if len(rounds) <= rows:
        yield rounds
        return
    for start in range(0, len(rounds), rows):
        part, stop = slice(start, start + rows), min(start + rows, len(rounds))
        first = -np.inf if start == 0 else rounds.lines[start]
        beyond = rounds.lines[stop] if stop < len(rounds) else np.inf
        columns = {word: getattr(rounds, word) for word in PER_ROUND}
        held: dict[str, Any] = {word: None if each is None else each[part] for word, each in columns.items()}
        yield replace(
            rounds,
            lines=rounds.lines[part],
            features=rounds.features[part],
            **held,
            pool=None if rounds.pool is None else _part_of(rounds.pool, start, stop),
            rejected=tuple(each for each in rounds.rejected if first <= each.line < beyond),
        )


def _part_of(pool: Pool, start: int, stop: int) -> Pool:
    low, high = pool.offsets[start], pool.offsets[stop]
    return Pool(
        offsets=pool.offsets[start : stop + 1] - low,
        features=pool.features[low:high],
        names=None if pool.names is None else pool.names[low:high],
        probs=None if pool.probs is None else pool.probs[low:high],
    )


def rejected_lines(
    source: str, leaves: Leaves, reasons: dict[int, str], lines_before: int, *, blank: bool = False
) -> tuple[Rejected, ...]:
    """Lines with a reason; those of blanks only where they matter."""
    texts = ((k, leaves.line(k)) for k in sorted(reasons))
    return tuple(Rejected(source, lines_before + k + 1, reasons[k], text) for k, text in texts if text or blank)
