"""dsjson: decisions logged by Vowpal Wabbit's reinforcement learning service and Azure Personalizer, one per line.

    {"_label_cost": -1, "_label_probability": 0.8, "_label_Action": 2, "_labelIndex": 1, "Timestamp": "…", "a": [2, 1],
     "p": [0.8, 0.2], "c": {"user": {"age": 31}, "_multi": [{"item": {"price": 3}}, {"item": {"price": 5}}]}}

reward       minus ``_label_cost``, to which the service joins all observations in ``o``
action       the first of ``a``; ``p`` are the probabilities in the order of ``a``
features     numbers, text, booleans and lists below ``c``, named by their keys: ``user.age``. As in Vowpal Wabbit, keys
             that start with an underscore are not features, except ``_text``, which is split into words
names        of the actions: their ``_tag``, or their only feature if it is text that differs within each round
time         ``Timestamp``; ``EventId`` identifies duplicate rounds

Lines of the same layout (the same keys in the same order, and the same types) are read together: polars splits them at
their quotes, and everything but the values must equal the first of these lines, which ``json`` has parsed. All other
lines are read one by one with ``json``, which also finds the reason to reject a line.

The service drops a share ``pdrop`` of events before logging, independently of their content, so propensities are
unaffected. Rounds have no weights, so a ``pdrop`` that changes over a log causes a warning.
"""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seachange.engine import made_ahead
from seachange.errors import LogError, SeachangeWarning
from seachange.formats.action_lists import (
    NOT_UTF8,
    TAG,
    FeatureColumns,
    FeatureList,
    Features,
    LineBatch,
    Reasons,
    Spelled,
    Values,
    line_batches,
    split_rounds,
)
from seachange.formats.sources import TextLog
from seachange.log.bandit_log import BanditLog
from seachange.log.raw import PART_ROWS, Pool, RawLog, RawRounds
from seachange.outputs import written_whole
from seachange.protocols import Bools, Floats, Ints

if TYPE_CHECKING:
    import polars

COLUMNS = {"action": "a", "reward": "-_label_cost", "propensity": "p", "time": "Timestamp"}
NUMBERS = ("_label_cost", "_label_Cost", "_label_probability", "_label_Probability", "_label_Action", "_label_action",
           "_labelIndex", "pdrop")  # fmt: skip
