"""What type a column has: inferred from its first values, then applied to all of them.

In a table of text (CSV) a column has a ``TextType``, which tells what its texts stand for. JSON values have types of
their own: a ``Shape`` collects them and decides on a polars type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from seachange.log.features import Category, Feature, Flag, Hashed, Number
from seachange.log.raw import FALSE, MISSING, NUMBER, TRUE, number_in, text_of

if TYPE_CHECKING:
    import polars

TextType = Literal["integer", "number", "decimal comma", "boolean", "text", "empty"]
# How a column is used. Names are actions and sequences; measures are rewards and propensities.
Use = Literal["name", "measure", "feature"]
JsonKind = Literal["boolean", "integer", "long", "huge", "number", "text", "list", "object"]

# A column has a type if this share of its values has it. Measures must be numbers anyway, so half is enough.
MOST = 0.9
SHARE: dict[Use, float] = {"name": MOST, "measure": 0.5, "feature": MOST}
INTEGER = r"^[+-]?[0-9]+$"
# A name that is a number has only one spelling, so that no name stands for another; the second form is how tables write
# integers if some are missing.
INTEGER_NAME = r"^(0|-?[1-9][0-9]{0,17})$"
NUMBER_NAME = r"^(0|-?[1-9][0-9]{0,14})(\.0*)?$"
COMMA_NUMBER = r"^[+-]?[0-9]+(,[0-9]+)?$"
THOUSANDS = r"^[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+$"
LEADING_ZERO = r"^[+-]?0[0-9]"
INFINITE = r"^[+-]?inf(inity)?$"
# Integers up to the first can be floats without loss; up to the second they fit a column of integers.
EXACT_FLOAT, INT64 = 2**53, 2**63


class Converted(NamedTuple):
    """A column converted to its type."""

    values: polars.Series
    bad: polars.Series  # of booleans: neither of the type nor missing


class Mismatch(NamedTuple):
    """A value that does not match the type of its feature and counts as missing."""

    name: str  # of the column, or of a nested field with dots
    row: int
    text: str


def text_type(texts: polars.Series, use: Use) -> TextType:
    """Infer the type of a column of texts from its first values."""
    import polars

    known = texts.drop_nulls().str.strip_chars()
    lower = known.str.to_lowercase()
    rest, lower = known.filter(~lower.is_in(MISSING)), lower.filter(~lower.is_in(MISSING))
    if len(rest) == 0:
        return "text" if (known != "").any() and use == "name" else "empty"
    if lower.is_in(TRUE + FALSE).all() and use != "name":
        return "boolean"
    numbers = rest.str.contains(NUMBER)
    if use == "measure":
        numbers |= lower.is_in(TRUE + FALSE)
    if numbers.mean() < SHARE[use]:  # type: ignore[operator]
        return "decimal comma" if use != "name" and _decimal_commas(rest) else "text"
    rest = rest.filter(numbers & rest.str.contains(NUMBER))
    if use != "measure" and rest.str.contains(LEADING_ZERO).any():
        return "text"  # codes such as 007
    if use == "name":
        if rest.str.contains(INTEGER_NAME).mean() >= MOST:  # type: ignore[operator]
            return "integer"
        return "number" if rest.str.contains(NUMBER_NAME).all() else "text"
    if not rest.str.contains(INTEGER).all():
        return "number"
    if rest.cast(polars.Int64, strict=False).is_not_null().all():
        return "integer"
    return "number" if use == "measure" else "text"  # an identifier with more digits than a number can have


def _decimal_commas(texts: polars.Series) -> bool:
    """Whether these are numbers with decimal commas, and not with commas between thousands."""
    alike = texts.str.contains(COMMA_NUMBER)
    if alike.mean() < MOST:  # type: ignore[operator]
        return False
    with_comma = texts.filter(alike & texts.str.contains(",", literal=True))
    return len(with_comma) > 0 and not with_comma.str.contains(THOUSANDS).all()


def converted(texts: polars.Series, kind: TextType, use: Use) -> Converted:
    """Convert texts to a type; the usual words for missing become null.

    A boolean in a column of numbers is 0 or 1, and a number in a column of booleans is itself, as in ``number_in``.
    """
    import polars

    if kind in ("text", "empty"):
        values = texts if kind == "text" else polars.Series(texts.name, [None]).new_from_index(0, len(texts))
        return Converted(values, polars.repeat(False, len(texts), eager=True))
    bare = texts.str.strip_chars()
    lower = bare.str.to_lowercase()
    missing, never = lower.is_in(MISSING) | texts.is_null(), polars.repeat(False, len(texts), eager=True)
    true, false = (lower.is_in(words).fill_null(False) for words in (TRUE, FALSE))
    if kind == "boolean" and (true | false | missing).all():
        return Converted(true.set(missing, None).alias(texts.name), never)
    if kind == "integer":
        values = bare.cast(polars.Int64, strict=False)
        bad = values.is_null() & ~missing
        if use == "name":
            bad |= (values.cast(polars.String) != bare).fill_null(False)
            return Converted(values.set(bad, None), bad)
        if not bad.any():
            return Converted(values, bad)
    if kind == "decimal comma":
        bare = bare.set(bare.str.contains(".", literal=True).fill_null(False), "not a number").str.replace(",", ".")
    values = bare.cast(polars.Float64, strict=False).fill_nan(None)
    if use != "name":
        values = values.set(true, 1.0).set(false, 0.0)
    too_large = values.is_infinite() & ~lower.str.contains(INFINITE)
    bad = ((values.is_null() | too_large) & ~missing).fill_null(False)
    if use == "name":
        bad |= ~(bare.str.contains(NUMBER_NAME) | missing).fill_null(True)
    return Converted(values.set(bad, None), bad)


def fitted_text_types(features: Sequence[Feature]) -> dict[str, TextType]:
    """Return the types of columns that fitted features are made of, whatever a later file looks like."""
    kinds: dict[str, TextType] = {}
    for feature in features:
        if isinstance(feature, Category | Hashed):
            if not feature.several:
                kinds[feature.column] = "text"
        elif feature.place is None and not (isinstance(feature, Number) and feature.seconds):
            kinds[feature.column] = "decimal comma" if feature.comma else "number"
    return kinds


def action_text_type(names: Sequence[str]) -> TextType:
    """Return the type of the column of actions with these names."""
    if all(re.match(NUMBER_NAME, name) and re.match(INTEGER_NAME, name) for name in names):
        return "number"
    return "integer" if all(re.match(INTEGER_NAME, name) for name in names) else "text"


NUMBERS: tuple[JsonKind, ...] = ("integer", "long", "huge", "number")
KINDS: dict[type, JsonKind] = {bool: "boolean", float: "number", str: "text", list: "list", dict: "object"}
ONLY_LISTS, ONLY_OBJECTS, ONLY_BOOLEANS, INTEGERS, EXACT_NUMBERS, LOSSLESS = map(
    frozenset[str],
    (["list"], ["object"], ["boolean"], ["integer", "long"], ["integer", "number"], ["boolean", "text"]),
)


class Shape:
    """What the JSON values of a field have in common; values are added one by one."""

    __slots__ = ("counts", "entries", "fields")

    def __init__(self, kind: JsonKind | None = None) -> None:
        self.counts: dict[JsonKind, int] = {} if kind is None else {kind: 0}  # values of each kind, nulls left out
        self.entries: Shape | None = None  # of lists
        self.fields: dict[str, Shape] = {}  # of objects

    def with_value(self, value: Any) -> Shape:
        """Add a value."""
        if value is None:
            return self
        if type(value) is int:
            exact, fits = -EXACT_FLOAT <= value <= EXACT_FLOAT, -INT64 <= value < INT64
            kind: JsonKind = "integer" if exact else "long" if fits else "huge"
        else:
            kind = KINDS[type(value)]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if kind == "list":
            self.entries = self.entries or Shape()
            for entry in value:
                self.entries.with_value(entry)
        elif kind == "object":
            for name, entry in value.items():
                known = self.fields.get(name)
                if known is None:
                    known = self.fields[name] = Shape()
                known.with_value(entry)
        return self

    @property
    def dtype(self) -> Any:
        """The polars type that holds all values without loss; text if they have nothing else in common."""
        import polars as pl

        kinds = self.counts.keys()
        if kinds == ONLY_LISTS:
            return pl.List((self.entries or Shape()).dtype)
        if kinds == ONLY_OBJECTS and self.fields:
            return pl.Struct({name: shape.dtype for name, shape in self.fields.items()})
        if kinds and kinds <= INTEGERS:
            return pl.Int64()
        if kinds and kinds <= EXACT_NUMBERS:
            return pl.Float64()
        return pl.Boolean() if kinds == ONLY_BOOLEANS else pl.String()

    def likely_dtype(self, use: Use = "feature") -> Any:
        """The polars type of most values, if these are numbers; a few others will not match it."""
        import polars as pl

        kinds, total = self.counts.keys(), sum(self.counts.values())
        if total == 0:
            return pl.Null()
        if kinds == ONLY_OBJECTS:
            return self.record_dtype if self.fields else pl.Null()
        if kinds == ONLY_LISTS:
            return pl.List((self.entries or Shape()).likely_dtype())
        if kinds == ONLY_BOOLEANS:
            return pl.Boolean()
        if sum(self.counts.get(kind, 0) for kind in NUMBERS) < MOST * total:
            return pl.String()
        if "number" in kinds or ("huge" in kinds and use != "name"):
            return pl.Float64()
        return pl.String() if "huge" in kinds else pl.Int64()

    @property
    def record_dtype(self) -> Any:
        """The likely type of the objects among the values."""
        import polars as pl

        return pl.Struct({name: shape.likely_dtype() for name, shape in self.fields.items()})

    def fitted(self, value: Any) -> Any:
        """Return a value as a column of ``dtype`` takes it."""
        if value is None:
            return None
        kinds = self.counts.keys()
        if kinds == ONLY_LISTS:
            entries = self.entries or Shape()
            return [entries.fitted(each) for each in value]
        if kinds == ONLY_OBJECTS:
            return {name: shape.fitted(value.get(name)) for name, shape in self.fields.items()} or None
        if kinds <= INTEGERS or (len(kinds) == 1 and kinds <= LOSSLESS):
            return value
        return float(value) if kinds <= EXACT_NUMBERS else text_of(value)


def shape_of(values: Sequence[Any]) -> Shape:
    """Return the shape of some values."""
    shape = Shape()
    for value in values:
        shape.with_value(value)
    return shape


def frame_of(records: Sequence[dict[str, Any]], shape: Shape) -> polars.DataFrame:
    """Return records as a table with one column for each field of ``shape``."""
    from polars import DataFrame, Series

    return DataFrame(
        {
            name: Series([each.fitted(record.get(name)) for record in records], dtype=each.dtype)
            for name, each in shape.fields.items()
        }
    )


def fitted_json_type(features: Sequence[Feature], holder: str, found: Any) -> Any:
    """Return the type of a field that fitted features are made of; ``found`` is the one it has here."""
    import polars

    own = next((feature for feature in features if feature.column == holder), None)
    if own is not None:
        plain = polars.Float64() if isinstance(own, Number | Flag) else polars.String()
        several = own.place is not None if isinstance(own, Number | Flag) else own.several
        return polars.List(plain) if several else plain
    inner: dict[str, list[Feature]] = {}
    fields = {field.name: field.dtype for field in found.fields} if isinstance(found, polars.Struct) else {}
    for feature in features:
        rest = feature.column.removeprefix(f"{holder}.")
        heads = [rest[:i] for i, letter in enumerate(f"{rest}.") if letter == "."]
        # The name of a field may itself have dots.
        head = next((each for each in reversed(heads) if each in fields), heads[0])
        inner.setdefault(head, []).append(msgspec.structs.replace(feature, column=rest))
    return polars.Struct({name: fitted_json_type(those, name, fields.get(name)) for name, those in inner.items()})


def json_column(
    name: str, values: Sequence[Any], dtype: polars.DataType, mismatches: list[Mismatch] | None = None
) -> polars.Series:
    """Return JSON values as a column; those that do not match its type become null and go to ``mismatches``."""
    import polars

    plain = {polars.Float64(): float, polars.String(): str, polars.Boolean(): bool}.get(dtype)
    if {*map(type, values)} <= {plain, type(None)}:
        return polars.Series(name, values, dtype=dtype)
    fitted = []
    for row, value in enumerate(values):
        misfits: list[tuple[str, Any]] = []
        fitted.append(_fitted(value, dtype, name, misfits))
        if mismatches is not None:
            mismatches += [Mismatch(where, row, text_of(misfit)) for where, misfit in misfits]
    return polars.Series(name, fitted, dtype=dtype)


def json_texts(name: str, values: Sequence[Any], dtype: Any, mismatches: list[Mismatch]) -> polars.Series:
    """Return JSON values as a column of texts, which ``converted`` takes; records and lists as they are."""
    import polars

    if dtype in (polars.Struct, polars.List):
        return json_column(name, values, _widened_for(shape_of(values), dtype), mismatches)
    return polars.Series(name, [None if value is None else text_of(value) for value in values], dtype=polars.String)


def widened(dtype: Any) -> Any:
    """Return a type with floats in place of integers."""
    import polars

    if isinstance(dtype, polars.Struct):
        return polars.Struct({field.name: widened(field.dtype) for field in dtype.fields})
    if isinstance(dtype, polars.List):
        return polars.List(widened(dtype.inner))
    return polars.Float64() if dtype == polars.Int64 else dtype


def _widened_for(shape: Shape, dtype: Any) -> Any:
    """Return a type with floats in place of integers and booleans if the values of ``shape`` are not all such."""
    import polars

    if isinstance(dtype, polars.Struct):
        fields = {field.name: shape.fields.get(field.name, Shape()) for field in dtype.fields}
        return polars.Struct({field.name: _widened_for(fields[field.name], field.dtype) for field in dtype.fields})
    if isinstance(dtype, polars.List):
        return polars.List(_widened_for(shape.entries or Shape(), dtype.inner))
    same = shape.counts.keys() <= (INTEGERS if dtype == polars.Int64 else ONLY_BOOLEANS)
    return polars.Float64() if dtype in (polars.Int64, polars.Boolean) and not same else dtype


def _fitted(value: Any, dtype: Any, name: str, misfits: list[tuple[str, Any]]) -> Any:
    """Return a value of a type, or None if it is of another; that one goes to the misfits."""
    import polars

    if value is None or dtype == polars.Null:
        return None
    if isinstance(dtype, polars.Struct) and isinstance(value, dict):
        return {
            field.name: _fitted(value.get(field.name), field.dtype, f"{name}.{field.name}", misfits)
            for field in dtype.fields
        }
    if isinstance(dtype, polars.List) and isinstance(value, list):
        return [_fitted(item, dtype.inner, name, misfits) for item in value]
    if dtype == polars.String:
        return text_of(value)
    if dtype == polars.Boolean and isinstance(value, bool):
        return value
    if dtype == polars.Int64 and type(value) is int and -INT64 <= value < INT64:
        return value
    if dtype == polars.Float64 and isinstance(value, str | int | float):
        with suppress(ValueError, OverflowError):
            number = number_in(value) if isinstance(value, str) else float(value)
            if number is None or math.isfinite(number):
                return number
    misfits.append((name, value))
    return None
