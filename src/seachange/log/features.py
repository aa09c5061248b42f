"""FeatureSpec: how the raw columns of a log become feature vectors, recorded so that it can be repeated exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Any, Literal

import msgspec

from seachange.protocols import Bools, Floats

Encoded = tuple[Floats | None, Bools | None]  # a context and an action mask, as deployers take them
# Values of a category that its description lists.
LISTED_VALUES = 8
# The most buckets that a model file may ask for.
MOST_BUCKETS = 1 << 16


def _labels(column: str, place: int | None, marked: bool) -> tuple[str, ...]:
    label = column if place is None else f"{column}[{place}]"
    return (label, f"{label} missing") if marked else (label,)


class Number(msgspec.Struct, frozen=True, tag="number"):
    """(x - mean) / scale; missing values become the mean, which is 0."""

    column: str  # nested ones with dots: user.age
    mean: float
    scale: Annotated[float, msgspec.Meta(gt=0)]
    marked: bool = False  # an extra 0/1 feature is 1 if the value is missing
    place: int | None = None  # which entry of the column's lists
    seconds: bool = False  # it is a timestamp or a duration
    comma: bool = False  # as text it has a decimal comma: 1,5

    @property
    def names(self) -> tuple[str, ...]:
        """Of its features."""
        return _labels(self.column, self.place, self.marked)

    @property
    def description(self) -> str:
        """The encoding, in words."""
        unit = " in seconds" if self.seconds else ""
        return f"number{unit}, mean {self.mean:.6g}, standard deviation {self.scale:.6g}"


class Flag(msgspec.Struct, frozen=True, tag="flag"):
    """0 or 1, unchanged; missing values become 0."""

    column: str
    marked: bool = False
    place: int | None = None
    comma: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Of its features."""
        return _labels(self.column, self.place, self.marked)

    @property
    def description(self) -> str:
        """The encoding, in words."""
        return "0 or 1, unchanged"


