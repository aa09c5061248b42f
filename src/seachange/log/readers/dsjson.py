"""Decisions of Vowpal Wabbit's reinforcement learning service and of Azure Personalizer: dsjson, a decision a line.

    {"_label_cost": -1, "_label_probability": 0.8, "_label_Action": 2, "_labelIndex": 1, "Timestamp": "…", "a": [2, 1],
     "p": [0.8, 0.2], "c": {"user": {"age": 31}, "_multi": [{"item": {"price": 3}}, {"item": {"price": 5}}]}}

reward       minus ``_label_cost``, which is what all observations in ``o`` were joined to
action       the first of ``a``; ``p`` are the probabilities in the order of ``a``, and become those of the pool
features     numbers, strings, truth values and arrays below ``c``, named by their keys: ``user.age``; as in Vowpal
             Wabbit, keys that begin with an underscore are none (but ``_text``, whose words are)
names        of the actions, where all that is known of them is a ``_tag`` or one string that differs within a round
time         ``Timestamp``; ``EventId`` tells whether a round is there twice

Events are dropped before logging with the probability ``pdrop``, whatever they hold, so what is left is a fair sample
of its moment and needs no other propensities. Vowpal Wabbit weighs each 1 / (1 - pdrop) in sums over time; rounds have
no weights here, so where it changes over a file, a warning says that averages lean towards times with fewer drops.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seachange.errors import SeachangeWarning
from seachange.kernels.letters import PADDING
from seachange.log.raw import PART_ROWS, Pool, RawRounds
from seachange.log.readers.ahead import made_ahead
from seachange.log.readers.dsjson_labels import WANTED, Labels, labels_of
from seachange.log.readers.json_leaves import JsonLeaves
from seachange.log.readers.leaf_features import (
    Features,
    FeaturesSoFar,
    LineCount,
    features_of,
    in_parts,
    rejected_lines,
)
from seachange.log.readers.text_blocks import Block
from seachange.log.readers.text_log import TextLog

FIELDS = {"action": "a", "reward": "-_label_cost", "propensity": "p", "time": "Timestamp"}


def looks_like(path: Path, head: bytes) -> bool:
    """Whether the first lines are decisions as dsjson has them."""
    lines = [line for line in head.split(b"\n")[:50] if line.startswith(b"{")]
    return any(b'"c"' in line and (b'"_label_' in line or b'"_multi"' in line) for line in lines)


class DsjsonLog(TextLog):
    """Files of dsjson."""

    format, columns, description = "dsjson", FIELDS, "a dsjson file"

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds, in the order of the files, at most ``rows`` at a time; each call starts anew."""
        reading = _Reading(self.named)
        for piece in made_ahead(self.blocks(PADDING), _piece_of):
            yield from in_parts(reading.rounds(piece), rows)
        reading.warn(self.name)


@dataclass(frozen=True, eq=False)
class _Piece:
    """What a block holds, by itself."""

    source: str
    leaves: JsonLeaves
    labels: Labels
    features: Features


def _piece_of(block: Block) -> _Piece:
    leaves = JsonLeaves(block.text, WANTED)
    labels = labels_of(leaves)
    roots = leaves.known["c"], leaves.known["_multi"]
    return _Piece(block.source, leaves, labels, features_of(leaves, roots, leaves.n_items, labels.reasons.none()))


class _Reading:
    """What is known of a log so far."""

    def __init__(self, named: bool | None) -> None:
        self.features = FeaturesSoFar(named)
        self.counting = LineCount()
        self.begun = self.with_probs = self.timed = False
        self.least_dropped, self.most_dropped = np.inf, -np.inf

    def rounds(self, piece: _Piece) -> RawRounds:
        """A piece as the pieces before it have it."""
        import polars

        labels, reasons, n_items = piece.labels, piece.labels.reasons, piece.leaves.n_items
        good = reasons.none()
        if not self.begun and good.any():
            self.begun, self.with_probs = True, bool(labels.with_probs[good].any())
        self.timed |= bool(labels.times.filter(good).is_not_null().any())
        if self.with_probs:
            reasons.give(~labels.with_probs, "there is no p, which the first rounds have")
        shared, items, names = self.features.frames(piece.features, reasons)
        good = reasons.none()
        dropped = labels.dropped[good]
        if len(dropped):
            self.least_dropped = min(self.least_dropped, dropped.min())
            self.most_dropped = max(self.most_dropped, dropped.max())
        lines_before = self.counting.before(piece.source, len(piece.leaves))
        probs = labels.probs[: n_items.sum()][np.repeat(good, n_items)] if self.with_probs else None
        return RawRounds(
            source=piece.source,
            lines=lines_before + np.flatnonzero(good) + 1,
            features=shared,
            action=polars.Series("action", labels.actions[good]),
            reward=polars.Series("reward", 0.0 - labels.costs[good]),
            propensity=polars.Series("propensity", labels.propensities[good]),
            time=labels.times.filter(good).alias("time") if self.timed else None,
            event=labels.events.filter(good),
            pool=Pool(np.concatenate([[0], np.cumsum(n_items[good])]), items, names, probs),
            rejected=rejected_lines(piece.source, piece.leaves, reasons.texts, lines_before),
        )

    def warn(self, source: str) -> None:
        """Say what rounds cannot say themselves."""
        self.features.warn(source)
        if self.most_dropped > self.least_dropped:
            warnings.warn(
                f"the probability that an event was dropped before {source!r} was written (pdrop) goes from "
                f"{self.least_dropped:g} to {self.most_dropped:g}: averages over this log lean towards times with "
                "fewer drops, as rounds have no weights.",
                SeachangeWarning,
                stacklevel=3,
            )