FLAGS = ("_skipLearn", "_deferred", "DeferredAction")
TEXTS = ("Timestamp", "EventId")
LISTS = ("a", "p", "_p")
OBSERVATION = "RewardValue"
FEATURES, ITEMS, WORDS = "c", "_multi", "_text"
MAX_DEPTH = 64
LEAST_LINES = 32  # fewer lines of one layout are read one by one
MAX_RARE = 8  # layouts of fewer lines, after which all other lines of a batch are read one by one
# Writers round probabilities to single precision or to a few digits.
SUM_TOLERANCE = 1e-4
ROUNDING = 1e-7  # sums that are further off are normalized
STATED_TOLERANCE = 1e-5
TIME = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-5][0-9])(\.[0-9]+)?(Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?$"
YEARS_1_TO_9999 = -62_135_596_800_000_000, 253_402_300_799_999_999  # in microseconds since 1970
TOKEN = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null")
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
TOKENS = {"number": NUMBER, "boolean": "(?:true|false)", "null": "null"}

INVALID = "the line is not valid JSON: {error} at character {place}"
NOT_JSON = "the line is not valid JSON: {error}"
NOT_OBJECT = "the line is not a JSON object"
DUPLICATE_KEY = "an object has the key {key!r} twice"
TOO_DEEP = f"objects and lists are nested more than {MAX_DEPTH} deep"
NESTED_LISTS = "{name} is a list within a list"
TOO_LARGE = "a number is too large for a double"
SURROGATE = "a string has half of a surrogate pair"
NOT_NUMBER = "{key} is not a number"
NOT_FLAG = "{key} is neither true nor false"
NOT_TIME = "Timestamp is not a time such as 2026-01-31T23:59:59.5Z"
NOT_ITEMS = "c._multi is not a list of objects"
NO_COST = "_label_cost is missing"
NO_DECISION = "an observation without its decision"
NO_ITEMS = "the line has no list of actions c._multi"
SKIPPED = "marked as not to be learned from (_skipLearn)"
DEFERRED = "the decision was deferred and never activated (DeferredAction)"
BAD_DROP = "pdrop is not in [0, 1)"
TWO_SPELLINGS = "{key} is given in two spellings"
NO_ACTIONS = "the list of actions a is missing"
WRONG_LENGTH_A = "a and c._multi differ in length"
WRONG_LENGTH_P = "p and c._multi differ in length"
BAD_ACTION = "a must hold the numbers of the actions, counted from 1"
REPEATED_ACTION = "a has an action twice"
BAD_PROBABILITY = "p must hold probabilities"
BAD_SUM = "p does not sum to 1"
WRONG_ACTION = "_label_Action is not the first of a"
WRONG_INDEX = "_labelIndex is not the first of a"
NO_PROBABILITY = "there is no probability: p and _label_probability are missing"
BAD_PROPENSITY = "the probability of the chosen action is not in (0, 1]"
WRONG_PROBABILITY = "_label_probability is not the first of p"
DROPPED_WITHOUT_P = "with pdrop, the probability of the action cannot be known without p"
P_MISSING = "p is missing, but the first rounds have it"
SEVERAL_SLOTS = "several slots are filled at once (conditional contextual bandits or slates); a round has one action"
CONTINUOUS = "the action is a number on a scale (continuous actions)"
# Keys that mark other kinds of problems; below c, longer keys that start with one of these as well.
OTHER_PROBLEMS = {
    "_outcomes": SEVERAL_SLOTS,
    "_slot": SEVERAL_SLOTS,
    "_label_ca": CONTINUOUS,
    "_label": "the label is not at the top level of the line",
    "__aid": "the actions' features are stored elsewhere (deduplicated log)",
}


def looks_like(path: Path, head: bytes) -> bool:
    """Whether one of the first lines is a dsjson decision."""
    lines = [line for line in head.split(b"\n")[:50] if line.startswith(b"{")]
    return any(b'"c"' in line and (b'"_label_' in line or b'"_multi"' in line) for line in lines)


class DsjsonLog(TextLog):
    """Rounds of dsjson files."""

    format, columns, description = "dsjson", COLUMNS, "a dsjson file"

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds in file order, at most ``rows`` at a time; each call reads the files again."""
        rounds = _Rounds(self.named)
        for decoded in made_ahead(line_batches(self.blocks()), _decode):
            yield from split_rounds(rounds.rounds(decoded), rows)
        rounds.warn(self.name)


# From lines to values


@dataclass(eq=False)
class _Decoded:
    """The lines of a batch that are not blank, decoded; whatever is in rejected lines has no meaning."""

    batch: LineBatch
    lines: Ints  # place of each in the batch
    reasons: Reasons
    labels: polars.DataFrame  # the top-level keys that are used, one row per line
    n_items: Ints  # actions per line
    shared: Features
    items: Features


class _BadLineError(Exception):
    """A line that is rejected; the argument is the reason."""


def _decode(batch: LineBatch) -> _Decoded:
    """Decode a batch: lines of one layout together, the others one by one."""
    texts, broken = _texts(batch)
    kept = np.flatnonzero((texts.str.strip_chars(" \t\r") != "").to_numpy() | broken)
    found = _Found(texts.gather(kept))
    found.reasons.add(broken[kept], NOT_UTF8)
    sound = ~broken[kept]
    # An escaped quote is not the end of a string, and control characters are not allowed within one.
    plain = sound & ~found.texts.str.contains('\\"', literal=True).to_numpy()
    if np.count_nonzero(np.frombuffer(batch.text, np.uint8) < ord(" ")) > len(texts) - 1:
        plain &= ~found.texts.str.contains("[\\x00-\\x1f]").to_numpy()
    left = found.read_layouts(np.flatnonzero(plain))
    left = np.sort(np.concatenate([left, np.flatnonzero(sound & ~plain)]))
    for k, text in zip(left.tolist(), found.texts.gather(left).to_list(), strict=True):
        found.read_line(k, text)
    return _Decoded(batch, kept, found.reasons, *found.joined())


def _texts(batch: LineBatch) -> tuple[polars.Series, Bools]:
    """The lines of a batch, and which of them are not UTF-8; those are empty."""
    import polars

    try:
        texts = polars.Series([batch.text.decode()]).str.split("\n").explode()
        return texts, np.zeros(len(texts), bool)
    except UnicodeDecodeError:
        decoded = [_decoded(line) for line in batch.lines]
        texts = polars.Series(decoded, dtype=polars.String)
        return texts.fill_null(""), texts.is_null().to_numpy()


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


class _Found:
    """The values of a batch, some lines after another."""

    def __init__(self, texts: polars.Series) -> None:
        self.texts, n = texts, len(texts)
        self.escapes = bool(texts.str.contains("\\", literal=True).any())
        self.reasons = Reasons(n)
        self.n_items = np.zeros(n, np.int64)
        self.labels: list[polars.DataFrame] = []
        self.rows: list[list[Any]] = []  # labels of lines that were read one by one
        self.shared: list[Features] = []
        self.items: list[tuple[Features, Ints, Ints]] = []  # by line and place in that line
        self.shared_list, self.item_list = FeatureList(), FeatureList()
        self.listed: list[tuple[int, int]] = []

    def read_layouts(self, lines: Ints) -> Ints:
        """Read the lines whose layout many others have; the lines that are left."""
        texts = self.texts if len(lines) == len(self.texts) else self.texts.gather(lines)
        pieces = texts.str.split('"')
        n_pieces, left, n_rare = pieces.list.len().to_numpy(), [np.zeros(0, np.int64)], 0
        for n in np.unique(n_pieces):
            group = np.flatnonzero(n_pieces == n)
            while len(group) >= LEAST_LINES and n_rare < MAX_RARE:
                matched = np.zeros(len(group), bool)
                if (layout := _layout_of(pieces[int(group[0])].to_list())) is not None:
                    mine = pieces if len(group) == len(pieces) else pieces.gather(group)
                    matched = self._read_layout(layout, lines[group], mine.explode())
                n_rare += matched.sum() < LEAST_LINES
                left.append(lines[group[:1][~matched[:1]]])
                group = group[1:][~matched[1:]]
            left.append(lines[group])
        return np.concatenate(left)

    def _read_layout(self, layout: _Layout, lines: Ints, pieces: polars.Series) -> Bools:
        """Read the lines that have a layout; which of them have it."""
        cells = _Cells(layout, lines, pieces, self.escapes)
        labels = cells.labels()
        shared = {key: cells.values(leaves) for key, leaves in layout.shared.items()}
        items = {key: cells.values([leaf for _, leaf in leaves]) for key, leaves in layout.items.items()}
        cells.matched &= ~labels["DeferredAction"].fill_null(False).to_numpy()  # only o says if it was activated
        matched = cells.matched
        mine, n_items = lines[matched], layout.n_items
        self.labels.append(labels.filter(matched))
        self.n_items[mine] = n_items
        features: Features = {}
        for (name, kind, in_list), each in shared.items():
            leaves = layout.shared[name, kind, in_list]
            rows = np.tile(mine, len(leaves))
            features.setdefault(name, []).append(cells.piece(name, each, rows, in_list, leaves))
        self.shared.append(features)
        features = {}
        for (name, kind, in_list), each in items.items():
            leaves = [leaf for _, leaf in layout.items[name, kind, in_list]]
            places = [place for place, _ in layout.items[name, kind, in_list]]
            rows = (np.array(places)[:, None] + n_items * np.arange(len(mine))).ravel()
            features.setdefault(name, []).append(cells.piece(name, each, rows, in_list, leaves))
        self.items.append((features, np.repeat(mine, n_items), np.tile(np.arange(n_items), len(mine))))
        return matched

    def read_line(self, k: int, text: str) -> None:
        """Read a line, or find out why it is not a round."""
        try:
            document = _document(text)
            shared, items = _features_of(document)
            labels = _line_labels(document)
        except _BadLineError as error:
            self.reasons.texts.setdefault(k, str(error))
            return
        self.rows.append([k, *labels.values()])
        self.n_items[k] = len(items)
        self.shared_list.add(k, shared)
        for place, item in enumerate(items):
            self.item_list.add(len(self.listed), item)
            self.listed.append((k, place))

    def joined(self) -> tuple[polars.DataFrame, Ints, Features, Features]:
        """Labels of all lines, their numbers of actions, features of the lines, and of their actions."""
        import polars

        schema = {"line": polars.Int64(), **_label_dtypes()}
        columns = zip(*self.rows, strict=True) if self.rows else [[]] * len(schema)
        rows = {name: polars.Series(list(each), dtype=schema[name]) for name, each in zip(schema, columns, strict=True)}
        frames = [*self.labels, polars.DataFrame(rows)]
        labels = polars.concat([frame for frame in frames if len(frame)] or frames)
        if len(labels) < len(self.texts) or not labels["line"].is_sorted():
            every = polars.DataFrame({"line": np.arange(len(self.texts))})
            labels = every.join(labels, on="line", how="left", maintain_order="left")
        listed = np.array(self.listed, np.int64).reshape(-1, 2)
        offsets = np.cumsum(self.n_items) - self.n_items
        shared: Features = {}
        items: Features = {}
        for features in (*self.shared, self.shared_list.features()):
            for name, values in features.items():
                shared.setdefault(name, []).extend(each for each in values if len(each.rows))
        for features, lines, places in (*self.items, (self.item_list.features(), listed[:, 0], listed[:, 1])):
            rows = offsets[lines] + places
            for name, values in features.items():
                moved = [each._replace(rows=rows[each.rows]) for each in values if len(each.rows)]
                items.setdefault(name, []).extend(moved)
        return labels, self.n_items, _in_order(shared), _in_order(items)


def _in_order(features: Features) -> Features:
    """Features in the order in which they first appear."""
    first = {name: min(int(each.rows.min()) for each in values) for name, values in features.items() if values}
    return {name: features[name] for name in sorted(first, key=lambda name: first[name])}


class _Leaf(NamedTuple):
    """Where a value is in the lines of a layout."""

    piece: int  # of the line, split at its quotes: odd ones are strings
    place: int  # among the numbers, booleans and nulls of the piece
    kind: str


class _Slot(NamedTuple):
    """A piece between strings that has values in it, separated by commas."""

    text: str
    prefix: str
    separator: str
    suffix: str
    tokens: list[str]
    kinds: list[str]

    @property
    def pattern(self) -> str:
        """A regular expression of such pieces."""
        prefix, separator, suffix = (
            "".join(f"\\x{ord(letter):02x}" for letter in each) for each in (self.prefix, self.separator, self.suffix)
        )
        return f"^{prefix}{separator.join(TOKENS[kind] for kind in self.kinds)}{suffix}$"


@dataclass(eq=False)
class _Layout:
    """Keys, structure and types of lines."""

    pieces: list[str]
    strings: list[int]  # pieces that are values
    slots: dict[int, _Slot]
    labels: dict[str, Any]  # a leaf or a list of leaves
    shared: dict[tuple[str, str, bool], list[_Leaf]]
    items: dict[tuple[str, str, bool], list[tuple[int, _Leaf]]]  # with the place of the action
    n_items: int


def _layout_of(pieces: list[str]) -> _Layout | None:
    """The layout of a line that is split at its quotes; None if it must be read by itself."""
    leaves: list[_Leaf | None] = []
    strings, slots, text = [], {}, ""
    for j, piece in enumerate(pieces):
        if j % 2 and j + 1 < len(pieces) and pieces[j + 1].lstrip().startswith(":"):
            text += f'"{piece}"'
        elif j % 2:
            if "\\" in piece and _unescaped(piece) is None:
                return None
            strings.append(j)
            text += f" {len(leaves)} "
            leaves.append(_Leaf(j, 0, "text"))
        elif tokens := TOKEN.findall(piece):
            between = TOKEN.split(piece)
            kinds = [{"t": "boolean", "f": "boolean", "n": "null"}.get(token[0], "number") for token in tokens]
            slots[j] = _Slot(piece, between[0], between[1] if len(tokens) > 1 else ",", between[-1], tokens, kinds)
            if re.fullmatch(slots[j].pattern, piece) is None or slots[j].separator.strip(" ") != ",":
                return None
            numbers = [f" {len(leaves) + t} " for t in range(len(tokens))]
            text += between[0] + slots[j].separator.join(numbers) + between[-1]
            leaves += [None if kind == "null" else _Leaf(j, t, kind) for t, kind in enumerate(kinds)]
        else:
            text += piece
    try:
        document = _document(text, leaves)
        shared, items = _features_of(document)
        labels: dict[str, Any] = {key: _leaf_of(document.get(key), "number") for key in NUMBERS}
        labels |= {key: _leaf_of(document.get(key), "boolean") for key in FLAGS}
        labels |= {key: _leaf_of(document.get(key), "text") for key in TEXTS}
        labels |= {key: [_leaf_of(each, "number") for each in _as_list(document.get(key))] for key in LISTS}
    except _BadLineError:
        return None
    found = _Layout(pieces, strings, slots, labels, {}, {}, len(items))
    for name, leaf, in_list in shared:
        found.shared.setdefault((name, leaf.kind, in_list), []).append(leaf)
    for place, item in enumerate(items):
        for name, leaf, in_list in item:
            found.items.setdefault((name, leaf.kind, in_list), []).append((place, leaf))
    return found


def _leaf_of(value: Any, kind: str) -> _Leaf | None:
    if value is not None and (not isinstance(value, _Leaf) or value.kind != kind):
        raise _BadLineError(NOT_NUMBER)
    return value


class _Cells:
    """The values of lines, and which of the lines have a layout; of the others, cells have no meaning."""

    def __init__(self, layout: _Layout, lines: Ints, pieces: polars.Series, escapes: bool) -> None:
        import polars

        width = len(layout.pieces)
        self.layout, self.n = layout, len(lines)
        # One call of polars for all columns: a call for each takes longer than its work.
        flat, every = pieces.to_frame("piece"), [polars.col("piece").gather_every(width, j) for j in range(width)]
        same = flat.select((every[j] == text).all().alias(str(j)) for j, text in enumerate(layout.pieces)).row(0)
        varying = [j for j in range(width) if not same[j]]
        frame = flat.select(every[j].alias(str(j)) for j in varying)
        self.matched: Bools = np.ones(self.n, bool)
        for j in varying:
            if j not in layout.slots and j not in layout.strings:
                self.matched &= (frame[str(j)] == layout.pieces[j]).to_numpy()
        slots = {str(j): layout.slots[j] for j in varying if j in layout.slots}
        fits = frame.select(polars.col(name).str.contains(slot.pattern) for name, slot in slots.items())
        cells: list[polars.Expr] = [polars.col(str(j)) for j in varying if j in layout.strings]
        for (name, slot), fit in zip(slots.items(), fits, strict=True):
            cell = polars.col(name)
            if not fit.all():
                self.matched &= fit.to_numpy()
                cell = polars.when(fit).then(cell).otherwise(polars.lit(slot.text))
            cell = cell.str.slice(len(slot.prefix)).str.strip_suffix(slot.suffix)
            cells.append((cell.str.split(slot.separator) if len(slot.tokens) > 1 else cell).alias(name))
        self.frame = frame.select(polars.Series("line", lines), *cells)
        if escapes:
            texts = [name for j in layout.strings if (name := str(j)) in self.frame.columns]
            self.frame = self.frame.with_columns(self._unescaped(self.frame[name]) for name in texts)

    def _unescaped(self, column: polars.Series) -> polars.Series:
        """A column of strings without their escapes; lines with invalid ones do not match."""
        import polars

        known = {text: _unescaped(text) for text in column.unique() if "\\" in text}
        cells = [known.get(text, text) for text in column.to_list()]
        self.matched &= np.array([cell is not None for cell in cells])
        return polars.Series(column.name, cells, dtype=polars.String).fill_null("")

    def cell(self, leaf: _Leaf) -> polars.Expr:
        """The texts of a leaf."""
        import polars

        slot, name = self.layout.slots.get(leaf.piece), str(leaf.piece)
        if name in self.frame.columns:
            return polars.col(name).list.get(leaf.place) if slot and len(slot.tokens) > 1 else polars.col(name)
        # The same in all lines.
        return polars.lit(slot.tokens[leaf.place] if slot else _unescaped(self.layout.pieces[leaf.piece]))

    def cells(self, leaves: list[_Leaf]) -> polars.Expr:
        """The numbers of leaves as one list per line."""
        import polars

        slot, name = self.layout.slots.get(leaves[0].piece), str(leaves[0].piece)
        if slot and len(slot.tokens) == len(leaves) > 1 and name in self.frame.columns:  # all numbers of a piece
            return polars.col(name).cast(polars.List(polars.Float64))
        return polars.concat_list([self.cell(leaf).cast(polars.Float64) for leaf in leaves])

    def values(self, leaves: Sequence[_Leaf]) -> tuple[polars.Series, polars.Series]:
        """Values of leaves of one kind, one leaf after another, and their spelling; infinite ones do not match."""
        import polars

        columns = self.frame.select("line", *(self.cell(leaf).alias(str(k)) for k, leaf in enumerate(leaves)))
        texts, kind = polars.concat(columns.get_columns()[1:]), leaves[0].kind
        values = texts if kind == "text" else texts == "true" if kind == "boolean" else texts.cast(polars.Float64)
        if kind == "number":
            self._require_finite(values, len(leaves))
        return values, texts

    def _require_finite(self, values: polars.Series, n_leaves: int) -> None:
        if values.is_infinite().any():
            self.matched &= values.is_finite().to_numpy().reshape(n_leaves, -1).all(axis=0)

    def piece(self, name: str, values: Any, rows: Ints, in_list: bool, leaves: Sequence[_Leaf]) -> Values:
        """The ``values`` of leaves in the lines that match, which are those of ``rows``."""
        import polars

        (found, spelled), n = values, int(self.matched.sum())
        if n < self.n:
            kept = np.tile(self.matched, len(leaves))
            found, spelled = found.filter(kept), spelled.filter(kept)
        order = np.repeat([(leaf.piece << 32) + leaf.place for leaf in leaves], n)
        if name.split(".")[-1] == WORDS and found.dtype == polars.String:
            words = found.str.extract_all(r"[^ \t]+")
            lengths = words.list.len().to_numpy()
            words = words.explode(empty_as_null=False)
            return Values(np.repeat(rows, lengths), words, True, words, np.repeat(order, lengths))
        return Values(rows, found, in_list, spelled, order)

    def labels(self) -> polars.DataFrame:
        """The labels of all lines."""
        import polars

        columns = []
        for key, dtype in _label_dtypes().items():
            leaves = self.layout.labels[key]
            if key in LISTS and leaves:
                column = self.cells(leaves)
            elif key in FLAGS and leaves:
                column = self.cell(leaves) == "true"
            else:
                column = self.cell(leaves).cast(dtype) if leaves else polars.lit([] if key in LISTS else None, dtype)
            columns.append(column.alias(key))
        labels = self.frame.select("line", *columns)
        for key in NUMBERS:
            self._require_finite(labels[key], 1)
        for key in LISTS:
            if labels[key].explode().is_infinite().any():
                self.matched &= ~labels[key].list.eval(polars.element().is_infinite()).list.any().to_numpy()
        return labels


def _unescaped(text: str) -> str | None:
    """A string without its escapes; None if they are invalid."""
    try:
        return str(json.loads(f'"{text}"').encode().decode())
    except ValueError:
        return None


def _document(text: str, leaves: list[Any] | None = None) -> dict[str, Any]:
    """A line of JSON with numbers as they are spelled, or as the leaves that they number."""
    number = _number if leaves is None else lambda text: leaves[int(text)]
    try:
        document = json.loads(
            text, object_pairs_hook=_unique, parse_int=number, parse_float=number, parse_constant=_constant
        )
        if "\\u" in text:
            json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise _BadLineError(INVALID.format(error=error.msg, place=error.pos + 1)) from None
    except RecursionError:
        raise _BadLineError(TOO_DEEP) from None
    except UnicodeEncodeError:
        raise _BadLineError(SURROGATE) from None
    if not isinstance(document, dict):
        raise _BadLineError(NOT_OBJECT)
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _BadLineError(DUPLICATE_KEY.format(key=key))
    return found


def _number(text: str) -> Spelled:
    if abs(float(text)) == np.inf:
        raise _BadLineError(TOO_LARGE)
    return Spelled(text)


def _constant(text: str) -> None:
    raise _BadLineError(NOT_JSON.format(error=text))


def _features_of(document: dict[str, Any]) -> tuple[list[Any], list[list[Any]]]:
    """Features of a round, and of each of its actions."""
    for key in ("_outcomes", "_label_ca", "_label"):
        if document.get(key) is not None:
            raise _BadLineError(OTHER_PROBLEMS[key])
    if document.get(OBSERVATION) is not None and all(document.get(key) is None for key in NUMBERS[:2]):
        raise _BadLineError(NO_DECISION)
    context = document.get(FEATURES)
    context = context if isinstance(context, dict) else {}
    items = context.get(ITEMS)
    if items is None or items == []:
        raise _BadLineError(NO_ITEMS)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise _BadLineError(NOT_ITEMS)
    shared: list[Any] = []
    _leaves({key: value for key, value in context.items() if key != ITEMS}, "", 2, shared)
    of_items: list[list[Any]] = [[] for _ in items]
    for item, found in zip(items, of_items, strict=True):
        _leaves(item, "", 4, found)
    return shared, of_items


def _line_labels(document: dict[str, Any]) -> dict[str, Any]:
    labels: dict[str, Any] = {}
    for key in NUMBERS:
        labels[key] = _as_number(document.get(key), key)
    for key in FLAGS:
        labels[key] = document.get(key)
        if labels[key] not in (None, True, False):
            raise _BadLineError(NOT_FLAG.format(key=key))
    for key in TEXTS:
        value = document.get(key)
        labels[key] = str(value) if isinstance(value, str) else None
        if key == "Timestamp" and value is not None and type(value) is not str:
            raise _BadLineError(NOT_TIME)
    for key in LISTS:
        labels[key] = [_as_number(each, key) for each in _as_list(document.get(key))]
    if labels["DeferredAction"]:
        observed = [each for each in _as_list(document.get("o")) if isinstance(each, dict)]
        active = any(each.get("ActionTaken") is True or each.get("DeferredAction") is False for each in observed)
        labels["DeferredAction"] = not active
    return labels


def _as_list(value: Any) -> list[Any]:
    return [each for each in (value if isinstance(value, list) else [value]) if each is not None]


def _as_number(value: Any, key: str) -> float | None:
    if value is None or isinstance(value, Spelled | bool):
        return None if value is None else float(value)
    raise _BadLineError(NOT_NUMBER.format(key=key))


def _leaves(value: Any, name: str, depth: int, found: list[tuple[str, Any, bool]], in_list: bool = False) -> None:
    """Add the features below an object or a list: name, value, whether it is in a list."""
    if depth > MAX_DEPTH:
        raise _BadLineError(TOO_DEEP)
    if in_list:
        pairs = ((name, inner) for inner in value)
    else:
        pairs = ((f"{name}.{key}" if name else key, inner) for key, inner in value.items() if _is_feature(key, inner))
    for path, inner in pairs:
        kind = type(inner)
        if kind is dict:
            _leaves(inner, path, depth + 1, found)
        elif kind is list:
            if in_list:
                raise _BadLineError(NESTED_LISTS.format(name=path))
            _leaves(inner, path, depth + 1, found, in_list=True)
        elif kind is str and path.endswith(WORDS) and path[-len(WORDS) - 1 : -len(WORDS)] in ("", "."):
            found += [(path, word, True) for word in inner.replace("\t", " ").split(" ") if word]
        elif inner is not None:
            found.append((path, inner, in_list))


def _is_feature(key: str, value: Any) -> bool:
    if not key.startswith("_"):
        return True
    for start, reason in OTHER_PROBLEMS.items():
        if key.startswith(start) and value is not None:
            raise _BadLineError(reason)
    return key in (TAG, WORDS)


# From values to rounds


class _Rounds:
    """Checks labels and builds rounds, a batch after another."""

    def __init__(self, named: bool | None) -> None:
        self.columns = FeatureColumns(named, repeated=("number", "boolean", "text"))
        self.started = self.with_probs = self.timed = False
        self.least_dropped, self.most_dropped = np.inf, -np.inf

    def rounds(self, decoded: _Decoded) -> RawRounds:
        """The rounds of a batch, with columns and types as in the batches before."""
        import polars

        labels, reasons, n_items = decoded.labels, decoded.reasons, decoded.n_items
        cost, dropped = _check_flags(labels, reasons, n_items)
        actions, probs, with_probs = _check_lists(labels, reasons, n_items)
        propensity = _check_probabilities(labels, reasons, n_items, (actions, probs, with_probs, dropped))
        times = _times(labels["Timestamp"], reasons)
        good = reasons.good
        if not self.started and good.any():
            self.started, self.with_probs = True, bool(with_probs[good].any())
        self.timed |= bool(times.filter(good).is_not_null().any())
        if self.with_probs:
            reasons.add(~with_probs, P_MISSING)
        shared, items, names = self.columns.frames(decoded.shared, decoded.items, n_items, reasons)
        good = reasons.good
        if good.any():
            self.least_dropped = min(self.least_dropped, dropped[good].min())
            self.most_dropped = max(self.most_dropped, dropped[good].max())
        lines = decoded.batch.first + decoded.lines
        texts = decoded.batch.lines if reasons.texts else []
        return RawRounds(
            source=decoded.batch.source,
            lines=lines[good],
            features=shared,
            action=polars.Series("action", actions[good]),
            reward=polars.Series("reward", 0.0 - cost[good]),
            propensity=polars.Series("propensity", propensity[good]),
            time=times.filter(good).alias("time") if self.timed else None,
            event=labels["EventId"].filter(good),
            pool=Pool(
                np.concatenate([[0], np.cumsum(n_items[good])]),
                items,
                names,
                probs[np.repeat(good, n_items)] if self.with_probs else None,
            ),
            rejected=reasons.rejected(
                decoded.batch.source, lines, {k: texts[decoded.lines[k]].strip(b" \t\r") for k in reasons.texts}
            ),
        )

    def warn(self, source: str) -> None:
        """Warn of features that were left out, and of a changing share of dropped events."""
        self.columns.warn(source)
        if self.most_dropped > self.least_dropped:
            warnings.warn(
                f"the share of events dropped before {source!r} was written (pdrop) ranges from "
                f"{self.least_dropped:g} to {self.most_dropped:g}. Averages over this log give too much weight to "
                "times with few drops.",
                SeachangeWarning,
                stacklevel=3,
            )


def _either(labels: polars.DataFrame, keys: Sequence[str], reasons: Reasons) -> polars.Series:
    """A label that has two spellings."""
    one, other = (labels[key] for key in keys)
    reasons.add((one.is_not_null() & other.is_not_null()).to_numpy(), TWO_SPELLINGS.format(key=keys[0]))
    return one.zip_with(one.is_not_null(), other)


def _floats(labels: polars.Series) -> Floats:
    return labels.fill_null(np.nan).to_numpy()


def _check_flags(labels: polars.DataFrame, reasons: Reasons, n_items: Ints) -> tuple[Floats, Floats]:
    """The costs, and the shares of events dropped."""
    reasons.add(n_items == 0, NO_ITEMS)
    skipped, deferred, inactive = (labels[key].fill_null(False).to_numpy() for key in FLAGS)
    reasons.add(skipped, SKIPPED)
    reasons.add(deferred | inactive, DEFERRED)
    cost = _either(labels, NUMBERS[:2], reasons)
    reasons.add(cost.is_null().to_numpy(), NO_COST)
    dropped = labels["pdrop"].fill_null(0.0).to_numpy()
    reasons.add(~((dropped >= 0) & (dropped < 1)), BAD_DROP)
    return _floats(cost), dropped


def _check_lists(labels: polars.DataFrame, reasons: Reasons, n_items: Ints) -> tuple[Ints, Floats, Bools]:
    """The chosen action of every line, p in the order of its actions, and whether it has p."""
    order = labels["a"].fill_null([])
    both = (labels["p"].list.len() > 0) & (labels["_p"].list.len() > 0)
    reasons.add(both.fill_null(False).to_numpy(), TWO_SPELLINGS.format(key="p"))
    listed = labels["p"].zip_with((labels["p"].list.len() > 0).fill_null(False), labels["_p"]).fill_null([])
    n_order, n_listed = (each.list.len().to_numpy().astype(np.int64) for each in (order, listed))
    reasons.add(n_order == 0, NO_ACTIONS)
    reasons.add(n_order != n_items, WRONG_LENGTH_A)
    reasons.add((n_listed != n_items) & (n_listed > 0), WRONG_LENGTH_P)
    numbers, of = _exploded(order), np.repeat(np.arange(len(order)), n_order)
    whole = (numbers == np.floor(numbers)) & (numbers >= 1) & (numbers <= n_items[of])
    reasons.add_rounds(np.unique(of[~whole]), BAD_ACTION)
    values, of_value = _exploded(listed), np.repeat(np.arange(len(order)), n_listed)
    reasons.add_rounds(np.unique(of_value[~((values >= 0) & (values <= 1 + SUM_TOLERANCE))]), BAD_PROBABILITY)
    sums = np.bincount(of_value, values, len(order))
    with_probs = n_listed > 0
    reasons.add(with_probs & (np.abs(sums - 1) > SUM_TOLERANCE), BAD_SUM)
    good, offsets = reasons.good, np.cumsum(n_items) - n_items
    place = (offsets[of] + np.nan_to_num(numbers).astype(np.int64) - 1)[good[of]]
    line_of_item = np.repeat(np.arange(len(order)), n_items)
    hits = np.bincount(place, minlength=len(line_of_item))
    reasons.add_rounds(np.unique(line_of_item[(hits != 1) & good[line_of_item]]), REPEATED_ACTION)
    probs = np.full(len(line_of_item), np.nan)
    probs[place[with_probs[of[good[of]]]]] = values[good[of_value]]
    rounded = with_probs & (np.abs(sums - 1) > ROUNDING)
    probs /= np.where(rounded & good, sums, 1.0)[line_of_item]
    actions = np.zeros(len(order), np.int64)
    first = order.list.get(0, null_on_oob=True).fill_null(1.0).to_numpy()
    actions[good] = first[good].astype(np.int64) - 1
    return actions, probs, with_probs


def _exploded(lists: polars.Series) -> Floats:
    return lists.explode(empty_as_null=False, keep_nulls=False).to_numpy()


def _check_probabilities(labels: polars.DataFrame, reasons: Reasons, n_items: Ints, choices: Any) -> Floats:
    """The propensity of every line."""
    actions, probs, with_probs, dropped = choices
    stated_action, index = _floats(_either(labels, NUMBERS[4:6], reasons)), _floats(labels["_labelIndex"])
    reasons.add(~np.isnan(stated_action) & (stated_action != actions + 1), WRONG_ACTION)
    reasons.add(~np.isnan(index) & (index != actions), WRONG_INDEX)
    stated = _floats(_either(labels, NUMBERS[2:4], reasons))
    chosen = np.minimum(np.cumsum(n_items) - n_items + actions, max(len(probs) - 1, 0))
    propensity = np.where(with_probs, probs[chosen], stated) if len(probs) else stated
    reasons.add(np.isnan(stated) & ~with_probs, NO_PROBABILITY)
    reasons.add(~((propensity > 0) & (propensity <= 1)), BAD_PROPENSITY)
    # Some writers multiply by the probability that the event was logged.
    near = [np.abs(stated - wanted) <= STATED_TOLERANCE for wanted in (propensity, propensity * (1 - dropped))]
    reasons.add(~np.isnan(stated) & ~near[0] & ~near[1], WRONG_PROBABILITY)
    reasons.add(~with_probs & (dropped > 0), DROPPED_WITHOUT_P)
    return propensity


def _times(texts: polars.Series, reasons: Reasons) -> polars.Series:
    """Timestamps in UTC, cut to microseconds."""
    import polars

    groups = texts.str.extract_groups(TIME).struct.unnest()
    whole = groups["1"].str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="us", strict=False)
    micros = groups["2"].str.slice(1, 6).str.pad_end(6, "0").cast(polars.Int64).fill_null(0)
    sign = polars.Series(np.where((groups["3"].str.slice(0, 1) == "-").fill_null(False).to_numpy(), 1, -1))
    zone = groups["3"].set(groups["3"] == "Z", None)
    minutes = 60 * zone.str.slice(1, 2).cast(polars.Int64) + zone.str.slice(4, 2).cast(polars.Int64)
    moments = whole.cast(polars.Int64) + micros + sign * minutes.fill_null(0) * 60_000_000
    moments = moments.set(~moments.is_between(*YEARS_1_TO_9999), None)
    reasons.add((moments.is_null() & texts.is_not_null()).to_numpy(), NOT_TIME)
    return moments.cast(polars.Datetime("us"))


def _label_dtypes() -> dict[str, Any]:
    import polars

    dtypes: dict[str, Any] = dict.fromkeys(NUMBERS, polars.Float64)
    dtypes |= dict.fromkeys(FLAGS, polars.Boolean) | dict.fromkeys(TEXTS, polars.String)
    return dtypes | dict.fromkeys(LISTS, polars.List(polars.Float64))


# Writing

ROUNDS_AT_A_TIME = 1 << 14
NAME_FEATURE = "action.id"  # of actions that have a name and no features


def write_dsjson(log: BanditLog | RawLog, path: str | Path) -> int:
    """Write a log as dsjson, for ``vw --dsjson --cb_adf -d PATH``, and return the number of rounds written.

    Actions without features become ``{"action": {"id": NAME}}``. ``p`` is written if the whole logging distribution is
    known. Rejected lines of the source are left out.
    """
    actions = None if isinstance(log, BanditLog) else _action_names(log)
    parts = _raw_parts(log) if isinstance(log, BanditLog) else log.parts(ROUNDS_AT_A_TIME)
    written, warned = 0, False
    with written_whole(path) as beside, beside.open("wb") as file:
        for part in parts:
            if part.sequence is not None and not warned:
                warned = True
                warnings.warn("dsjson cannot store sequences; they are left out.", SeachangeWarning, stacklevel=2)
            if len(part):
                dsjson_frame(part, actions, first=written).write_ndjson(file)
                written += len(part)
    return written


def dsjson_frame(rounds: RawRounds, actions: Sequence[Any] | None = None, *, first: int = 0) -> polars.DataFrame:
    """A table with one line of dsjson per row; if rounds have no pool, all of them can choose any of ``actions``."""
    import polars

    _require_labels(rounds)
    actions = list(actions or ())
    pool, chosen = rounds.pool, rounds.action
    if pool is None:
        pool = _pool_of_all(len(rounds), actions)
        chosen = chosen.replace_strict(actions, list(range(len(actions))), return_dtype=polars.Int64)
    chosen = chosen.cast(polars.Int64)
    # Labels come before c, where Vowpal Wabbit expects them.
    frame = polars.DataFrame(
        {
            "_label_cost": 0.0 - rounds.reward.cast(polars.Float64).to_numpy(),  # in polars, 0 - 0 is -0
            "_label_probability": rounds.propensity,
            "_label_Action": chosen + 1,
            "_labelIndex": chosen,
        }
    )
    columns: list[polars.Series] = []
    if rounds.time is not None:
        columns.append(_timestamps(rounds.time).alias("Timestamp"))
    numbers = polars.Series("EventId", np.arange(first, first + len(rounds))).cast(polars.String)
    columns.append(numbers if rounds.event is None else rounds.event.fill_null(numbers).alias("EventId"))
    order = _chosen_first(pool, chosen.to_numpy())
    places = order - np.repeat(pool.offsets[:-1], pool.lengths)
    columns.append(_lists(polars.Series("a", places + 1), pool))
    if pool.probs is not None:
        columns.append(_lists(polars.Series("p", pool.probs[order]), pool))
    items = pool.features
    if pool.names is not None:
        items = items.with_columns(pool.names.cast(polars.String).alias(TAG if items.width else NAME_FEATURE))
    if items.width == 0:
        items = polars.DataFrame({"_": polars.repeat(None, items.height, eager=True)})  # not a feature
    multi = _lists(items.select(_nested(items.columns)).to_struct(ITEMS), pool)
    shared = rounds.features.with_columns(multi)
    return frame.with_columns(columns).with_columns(shared.select(_nested(shared.columns)).to_struct(FEATURES))


def _require_labels(rounds: RawRounds) -> None:
    import polars

    if rounds.propensity is None:
        raise LogError(
            "dsjson needs the propensity of every round, and this log has none. Estimate them: "
            "log.with_propensities(sc.estimate_propensities(log), estimated=True)."
        )
    for name, column in (("reward", rounds.reward), ("propensity", rounds.propensity)):
        missing = int(np.isnan(column.cast(polars.Float64).to_numpy()).sum())
        if missing:
            raise LogError(f"dsjson needs a {name} in every round; {missing} of {len(rounds)} rounds have none.")


def _timestamps(times: polars.Series) -> polars.Series:
    """Times as text in UTC; numbers are seconds since 1970."""
    import polars

    if times.dtype.is_numeric():
        times = (times * 1_000_000).round().cast(polars.Int64).cast(polars.Datetime("us"))
    return times.cast(polars.Datetime("us")).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")


def _chosen_first(pool: Pool, chosen: Ints) -> Ints:
    """Rows of the pool with the chosen action of each round first."""
    order = np.arange(pool.offsets[-1])
    first, taken = pool.offsets[:-1], pool.offsets[:-1] + chosen
    order[first], order[taken] = taken, first
    return order


def _lists(values: polars.Series, pool: Pool) -> polars.Series:
    """Rows of the pool as one list per round."""
    import polars

    rounds = np.repeat(np.arange(len(pool.lengths)), pool.lengths)
    frame = polars.DataFrame({"round": rounds, values.name: values})
    return frame.group_by("round", maintain_order=True).agg(values.name)[values.name]


def _nested(names: Sequence[str], prefix: str = "") -> list[polars.Expr]:
    """Columns with dots in their names as structs: user.age as age in user."""
    import polars

    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.removeprefix(prefix).split(".")[0], []).append(name)
    fields: list[polars.Expr] = []
    for key, members in groups.items():
        if prefix + key in members or not key:  # a value cannot contain others
            fields += [polars.col(name).alias(name.removeprefix(prefix)) for name in members]
        else:
            fields.append(polars.struct(_nested(members, f"{prefix}{key}.")).alias(key))
    return fields


def _action_names(raw: RawLog) -> list[Any] | None:
    """All actions of a log without pools."""
    names: set[Any] = set()
    for part in raw.parts():
        if part.pool is not None:
            return None
        names.update(part.action.unique().drop_nulls())
    return sorted(names, key=lambda name: (str(type(name)), name))


def _pool_of_all(n: int, actions: Sequence[Any]) -> Pool:
    import polars

    offsets = len(actions) * np.arange(n + 1)
    names = polars.Series([str(name) for name in actions] * n, dtype=polars.String)
    return Pool(offsets=offsets, features=polars.DataFrame(height=int(offsets[-1])), names=names)


def _raw_parts(log: BanditLog) -> Iterator[RawRounds]:
    """A log as rounds with one pool each."""
    import polars

    propensities = log.propensities if log.propensities_known else None
    names = log.context_names or [str(j) for j in range(log.joint.n_features)]
    for rounds in log.chunk_slices(ROUNDS_AT_A_TIME):
        part = log[rounds]
        mask = np.broadcast_to(part.arrays.mask, (len(part), log.n_actions))
        rows, actions = np.nonzero(mask)
        shared, own = polars.DataFrame(height=len(part)), polars.DataFrame(height=len(rows))
        if log.joint.kind == "shared":
            shared = polars.DataFrame(part.contexts, schema=[f"context.{name}" for name in names], orient="row")
        elif log.joint.kind == "per action":
            own = polars.DataFrame(
                part.contexts[rows, actions], schema=[f"action.{name}" for name in names], orient="row"
            )
        places = np.cumsum(mask, axis=1) - 1
        yield RawRounds(
            source="log",
            lines=np.arange(rounds.start, rounds.stop) + 1,
            features=shared,
            action=polars.Series(places[np.arange(len(part)), part.actions]),
            reward=polars.Series(part.rewards),
            propensity=None if propensities is None else polars.Series(propensities[rounds]),
            time=None if part.times is None else polars.Series(part.times),
            sequence=None if part.sequences is None else polars.Series(part.sequences),
            pool=Pool(
                offsets=np.concatenate([[0], np.cumsum(mask.sum(axis=1))]),
                features=own,
                names=polars.Series(np.asarray(log.action_names)[actions]),
                probs=None if part.logging_probs is None else part.logging_probs[rows, actions],
            ),
        )
