"""Logs as files store them: rounds with raw features, before encoding and validation.

    file ──reader──► RawLog ──FeatureSpec──► BanditLog

A reader only reports what a file holds. ``seachange.log.features`` decides what its raw features become, and
``seachange.log.validation`` whether the numbers make sense.
"""

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import polars

from seachange.protocols import Bools, Floats, Ints

if TYPE_CHECKING:
    from seachange.log.bandit_log import BanditLog

PART_ROWS = 1 << 17  # rounds per part, unless a caller wants another number
PER_ROUND = ("action", "reward", "propensity", "time", "sequence", "event")  # columns besides the features
UNREADABLE = "unreadable-lines"  # the rule of rejected lines that break none of the rules about single rounds
Kind = Literal["number", "time", "text", "numbers", "texts", "nothing", "other"]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# Words that mean a missing number, in lower case; and words for 1 and 0.
MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "-", "--", "?", "\\n", ".")
TRUE, FALSE = ("true", "yes"), ("false", "no")
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line or row that cannot be read as a round."""

    source: str  # the file's name
    line: int  # in that file; lines of text and rows of a table count from 1
    reason: str  # what is wrong with it
    text: str = ""  # the line itself, shortened
    rule: str = UNREADABLE  # the rule it breaks: one of seachange.log.validation.RULES, if it is about one value


@dataclass(frozen=True, eq=False)
class Pool:
    """The actions that each round could choose among, if they differ between rounds."""

    offsets: Ints  # (n + 1,): round t has the actions offsets[t] to offsets[t + 1]
    features: polars.DataFrame  # one row per action of a round: raw features, possibly no column
    names: polars.Series | None = None  # which action it is; None: an action is its place in the round's list
    probs: Floats | None = None  # (rows,) the whole logging distribution, if the file has it

    @property
    def lengths(self) -> Ints:
        """(n,) how many actions each round has."""
        return np.diff(self.offsets)

    @cached_property
    def owners(self) -> Ints:
        """(rows,) the round of each row."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def places(self) -> Ints:
        """(rows,) the place of each row in its round's list."""
        return np.arange(len(self.owners)) - self.offsets[:-1][self.owners]

    def lists(self, values: polars.Series) -> polars.Series:
        """The values of all rows, as one list per round."""
        rows = polars.DataFrame({"round": self.owners, values.name: values})
        return rows.group_by("round", maintain_order=True).agg(values.name)[values.name]

    def filter(self, kept: Bools) -> Self:
        """The lists of the rounds that are kept."""
        rows = np.repeat(kept, self.lengths)
        return type(self)(
            np.concatenate([[0], np.cumsum(self.lengths[kept])]),
            _filtered(self.features, rows),
            None if self.names is None else self.names.filter(polars.Series(rows)),
            None if self.probs is None else self.probs[rows],
        )


