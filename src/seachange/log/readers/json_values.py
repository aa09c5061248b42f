"""Columns of JSON values: one type a field, whatever each record holds there.

Whole numbers and others become numbers, lists and objects keep their form. Values of different kinds in one field (a
number here, a word there) become text: words as they are, whole numbers without a point, the rest as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from seachange.log.raw_columns import text_of

if TYPE_CHECKING:
    import polars

Kind = Literal["null", "bool", "int", "long", "float", "text", "list", "object", "mixed"]
# Whole numbers up to the first stay what they are beside others; longer ones do not, and the longest fit no column.
LARGEST_INT, LARGEST_LONG = 2**53, 2**63
KINDS: dict[type, Kind] = {type(None): "null", bool: "bool", int: "int", float: "float", str: "text", list: "list"}
WIDER: dict[frozenset[str], Kind] = {frozenset(("int", "float")): "float", frozenset(("int", "long")): "long"}


@dataclass(frozen=True)
class Shape:
    """What the values of a field have in common."""

    kind: Kind = "null"
    entries: Shape | None = None  # of a list
    fields: dict[str, Shape] = field(default_factory=dict)  # of an object

    def with_value(self, value: Any) -> Shape:
        """The shape of this and ``value``."""
        other = _kind(value)
        if other == "null" or self.kind == "mixed":
            return self
        if self.kind not in ("null", other):
            wider = WIDER.get(frozenset((self.kind, other)), "mixed")
            return self if wider == self.kind else Shape(wider)
        if other == "list":
            entries = before = self.entries or NOTHING
            for entry in value:
                entries = entries.with_value(entry)
            return self if entries is before and self.kind == "list" else Shape("list", entries)
        if other == "object":
            # Most records have the fields of those before: a shape that stays is the same object.
            fields = self.fields
            for name, each in value.items():
                known = fields.get(name, NOTHING)
                if (shape := known.with_value(each)) is not known or name not in fields:
                    fields = {**fields, name: shape}
            return self if fields is self.fields and self.kind == "object" else Shape("object", fields=fields)
        return self if self.kind == other else Shape(other)

    @property
    def dtype(self) -> Any:
        """The polars type of a column of this shape."""
        import polars as pl

        if self.kind == "list":
            return pl.List((self.entries or NOTHING).dtype)
        if self.kind == "object" and self.fields:
            return pl.Struct({name: shape.dtype for name, shape in self.fields.items()})
        plain = {"bool": pl.Boolean, "int": pl.Int64, "long": pl.Int64, "float": pl.Float64}
        return plain.get(self.kind, pl.String)

    def fitted(self, value: Any) -> Any:
        """``value`` as its column takes it."""
        if value is None:
            return None
        if self.kind == "float":
            return float(value)
        if self.kind == "mixed":
            return text_of(value)
        if self.kind == "list":
            entries = self.entries or NOTHING
            return [entries.fitted(each) for each in value]
        if self.kind == "object":
            return {name: shape.fitted(value.get(name)) for name, shape in self.fields.items()} or None
        return value


NOTHING = Shape()


def frame_of(records: Sequence[dict[str, Any]], shape: Shape) -> polars.DataFrame:
    """The records as a table with a column for every field of ``shape``, an object's."""
    from polars import DataFrame, Series

    return DataFrame(
        {
            name: Series([each.fitted(record.get(name)) for record in records], dtype=each.dtype)
            for name, each in shape.fields.items()
        }
    )


def _kind(value: Any) -> Kind:
    kind = KINDS.get(type(value), "object")
    if kind == "int" and not -LARGEST_INT <= value <= LARGEST_INT:
        return "long" if -LARGEST_LONG <= value < LARGEST_LONG else "mixed"
    return kind
