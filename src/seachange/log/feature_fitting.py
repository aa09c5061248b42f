"""Fit a FeatureSpec: one pass over the parts of a raw log, in bounded memory."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import polars

from seachange.engine import cores, map_in_order
from seachange.errors import LogError, warn
from seachange.kernels.feature_rows import column_moments
from seachange.log.column_statistics import Distinct
from seachange.log.features import Category, Feature, FeatureSpec, Flag, Hashed, LeftOut, Number, width_of
from seachange.log.raw import Kind, RawLog, RawRounds, as_lists, distinct_texts, numbers_of, raw_columns
from seachange.log.validation import LARGEST

MOST_VALUES, LEAST_SEEN = 50, 3  # a category has at most 50 values, each seen at least 3 times; the rest are "other"
MOST_DISTINCT, BUCKETS = 1000, 64  # columns with more distinct values than this are hashed into this many buckets
LONGEST_LIST, MOST_CROSSED = 1000, 1000  # numbers in a list, and features of contexts crossed with actions
ENOUGH_TO_TELL = 100  # in shorter logs, text that never repeats and increasing integers may not be identifiers
ROUNDS_OF_A_VALUE = 10  # text whose values occur less often on average counts as identifiers, too
MOST_ERROR = 0.1  # a count of distinct values that is not exact may be off by this share, three standard errors
DATE = re.compile(r"[12][0-9]{3}-[01][0-9](-[0-3][0-9])?([T ]|$)")  # text that is a date, as in names of folders
OTHER = "other"  # a category's value of this name shares the feature of all other values
HEAD_ROUNDS = 64  # most columns that the action does not determine vary within the first rounds of an action
ROUNDS_PER_ACTION = 20  # rounds per action, on average, before a column counts as determined by the action


@dataclass
class NumberFacts:
    """Statistics of the numbers seen so far."""

    seen: int = 0  # not missing
    usable: int = 0  # not missing and not too large
    mean: float = 0.0
    squares: float = 0.0  # Σ (x - mean)²
    first: float = 0.0
    constant: bool = True
    zero_one: bool = True

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Self:
        """The statistics of one part."""
        seen, usable, mean, squares, first, differing, others = column_moments(values, LARGEST)
        if usable == 0:
            return cls(seen=int(seen))
        return cls(int(seen), int(usable), mean, squares, first, differing == 0, others == 0)

    def merge(self, later: Self) -> None:
        """Add the statistics of a later part (Chan et al.)."""
        total = self.usable + later.usable
        if later.usable:
            gap = later.mean - self.mean
            self.squares += later.squares + gap * gap * self.usable * later.usable / total
            self.mean += gap * later.usable / total
            self.first = self.first if self.usable else later.first
            self.constant &= later.constant and later.first == self.first
            self.zero_one &= later.zero_one
        self.seen, self.usable = self.seen + later.seen, total

    @property
    def scale(self) -> float:
        """Their standard deviation; 1 if they are constant."""
        deviation = float(np.sqrt(self.squares / self.usable)) if self.usable and not self.constant else 0.0
        return deviation if 1 / LARGEST <= deviation <= LARGEST else 1.0


@dataclass
class ColumnFacts:
    """Statistics of the raw column so far."""

    holder: str = ""  # the table's column that it is, or is inside of
    seen: int = 0  # values that are not missing
    kinds: set[Kind] = field(default_factory=set)  # in the parts that have values
    declared: set[Kind] = field(default_factory=set)  # in the parts that have none
    numbers: NumberFacts = field(default_factory=NumberFacts)
    precisions: set[str] = field(default_factory=set)  # of its numbers; flags fit any precision
    seconds: bool = False
    counts: Counter[str] = field(default_factory=Counter)  # of text values, while there are few
    many: bool = False  # more distinct text values than are counted
    repeats: bool = False  # some text occurred twice in a part
    distinct: Distinct = field(default_factory=Distinct)  # text values
    rising: bool = True  # strictly increasing integers
    lowest: float = np.inf
    highest: float = -np.inf
    lengths: set[int] = field(default_factory=set)  # of lists of numbers; at most two are kept
    places: list[NumberFacts] = field(default_factory=list)

    def merge(self, later: Self) -> None:
        """Add the statistics of a later part."""
        self.holder = self.holder or later.holder
        self.seen += later.seen
        for name in ("kinds", "declared", "precisions", "seconds", "many", "repeats"):
            setattr(self, name, getattr(self, name) | getattr(later, name))
        self.numbers.merge(later.numbers)
        self.distinct.add(later.distinct.smallest)
        self.counts.update(later.counts)
        if self.many or len(self.counts) > MOST_DISTINCT:
            self.many, self.counts = True, Counter()
        self.rising &= later.rising and later.lowest > self.highest
        self.lowest, self.highest = min(self.lowest, later.lowest), max(self.highest, later.highest)
        self.lengths = set(sorted(self.lengths | later.lengths)[:2])
        self.places += [NumberFacts() for _ in later.places[len(self.places) :]]
        for ours, theirs in zip(self.places, later.places, strict=False):
            ours.merge(theirs)

    @property
    def unique(self) -> bool:
        """Whether no text occurred twice, as far as the count of distinct ones shows."""
        slack = 0.0 if self.distinct.exact else MOST_ERROR
        return not self.repeats and self.distinct.count >= (1 - slack) * self.seen


def fit_features(raw: RawLog, parts: Iterable[RawRounds], *, action_names: Sequence[str] | None = None) -> FeatureSpec:
    """The FeatureSpec of the rounds in ``parts``, which are those of ``raw``.

    ``action_names`` sets the order of the actions; by default they are sorted.
    """
    facts = LogFacts()
    found = map_in_order(facts_of, parts, workers=cores()) if isinstance(parts, Sequence) else map(facts_of, parts)
    for part in found:
        facts.merge(part)
    if facts.rounds == 0:
        raise LogError("the log is empty: it needs at least one round.")
    shared, unused = _features(raw, facts.shared, facts.rounds, facts.by_action.names())
    pool, pool_unused = _features(raw, facts.pool, facts.pool_rows)
    left_out = (*unused, *pool_unused)
    if left_out:
        listed = ", ".join(f"{column.column!r} ({column.reason})" for column in left_out)
        # Only tables can name their contexts; columns that were named and still left out cannot be used.
        fix = " To use them anyway, list them under contexts." if getattr(raw, "contexts", ()) is None else ""
        warn(f"columns that are not used as features: {listed}.{fix}", stacklevel=5)
    n_shared, n_pool = width_of(shared), width_of(pool)
    fits = n_pool * (1 + n_shared) <= MOST_CROSSED
    if pool and shared and not fits:
        warn(
            f"the {n_shared} features per round are not crossed with the {n_pool} per action, because that would make "
            f"more than {MOST_CROSSED:,} features. Policies only see the features of actions.",
            stacklevel=5,
        )
    named = not pool and not facts.by_place
    names = facts.names() if action_names is None else [str(name) for name in action_names]
    used = {feature.column for feature in (*shared, *pool)}
    columns = (facts.shared | facts.pool).items()
    single = set().union(*(column.precisions for name, column in columns if name in used)) == {"float32"}
    return FeatureSpec(
        format=raw.format,
        columns=dict(raw.columns),
        action_names=tuple(names if named else (f"action {place}" for place in range(facts.longest))),
        shared=shared,
        pool=pool,
        named=named,
        listed=facts.longest > 0,
        crossed=bool(pool and shared) and fits,
        precision="float32" if single else "float64",
        holders=tuple(dict.fromkeys(facts.shared[feature.column].holder for feature in shared)),
        left_out=left_out,
    )


class ActionColumns:
    """Columns that the action determines: they describe what was shown, so they are not known before the choice.

    For each column, the value that each action has; None if an action has several.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self.columns: dict[str, dict[Any, Any] | None] = {}
        self.actions: set[str] = set()

    @classmethod
    def of(cls, rounds: RawRounds) -> Self:
        """The columns of one part."""
        part = cls()
        part.rounds, part.actions = len(rounds), set(distinct_texts(rounds.action))
        columns = {name: column.values for name, column in raw_columns(rounds.features).items()}
        part.columns = dict.fromkeys(columns)
        # Numbers as names, so that none is called like the actions.
        left = {str(i): name for i, name in enumerate(columns) if not columns[name].dtype.is_nested()}
        for rows in (HEAD_ROUNDS, len(rounds)):
            frame = polars.DataFrame({"action": rounds.action} | {i: columns[name] for i, name in left.items()})
            by_action = frame.head(rows).drop_nulls("action").group_by("action")
            counts = by_action.agg(polars.all().n_unique())
            left = {i: name for i, name in left.items() if not (counts[i] > 1).any()}
        values = by_action.agg(polars.col(left).first()) if left else frame
        for i, name in left.items():
            part.columns[name] = dict(zip(values["action"].to_list(), values[i].to_list(), strict=True))
        return part

    def merge(self, later: Self) -> None:
        """Add a later part."""
        self.actions |= later.actions
        for name in self.columns.keys() | later.columns.keys():
            ours, theirs = self.columns.get(name, {}), later.columns.get(name, {})
            clash = ours is None or theirs is None or any(ours.get(a, v) != v for a, v in theirs.items())
            self.columns[name] = None if clash else {**(ours or {}), **(theirs or {})}
        self.rounds += later.rounds

    def names(self) -> list[str]:
        """The columns that differ between actions and never within one."""
        if len(self.actions) < 2 or self.rounds < ROUNDS_PER_ACTION * len(self.actions):
            return []
        return [name for name, values in self.columns.items() if values and len(set(values.values())) > 1]


