"""Decisions of Vowpal Wabbit's reinforcement learning service and of Azure Personalizer: dsjson, a decision a line.

    {"_label_cost": -1, "_label_probability": 0.8, "_label_Action": 2, "_labelIndex": 1, "Timestamp": "…", "a": [2, 1],
     "p": [0.8, 0.2], "c": {"user": {"age": 31}, "_multi": [{"item": {"price": 3}}, {"item": {"price": 5}}]}}

reward       minus ``_label_cost``, which is what all observations in ``o`` were joined to
action       the first of ``a``; ``p`` are the probabilities in the order of ``a``, and become those of the pool
features     numbers, strings, truth values and arrays below ``c``, named by their keys: ``user.age``; as in Vowpal
             Wabbit, keys that begin with an underscore are none (but ``_text``, whose words are)
names        of the actions, where all that is known of them is a ``_tag`` or one string that differs within a round
time         ``Timestamp``

Events are dropped before logging with the probability ``pdrop``, whatever they hold, so what is left is a fair sample
of its moment and needs no other propensities. Vowpal Wabbit weighs each 1 / (1 - pdrop) in sums over time; rounds have
no weights here, so where it changes over a file, a warning says that averages lean towards times with fewer drops.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seachange.errors import LogError, SeachangeWarning
from seachange.kernels.letters import PADDING
from seachange.log.raw import PART_ROWS, Pool, RawRounds, Rejected
from seachange.log.readers.dsjson_labels import WANTED, Labels, labels_of
from seachange.log.readers.json_columns import Column, Columns, Shape, column_of
from seachange.log.readers.json_leaves import Flat, Found, kinds_of
from seachange.log.readers.text_blocks import Block, blocks_of, worked_on
from seachange.protocols import Bools, Ints

if TYPE_CHECKING:
    import polars

FIELDS = {"action": "a", "reward": "-_label_cost", "propensity": "p", "time": "Timestamp"}
TAG = "_tag"


def looks_like(path: Path, head: bytes) -> bool:
    """Whether the first lines are decisions as dsjson has them."""
    lines = [line for line in head.split(b"\n")[:50] if line.startswith(b"{")]
    return any(b'"c"' in line and (b'"_label_' in line or b'"_multi"' in line) for line in lines)


class DsjsonLog:
    """A dsjson file."""

    format = "dsjson"

    def __init__(self, path: str | Path, columns: Mapping[str, str | Sequence[str]] | None = None) -> None:
        if columns:
            raise LogError(f"a dsjson file says itself what is what; columns has {', '.join(columns)}.")
        self.path = Path(path)
        self.columns = dict(FIELDS)

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds, in the order of the file, at most ``rows`` at a time; each call starts anew."""
        reading = _Reading()
        for piece in worked_on(blocks_of(self.path, PADDING), _piece_of):
            rounds = reading.rounds(piece)
            yield from _in_parts(rounds, rows)
        reading.warn(self.path)


@dataclass(frozen=True, eq=False)
class _Piece:
    """What a block holds, by itself."""

    block: Block
    flat: Flat
    labels: Labels
    shared: dict[str, Column]
    items: dict[str, Column]


def _piece_of(block: Block) -> _Piece:
    flat = Flat(block.text, WANTED)
    labels = labels_of(flat)
    shared, items = _named_paths(flat)
    good = np.ones(len(flat), bool)
    good[list(labels.reasons)] = False
    return _Piece(block, flat, labels, _columns(flat, shared, good), _columns(flat, items, np.repeat(good, flat.n_items)))


