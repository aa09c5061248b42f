"""The type of a column: inferred from its first values, then applied to all of them.

A column of texts (CSV) has a ``TextType``, a column of times a ``Clock``. JSON values have types of their own: a
``Shape`` collects them and decides on a polars type.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple, Self

import polars as pl
from msgspec.structs import replace

from seachange.errors import LogError
from seachange.log.features import Category, Feature, Flag, Hashed, Number
from seachange.log.raw import FALSE, MISSING, NUMBER, TRUE, number_in, text_of, time_of

TextType = Literal["integer", "number", "decimal comma", "boolean", "text", "empty"]
# How a column is used. Names are actions and sequences; measures are rewards and propensities.
Use = Literal["name", "measure", "feature"]

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

    values: pl.Series
    bad: pl.Series  # of booleans: neither of the type nor missing


class Mismatch(NamedTuple):
    """A value that does not match the type of its feature and counts as missing."""

    name: str  # of the column, or of a nested field with dots
    row: int
    text: str


# Texts


def known_texts(texts: pl.Series) -> pl.Series:
    """Return the texts that do not mean a missing value, without spaces around them."""
    bare = texts.drop_nulls().str.strip_chars()
    return bare.filter(~bare.str.to_lowercase().is_in(MISSING))


def text_type(texts: pl.Series, use: Use) -> TextType:
    """Infer the type of a column of texts from its first values."""
    known = known_texts(texts)
    if len(known) == 0:
        return "text" if use == "name" and (texts.drop_nulls().str.strip_chars() != "").any() else "empty"
    words, numbers = known.str.to_lowercase().is_in(TRUE + FALSE), known.str.contains(NUMBER)
    if words.all() and use != "name":
        return "boolean"
    if (numbers | words if use == "measure" else numbers).mean() < SHARE[use]:  # type: ignore[operator]
        return "decimal comma" if use != "name" and _decimal_commas(known) else "text"
    known = known.filter(numbers)
    if use != "measure" and known.str.contains(LEADING_ZERO).any():
        return "text"  # codes such as 007
    if use == "name":
        if known.str.contains(INTEGER_NAME).mean() >= MOST:  # type: ignore[operator]
            return "integer"
        return "number" if known.str.contains(NUMBER_NAME).all() else "text"
    if not known.str.contains(INTEGER).all():
        return "number"
    if known.cast(pl.Int64, strict=False).is_not_null().all():
        return "integer"
    return "number" if use == "measure" else "text"  # an identifier with more digits than a number can have


def _decimal_commas(texts: pl.Series) -> bool:
    """Whether these are numbers with decimal commas, and not with commas between thousands."""
    alike = texts.str.contains(COMMA_NUMBER)
    with_comma = texts.filter(alike & texts.str.contains(",", literal=True))
    return alike.sum() >= MOST * len(texts) and not with_comma.str.contains(THOUSANDS).all()


def converted(texts: pl.Series, kind: TextType, use: Use) -> Converted:
    """Convert texts to a type; the usual words for missing become null.

    A boolean in a column of numbers is 0 or 1, and a number in a column of booleans is itself, as in ``number_in``.
    """
    never = pl.repeat(False, len(texts), eager=True)
    if kind in ("text", "empty"):
        empty = pl.Series(texts.name, [None]).new_from_index(0, len(texts))
        return Converted(texts if kind == "text" else empty, never)
    if kind in ("integer", "number") and use != "name":  # quickly, if all are plain numbers
        values = texts.cast(pl.Int64 if kind == "integer" else pl.Float64, strict=False)
        if values.null_count() == texts.null_count() and (kind == "integer" or values.is_finite().all()):
            return Converted(values, never)
    bare = texts.str.strip_chars()
    lower = bare.str.to_lowercase()
    missing = lower.is_in(MISSING) | texts.is_null()
    true, false = (lower.is_in(words).fill_null(False) for words in (TRUE, FALSE))
    if kind == "boolean" and (true | false | missing).all():
        return Converted(true.set(missing, None).alias(texts.name), never)
    if kind == "integer":
        values = bare.cast(pl.Int64, strict=False)
        bad = values.is_null() & ~missing
        if use == "name":
            bad |= (values.cast(pl.String) != bare).fill_null(False)
            return Converted(values.set(bad, None), bad)
        if not bad.any():
            return Converted(values, bad)
    if kind == "decimal comma":
        bare = bare.set(bare.str.contains(".", literal=True).fill_null(False), "not a number").str.replace(",", ".")
    values = bare.cast(pl.Float64, strict=False).fill_nan(None)
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


# Times

Clock = Literal["number", "ms", "us", "ns", "day number", "date"]
# Numbers from here on are in this unit since 1970; as seconds they would be after the year 5000.
UNITS: dict[Clock, float] = {"ns": 1e17, "us": 1e14, "ms": 1e11}
# Other orders of day and month are never guessed.
EXAMPLES = "2026-01-31T18:30:00 (with a time zone, or in UTC), 31.01.2026 18:30 or 2026/01/31 18:30"
DAY_NUMBER = r"^(19[7-9]|20[0-9])[0-9](0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])$"  # 20260131
# Polars alone would accept more than this, such as spaces or a second 60.
ISO_8601 = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-5][0-9]([.][0-9]+)?)?([+-][0-9]{2}(:?[0-9]{2})?)?)?$"
FORMATS = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M%#z")


def clock_of(column: pl.Series, source: str) -> Clock:
    """Decide what the times of a column are, from its first values."""
    if column.dtype in (pl.Date, pl.Datetime):
        return "date"
    if column.dtype in (pl.Duration, pl.Null):
        return "number"
    texts = known_texts(column) if column.dtype == pl.String else None
    if texts is None and not column.dtype.is_numeric():
        raise _not_times(column, source, f"values of type {column.dtype}")
    numbers = (column if texts is None else texts).cast(pl.Float64, strict=False).drop_nulls()
    if texts is not None and (len(texts) == 0 or len(numbers) < SHARE["measure"] * len(texts)):
        if len(texts) and _parsed(texts).is_null().all():
            raise _not_times(column, source, repr(texts[0]))
        return "date"
    numbers = numbers.filter(numbers.abs() < INT64)  # others are not times in any unit
    if len(numbers) == 0:
        return "number"
    integers = numbers.cast(pl.Int64, strict=False)
    if (numbers == numbers.floor()).all() and integers.cast(pl.String).str.contains(DAY_NUMBER).all():
        return "day number"
    size = numbers.abs().quantile(0.5, "lower") or 0.0  # never between two values of different units
    return next((clock for clock, least in UNITS.items() if size >= least), "number")


def _not_times(column: pl.Series, source: str, found: str) -> LogError:
    return LogError(
        f"times must be seconds or dates such as {EXAMPLES}; column {column.name!r} of {source} has {found}. "
        "Name another column with columns={'time': ...}, or --columns time=... in a shell."
    )


def converted_times(column: pl.Series, clock: Clock) -> Converted:
    """Convert times to seconds or to UTC datetimes without a time zone."""
    missing = column.is_null()
    if column.dtype == pl.String:
        column = column.str.strip_chars()
        missing = (missing | column.str.to_lowercase().is_in(MISSING)).fill_null(True)
    if clock != "date":
        values = _of_numbers(column, clock)
    elif column.dtype in (pl.Date, pl.Datetime):
        values = _in_utc(column)
    else:
        values = _parsed(column.cast(pl.String))
    return Converted(values.alias(column.name), values.is_null() & ~missing)


def _of_numbers(column: pl.Series, clock: Clock) -> pl.Series:
    if column.dtype == pl.Duration:
        return column.dt.total_microseconds().cast(pl.Float64) / 1e6
    integers = column.cast(pl.Int64, strict=False)
    if column.dtype.is_float():
        integers = integers.set((integers.cast(column.dtype) != column).fill_null(True), None)
    if clock == "day number":
        return integers.cast(pl.String).str.to_datetime("%Y%m%d", strict=False, time_unit="us")
    numbers = column.cast(pl.Float64, strict=False)
    numbers = numbers.set((~numbers.is_finite()).fill_null(True), None)
    if clock == "number":
        return integers if (integers.is_null() == numbers.is_null()).all() else numbers
    if (integers.is_null() != numbers.is_null()).any():  # fractions of a unit
        integers = (numbers * {"ms": 1e3, "us": 1.0, "ns": 1e-3}[clock]).round().cast(pl.Int64, strict=False)
        clock = "us"
    return integers.cast(pl.Datetime(clock))  # type: ignore[arg-type]


def _parsed(texts: pl.Series) -> pl.Series:
    """Parse ISO 8601, with T or a space in the middle, with a zone or in UTC; also 31.01.2026 and 2026/01/31."""
    days = texts.str.replace(r"^([0-9]{2})[.]([0-9]{2})[.]([0-9]{4})", "${3}-${2}-${1}")
    days = days.str.replace(r"^([0-9]{4})/([0-9]{2})/([0-9]{2})", "${1}-${2}-${3}")
    plain = days.str.replace(r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[ t]", "${1}T").str.replace(r"\s*(UTC|GMT|[zZ])$", "+00:00")
    plain = plain.set(~plain.str.contains(ISO_8601).fill_null(False), None)
    values = pl.repeat(None, len(texts), dtype=pl.Datetime("us"), eager=True)
    for form in FORMATS:
        left = values.is_null() & plain.is_not_null()
        if not left.any():
            break
        parsed = plain.filter(left).str.to_datetime(form, strict=False, time_unit="us")
        values = values.scatter(left.arg_true(), _in_utc(parsed))
    return values


def _in_utc(column: pl.Series) -> pl.Series:
    if column.dtype == pl.Date:
        return column.cast(pl.Datetime("us"))
    if getattr(column.dtype, "time_zone", None) is not None:
        return column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return column


# JSON

JsonKind = Literal["boolean", "integer", "long", "huge", "number", "text", "list", "object"]
NUMBERS: tuple[JsonKind, ...] = ("integer", "long", "huge", "number")
KINDS: dict[type, JsonKind] = {bool: "boolean", float: "number", str: "text", list: "list", dict: "object"}
# Polars types take memory that grows with the square of their depth, and Python's stack is not deep either.
MAX_DEPTH = 32
TOO_DEEP = f"objects and lists are nested more than {MAX_DEPTH} deep"


def too_deep(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Whether objects and lists are nested more than ``depth`` deep."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(too_deep(each, depth - 1) for each in inner)


class Room:
    """How many more fields a shape and the shapes within it can take."""

    __slots__ = ("left", "left_out")

    def __init__(self, left: int) -> None:
        self.left, self.left_out = left, ""  # the first field that did not fit


class Shape:
    """What the JSON values of a field have in common; values are added one by one."""

    __slots__ = ("counts", "entries", "fields", "room")

    def __init__(self, room: Room | None = None) -> None:
        self.room = room  # None: for any number of fields
        self.counts: dict[JsonKind, int] = {}  # values of each kind, nulls left out
        self.entries: Shape | None = None  # of lists
        self.fields: dict[str, Shape] = {}  # of objects

    def with_value(self, value: Any) -> Self:
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
            self.entries = self.entries or Shape(self.room)
            for entry in value:
                self.entries.with_value(entry)
        elif kind == "object":
            for name, entry in value.items():
                known = self.fields.get(name)
                if known is None:
                    if self.room is not None:
                        if not self.room.left:
                            self.room.left_out = self.room.left_out or name
                            continue
                        self.room.left -= 1
                    known = self.fields[name] = Shape(self.room)
                known.with_value(entry)
        return self

    @property
    def dtype(self) -> Any:
        """The polars type that holds all values without loss; text if they have nothing else in common."""
        return self.likely_dtype(lossless=True)

    def likely_dtype(self, use: Use = "feature", lossless: bool = False) -> Any:
        """The polars type of most values, if these are numbers; a few others will not match it."""
        kinds, total = self.counts.keys(), sum(self.counts.values())
        if kinds == {"object"} and self.fields:
            return pl.Struct({name: shape.likely_dtype(lossless=lossless) for name, shape in self.fields.items()})
        if total == 0 or kinds == {"object"}:
            return pl.Null()
        if kinds == {"list"}:
            return pl.List((self.entries or Shape()).likely_dtype(lossless=lossless))
        if kinds == {"boolean"}:
            return pl.Boolean()
        n_numbers = sum(self.counts.get(kind, 0) for kind in NUMBERS)
        lossy = n_numbers < total or "huge" in kinds or {"long", "number"} <= kinds
        if (lossless and lossy) or n_numbers < MOST * total:
            return pl.String()
        if "number" in kinds or ("huge" in kinds and use != "name"):
            return pl.Float64()
        return pl.String() if "huge" in kinds else pl.Int64()

    @property
    def record_dtype(self) -> Any:
        """The likely type of the objects among the values."""
        return pl.Struct({name: shape.likely_dtype() for name, shape in self.fields.items()})


def shape_of(values: Iterable[Any], room: Room | None = None) -> Shape:
    """Return the shape of some values, with as many fields as there is room for."""
    shape = Shape(room)
    for value in values:
        shape.with_value(value)
    return shape


def frame_of(
    records: Sequence[Mapping[str, Any]],
    shape: Shape,
    features: Iterable[Feature] | None = None,
    mismatches: list[Mismatch] | None = None,
) -> pl.DataFrame:
    """Return records as a table with the fields of ``shape``, or with those that fitted ``features`` are made of."""
    types = {name: each.dtype for name, each in shape.fields.items()}
    fitted = {feature.column: feature for feature in features or ()}
    if features is not None:
        holders = by_holder(fitted.values(), types)
        types = {name: fitted_json_type(holders[name], name, types[name]) for name in types if name in holders}
    return pl.DataFrame(
        {
            name: json_column(name, [record.get(name) for record in records], dtype, mismatches, fitted)
            for name, dtype in types.items()
        }
    )


def by_holder(features: Iterable[Feature], names: Collection[str]) -> dict[str, list[Feature]]:
    """Return features by the one of the columns ``names`` that holds them: user for user.age."""
    found: dict[str, list[Feature]] = {}
    for feature in features:
        # The name of a column may itself have dots.
        heads = [feature.column[:i] for i, letter in enumerate(f"{feature.column}.") if letter == "."]
        found.setdefault(next((head for head in reversed(heads) if head in names), heads[0]), []).append(feature)
    return found


def fitted_json_type(features: Sequence[Feature], holder: str, found: Any) -> Any:
    """Return the type of a field that fitted features are made of; ``found`` is the one it has here."""
    own = next((feature for feature in features if feature.column == holder), None)
    if own is not None:
        plain = pl.Float64() if isinstance(own, Number | Flag) else pl.String()
        several = own.place is not None if isinstance(own, Number | Flag) else own.several
        return pl.List(plain) if several else plain
    fields = {field.name: field.dtype for field in found.fields} if isinstance(found, pl.Struct) else {}
    inner = [replace(feature, column=feature.column.removeprefix(f"{holder}.")) for feature in features]
    by_name = by_holder(inner, fields)
    return pl.Struct({name: fitted_json_type(those, name, fields.get(name)) for name, those in by_name.items()})


def json_column(
    name: str,
    values: Sequence[Any],
    dtype: pl.DataType,
    mismatches: list[Mismatch] | None = None,
    features: Mapping[str, Feature] | None = None,
) -> pl.Series:
    """Return JSON values as a column; those that do not match its type become null and go to ``mismatches``.

    ``features`` are the fitted features by column; they tell which texts are times or have decimal commas.
    """
    plain = {pl.Float64(): float, pl.String(): str, pl.Boolean(): bool, pl.Int64(): int}.get(dtype)
    if {*map(type, values)} <= {plain, type(None)}:
        with suppress(TypeError):  # of an integer with more than 64 bits
            return pl.Series(name, values, dtype=dtype)
    misfits: list[tuple[str, Any]] = []
    fit, fitted = _fitting(dtype, name, misfits, features or {}), []
    for row, value in enumerate(values):
        fitted.append(fit(value))
        if misfits and mismatches is not None:
            mismatches += [Mismatch(where, row, text_of(misfit)) for where, misfit in misfits]
        misfits.clear()
    return pl.Series(name, fitted, dtype=dtype)


def json_texts(name: str, values: Sequence[Any], dtype: Any, mismatches: list[Mismatch]) -> pl.Series:
    """Return JSON values as a column of texts, which ``converted`` takes; records and lists as they are."""
    if dtype in (pl.Struct, pl.List):
        return json_column(name, values, widened(dtype, shape_of(values)), mismatches)
    return pl.Series(name, [None if value is None else text_of(value) for value in values], dtype=pl.String)


def widened(dtype: Any, shape: Shape) -> Any:
    """Return a type with floats for integers and booleans that not all values of ``shape`` are."""
    if isinstance(dtype, pl.Struct):
        return pl.Struct(
            {each.name: widened(each.dtype, shape.fields.get(each.name, Shape())) for each in dtype.fields}
        )
    if isinstance(dtype, pl.List):
        return pl.List(widened(dtype.inner, shape.entries or Shape()))
    same = {pl.Int64: {"integer", "long"}, pl.Boolean: {"boolean"}}.get(dtype.base_type())
    return dtype if same is None or shape.counts.keys() <= same else pl.Float64()


def _fitting(
    dtype: Any, name: str, misfits: list[tuple[str, Any]], features: Mapping[str, Feature]
) -> Callable[[Any], Any]:
    """Return a function that takes a value to a type; one of another type becomes None and goes to the misfits."""
    if dtype == pl.Null:
        return lambda value: None
    if dtype == pl.String:
        return lambda value: None if value is None else text_of(value)
    fields: dict[str, Callable[[Any], Any]] = {}
    if isinstance(dtype, pl.Struct):
        fields = {one.name: _fitting(one.dtype, f"{name}.{one.name}", misfits, features) for one in dtype.fields}
        kind: Any = dict
    elif isinstance(dtype, pl.List):
        fit, kind = _fitting(dtype.inner, name, misfits, features), list
    else:
        feature = features.get(name)
        seconds, comma = getattr(feature, "seconds", False), getattr(feature, "comma", False)
        read = time_of if seconds else partial(number_in, comma=comma)
        kind = {pl.Boolean: bool, pl.Int64: int}.get(dtype.base_type(), float)

    def fitted(value: Any) -> Any:
        if value is None:
            return None
        if kind is float and isinstance(value, str | int | float):
            with suppress(ValueError, OverflowError):
                number = read(value) if isinstance(value, str) else float(value)
                if number is None or math.isfinite(number):
                    return number
        elif type(value) is kind and (kind is not int or -INT64 <= value < INT64):
            if kind is dict:
                return {each: fits(value.get(each)) for each, fits in fields.items()}
            return [fit(each) for each in value] if kind is list else value
        misfits.append((name, value))
        return None

    return fitted