@dataclass
class LogFacts:
    """Statistics of a raw log so far."""

    rounds: int = 0
    pool_rows: int = 0
    longest: int = 0  # list of actions; 0 if there are none
    by_place: bool = False  # actions are indices into lists
    actions: dict[str, Any] = field(default_factory=dict)  # values by their names
    shared: dict[str, ColumnFacts] = field(default_factory=dict)
    pool: dict[str, ColumnFacts] = field(default_factory=dict)
    by_action: ActionColumns = field(default_factory=ActionColumns)

    def merge(self, later: Self) -> None:
        """Add the statistics of a later part."""
        self.by_action.merge(later.by_action)
        self.rounds, self.pool_rows = self.rounds + later.rounds, self.pool_rows + later.pool_rows
        self.longest = max(self.longest, later.longest)
        self.by_place |= later.by_place
        self.actions = later.actions | self.actions
        for ours, theirs in ((self.shared, later.shared), (self.pool, later.pool)):
            for name, column in theirs.items():
                ours.setdefault(name, ColumnFacts()).merge(column)

    def names(self) -> list[str]:
        """The names of the actions, sorted as numbers if they all are, else as text."""
        numbers = all(isinstance(value, int | float) for value in self.actions.values())
        return [name for name, _ in sorted(self.actions.items(), key=lambda item: item[1] if numbers else item[0])]