def _named_paths(flat: Flat) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Paths with leaves below the context and below the items, by the names of their features."""
    context, items = flat.known["c"], flat.known["_multi"]
    places: dict[int, tuple[int, tuple[str, ...]]] = {context: (0, ()), items: (1, ())}
    named: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
    for path in range(len(flat.keys)):
        parent = int(flat.parents[path])
        if path in places or parent not in places or path == 0:
            continue
        side, keys = places[parent]
        key = json.loads(b'"%s"' % flat.keys[path]).encode(errors="backslashreplace").decode()
        places[path] = side, (*keys, key)
        if flat.n_leaves(path):
            name = ".".join(places[path][1])
            named[side].setdefault(name, []).append(path)
    return named


def _columns(flat: Flat, named: dict[str, list[int]], good: Bools) -> dict[str, Column]:
    """Features of a block; those of lines that are no rounds have no say in what they are."""
    columns = {}
    for name, paths in named.items():
        found, kinds = flat.found(*paths), flat.kinds(*paths)
        if len(paths) > 1:
            kinds |= kinds_of(found)
        if not good.all():
            mine = good[found.rows]
            if not mine.any():
                continue
            found = Found(*(values[mine] for values in found))
            kinds = kinds_of(found)
        column = column_of(flat, found, kinds, len(good))
        if name.endswith("_text") and column.shape == Shape("text", False):
            words = column.values.str.extract_all(r"[^ \t]+")
            column = Column(found, kinds, Shape("text", True), words, column.bad)
        columns[name] = column
    return columns


class _Reading:
    """What is known of a file so far."""

    def __init__(self) -> None:
        self.shared, self.items = Columns(), Columns()
        self.n_lines = 0
        self.begun = self.with_probs = self.timed = False
        self.name_column: str | None = None
        self.least_dropped, self.most_dropped = np.inf, -np.inf

    def rounds(self, piece: _Piece) -> RawRounds:
        """A piece as the pieces before it have it."""
        import polars

        flat, labels, reasons = piece.flat, piece.labels, dict(piece.labels.reasons)
        line_of_item = np.repeat(np.arange(len(flat)), flat.n_items)
        if not self.begun and len(reasons) < len(flat):
            good = _kept(reasons, len(flat))
            self.begun, self.with_probs = True, bool(labels.with_probs[good].any())
            self.timed = bool(labels.times.filter(good).is_not_null().any())
            self.name_column = _name_column(piece.items, line_of_item, np.repeat(good, flat.n_items))
        if self.with_probs:
            _refuse(reasons, np.flatnonzero(~labels.with_probs), "there is no p, which the first rounds have")
        shared, misfits = self.shared.frame(flat, piece.shared, len(flat))
        for reason, bad in misfits.items():
            _refuse(reasons, np.flatnonzero(bad), reason)
        items, misfits = self.items.frame(flat, piece.items, len(line_of_item))
        for reason, bad in misfits.items():
            _refuse(reasons, line_of_item[bad], reason)
        names = None
        if self.name_column is not None:
            names = items[self.name_column]
            _refuse(reasons, line_of_item[_not_names(names, line_of_item)], f"{self.name_column} does not tell the actions apart")
            items = items.drop(self.name_column)
        items = items.drop(TAG, strict=False)
        good = _kept(reasons, len(flat))
        mine = np.repeat(good, flat.n_items)
        if not good.all():
            shared, items = shared.filter(good), items.filter(mine)
            names = None if names is None else names.filter(mine)
        dropped = labels.dropped[good]
        if len(dropped):
            self.least_dropped = min(self.least_dropped, dropped.min())
            self.most_dropped = max(self.most_dropped, dropped.max())
        first_line = self.n_lines + 1
        self.n_lines += len(flat)
        return RawRounds(
            source=piece.block.source,
            lines=first_line + np.flatnonzero(good),
            features=shared,
            action=polars.Series("action", labels.actions[good]),
            reward=polars.Series("reward", 0.0 - labels.costs[good]),
            propensity=polars.Series("propensity", labels.propensities[good]),
            time=labels.times.filter(good).alias("time") if self.timed else None,
            pool=Pool(
                offsets=np.concatenate([[0], np.cumsum(flat.n_items[good])]),
                features=items,
                names=names,
                probs=labels.probs[: len(mine)][mine] if self.with_probs else None,
            ),
            rejected=tuple(
                Rejected(piece.block.source, first_line + k, reasons[k], text)
                for k in sorted(reasons)
                if (text := flat.line(k))
            ),
        )

    def warn(self, path: Path) -> None:
        """Say what rounds cannot say themselves."""
        if self.most_dropped > self.least_dropped:
            warnings.warn(
                f"the probability that an event was dropped before {path.name!r} was written (pdrop) goes from "
                f"{self.least_dropped:g} to {self.most_dropped:g}: averages over this log lean towards times with fewer "
                "drops, as rounds have no weights.",
                SeachangeWarning,
                stacklevel=3,
            )


def _refuse(reasons: dict[int, str], lines: Ints, reason: str) -> None:
    for k in np.unique(lines).tolist():
        reasons.setdefault(k, reason)


def _kept(reasons: dict[int, str], n: int) -> Bools:
    kept = np.ones(n, bool)
    kept[list(reasons)] = False
    return kept


def _name_column(items: dict[str, Column], line_of_item: Ints, good: Bools) -> str | None:
    """The feature that says which action an item is."""
    features = [name for name in items if name != TAG]
    candidate = TAG if TAG in items else features[0] if len(features) == 1 else None
    if candidate is None or items[candidate].shape != Shape("text", False):
        return None
    unclear = _not_names(items[candidate].values, line_of_item) & good
    return None if unclear.any() else candidate


def _not_names(names: polars.Series, line_of_item: Ints) -> Bools:
    """Where a name is missing or is that of another item of the line."""
    import polars

    twice = polars.DataFrame({"line": line_of_item, "name": names}).is_duplicated()
    return np.asarray((names.is_null() | twice).to_numpy(), dtype=bool)


def _in_parts(rounds: RawRounds, rows: int) -> Iterator[RawRounds]:
    """Rounds in parts of at most so many; what was rejected goes with the rounds before it."""
    if len(rounds) <= rows:
        yield rounds
        return
    assert rounds.pool is not None
    for start in range(0, len(rounds), rows):
        part = slice(start, start + rows)
        lines = rounds.lines[part]
        first = -np.inf if start == 0 else lines[0]
        beyond = rounds.lines[start + rows] if start + rows < len(rounds) else np.inf
        low, high = rounds.pool.offsets[start], rounds.pool.offsets[min(start + rows, len(rounds))]
        yield replace(
            rounds,
            lines=lines,
            features=rounds.features[part],
            action=rounds.action[part],
            reward=rounds.reward[part],
            propensity=None if rounds.propensity is None else rounds.propensity[part],
            time=None if rounds.time is None else rounds.time[part],
            pool=Pool(
                offsets=rounds.pool.offsets[start : start + rows + 1] - low,
                features=rounds.pool.features[low:high],
                names=None if rounds.pool.names is None else rounds.pool.names[low:high],
                probs=None if rounds.pool.probs is None else rounds.pool.probs[low:high],
            ),
            rejected=tuple(each for each in rounds.rejected if first <= each.line < beyond),
        )