@dataclass(frozen=True, eq=False)
class RawRounds:
    """Consecutive rounds of one file."""

    source: str  # the file's name
    lines: Ints  # (n,) where each round is in that file; lines of text and rows of a table count from 1
    features: polars.DataFrame  # one row per round: raw features that all actions share, possibly no column
    action: polars.Series  # its name or number; with a pool, the place in the round's list, from 0
    reward: polars.Series
    propensity: polars.Series | None = None
    time: polars.Series | None = None
    sequence: polars.Series | None = None
    event: polars.Series | None = None  # the log's identifier of the round
    pool: Pool | None = None
    rejected: tuple[Rejected, ...] = ()  # lines between these rounds that could not be read

    def __len__(self) -> int:
        return len(self.lines)

    def filter(self, kept: Bools) -> Self:
        """The rounds that are kept, without the rejected lines."""
        columns = {word: getattr(self, word) for word in PER_ROUND}
        filtered: dict[str, Any] = {
            word: column if column is None else column.filter(polars.Series(kept)) for word, column in columns.items()
        }
        features, pool = _filtered(self.features, kept), None if self.pool is None else self.pool.filter(kept)
        return type(self)(self.source, self.lines[kept], features, pool=pool, **filtered)

    def in_parts(self, rows: int) -> Iterator[Self]:
        """The rounds at most ``rows`` at a time; rejected lines go with the rounds before them."""
        if len(self) <= rows:
            yield from [self] if len(self) or self.rejected else []
            return
        places, bounds = np.arange(len(self)), [-np.inf, *self.lines[rows::rows].tolist(), np.inf]
        for i, (first, beyond) in enumerate(pairwise(bounds)):
            rejected = tuple(each for each in self.rejected if first <= each.line < beyond)
            yield replace(self.filter(places // rows == i), rejected=rejected)


def _filtered(features: polars.DataFrame, kept: Bools) -> polars.DataFrame:
    """The rows that are kept; works for a table without columns, too."""
    return features.filter(polars.Series(kept)) if features.width else polars.DataFrame(height=int(kept.sum()))


def raw_rounds(log: "BanditLog", start: int, lists: bool, prefixes: tuple[str, str] = ("", "")) -> RawRounds:
    """A log as raw rounds, of which ``start`` come before the first; with ``lists``, each lists its actions.

    ``prefixes`` start the names of features that all actions share, and of those that each action has.
    """
    n, names, pool, times = len(log), polars.Series(log.action_names), None, log.times
    taken = names.gather(log.actions)
    if lists:
        mask = np.broadcast_to(log.arrays.mask, (n, log.n_actions))
        taken = polars.Series((np.cumsum(mask, axis=1) - 1)[np.arange(n), log.actions])
        offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
        features = log.contexts[mask] if log.joint.kind == "per action" else np.empty((offsets[-1], 0))
        probs = None if log.logging_probs is None else log.logging_probs[mask]
        pool = Pool(offsets, _frame(log, features, prefixes[1]), names.gather(np.nonzero(mask)[1]), probs)
    if times is not None and times.dtype.kind == "M":
        times = times.astype("datetime64[us]")  # a unit that polars supports
    return RawRounds(
        source="the log",
        lines=np.arange(start + 1, start + n + 1),
        features=_frame(log, log.contexts if log.joint.kind == "shared" else np.empty((n, 0)), prefixes[0]),
        action=taken.alias("action"),
        reward=polars.Series("reward", log.rewards),
        propensity=polars.Series("propensity", log.propensities) if log.propensities_known else None,
        time=None if times is None else polars.Series("time", times),
        sequence=None if log.sequences is None else polars.Series("sequence", log.sequences),
        pool=pool,
    )


def _frame(log: "BanditLog", rows: Floats, prefix: str) -> polars.DataFrame:
    columns = {prefix + name: rows[:, i] for i, name in enumerate(log.context_names[: rows.shape[1]])}
    return polars.DataFrame(columns) if columns else polars.DataFrame(height=len(rows))


class RawLog(Protocol):
    """An opened log. Nothing is read until ``parts`` is called."""

    @property
    def format(self) -> str:
        """The format's name: parquet, csv, tsv, json-lines, dsjson, vw, obp, open-bandit, yahoo-r6a, …"""

    @property
    def columns(self) -> dict[str, str]:
        """Which column or field holds the action, the reward, the propensity, the time, the sequence."""

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds in file order, at most ``rows`` at a time; each call starts over."""


class RawColumn(NamedTuple):
    """A column of a raw table that is not a table itself."""

    holder: str  # the table's column that it is, or is inside of
    kind: Kind  # "numbers" and "texts" are lists; dates are times, durations are numbers
    values: polars.Series


def raw_columns(frame: polars.DataFrame) -> dict[str, RawColumn]:
    """The columns of ``frame`` by name, nested ones as ``user.age``; a flat column of that name takes precedence."""
    found: dict[str, RawColumn] = {}
    for name, dtype in frame.schema.items():
        if dtype == polars.Struct:
            for inner, column in raw_columns(frame[name].struct.unnest()).items():
                found.setdefault(f"{name}.{inner}", column._replace(holder=name))
        else:
            found[name] = RawColumn(name, kind_of(dtype), frame[name])
    return found


def kind_of(dtype: Any) -> Kind:
    """The kind of feature that values of a polars type can become."""
    if dtype.is_numeric() or dtype in (polars.Boolean, polars.Time, polars.Duration):
        return "number"
    if dtype in (polars.Date, polars.Datetime):
        return "time"
    if dtype in (polars.String, polars.Categorical, polars.Enum):
        return "text"
    if dtype in (polars.List, polars.Array):
        inner = kind_of(dtype.inner)
        return {"number": "numbers", "text": "texts", "nothing": "nothing"}.get(inner, "other")  # type: ignore[return-value]
    return "nothing" if dtype == polars.Null else "other"


def numbers_of(series: polars.Series) -> npt.NDArray[Any]:
    """(n,) a column of numbers, times or durations (both in seconds); NaN if a value is missing."""
    dtype, unit = series.dtype, 1.0
    if dtype in (polars.Date, polars.Datetime):
        series, unit = series.cast(polars.Datetime("us")).dt.epoch("us"), 1e6
    elif dtype == polars.Duration:
        series, unit = series.dt.total_microseconds(), 1e6
    elif dtype == polars.Time:
        series, unit = series.cast(polars.Int64), 1e9
    elif dtype == polars.Boolean:
        series = series.cast(polars.UInt8)
    elif not (dtype.is_float() or dtype.is_integer()):
        series = series.cast(polars.Float64)
    # numpy divides; polars would multiply by the inverse, which is not the same to the bit.
    return np.asarray(series.to_numpy() if unit == 1.0 else series.cast(polars.Float64).to_numpy() / unit)


def as_lists(series: polars.Series) -> polars.Series:
    """Arrays of fixed length as lists."""
    return series.cast(polars.List(series.dtype.inner)) if isinstance(series.dtype, polars.Array) else series


def number_of(value: Any) -> float:
    """One value as ``numbers_of`` converts it; raises TypeError or ValueError if it is not a number."""
    if isinstance(value, dt.time):
        value = dt.datetime.combine(EPOCH, value.replace(tzinfo=None))
    if isinstance(value, dt.date):
        moment = value if isinstance(value, dt.datetime) else dt.datetime.combine(value, dt.time())
        value = (moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)) - EPOCH
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1) / 1e6
    if isinstance(value, str):
        raise TypeError(f"{value!r} is text")
    return float(value)


def time_of(value: Any) -> float:
    """One timestamp in seconds: a ``datetime`` object, text such as 2026-02-21T12:00, or seconds."""
    return number_of(dt.datetime.fromisoformat(value) if isinstance(value, str) else value)


def number_in(text: str, comma: bool = False) -> float | None:
    """The number that a text means in a column of numbers or flags; None if missing, ValueError for other words.

    With ``comma``, the decimal separator is a comma: 1,5 is 1.5.
    """
    bare = text.strip()
    lower = bare.lower()
    if lower in MISSING:
        return None
    if lower in TRUE + FALSE:
        return float(lower in TRUE)
    plain = bare if not comma else "two separators" if "." in bare else bare.replace(",", ".", 1)
    if not re.match(NUMBER, plain):
        raise ValueError(f"{text!r} is not a number")
    return float(plain)


def text_of(value: Any) -> str:
    """The text of a category's value: true as in JSON, 3 for 3.0, numbers without exponents."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and isfinite(value):
        value = float(value)
        # Like polars' JSON reader: of two shortest numerals that are equally close, the larger one.
        even = Decimal(repr(value))
        larger = Decimal(value).quantize(even, ROUND_HALF_UP)
        return format(larger if float(larger) == value else even, "f").removesuffix(".0")
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return str(value)


def distinct_texts(series: polars.Series) -> dict[str, Any]:
    """The distinct values of a column by their text, without missing ones."""
    return {text_of(value): value for value in _distinct(series).to_list()}


def coded(series: polars.Series, code: Callable[[str], int]) -> Ints:
    """(n,) the code of each value by its text; -1 if it is missing."""
    if series.dtype in (polars.Categorical, polars.Enum):
        series = series.cast(polars.String)
    distinct = _distinct(series)
    codes = np.array([code(text_of(value)) for value in distinct.to_list()], dtype=np.int64)
    if not len(codes):
        return np.full(len(series), -1)
    found = series.replace_strict(distinct, polars.Series(codes), default=-1, return_dtype=polars.Int64)
    return np.asarray(found.to_numpy(), dtype=np.int64)


def _distinct(series: polars.Series) -> polars.Series:
    return (series.fill_nan(None) if series.dtype.is_float() else series).unique().drop_nulls()