def facts_of(rounds: RawRounds) -> LogFacts:
    """The statistics of one part."""
    pool = rounds.pool
    facts = LogFacts(rounds=len(rounds), shared=_facts_by_name(rounds.features))
    if pool is None:
        facts.actions = distinct_texts(rounds.action)
        facts.by_action = ActionColumns.of(rounds)
    else:
        facts.pool_rows, facts.longest = int(pool.offsets[-1]), int(pool.lengths.max(initial=0))
        facts.pool, facts.by_place = _facts_by_name(pool.features), pool.names is None
        facts.actions = {} if pool.names is None else distinct_texts(pool.names)
    return facts


def _facts_by_name(frame: polars.DataFrame) -> dict[str, ColumnFacts]:
    return {name: _facts(*column) for name, column in raw_columns(frame).items()}


def _facts(holder: str, kind: Kind, values: polars.Series) -> ColumnFacts:
    facts = ColumnFacts(holder=holder, seen=len(values) - values.null_count())
    if facts.seen == 0 or kind == "nothing":
        facts.seen, facts.declared = 0, {kind}
        return facts
    facts.kinds = {kind}
    if kind in ("number", "time"):
        numbers = numbers_of(values)
        facts.numbers = NumberFacts.of(numbers)
        facts.seen = facts.numbers.seen
        facts.precisions = _precision(values.dtype)
        facts.seconds = values.dtype in (polars.Date, polars.Datetime, polars.Duration, polars.Time)
        facts.rising = bool(values.dtype.is_integer() and (np.diff(numbers) > 0).all())
        facts.lowest, facts.highest = float(numbers[0]), float(numbers[-1])  # if it is rising
    elif kind in ("text", "texts"):
        texts = (values if kind == "text" else values.explode()).drop_nulls().cast(polars.String)
        facts.many = texts.n_unique() > MOST_DISTINCT
        facts.repeats = texts.n_unique() < len(texts)
        facts.distinct.add(texts.hash().to_numpy())
        facts.counts = Counter() if facts.many else Counter(dict(texts.value_counts(name="count").iter_rows()))
    elif kind == "numbers":
        lists = as_lists(values)
        facts.lengths = set(lists.list.len().drop_nulls().unique().to_list()[:2])
        facts.precisions = _precision(lists.explode().dtype)
        if len(facts.lengths) == 1 and max(facts.lengths) <= LONGEST_LIST:
            entries = (lists.list.get(place, null_on_oob=True) for place in range(max(facts.lengths)))
            facts.places = [NumberFacts.of(numbers_of(values)) for values in entries]
    return facts


