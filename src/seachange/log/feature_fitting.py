"""Fit a FeatureSpec: one pass over the parts of a raw log, in memory that does not grow with it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError, SeachangeWarning
from seachange.kernels.features import column_moments
from seachange.log.action_columns import ToldByAction
from seachange.log.distinct import Distinct
from seachange.log.features import Category, Feature, FeatureSpec, Flag, Hashed, LeftOut, Number, with_commas
from seachange.log.raw_columns import Kind, RawColumn, as_lists, distinct_texts, numbers_of, raw_columns
from seachange.log.validation import LARGEST

if TYPE_CHECKING:
    import polars

    from seachange.log.raw import RawLog, RawRounds

# A category has at most so many values of its own, each of which occurred so often at least; the rest are others.
MOST_VALUES, LEAST_SEEN = 50, 3
# Columns with more distinct values than this are hashed, into so many buckets.
MOST_DISTINCT, BUCKETS = 1000, 64
# Lists of numbers longer than this are no features; nor are contexts crossed with actions past this many.
LONGEST_LIST, MOST_CROSSED = 1000, 1000
# In logs of so many rounds, text that never repeats and whole numbers that rise by one are taken for identifiers.
ENOUGH_TO_TELL = 100
# Texts that come again less often than this on average are identifiers, too: nothing learned about one helps it.
ROUNDS_OF_A_VALUE = 10
# A count of distinct values that is not exact may be wrong by so much, three times its standard error.
MOST_ERROR = 0.1
# Texts that are dates, as those in the names of folders.
DATE = re.compile(r"[12][0-9]{3}-[01][0-9](-[0-3][0-9])?([T ]|$)")
# Texts of a category without a feature of their own: their feature is that of the others.
OTHER = "other"


@dataclass
class NumberFacts:
    """What is known of numbers seen so far."""

    seen: int = 0  # that are not missing
    usable: int = 0  # that are not too large either
    mean: float = 0.0
    squares: float = 0.0  # Σ (x - mean)²
    first: float = 0.0
    constant: bool = True
    zero_one: bool = True

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> NumberFacts:
        """Of one part."""
        seen, usable, mean, squares, first, differing, odd = column_moments(values, LARGEST)
        if usable == 0:
            return cls(seen=int(seen))
        return cls(int(seen), int(usable), mean, squares, first, differing == 0, odd == 0)

    def merge(self, later: NumberFacts) -> None:
        """Take in what a later part knows (Chan et al.)."""
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
        """Their standard deviation; 1 where they are all the same."""
        deviation = float(np.sqrt(self.squares / self.usable)) if self.usable and not self.constant else 0.0
        return deviation if 1 / LARGEST <= deviation <= LARGEST else 1.0


@dataclass
class ColumnFacts:
    """What is known of a raw column so far."""

    holder: str = ""  # the column of the table that it is, or is in
    rows: int = 0  # of the parts that have it
    seen: int = 0  # values that are not missing
    kinds: set[Kind] = field(default_factory=set)  # of the parts that have values
    declared: set[Kind] = field(default_factory=set)  # of those that have none
    numbers: NumberFacts = field(default_factory=NumberFacts)
    precisions: set[str] = field(default_factory=set)  # of its numbers; 0 and 1 have any
    seconds: bool = False
    counts: dict[str, int] = field(default_factory=dict)  # of texts, while there are few
    many: bool = False  # more distinct texts than are counted
    repeats: bool = False  # some text occurred twice in a part
    distinct: Distinct = field(default_factory=Distinct)  # texts
    rising: bool = True  # whole numbers, each larger than that before it
    ends: tuple[float, float] | None = None  # the first and the last number
    lengths: set[int] = field(default_factory=set)  # of lists of numbers; at most two are remembered
    places: list[NumberFacts] = field(default_factory=list)

    def merge(self, later: ColumnFacts) -> None:
        """Take in what a later part knows."""
        self.holder = self.holder or later.holder
        self.rows, self.seen = self.rows + later.rows, self.seen + later.seen
        self.kinds |= later.kinds
        self.declared |= later.declared
        self.numbers.merge(later.numbers)
        self.precisions |= later.precisions
        self.seconds |= later.seconds
        self.many |= later.many
        self.repeats |= later.repeats
        self.distinct.add(later.distinct.least)
        for text, count in later.counts.items():
            self.counts[text] = self.counts.get(text, 0) + count
        self._forget_if_many()
        if self.ends is not None and later.ends is not None:
            self.rising &= later.rising and later.ends[0] > self.ends[1]
            self.ends = (self.ends[0], later.ends[1])
        else:
            self.rising &= later.rising
            self.ends = self.ends or later.ends
        self.lengths = set(sorted(self.lengths | later.lengths)[:2])
        for place, numbers in enumerate(later.places):
            if place == len(self.places):
                self.places.append(NumberFacts())
            self.places[place].merge(numbers)

    @property
    def never_again(self) -> bool:
        """Whether no text occurred twice, as far as the count of distinct ones can tell."""
        slack = 0.0 if self.distinct.exact else MOST_ERROR
        return not self.repeats and self.distinct.count >= (1 - slack) * self.seen

    def _forget_if_many(self) -> None:
        if self.many or len(self.counts) > MOST_DISTINCT:
            self.many, self.counts = True, {}


def fit_features(
    raw: RawLog, parts: Iterable[RawRounds], *, action_names: Sequence[str] | None = None, cross: bool = True
) -> FeatureSpec:
    """The FeatureSpec of the rounds in ``parts``, which are those of ``raw``, one part at a time."""
    facts = LogFacts()
    for part in parts:
        facts.merge(facts_of(part))
    return spec_of(raw, facts, action_names=action_names, cross=cross)


def spec_of(
    raw: RawLog, facts: LogFacts, *, action_names: Sequence[str] | None = None, cross: bool = True
) -> FeatureSpec:
    """The FeatureSpec of a log of which all ``facts`` are known.

    ``action_names`` fixes the order of the actions; otherwise it is the sorted order of those that occur. ``cross``
    says whether features of a round are crossed with those of its actions, where there are both.
    """
    if facts.rounds == 0:
        raise LogError("the log is empty: it needs at least one round.")
    shared, unused = features_of(raw, facts.shared, facts.rounds, facts.told.names())
    pool, pool_unused = features_of(raw, facts.pool, facts.pool_rows)
    _say_what_is_left_out(raw, unused + pool_unused)
    named = not pool and not facts.by_place
    names = [f"action {place}" for place in range(facts.longest)] if not named else facts.names()
    crossed = bool(pool and shared and cross)
    n_shared, n_pool = (sum(len(feature.names) for feature in side) for side in (shared, pool))
    if crossed and n_pool * (1 + n_shared) > MOST_CROSSED:
        crossed = False
        warnings.warn(
            f"the {n_shared} features that a round's actions share are not crossed with the {n_pool} of each action: "
            f"that would give more than {MOST_CROSSED:,}. Policies see the features of actions alone.",
            SeachangeWarning,
            stacklevel=5,
        )
    used = {feature.column for feature in (*shared, *pool)}
    columns = (facts.shared | facts.pool).items()
    single = set().union(*(column.precisions for name, column in columns if name in used)) == {"float32"}
    return FeatureSpec(
        format=raw.format,
        columns=dict(raw.columns),
        action_names=tuple(str(name) for name in action_names) if named and action_names is not None else tuple(names),
        shared=with_commas(shared, getattr(raw, "commas", ())),
        pool=pool,
        named=named,
        listed=facts.longest > 0,
        crossed=crossed,
        precision="float32" if single else "float64",
        holders=tuple(dict.fromkeys(facts.shared[feature.column].holder for feature in shared)),
        left_out=tuple(unused + pool_unused),
    )


@dataclass
class LogFacts:
    """What is known of a raw log so far."""

    rounds: int = 0
    pool_rows: int = 0
    longest: int = 0  # list of actions; 0 where there are none
    by_place: bool = False  # actions are places in lists
    actions: dict[str, Any] = field(default_factory=dict)  # values by their names
    shared: dict[str, ColumnFacts] = field(default_factory=dict)
    pool: dict[str, ColumnFacts] = field(default_factory=dict)
    told: ToldByAction = field(default_factory=ToldByAction)

    def merge(self, later: LogFacts) -> None:
        """Take in what a later part knows."""
        self.told.merge(later.told)
        self.rounds, self.pool_rows = self.rounds + later.rounds, self.pool_rows + later.pool_rows
        self.longest = max(self.longest, later.longest)
        self.by_place |= later.by_place
        self.actions = later.actions | self.actions
        for ours, theirs in ((self.shared, later.shared), (self.pool, later.pool)):
            for name, column in theirs.items():
                ours.setdefault(name, ColumnFacts()).merge(column)

    def names(self) -> list[str]:
        """The names of the actions, in the order of their values: of numbers, or else of texts."""
        numbers = all(isinstance(value, int | float) for value in self.actions.values())
        return [name for name, _ in sorted(self.actions.items(), key=lambda item: item[1] if numbers else item[0])]


def facts_of(rounds: RawRounds) -> LogFacts:
    """What one part of a log says."""
    pool = rounds.pool
    facts = LogFacts(rounds=len(rounds), shared=_facts_by_name(rounds.features))
    if pool is None:
        facts.actions = distinct_texts(rounds.action)
        columns = ((name, column.values) for name, column in raw_columns(rounds.features).items())
        facts.told = ToldByAction.of(rounds.action, facts.actions, columns)
    else:
        facts.pool_rows, facts.longest = int(pool.offsets[-1]), int(pool.lengths.max(initial=0))
        facts.pool = _facts_by_name(pool.features)
        facts.by_place = pool.names is None
        facts.actions = {} if pool.names is None else distinct_texts(pool.names)
    return facts


def _facts_by_name(frame: polars.DataFrame) -> dict[str, ColumnFacts]:
    return {name: _facts(column) for name, column in raw_columns(frame).items()}


def _facts(column: RawColumn) -> ColumnFacts:
    import polars

    holder, kind, values = column
    facts = ColumnFacts(holder=holder, rows=len(values), seen=len(values) - values.null_count())
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
        facts.ends = (float(numbers[0]), float(numbers[-1]))
    elif kind == "text":
        _count(facts, values)
    elif kind == "texts":
        _count(facts, values.explode())
    elif kind == "numbers":
        lists = as_lists(values)
        facts.lengths = set(lists.list.len().drop_nulls().unique().to_list()[:2])
        facts.precisions = _precision(lists.explode().dtype)
        if len(facts.lengths) == 1 and max(facts.lengths) <= LONGEST_LIST:
            entries = (lists.list.get(place, null_on_oob=True) for place in range(max(facts.lengths)))
            facts.places = [NumberFacts.of(numbers_of(values)) for values in entries]
    return facts


def _precision(dtype: Any) -> set[str]:
    import polars

    if dtype == polars.Boolean:
        return set()
    return {"float32" if dtype == polars.Float32 else "float64"}


def _count(facts: ColumnFacts, values: polars.Series) -> None:
    import polars

    texts = values.drop_nulls().cast(polars.String)
    facts.many = texts.n_unique() > MOST_DISTINCT
    facts.repeats = texts.n_unique() < len(texts)
    facts.distinct.add(texts.hash().to_numpy())
    if not facts.many:
        counted = texts.value_counts(name="count")
        facts.counts = dict(zip(counted[:, 0].to_list(), counted["count"].to_list(), strict=True))


def features_of(
    raw: RawLog, columns: Mapping[str, ColumnFacts], rows: int, told_by_action: Collection[str] = ()
) -> tuple[tuple[Feature, ...], list[LeftOut]]:
    """The features that columns of ``raw`` become, and the columns that become none."""
    kept = getattr(raw, "contexts", None) is not None  # a user asked for these very columns
    features: list[Feature] = []
    left_out: list[LeftOut] = []
    for name, facts in columns.items():
        known_after = "told by the action taken, so not known before it" if name in told_by_action else ""
        reason = _hopeless(facts) or ("" if kept else _useless(facts, rows) or known_after)
        if reason:
            left_out.append(LeftOut(name, reason))
        else:
            features += _features_of(name, facts, rows)
    return tuple(features), left_out


def _hopeless(facts: ColumnFacts) -> str:
    """Why a column cannot be a feature."""
    if "other" in facts.kinds:
        return "of a type that no feature is made of"
    if "numbers" in facts.kinds and (len(facts.lengths) > 1 or facts.kinds != {"numbers"}):
        return "lists of numbers whose lengths differ"
    if "numbers" in facts.kinds and max(facts.lengths) > LONGEST_LIST:
        return f"lists of more than {LONGEST_LIST:,} numbers"
    if "texts" in facts.kinds and facts.kinds != {"texts"}:
        return "lists in some rounds and single values in others"
    return ""


def _useless(facts: ColumnFacts, rows: int) -> str:
    """Why a column should be no feature, unless someone asks for it."""
    if facts.seen == 0:
        return "without any value"
    if "time" in facts.kinds:
        return "moments, which never come again"
    whole = facts.seen == rows
    if facts.kinds == {"number"}:
        if facts.numbers.usable == rows and facts.numbers.constant:
            return f"always {facts.numbers.first:g}"
        if facts.rising and rows >= ENOUGH_TO_TELL and whole:
            return "whole numbers that only rise, such as row numbers"
    if facts.kinds == {"text"}:
        if len(facts.counts) == 1 and whole:
            return f"always {next(iter(facts.counts))!r}"
        if facts.counts and all(map(DATE.match, facts.counts)):
            return "moments, which never come again"
        if facts.never_again and rows >= ENOUGH_TO_TELL:
            return "identifiers, which never come again"
        if facts.many and facts.seen < ROUNDS_OF_A_VALUE * facts.distinct.count:
            return f"identifiers, which come {facts.seen / facts.distinct.count:.1f} times each"
    return ""


def _features_of(name: str, facts: ColumnFacts, rows: int) -> list[Feature]:
    marked = facts.seen < rows
    kinds = facts.kinds or facts.declared
    if kinds & {"text", "texts"}:
        several = "texts" in kinds
        if facts.many:
            return [Hashed(name, BUCKETS, marked, several)]
        often = [(text, count) for text, count in facts.counts.items() if count >= LEAST_SEEN and text != OTHER]
        often.sort(key=lambda item: (-item[1], item[0]))
        return [Category(name, tuple(text for text, _ in often[:MOST_VALUES]), marked, several)]
    if "numbers" in kinds:
        return [_number(name, numbers, rows, place) for place, numbers in enumerate(facts.places)]
    return [_number(name, facts.numbers, rows, None, facts.seconds)]


def _number(name: str, facts: NumberFacts, rows: int, place: int | None, seconds: bool = False) -> Feature:
    marked = facts.seen < rows
    if facts.zero_one and facts.usable:
        return Flag(name, marked, place)
    return Number(name, facts.mean, facts.scale, marked, place, seconds)


def _say_what_is_left_out(raw: RawLog, columns: Sequence[LeftOut]) -> None:
    if columns:
        told = ", ".join(f"{column.column!r} ({column.reason})" for column in columns)
        # Only tables let their contexts be named; where somebody has named them, these are past help.
        cure = "; name them as contexts to use them" if getattr(raw, "contexts", ()) is None else ""
        warnings.warn(f"no features are made of the columns {told}{cure}.", SeachangeWarning, stacklevel=5)
