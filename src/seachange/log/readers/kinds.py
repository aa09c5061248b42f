"""What the texts of a column stand for: numbers, flags or themselves. Decided once, from the head of a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from seachange.log.features import Category, Feature, Hashed, Number

if TYPE_CHECKING:
    import polars

Kind = Literal["whole", "number", "comma number", "flag", "text", "nothing"]
Role = Literal["name", "measure", "feature"]  # actions and sequences; rewards and propensities; all others

# Words that stand for a missing number, in lower case.
MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "-", "--", "?", "\\n", ".")
TRUE, FALSE = ("true", "yes"), ("false", "no")
# A column is of a kind if this share of its texts is. What must be numbers anyway need only be so by half.
MOST = 0.9
SHARE: dict[Role, float] = {"name": MOST, "measure": 0.5, "feature": MOST}
WHOLE = r"^[+-]?[0-9]+$"
NAMELY_WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"  # one spelling a number, in 64 bits
NAMELY_NUMBER = r"^(0|-?[1-9][0-9]{0,14})(\.0*)?$"  # as tables write whole numbers where some are missing
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
COMMA_NUMBER = r"^[+-]?[0-9]+(,[0-9]+)?$"
THOUSANDS = r"^[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+$"
LEADING_ZERO = r"^[+-]?0[0-9]"
INFINITE = r"^[+-]?inf(inity)?$"


class Typed(NamedTuple):
    """A column read as its kind, and where it is not."""

    values: polars.Series
    bad: polars.Series  # of booleans: a text that is neither of the kind nor missing


class Odd(NamedTuple):
    """A value of a feature that is not of its column's kind and counts as missing."""

    name: str  # of the column or field, nested ones with dots
    row: int
    text: str


def kind_of_texts(texts: polars.Series, role: Role) -> Kind:
    """The kind of a column of texts, by its head."""
    known = texts.drop_nulls().str.strip_chars()
    lower = known.str.to_lowercase()
    rest, lower = known.filter(~lower.is_in(MISSING)), lower.filter(~lower.is_in(MISSING))
    if len(rest) == 0:
        return "text" if (known != "").any() and role == "name" else "nothing"
    if lower.is_in(TRUE + FALSE).all() and role != "name":
        return "flag"
    numbers = rest.str.contains(NUMBER)
    if role == "measure":
        numbers |= lower.is_in(TRUE + FALSE)
    if numbers.mean() < SHARE[role]:  # type: ignore[operator]
        return "comma number" if role != "name" and _decimal_commas(rest) else "text"
    rest = rest.filter(numbers & rest.str.contains(NUMBER))
    if role != "measure" and rest.str.contains(LEADING_ZERO).any():
        return "text"  # codes, such as 007
    return _kind_of_names(rest) if role == "name" else _kind_of_numbers(rest, role)


def _kind_of_names(numbers: polars.Series) -> Kind:
    """Names that are numbers are so only in one spelling, so that none stands for another."""
    if numbers.str.contains(NAMELY_WHOLE).mean() >= MOST:  # type: ignore[operator]
        return "whole"
    return "number" if numbers.str.contains(NAMELY_NUMBER).all() else "text"


def _kind_of_numbers(numbers: polars.Series, role: Role) -> Kind:
    import polars

    if not numbers.str.contains(WHOLE).all():
        return "number"
    if numbers.cast(polars.Int64, strict=False).is_not_null().all():
        return "whole"
    return "number" if role == "measure" else "text"  # more digits make an identifier


def wanted_kinds(features: Sequence[Feature]) -> dict[str, Kind]:
    """What the texts of the columns stand for that features were made of, whatever a later file looks like."""
    kinds: dict[str, Kind] = {}
    for feature in features:
        if isinstance(feature, Category | Hashed):
            if not feature.several:
                kinds[feature.column] = "text"
        elif feature.place is None and not (isinstance(feature, Number) and feature.seconds):
            kinds[feature.column] = "comma number" if feature.comma else "number"
    return kinds


def kind_of_actions(names: Sequence[str]) -> Kind:
    """What the texts of actions stand for that have these names."""
    if all(re.match(NAMELY_NUMBER, name) and re.match(NAMELY_WHOLE, name) for name in names):
        return "number"
    return "whole" if all(re.match(NAMELY_WHOLE, name) for name in names) else "text"


def typed(texts: polars.Series, kind: Kind, role: Role) -> Typed:
    """Texts as values of a kind; a usual word for missing is null.

    In columns of numbers a flag is 0 or 1, and in columns of flags a number is itself, as ``number_in`` has it.
    """
    import polars

    if kind in ("text", "nothing"):
        values = texts if kind == "text" else polars.Series(texts.name, [None]).new_from_index(0, len(texts))
        return Typed(values, polars.repeat(False, len(texts), eager=True))
    bare = texts.str.strip_chars()
    lower = bare.str.to_lowercase()
    missing = lower.is_in(MISSING) | texts.is_null()
    if kind == "flag":
        values = polars.Series([None], dtype=polars.Boolean).new_from_index(0, len(texts))
        values = values.zip_with(~lower.is_in(TRUE).fill_null(False), polars.repeat(True, len(texts), eager=True))
        values = values.zip_with(~lower.is_in(FALSE).fill_null(False), polars.repeat(False, len(texts), eager=True))
        bad = values.is_null() & ~missing
        if not bad.any():
            return Typed(values.alias(texts.name), bad)
    if kind == "whole":
        values = bare.cast(polars.Int64, strict=False)
        bad = values.is_null() & ~missing
        if role == "name":
            bad |= (values.cast(polars.String) != bare).fill_null(False)
            return Typed(values.set(bad, None), bad)
        if not bad.any():
            return Typed(values, bad)
    if kind == "comma number":
        bare = bare.set(bare.str.contains(".", literal=True).fill_null(False), "two signs").str.replace(",", ".")
    values = bare.cast(polars.Float64, strict=False).fill_nan(None)
    if role != "name":
        values = values.set(lower.is_in(TRUE).fill_null(False), 1.0).set(lower.is_in(FALSE).fill_null(False), 0.0)
    too_large = values.is_infinite() & ~lower.str.contains(INFINITE)
    bad = ((values.is_null() | too_large) & ~missing).fill_null(False)
    if role == "name":
        bad |= ~(bare.str.contains(NAMELY_NUMBER) | missing).fill_null(True)
    return Typed(values.set(bad, None), bad)


def number_in(text: str, comma: bool = False) -> float | None:
    """What a text stands for in a column of numbers or flags: None if missing; other words raise a ValueError.

    With ``comma``, decimals stand behind one, 1,5 for 1.5.
    """
    bare = text.strip()
    lower = bare.lower()
    if lower in MISSING:
        return None
    if lower in TRUE + FALSE:
        return float(lower in TRUE)
    plain = bare if not comma else "two signs" if "." in bare else bare.replace(",", ".", 1)
    if not re.match(NUMBER, plain):
        raise ValueError(f"{text!r} is no number")
    return float(plain)


def _decimal_commas(texts: polars.Series) -> bool:
    """Whether these are numbers with a comma before their decimals, and not with commas between thousands."""
    alike = texts.str.contains(COMMA_NUMBER)
    if alike.mean() < MOST:  # type: ignore[operator]
        return False
    with_comma = texts.filter(alike & texts.str.contains(",", literal=True))
    return len(with_comma) > 0 and not with_comma.str.contains(THOUSANDS).all()
