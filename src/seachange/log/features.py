"""FeatureSpec: how the raw columns of a log become its feature vectors, written down so that it is done again alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from seachange.protocols import Bools, Floats

if TYPE_CHECKING:
    from seachange.log.raw import RawRounds

Encoded = tuple["Floats | None", "Bools | None"]  # a context and an action mask, as deployers take them
# The key of a record that lists the actions that can be chosen, where they differ from round to round.
ACTIONS = "actions"
# Values of a category that are told to people.
MOST_TOLD = 8
# What a model file may ask for.
MOST_BUCKETS = 1 << 16


class Number(msgspec.Struct, frozen=True, tag="number"):
    """(x - mean) / scale; missing values become the mean, which is 0."""

    column: str  # nested ones with dots: user.age
    mean: float
    scale: Annotated[float, msgspec.Meta(gt=0)]
    marked: bool = False  # a 0/1 feature of its own says where the value is missing
    place: int | None = None  # which entry of the column's lists
    seconds: bool = False  # it is a moment or a length of time
    comma: bool = False  # as text it has its decimals behind a comma: 1,5

    @property
    def names(self) -> tuple[str, ...]:
        """Of its features."""
        label = self.column if self.place is None else f"{self.column}[{self.place}]"
        return (label, f"{label} missing") if self.marked else (label,)

    @property
    def told(self) -> str:
        """What becomes of it, for people."""
        unit = " in seconds" if self.seconds else ""
        return f"a number{unit}, of mean {self.mean:.6g} and standard deviation {self.scale:.6g}"


class Flag(msgspec.Struct, frozen=True, tag="flag"):
    """0 or 1, as it is; missing values become 0."""

    column: str
    marked: bool = False
    place: int | None = None
    comma: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Of its features."""
        label = self.column if self.place is None else f"{self.column}[{self.place}]"
        return (label, f"{label} missing") if self.marked else (label,)

    @property
    def told(self) -> str:
        """What becomes of it, for people."""
        return "0 or 1, as it is"


class Category(msgspec.Struct, frozen=True, tag="category"):
    """A 0/1 feature for each of the most frequent values and one for all others.

    Of ``several``, lists, every entry counts. Missing values that have no mark are others; missing lists are empty.
    """

    column: str
    values: tuple[str, ...]  # the most frequent first
    marked: bool = False
    several: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Of its features."""
        named = (f"{self.column}={value}" for value in self.values)
        return (*named, f"{self.column}=other", *((f"{self.column} missing",) if self.marked else ()))

    @property
    def told(self) -> str:
        """What becomes of it, for people."""
        kind = "lists of" if self.several else "one of"
        more = len(self.values) - MOST_TOLD
        return f"{kind} {', '.join((*self.values[:MOST_TOLD], *([f'… {more} more'] if more > 0 else []), 'other'))}"


class Hashed(msgspec.Struct, frozen=True, tag="hashed"):
    """A 0/1 feature for each of ``buckets``; a value's bucket is the CRC-32 of its UTF-8 text, modulo their number."""

    column: str
    buckets: Annotated[int, msgspec.Meta(ge=1, le=MOST_BUCKETS)]
    marked: bool = False
    several: bool = False
    hash: Literal["crc32"] = "crc32"

    @property
    def names(self) -> tuple[str, ...]:
        """Of its features."""
        named = (f"{self.column} bucket {bucket}" for bucket in range(self.buckets))
        return (*named, *((f"{self.column} missing",) if self.marked else ()))

    @property
    def told(self) -> str:
        """What becomes of it, for people."""
        kind = "lists of many values" if self.several else "one of many values"
        return f"{kind}, in {self.buckets} buckets by {self.hash}"


Feature = Number | Flag | Category | Hashed


class LeftOut(msgspec.Struct, frozen=True):
    """A column that is no feature, and why."""

    column: str
    reason: str