class Category(msgspec.Struct, frozen=True, tag="category"):
    """A 0/1 feature for each of the most frequent values, and one for all others.

    If ``several``, values are lists, of which each entry counts. Missing values without a mark count as others; missing
    lists are empty.
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
    def description(self) -> str:
        """The encoding, in words."""
        kind, more = "lists of" if self.several else "one of", len(self.values) - LISTED_VALUES
        listed = (*self.values[:LISTED_VALUES], *([f"… {more} more"] if more > 0 else []), "other")
        return f"{kind} {', '.join(listed)}"


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
    def description(self) -> str:
        """The encoding, in words."""
        kind = "lists of many values" if self.several else "one of many values"
        return f"{kind}, hashed into {self.buckets} buckets ({self.hash})"


Feature = Number | Flag | Category | Hashed


class LeftOut(msgspec.Struct, frozen=True):
    """A column that is not used as a feature, and why."""

    column: str
    reason: str


class FeatureSpec(msgspec.Struct, frozen=True, dict=True):
    """How the raw columns of a log become feature vectors.

    It is fitted on one log (``log.features``), saved in the model, and encodes later logs and single records the same
    way. Actions are ``named``, or indices into the list of each round. If those lists have features of their own
    (``pool``), f(x, a) = [a, x ⊗ a] if ``crossed``, else a alone: what all actions share cancels in a softmax.
    """

    format: str  # of the log that it was fitted on
    columns: dict[str, str]  # which column holds the action, the reward, …
    action_names: tuple[str, ...]
    shared: tuple[Feature, ...]
    pool: tuple[Feature, ...] = ()
    named: bool = True
    listed: bool = False  # each round has its own list of actions
    crossed: bool = False
    precision: Literal["float64", "float32"] = "float64"
    holders: tuple[str, ...] = ()  # the table's columns that hold the shared ones: user, which holds user.age
    left_out: tuple[LeftOut, ...] = ()

    @property
    def n_actions(self) -> int:
        """K; for lists, the length of the longest."""
        return len(self.action_names)

    @property
    def n_features(self) -> int:
        """Length of the vector that policies see: d."""
        n_shared, n_pool = (sum(len(feature.names) for feature in side) for side in (self.shared, self.pool))
        return n_pool * (1 + n_shared * self.crossed) if self.pool else n_shared

    def encodes_like(self, other: FeatureSpec) -> bool:
        """Whether both make the same vectors from the same raw columns."""
        ours, theirs = ((spec.shared, spec.pool, spec.crossed, spec.action_names) for spec in (self, other))
        return ours == theirs

    @cached_property
    def shared_names(self) -> tuple[str, ...]:
        """The features that all actions of a round share."""
        return _numbered([name for feature in self.shared for name in feature.names])

    @cached_property
    def pool_names(self) -> tuple[str, ...]:
        """The features that each action of a round has of its own."""
        return _numbered([name for feature in self.pool for name in feature.names])

    @cached_property
    def context_names(self) -> tuple[str, ...]:
        """The features that policies see, in order."""
        if not self.pool:
            return self.shared_names
        crossed = [f"{x} × {a}" for x in self.shared_names for a in self.pool_names] if self.crossed else []
        return _numbered([*self.pool_names, *crossed])

    @property
    def sources(self) -> tuple[str, ...]:
        """The raw columns behind the features, each once."""
        return tuple(dict.fromkeys(feature.column for feature in (*self.shared, *self.pool)))

    def words(self, columns: Mapping[str, str | Sequence[str]] | None = None) -> dict[str, str | Sequence[str]]:
        """The column mapping of the log that this was fitted on; ``columns`` overrides it."""
        return {**self.columns, "contexts": self.holders, **(columns or {})}

    def encode_record(self, record: Mapping[str, Any]) -> Encoded:
        """The context and the action mask of one raw record, a row of the table or a JSON object.

        None is a missing value. A key that is absent counts as missing if the log had missing values there; otherwise
        it is an error. Extra keys are ignored. If each round has its own list of actions, pass it under ``actions``:
        one mapping per action, or their names.
        """
        return self._encoder(record)

    @cached_property
    def _encoder(self) -> Callable[[Mapping[str, Any]], Encoded]:
        from seachange.log.feature_encoding import record_encoder

        return record_encoder(self)

    def described(self) -> list[tuple[str, str, str]]:
        """For display: each raw column, its encoding, and its features."""
        rows = []
        for feature in (*self.shared, *self.pool):
            names = feature.names
            listed = ", ".join(names) if len(names) < 3 else f"{len(names)}: {names[0]} … {names[-1]}"
            whose = "" if not self.pool else " (per round)" if feature in self.shared else " (per action)"
            rows.append((feature.column, feature.description + whose, listed))
        return rows

    def __repr__(self) -> str:
        columns = ", ".join(self.sources) or "none"
        return f"FeatureSpec({self.n_features} features from the columns {columns}; {self.n_actions} actions)"

    def unit_of(self, name: str) -> float | None:
        """One unit of the feature ``name`` in raw units; None if it is not a standardized number."""
        names, features = (self.pool_names, self.pool) if self.pool else (self.shared_names, self.shared)
        starts = accumulate((len(feature.names) for feature in features), initial=0)
        scales = {names[i]: each.scale for each, i in zip(features, starts, strict=False) if isinstance(each, Number)}
        return scales.get(name)


def plain_features(context_names: Sequence[str], action_names: Sequence[str]) -> FeatureSpec:
    """Numbers unchanged, for models that were learned from arrays."""
    numbers = tuple(Number(name, 0.0, 1.0) for name in context_names)
    return FeatureSpec("arrays", {}, tuple(action_names), numbers, holders=tuple(context_names))


def _numbered(names: Sequence[str]) -> tuple[str, ...]:
    """The names; repeated ones are numbered."""
    seen: dict[str, int] = {}
    distinct: list[str] = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        distinct.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return tuple(distinct)
