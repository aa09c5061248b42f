"""Vowpal Wabbit's text for contextual bandits.

cb       a line a round: ``action:cost:probability |namespace features``; further actions, without a cost, are the
         others that could be chosen in it
cb_adf   a line an action, rounds apart by an empty line: ``shared |features`` first, if anything is shared, and
         ``action:cost:probability`` on the line of the action taken

reward    minus the cost
features  of ``|user age:31 city=NY tall``: user.age, a number; user.city, a text (as of ``city:NY``); and bare words,
          which are a list, user
names     of actions with lines of their own: their tags, or the only text known of them, where no two actions of a
          round have the same

The first lines tell which of both a file is. Vowpal Wabbit mends or passes over what breaks its rules, a line or a part
of it; here the round is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from seachange.errors import LogError
from seachange.kernels import vw_lines as kernel
from seachange.kernels.letters import PADDING
from seachange.log.raw import PART_ROWS, Pool, RawRounds
from seachange.log.readers.ahead import made_ahead
from seachange.log.readers.leaf_columns import Column, column_of
from seachange.log.readers.leaf_features import (
    TAG,
    Features,
    FeaturesSoFar,
    LineCount,
    features_of,
    in_parts,
    rejected_lines,
)
from seachange.log.readers.lines import LONGEST_LINE
from seachange.log.readers.text_blocks import Block
from seachange.log.readers.text_log import TextLog
from seachange.log.readers.vw_labels import Labels, VwLeaves, Words, labels_of_examples, labels_of_lines
from seachange.protocols import Bools, Ints

HEAD_BYTES = 1 << 16
EMPTY_LINES = (b"\n\n", b"\n\r\n")
FIELDS = {"action": "action:cost:probability", "reward": "-cost", "propensity": "probability"}


def looks_like(path: Path, head: bytes) -> bool:
    """Whether the first lines are labels of a bandit, a bar and features."""
    lines = [line.strip() for line in head.split(b"\n")[:50]]
    lines = [line for line in lines if line]
    labelled = [_is_label(word) for line in lines for word in line.partition(b"|")[0].split()]
    return bool(lines) and all(b"|" in line for line in lines[:-1]) and b"|" in lines[0] and any(labelled)


def _is_label(word: bytes | bytearray) -> bool:
    parts = word.split(b":")
    try:
        return len(parts) == 3 and parts[0].isdigit() and 0 <= float(parts[2]) <= 1 and float(parts[1]) < np.inf
    except ValueError:
        return False


class VwTextLog(TextLog):
    """Files in Vowpal Wabbit's text format."""

    format, columns, description = "vw", FIELDS, "Vowpal Wabbit's text"

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds, in the order of the files, at most ``rows`` at a time; each call starts anew."""
        blocks = self.blocks()
        if (first := next(blocks, None)) is None:
            return
        with_items, every = _has_items(first.text), chain([first], blocks)
        reading = _Reading(with_items, self.named)
        for piece in made_ahead(_whole_examples(every) if with_items else every, partial(_piece_of, with_items)):
            yield from in_parts(reading.rounds(piece), rows)
        reading.features.warn(self.name)


def _has_items(text: bytearray) -> bool:
    """Whether actions have lines of their own: something is shared, or most groups of lines have one label or none."""
    lines = [line.strip() for line in text[:HEAD_BYTES].split(b"\n")]
    if any(line.startswith((b"shared ", b"shared|", b"shared\t")) for line in lines):
        return True
    sizes, labels = [0], [0]
    for line in lines:
        if not line:
            sizes.append(0)
            labels.append(0)
            continue
        sizes[-1] += 1
        labels[-1] += any(map(_is_label, line.partition(b"|")[0].split()))
    groups = [found <= 1 for size, found in zip(sizes, labels, strict=True) if size > 1]
    return 2 * sum(groups) > len(groups)


def _whole_examples(blocks: Iterable[Block]) -> Iterator[Block]:
    """Blocks that end with an empty line, or with their file."""
    rest, source = bytearray(), ""
    for block in blocks:
        at_end = block.source != source
        cut = len(rest) if at_end else max(rest.rfind(end) + len(end) if end in rest else 0 for end in EMPTY_LINES)
        if cut:
            yield Block(source, rest[:cut])
        rest, source = rest[cut:] + block.text, block.source
        if len(rest) > LONGEST_LINE + len(block.text):
            raise LogError(
                f"{source!r} has more than {LONGEST_LINE:,} bytes without an empty line, though its actions have lines "
                "of their own: an empty line, without blanks, must end every round."
            )
    if rest:
        yield Block(source, rest)


@dataclass(frozen=True, eq=False)
class _Piece:
    """What a block holds, by itself."""

    source: str
    leaves: VwLeaves
    labels: Labels
    features: Features


def _piece_of(with_items: bool, block: Block) -> _Piece:
    leaves = VwLeaves(block.text + PADDING, with_items)
    labels = labels_of_examples(leaves) if with_items else labels_of_lines(leaves)
    good = labels.reasons.none()
    features = features_of(leaves, (kernel.SHARED, kernel.ITEMS), labels.n_items, good)
    if with_items and leaves.n_leaves(kernel.TAG):
        features.items[TAG] = _tags(leaves, np.repeat(good, labels.n_items))
    return _Piece(block.source, leaves, labels, features)


def _tags(leaves: VwLeaves, good: Bools) -> Column:
    """Tags of the lines of actions, as a feature of those."""
    found, is_action = leaves.found(kernel.TAG), leaves.roles == kernel.ACTION_LINE
    item = np.cumsum(is_action) - 1
    mine = is_action[found.rows]
    mine[mine] = good[item[found.rows[mine]]]
    found = found.where(mine)
    found = found._replace(rows=item[found.rows])
    return column_of(leaves, found, found.all_kinds(), len(good))


class _Reading:
    """What is known of a log so far."""

    def __init__(self, with_items: bool, named: bool | None) -> None:
        self.with_items = with_items
        self.features = FeaturesSoFar(named)
        self.counting = LineCount()
        self.begun = self.with_lists = False

    def rounds(self, piece: _Piece) -> RawRounds:
        """A piece as the pieces before it have it."""
        import polars

        labels, reasons = piece.labels, piece.labels.reasons
        if labels.listed is not None:
            self._require_lists(labels, labels.listed)
        shared, items, names = self.features.frames(piece.features, reasons)
        good = reasons.none()
        pool, actions = None, labels.actions[good]
        if self.with_items:
            pool = Pool(np.concatenate([[0], np.cumsum(labels.n_items[good])]), items, names)
        elif self.with_lists:
            pool, actions = _pool_of_lists(labels, good)
        lines = {labels.bad_lines.get(k, int(labels.lines[k])): text for k, text in reasons.texts.items()}
        lines_before = self.counting.before(piece.source, len(piece.leaves))
        return RawRounds(
            source=piece.source,
            lines=lines_before + labels.lines[good] + 1,
            features=shared,
            action=polars.Series("action", actions),
            reward=polars.Series("reward", 0.0 - labels.costs[good]),
            propensity=polars.Series("propensity", labels.propensities[good]),
            pool=pool,
            rejected=rejected_lines(piece.source, piece.leaves, lines, lines_before, blank=self.with_items),
        )

    def _require_lists(self, labels: Labels, listed: Words) -> None:
        """Either all lines list the actions that could be chosen, or none does."""
        sizes, good = np.bincount(listed.lines, minlength=labels.reasons.n), labels.reasons.none()
        if not self.begun and good.any():
            self.begun, self.with_lists = True, bool(sizes[good][0] > 1)
        if self.with_lists:
            labels.reasons.give(sizes < 2, "the actions that could be chosen are not listed, as in the first round")
        else:
            labels.reasons.give(sizes > 1, "the actions that could be chosen are listed, unlike in the first round")


def _pool_of_lists(labels: Labels, good: Bools) -> tuple[Pool, Ints]:
    """The actions listed on each line, and the place of the one taken."""
    import polars

    assert labels.listed is not None
    mine = good[labels.listed.lines]
    lines, actions = labels.listed.lines[mine], labels.listed.actions[mine]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(lines, minlength=len(good))[good])])
    taken = np.flatnonzero(actions == labels.actions[lines]) - offsets[:-1]
    return Pool(offsets, polars.DataFrame(height=len(actions)), polars.Series("name", actions)), taken