class FeatureSpec(msgspec.Struct, frozen=True, dict=True):
    """How the raw columns of a log become its feature vectors.

    It is fitted on one log (``log.features``), kept in the model, and encodes later logs and single records alike.
    Actions are ``named``, or places in the list of each round. Where those lists have features of their own (``pool``),
    f(x, a) = [a, x ⊗ a] if ``crossed``, else a alone: what all actions share cancels in a softmax.
    """

    format: str  # of the log that it was fitted on
    columns: dict[str, str]  # which column holds the action, the reward, …
    action_names: tuple[str, ...]
    shared: tuple[Feature, ...]
    pool: tuple[Feature, ...] = ()
    named: bool = True
    listed: bool = False  # every round has a list of its own of the actions that can be chosen
    crossed: bool = False
    precision: Literal["float64", "float32"] = "float64"
    holders: tuple[str, ...] = ()  # the table's own columns that hold the shared ones: user, which holds user.age
    left_out: tuple[LeftOut, ...] = ()

    @property
    def n_actions(self) -> int:
        """K: of lists, the length of the longest."""
        return len(self.action_names)

    @property
    def n_features(self) -> int:
        """Length of the vector that policies see: d."""
        n_shared, n_pool = (sum(len(feature.names) for feature in side) for side in (self.shared, self.pool))
        return n_pool * (1 + n_shared * self.crossed) if self.pool else n_shared

    def encodes_like(self, other: FeatureSpec) -> bool:
        """Whether both make the same vectors of the same raw columns."""
        ours, theirs = ((spec.shared, spec.pool, spec.crossed, spec.action_names) for spec in (self, other))
        return ours == theirs

    @cached_property
    def shared_names(self) -> tuple[str, ...]:
        """Of the features that all actions of a round share."""
        return distinct_names([name for feature in self.shared for name in feature.names])

    @cached_property
    def pool_names(self) -> tuple[str, ...]:
        """Of the features that each action of a round has of its own."""
        return distinct_names([name for feature in self.pool for name in feature.names])

    @cached_property
    def context_names(self) -> tuple[str, ...]:
        """Of the features that policies see, in their order."""
        if not self.pool:
            return self.shared_names
        crossed = [f"{x} × {a}" for x in self.shared_names for a in self.pool_names] if self.crossed else []
        return distinct_names([*self.pool_names, *crossed])

    @property
    def sources(self) -> tuple[str, ...]:
        """The raw columns that all actions of a round share and that are needed, each once."""
        return tuple(dict.fromkeys(feature.column for feature in self.shared))

    @property
    def pool_sources(self) -> tuple[str, ...]:
        """The raw columns of the actions of each round that are needed, each once."""
        return tuple(dict.fromkeys(feature.column for feature in self.pool))

    def words(self, columns: Mapping[str, str | Sequence[str]] | None = None) -> dict[str, str | Sequence[str]]:
        """The column mapping that reads a table as the one fitted on was read; ``columns`` may say otherwise."""
        return {**self.columns, "contexts": self.holders, **(columns or {})}

    def encode(self, rounds: RawRounds) -> dict[str, Any]:
        """The arguments of ``BanditLog.from_arrays`` for ``rounds``; rules of logs are checked there."""
        from seachange.log.feature_encoding import arguments_of

        return arguments_of(self, rounds)

    def encode_record(self, record: Mapping[str, Any]) -> Encoded:
        """The context and the action mask of one raw record, as the log's row or JSON object held it.

        None is a missing value. So is a key that is not there, if the log lacked it at times; if it never did, that is
        an error. Keys that no feature needs do not matter. Where every round has its own list of actions, it stands
        under ``actions``: a mapping for each of them, or their names.
        """
        return self._encoder(record)

    @cached_property
    def _encoder(self) -> Callable[[Mapping[str, Any]], Encoded]:
        from seachange.log.record_encoding import encoder_of

        return encoder_of(self)

    def told(self) -> list[tuple[str, str, str]]:
        """For people: every raw column, what becomes of it, and which features those are."""
        rows = []
        for feature in (*self.shared, *self.pool):
            names = feature.names
            shown = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}" if len(names) > 2 else ", ".join(names)
            whose = "" if not self.pool else " (of a round)" if feature in self.shared else " (of an action)"
            rows.append((feature.column, feature.told + whose, shown if len(names) < 3 else f"{len(names)}: {shown}"))
        return rows

    def __repr__(self) -> str:
        """Sizes at a glance."""
        columns = ", ".join((*self.sources, *self.pool_sources)) or "none"
        return f"FeatureSpec({self.n_features} features of the columns {columns}; {self.n_actions} actions)"

    def unit_of(self, name: str) -> float | None:
        """How much of the raw number one unit of the feature ``name`` is; None where it is no standardised number."""
        return self._units.get(name)

    @cached_property
    def _units(self) -> dict[str, float]:
        names, features = (self.pool_names, self.pool) if self.pool else (self.shared_names, self.shared)
        starts, units = 0, {}
        for feature in features:
            if isinstance(feature, Number):
                units[names[starts]] = feature.scale
            starts += len(feature.names)
        return units


def plain_features(context_names: Sequence[str], action_names: Sequence[str]) -> FeatureSpec:
    """Numbers as they are, for models that were learned from arrays."""
    numbers = tuple(Number(name, 0.0, 1.0) for name in context_names)
    return FeatureSpec("arrays", {}, tuple(action_names), numbers, holders=tuple(context_names))


def with_commas(features: Sequence[Feature], columns: Collection[str]) -> tuple[Feature, ...]:
    """The same features, of ``columns`` whose texts have decimal commas."""
    return tuple(
        msgspec.structs.replace(feature, comma=True)
        if isinstance(feature, Number | Flag) and feature.column in columns
        else feature
        for feature in features
    )


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names as they are, numbered where one occurs again."""
    seen: dict[str, int] = {}
    given: list[str] = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        given.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return tuple(given)
