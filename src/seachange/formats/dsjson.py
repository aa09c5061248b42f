"""dsjson: decisions logged by Vowpal Wabbit's reinforcement learning service and Azure Personalizer, one per line.

    {"_label_cost": -1, "_label_probability": 0.8, "_label_Action": 2, "_labelIndex": 1, "Timestamp": "…", "a": [2, 1],
     "p": [0.8, 0.2], "c": {"user": {"age": 31}, "_multi": [{"item": {"price": 3}}, {"item": {"price": 5}}]}}

reward       minus ``_label_cost``, to which the service joins all observations in ``o``
action       the first of ``a``; ``p`` are the probabilities in the order of ``a``
features     numbers, text, booleans and lists below ``c``, named by their keys: ``user.age``. As in Vowpal Wabbit, keys
             that start with an underscore are not features, except ``_text``, which is split into words
names        of the actions: their ``_tag``, or their only feature if it is text that differs within each round
time         ``Timestamp``; ``EventId`` identifies duplicate rounds

Polars reads the lines whose keys are known from earlier rounds. All other lines are parsed one by one: those with new
or rare keys, with values that do not fit their columns, with lists of objects, and those that are rejected.

The service drops a share ``pdrop`` of events before logging, independently of their content, so propensities are
unaffected. Rounds have no weights, so a ``pdrop`` that changes over a log causes a warning.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars

from seachange.engine import made_ahead
from seachange.errors import LogError, warn
from seachange.formats.action_lists import (
    MAX_COLUMNS,
    TAG,
    FeatureColumns,
    FeatureList,
    Features,
    Kind,
    LineBatch,
    Reasons,
    Shape,
    Values,
    line_batches,
)
from seachange.formats.json_lines import LESSONS, RARE, object_of, read_records
from seachange.formats.sources import TextLog
from seachange.formats.value_types import Room
from seachange.formats.value_types import Shape as JsonShape
from seachange.log.bandit_log import BanditLog
from seachange.log.raw import PART_ROWS, Pool, RawRounds, raw_rounds, text_of
from seachange.outputs import written_whole
from seachange.protocols import Bools, Floats, Ints

COLUMNS = {"action": "a", "reward": "-_label_cost", "propensity": "p", "time": "Timestamp"}
NUMBERS = ("_label_cost", "_label_Cost", "_label_probability", "_label_Probability", "_label_Action", "_label_action",
           "_labelIndex", "pdrop")  # fmt: skip
FLAGS = ("_skipLearn", "_deferred", "DeferredAction")
TEXTS = ("Timestamp", "EventId")
LISTS = ("a", "p", "_p")
OBSERVATION = "RewardValue"
FEATURES, ITEMS, WORDS = "c", "_multi", "_text"
SAMPLE = 256  # lines that teach polars the keys of a log
MAX_KEYS = 4 * MAX_COLUMNS  # that polars reads; lines with others are parsed one by one
# Writers round probabilities to single precision or to a few digits.
SUM_TOLERANCE = 1e-4
ROUNDING = 1e-7  # sums that are further off are normalized
STATED_TOLERANCE = 1e-5
TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?$"
WITHOUT_ZONE = r"^(.{19}(\.[0-9]+)?)$"
YEARS_1_TO_9999 = -62_135_596_800_000_000, 253_402_300_799_999_999  # in microseconds since 1970
NESTED_LISTS = "{name} is a list within a list"
NOT_NUMBER = "{key} is not a number"
NOT_FLAG = "{key} is neither true nor false"
NOT_TIME = "Timestamp is not a time such as 2026-01-31T23:59:59.5Z"
NO_ITEMS = "the line has no list of actions c._multi"
TWO_SPELLINGS = "{key} is given in two spellings"
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
        batches, rounds = line_batches(self.blocks()), _Rounds(self.named)
        if (first := next(batches, None)) is None:
            return
        rounds.study(first)
        # The first batch decides the columns, and these decide how later batches are read.
        yield from rounds.rounds(_decoded(first, rounds.schema.dtypes)).in_parts(rows)
        for decoded in made_ahead(batches, lambda batch: _decoded(batch, rounds.schema.dtypes)):
            yield from rounds.rounds(decoded).in_parts(rows)
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
    documents: dict[int, dict[str, Any]]  # some of the lines that were parsed one by one


def _decoded(batch: LineBatch, dtypes: Mapping[str, Any], labels_only: bool = False) -> _Decoded:
    """Decode a batch: with polars where ``dtypes`` has all keys of a line, otherwise line by line."""
    fast, frame = read_records(batch.text, dtypes, strict=True)
    if len(fast):
        decided = ~frame["DeferredAction"].fill_null(False)  # otherwise o says if it was activated
        fast, frame = fast[decided.to_numpy()], frame.filter(decided)
    slow = np.setdiff1d(np.arange(batch.n_lines), fast, assume_unique=True)
    texts = batch.lines if len(slow) else []
    slow = np.array([i for i in slow if texts[i].strip(b" \t\r")], np.int64)
    lines = np.sort(np.concatenate([fast, slow]))
    reasons, n_items = Reasons(len(lines)), np.zeros(len(lines), np.int64)
    shared, items = FeatureList(), FeatureList()
    item_lines: list[int] = []
    item_places: list[int] = []
    rows: list[dict[str, Any]] = []
    documents: dict[int, dict[str, Any]] = {}
    for k in np.searchsorted(lines, slow).tolist():
        try:
            document = object_of(texts[lines[k]], constants={})
            features, of_items = _features_of(document)
            rows.append({"line": k, **_line_labels(document)})
        except ValueError as error:
            reasons.texts[k] = str(error)
            continue
        n_items[k] = len(of_items)
        if len(documents) < LESSONS:
            documents[k] = document
        if labels_only:
            continue
        shared.add(k, features)
        for place, item in enumerate(of_items):
            items.add(len(item_lines), item)
            item_lines.append(k)
            item_places.append(place)
    schema = {"line": polars.Int64(), **_label_dtypes()}
    labels = polars.DataFrame({key: polars.Series([row[key] for row in rows], dtype=schema[key]) for key in schema})
    places = np.searchsorted(lines, fast)
    pool: polars.Series | None = None
    if len(fast):
        context = frame[FEATURES].struct.unnest()
        n_items[places] = context[ITEMS].list.len().fill_null(0).to_numpy()
        pool = context[ITEMS].explode(empty_as_null=False, keep_nulls=False)
        labels = polars.concat([frame.select(polars.Series("line", places), *_label_dtypes()), labels])
    offsets = np.cumsum(n_items) - n_items
    slow_rows = offsets[np.array(item_lines, np.int64)] + np.array(item_places, np.int64)
    shared_features, item_features = shared.features(), items.features()
    for name, each in item_features.items():
        item_features[name] = [Values(slow_rows[rows], values) for rows, values in each]
    if pool is not None:
        counts = n_items[places]
        rows_of_items = np.repeat(offsets[places] - np.cumsum(counts) + counts, counts) + np.arange(len(pool))
        _add_columns(shared_features, context.drop(ITEMS), places)
        _add_columns(item_features, pool.struct.unnest(), rows_of_items)
    if len(labels) < len(lines) or not labels["line"].is_sorted():
        every = polars.DataFrame({"line": np.arange(len(lines))})
        labels = every.join(labels, on="line", how="left", maintain_order="left")
    shared_features, item_features = _in_order(shared_features), _in_order(item_features)
    return _Decoded(batch, lines, reasons, labels, n_items, shared_features, item_features, documents)


def _add_columns(features: Features, frame: polars.DataFrame, rows: Ints, prefix: str = "") -> None:
    """Add the columns of a table that are features, nested ones included."""
    for column in frame:
        name = prefix + column.name
        if not _may_be_feature(column.name):
            continue
        if isinstance(column.dtype, polars.Struct):
            if column.dtype.fields:
                _add_columns(features, column.struct.unnest(), rows, _prefix(name))
            continue
        if _is_words(name) and column.dtype == polars.String:
            column = column.str.extract_all(r"[^ \t]+")
        there = column.is_not_null()
        if isinstance(column.dtype, polars.List):
            there &= column.list.len() > 0
        if there.any():
            features.setdefault(name, []).append(Values(rows[there.to_numpy()], column.filter(there)))


def _in_order(features: Features) -> Features:
    """Features in the order in which they first appear."""
    first = {name: min(int(each.rows.min()) for each in values) for name, values in features.items()}
    return {name: features[name] for name in sorted(first, key=lambda name: first[name])}


class _Schema:
    """The keys that polars reads and their types, learned from lines that are rounds.

    The types of features are those of their columns, so polars converts a value as ``FeatureColumns`` would. Until the
    first batch has decided the columns, these lines do.
    """

    def __init__(self) -> None:
        self.dtypes: dict[str, Any] = {}
        self._lines = JsonShape(Room(MAX_KEYS))

    def learn(self, documents: Iterable[dict[str, Any]], columns: FeatureColumns) -> None:
        """Add the keys of some lines."""
        for document in documents:
            self._lines.with_value(document)
        context = self._lines.fields.get(FEATURES, JsonShape())
        if (items := context.fields.get(ITEMS, JsonShape()).entries) is None:
            return
        shared, own = (_KeyTypes(each.shapes if columns.started else None) for each in (columns.shared, columns.items))
        inner = shared.fields(context, "") | {ITEMS: polars.List(polars.Struct(own.fields(items, "")))}
        others = _KeyTypes(None).fields(self._lines, None)
        self.dtypes = others | _label_dtypes() | {FEATURES: polars.Struct(inner)}


class _KeyTypes:
    """Types that polars can read below one object; ``known`` are those of columns, if they are decided."""

    def __init__(self, known: Mapping[str, Shape] | None) -> None:
        self._known, self._names = known, set[str]()

    def fields(self, shape: JsonShape, prefix: str | None) -> dict[str, Any]:
        """The types of the fields of an object; without a prefix they are not features. Rare keys are left out."""
        least, found = shape.counts.get("object", 0) / RARE, {}
        for key, each in shape.fields.items():
            name = None if prefix is None or not _may_be_feature(key) else prefix + key
            if not 0 < sum(each.counts.values()) < least and (dtype := self._dtype(each, name)) is not None:
                found[key] = dtype
        return found

    def _dtype(self, shape: JsonShape, name: str | None) -> Any:
        """The type of a key; None if polars cannot read all of its values."""
        kinds, entries = {*shape.counts}, {*shape.entries.counts} if shape.entries else set()
        if not kinds:
            return polars.Null()
        if kinds == {"object"}:
            return polars.Struct(self.fields(shape, None if name is None else _prefix(name)))
        if name is None and kinds == {"list"}:
            inner = self._dtype(shape.entries or JsonShape(), None)
            return None if inner is None else polars.List(inner)
        is_list, scalars = bool(entries), (kinds | entries) - {"list"}
        if "object" in scalars or "list" in entries or name in self._names:
            return None
        if name is not None:
            self._names.add(name)  # user.age may also be a key that has a dot
        if not scalars:
            return polars.List(polars.Null())  # all lists are empty
        if _is_words(name):
            return None if is_list else polars.String()
        if self._known is not None and name is not None:
            return self._known[name].dtype if name in self._known else None
        kind: Kind = "text" if "text" in scalars else "boolean" if scalars == {"boolean"} else "number"
        return Shape(kind, is_list).dtype


def _features_of(document: dict[str, Any]) -> tuple[list[Any], list[list[Any]]]:
    """Features of a round, and of each of its actions; a ValueError has the reason to reject the line."""
    for key in ("_outcomes", "_label_ca", "_label"):
        if document.get(key) is not None:
            raise ValueError(OTHER_PROBLEMS[key])
    if document.get(OBSERVATION) is not None and all(document.get(key) is None for key in NUMBERS[:2]):
        raise ValueError("an observation without its decision")
    context = document.get(FEATURES)
    context = context if isinstance(context, dict) else {}
    items = context.get(ITEMS)
    if items is None or items == []:
        raise ValueError(NO_ITEMS)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError("c._multi is not a list of objects")
    shared: list[Any] = []
    _leaves({key: value for key, value in context.items() if key != ITEMS}, "", shared)
    of_items: list[list[Any]] = [[] for _ in items]
    for item, found in zip(items, of_items, strict=True):
        _leaves(item, "", found)
    return shared, of_items


def _line_labels(document: dict[str, Any]) -> dict[str, Any]:
    labels: dict[str, Any] = {}
    for key in NUMBERS:
        labels[key] = _as_number(document.get(key), key)
    for key in FLAGS:
        labels[key] = document.get(key)
        if labels[key] not in (None, True, False):
            raise ValueError(NOT_FLAG.format(key=key))
    for key in TEXTS:
        value = document.get(key)
        labels[key] = text_of(value) if isinstance(value, str | int | float) else None
        if key == "Timestamp" and value is not None and not isinstance(value, str):
            raise ValueError(NOT_TIME)
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
    if not isinstance(value, int | float | None):
        raise ValueError(NOT_NUMBER.format(key=key))
    return None if value is None else float(value)


def _leaves(value: Any, name: str, found: list[tuple[str, Any, bool]], in_list: bool = False) -> None:
    """Add the features below an object or a list: name, value, whether it is in a list."""
    if in_list:
        pairs = ((name, inner) for inner in value)
    else:
        prefix = _prefix(name)
        pairs = ((prefix + key, inner) for key, inner in value.items() if _is_feature(key, inner))
    for path, inner in pairs:
        kind = type(inner)
        if kind is dict:
            _leaves(inner, path, found)
        elif kind is list:
            if in_list:
                raise ValueError(NESTED_LISTS.format(name=path))
            _leaves(inner, path, found, in_list=True)
        elif inner is not None and path.endswith(WORDS) and _is_words(path):
            found += [(path, word, True) for word in text_of(inner).replace("\t", " ").split(" ") if word]
        elif inner is not None:
            found.append((path, inner, in_list))


def _is_feature(key: str, value: Any) -> bool:
    if not key.startswith("_"):
        return True
    for start, reason in OTHER_PROBLEMS.items():
        if key.startswith(start) and value is not None:
            raise ValueError(reason)
    return _may_be_feature(key)


def _may_be_feature(key: str) -> bool:
    return not key.startswith("_") or key in (TAG, WORDS)


def _prefix(name: str) -> str:
    return f"{name}." if name else ""


def _is_words(name: str | None) -> bool:
    return name is not None and name.split(".")[-1] == WORDS


# From values to rounds


class _Rounds:
    """Checks labels and builds rounds, one batch after another."""

    def __init__(self, named: bool | None) -> None:
        self.columns = FeatureColumns(named, repeated=("number", "boolean", "text"))
        self.schema = _Schema()
        self.with_probs = self.timed = False
        self.least_dropped, self.most_dropped = np.inf, -np.inf

    def study(self, batch: LineBatch) -> None:
        """Learn the keys of the first lines."""
        lines = batch.lines[:SAMPLE]
        sample = _decoded(batch._replace(n_lines=len(lines), text=b"\n".join(lines)), {}, labels_only=True)
        _checked(sample)
        self._learn(sample)

    def _learn(self, decoded: _Decoded) -> None:
        good = decoded.reasons.good
        self.schema.learn((each for k, each in decoded.documents.items() if good[k]), self.columns)

    def rounds(self, decoded: _Decoded) -> RawRounds:
        """The rounds of a batch, with columns and types as in the batches before."""
        labels, reasons, n_items = decoded.labels, decoded.reasons, decoded.n_items
        cost, dropped, actions, probs, with_probs, propensity, times = _checked(decoded)
        good, started = reasons.good, self.columns.started
        if not started and good.any():
            self.with_probs = bool(with_probs[good].any())
        self.timed |= bool(times.filter(good).is_not_null().any())
        if self.with_probs:
            reasons.add(~with_probs, "p is missing, but the first rounds have it")
        shared, items, names = self.columns.frames(decoded.shared, decoded.items, n_items, reasons)
        good = reasons.good
        if good.any():
            self.least_dropped = min(self.least_dropped, dropped[good].min())
            self.most_dropped = max(self.most_dropped, dropped[good].max())
        if decoded.documents or started != self.columns.started:
            self._learn(decoded)
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
            warn(
                f"the share of events dropped before {source!r} was written (pdrop) ranges from "
                f"{self.least_dropped:g} to {self.most_dropped:g}. Averages over this log give too much weight to "
                "times with few drops.",
                stacklevel=3,
            )


def _checked(decoded: _Decoded) -> tuple[Floats, Floats, Ints, Floats, Bools, Floats, polars.Series]:
    """Cost, share dropped, action, probabilities and whether they are given, propensity, and time of every line."""
    labels, reasons, n_items = decoded.labels, decoded.reasons, decoded.n_items
    cost, dropped = _check_flags(labels, reasons, n_items)
    actions, probs, with_probs = _check_lists(labels, reasons, n_items)
    propensity = _check_probabilities(labels, reasons, n_items, (actions, probs, with_probs, dropped))
    return cost, dropped, actions, probs, with_probs, propensity, _times(labels["Timestamp"], reasons)


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
    reasons.add(skipped, "marked as not to be learned from (_skipLearn)")
    reasons.add(deferred | inactive, "the decision was deferred and never activated (DeferredAction)")
    cost = _either(labels, NUMBERS[:2], reasons)
    reasons.add(cost.is_null().to_numpy(), "_label_cost is missing")
    dropped = labels["pdrop"].fill_null(0.0).to_numpy()
    reasons.add(~((dropped >= 0) & (dropped < 1)), "pdrop is not in [0, 1)")
    return _floats(cost), dropped


def _check_lists(labels: polars.DataFrame, reasons: Reasons, n_items: Ints) -> tuple[Ints, Floats, Bools]:
    """The chosen action of every line, p in the order of its actions, and whether it has p."""
    order = labels["a"].fill_null([])
    both = (labels["p"].list.len() > 0) & (labels["_p"].list.len() > 0)
    reasons.add(both.fill_null(False).to_numpy(), TWO_SPELLINGS.format(key="p"))
    listed = labels["p"].zip_with((labels["p"].list.len() > 0).fill_null(False), labels["_p"]).fill_null([])
    n_order, n_listed = (each.list.len().to_numpy().astype(np.int64) for each in (order, listed))
    reasons.add(n_order == 0, "the list of actions a is missing")
    reasons.add(n_order != n_items, "a and c._multi differ in length")
    reasons.add((n_listed != n_items) & (n_listed > 0), "p and c._multi differ in length")
    numbers, of = _exploded(order), np.repeat(np.arange(len(order)), n_order)
    whole = (numbers == np.floor(numbers)) & (numbers >= 1) & (numbers <= n_items[of])
    reasons.add_rounds(np.unique(of[~whole]), "a must hold the numbers of the actions, counted from 1")
    values, of_value = _exploded(listed), np.repeat(np.arange(len(order)), n_listed)
    reasons.add_rounds(
        np.unique(of_value[~((values >= 0) & (values <= 1 + SUM_TOLERANCE))]), "p must hold probabilities"
    )
    sums = np.bincount(of_value, values, len(order))
    with_probs = n_listed > 0
    reasons.add(with_probs & (np.abs(sums - 1) > SUM_TOLERANCE), "p does not sum to 1")
    good, offsets = reasons.good, np.cumsum(n_items) - n_items
    place = (offsets[of] + np.where(whole, numbers, 1).astype(np.int64) - 1)[good[of]]
    line_of_item = np.repeat(np.arange(len(order)), n_items)
    hits = np.bincount(place, minlength=len(line_of_item))
    reasons.add_rounds(np.unique(line_of_item[(hits != 1) & good[line_of_item]]), "a has an action twice")
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
    reasons.add(~np.isnan(stated_action) & (stated_action != actions + 1), "_label_Action is not the first of a")
    reasons.add(~np.isnan(index) & (index != actions), "_labelIndex is not the first of a")
    stated = _floats(_either(labels, NUMBERS[2:4], reasons))
    chosen = np.minimum(np.cumsum(n_items) - n_items + actions, max(len(probs) - 1, 0))
    propensity = np.where(with_probs, probs[chosen], stated) if len(probs) else stated
    reasons.add(np.isnan(stated) & ~with_probs, "there is no probability: p and _label_probability are missing")
    reasons.add(~((propensity > 0) & (propensity <= 1)), "the probability of the chosen action is not in (0, 1]")
    # Some writers multiply by the probability that the event was logged.
    near = [np.abs(stated - wanted) <= STATED_TOLERANCE for wanted in (propensity, propensity * (1 - dropped))]
    reasons.add(~np.isnan(stated) & ~near[0] & ~near[1], "_label_probability is not the first of p")
    reasons.add(~with_probs & (dropped > 0), "with pdrop, the probability of the action cannot be known without p")
    return propensity


def _times(texts: polars.Series, reasons: Reasons) -> polars.Series:
    """Timestamps in UTC, cut to microseconds."""
    # Polars alone would accept other forms, too.
    zoned = texts.set(~texts.str.contains(TIME).fill_null(False), None).str.replace(WITHOUT_ZONE, "${1}Z")
    moments = zoned.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%#z", time_unit="us", strict=False)
    moments = moments.set(~moments.dt.timestamp("us").is_between(*YEARS_1_TO_9999), None)
    reasons.add((moments.is_null() & texts.is_not_null()).to_numpy(), NOT_TIME)
    return moments.dt.replace_time_zone(None)


def _label_dtypes() -> dict[str, Any]:
    dtypes: dict[str, Any] = dict.fromkeys(NUMBERS, polars.Float64)
    dtypes |= dict.fromkeys(FLAGS, polars.Boolean) | dict.fromkeys(TEXTS, polars.String)
    return dtypes | dict.fromkeys(LISTS, polars.List(polars.Float64))


# Writing

ROUNDS_AT_A_TIME = 1 << 14
NAME_FEATURE = "action.id"  # of actions that have a name and no features


def write_dsjson(log: BanditLog, path: str | Path) -> None:
    """Write a log as dsjson, for ``vw --dsjson --cb_adf -d PATH``.

    Actions without features become ``{"action": {"id": NAME}}``. ``p`` is written if the whole logging distribution is
    known.
    """
    if log.sequences is not None:
        warn("dsjson cannot store sequences; they are left out.")
    with written_whole(path) as beside, beside.open("wb") as file:
        for rounds in log.chunk_slices(ROUNDS_AT_A_TIME):
            part = raw_rounds(log[rounds], rounds.start, lists=True, prefixes=("context.", "action."))
            dsjson_frame(part, first=rounds.start).write_ndjson(file)


def dsjson_frame(rounds: RawRounds, *, first: int = 0) -> polars.DataFrame:
    """A table with one line of dsjson per row, of rounds that have pools."""
    _require_labels(rounds)
    pool, chosen = rounds.pool, rounds.action.cast(polars.Int64)
    assert pool is not None
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
    places = order - pool.offsets[pool.owners]
    columns.append(pool.lists(polars.Series("a", places + 1)))
    if pool.probs is not None:
        columns.append(pool.lists(polars.Series("p", pool.probs[order])))
    items = pool.features
    if pool.names is not None:
        items = items.with_columns(pool.names.cast(polars.String).alias(TAG if items.width else NAME_FEATURE))
    if items.width == 0:
        items = polars.DataFrame({"_": polars.repeat(None, items.height, eager=True)})  # not a feature
    multi = pool.lists(items.select(_nested(items.columns)).to_struct(ITEMS))
    shared = rounds.features.with_columns(multi)
    return frame.with_columns(columns).with_columns(shared.select(_nested(shared.columns)).to_struct(FEATURES))


def _require_labels(rounds: RawRounds) -> None:
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
    if times.dtype.is_numeric():
        times = (times * 1_000_000).round().cast(polars.Int64).cast(polars.Datetime("us"))
    return times.cast(polars.Datetime("us")).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")


def _chosen_first(pool: Pool, chosen: Ints) -> Ints:
    """Rows of the pool with the chosen action of each round first."""
    order = np.arange(pool.offsets[-1])
    first, taken = pool.offsets[:-1], pool.offsets[:-1] + chosen
    order[first], order[taken] = taken, first
    return order


def _nested(names: Sequence[str], prefix: str = "") -> list[polars.Expr]:
    """Columns with dots in their names as structs: user.age as age in user."""
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