def _precision(dtype: Any) -> set[str]:
    return set() if dtype == polars.Boolean else {"float32" if dtype == polars.Float32 else "float64"}


def _features(
    raw: RawLog, columns: Mapping[str, ColumnFacts], rows: int, by_action: Collection[str] = ()
) -> tuple[tuple[Feature, ...], list[LeftOut]]:
    """The features that columns of ``raw`` become, and the columns that are not used."""
    requested = getattr(raw, "contexts", None) is not None
    commas = getattr(raw, "commas", ())
    features: list[Feature] = []
    left_out: list[LeftOut] = []
    for name, facts in columns.items():
        known_after = "determined by the action taken" if name in by_action else ""
        reason = _unusable(facts) or ("" if requested else _useless(facts, rows) or known_after)
        if reason:
            left_out.append(LeftOut(name, reason))
        else:
            features += _features_of_column(name, facts, rows, name in commas)
    return tuple(features), left_out


def _unusable(facts: ColumnFacts) -> str:
    """Why a column cannot be a feature."""
    if "other" in facts.kinds:
        return "unsupported type"
    if "numbers" in facts.kinds and (len(facts.lengths) > 1 or facts.kinds != {"numbers"}):
        return "lists of numbers of different lengths"
    if "numbers" in facts.kinds and max(facts.lengths) > LONGEST_LIST:
        return f"lists of more than {LONGEST_LIST:,} numbers"
    if "texts" in facts.kinds and facts.kinds != {"texts"}:
        return "lists in some rounds, single values in others"
    return ""


def _useless(facts: ColumnFacts, rows: int) -> str:
    """Why a column should not be a feature, unless the user asks for it."""
    if facts.seen == 0:
        return "no values"
    if "time" in facts.kinds:
        return "timestamps, which never repeat"
    whole = facts.seen == rows
    if facts.kinds == {"number"}:
        if facts.numbers.usable == rows and facts.numbers.constant:
            return f"always {facts.numbers.first:g}"
        if facts.rising and rows >= ENOUGH_TO_TELL and whole:
            return "increasing integers, such as row numbers"
    if facts.kinds == {"text"}:
        if len(facts.counts) == 1 and whole:
            return f"always {next(iter(facts.counts))!r}"
        if facts.counts and all(map(DATE.match, facts.counts)):
            return "timestamps, which never repeat"
        if facts.unique and rows >= ENOUGH_TO_TELL:
            return "identifiers, which never repeat"
        if facts.many and facts.seen < ROUNDS_OF_A_VALUE * facts.distinct.count:
            return f"identifiers, which occur {facts.seen / facts.distinct.count:.1f} times each"
    return ""


def _features_of_column(name: str, facts: ColumnFacts, rows: int, comma: bool) -> list[Feature]:
    marked = facts.seen < rows
    kinds = facts.kinds or facts.declared
    if kinds & {"text", "texts"}:
        several = "texts" in kinds
        if facts.many:
            return [Hashed(name, BUCKETS, marked, several)]
        often = [(-count, text) for text, count in facts.counts.items() if count >= LEAST_SEEN and text != OTHER]
        return [Category(name, tuple(text for _, text in sorted(often)[:MOST_VALUES]), marked, several)]
    if "numbers" in kinds:
        return [_number(name, numbers, rows, place, False, comma) for place, numbers in enumerate(facts.places)]
    return [_number(name, facts.numbers, rows, None, facts.seconds, comma)]


def _number(name: str, facts: NumberFacts, rows: int, place: int | None, seconds: bool, comma: bool) -> Feature:
    marked = facts.seen < rows
    if facts.zero_one and facts.usable:
        return Flag(name, marked, place, comma)
    return Number(name, facts.mean, facts.scale, marked, place, seconds, comma)
