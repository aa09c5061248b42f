"""The kinds of features that raw columns become."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Literal

import msgspec

# Values of a category that its description lists.
LISTED_VALUES = 8
# The most buckets that a model file may ask for.
MOST_BUCKETS = 1 << 16


def _label(column: str, place: int | None, marked: bool) -> tuple[str, ...]:
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
        return _label(self.column, self.place, self.marked)

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
        return _label(self.column, self.place, self.marked)

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


def with_commas(features: Sequence[Feature], columns: Collection[str]) -> tuple[Feature, ...]:
    """The same features; those of ``columns`` read text with decimal commas."""
    return tuple(
        msgspec.structs.replace(feature, comma=True)
        if isinstance(feature, Number | Flag) and feature.column in columns
        else feature
        for feature in features
    )


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names; repeated ones are numbered."""
    seen: dict[str, int] = {}
    given: list[str] = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        given.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return tuple(given)
