"""Fields of a raw record: where they are found, and what is said where one that the log always had is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from seachange.errors import LogError, did_you_mean
from seachange.log.features import Feature

Record = Mapping[str, Any]
Get = Callable[[Record], Any]
# Fields that a message lists.
MOST_LISTED = 12


class AbsentField(Exception):  # noqa: N818
    """A record has no field that its log always had."""


def getter(column: str, required: bool) -> Get:
    """What finds a column in a record: under its own name, or nested where that has dots.

    A ``required`` one must be there, though its value may be None: a name with a letter wrong would be taken for a
    missing value in every round.
    """
    if "." in column:
        return _nested_getter(column, required)
    if not required:
        return lambda record: record.get(column)

    def get(record: Record) -> Any:
        value = record.get(column)
        if value is None and column not in record:
            raise AbsentField
        return value

    return get


def _nested_getter(column: str, required: bool) -> Get:
    dots = [place for place, letter in enumerate(column) if letter == "."]
    heads = [(column[:dot], getter(column[dot + 1 :], required)) for dot in dots]

    def get(record: Record) -> Any:
        if column in record:
            return record[column]
        for head, rest in heads:
            inner = record.get(head)
            if isinstance(inner, Mapping):
                return rest(inner)
        if required and not any(head in record and record[head] is None for head, _ in heads):
            raise AbsentField
        return None

    return get


def absent_fields(features: Iterable[Feature], record: Record, whose: str, where: str = "") -> LogError:
    """The error that names the fields of ``features`` that ``record`` lacks, and what it may have in their place."""
    wanted = {feature.column: getter(feature.column, required=True) for feature in features if not feature.marked}
    absent = [column for column, get in wanted.items() if _lacks(record, get)]
    spare = [key for key in _keys(record) if key not in wanted]
    near = ((key, did_you_mean(key, absent)) for key in spare)
    guess = next((f" There is {key!r}.{question}" for key, question in near if question), "")
    return LogError(
        f"{whose} must have the fields that the log always had: {_listed(list(wanted))}; {_listed(absent, repr)} "
        f"{'is' if len(absent) == 1 else 'are'} not there{where}.{guess} A value that is not known is None."
    )


def _lacks(record: Record, get: Get) -> bool:
    try:
        get(record)
    except AbsentField:
        return True
    return False


def _keys(record: Record, before: str = "") -> Iterator[str]:
    """The names of all fields, nested ones with dots."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{before}{key}.")
        else:
            yield f"{before}{key}"


def _listed(names: list[str], told: Callable[[str], str] = str) -> str:
    more = [f"{len(names) - MOST_LISTED} more"] if len(names) > MOST_LISTED else []
    return ", ".join([*map(told, names[:MOST_LISTED]), *more])
