"""FeatureSpec: how the raw columns of a log become feature vectors, recorded so that it can be repeated exactly.

It encodes single records here, and tables in ``seachange.log.encoding``.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property, lru_cache
from itertools import accumulate, count, islice
from typing import Annotated, Any, ClassVar, Literal, Self
from zlib import crc32

import msgspec
import numpy as np

from seachange.errors import LogError, did_you_mean
from seachange.log.raw import number_in, number_of, text_of, time_of
from seachange.log.validation import LARGEST
from seachange.protocols import Bools, Floats

Encoded = tuple[Floats | None, Bools | None]  # a context and an action mask, as deployers take them
Record = Mapping[str, Any]
Get = Callable[[Record], Any]  # finds a field of a record
Write = Callable[[Any, Any], None]  # writes the features of a value into a row
ABSENT = object()  # a field that a record lacks, although the log always had it
ACTIONS = "actions"  # the key of a record that lists the actions of its round, if they differ between rounds
EMPTY_IS_MISSING = ("csv", "tsv")  # formats that cannot tell an empty text from a missing one
ALIKE = 0.8  # from this similarity on, an unknown key is taken for a misspelled column
LISTED_FIELDS = 12  # fields that an error lists
LISTED_VALUES = 8  # values of a category that its description lists
MOST_DOTS = 32  # dots of a column's name after which a nested field may begin
MOST_BUCKETS = 1 << 16  # the most buckets that a model file may ask for


def _labels(names: list[str], label: str, marked: bool) -> tuple[str, ...]:
    return (*names, f"{label} missing") if marked else tuple(names)


class _OfNumbers:
    """One feature for each number of a column, and its mark."""

    __slots__ = ()
    column: str
    marked: bool
    place: int | None

    @property
    def width(self) -> int:
        """Number of its features."""
        return 1 + self.marked

    @property
    def names(self) -> tuple[str, ...]:
        """Of its features."""
        label = self.column if self.place is None else f"{self.column}[{self.place}]"
        return _labels([label], label, self.marked)


class Number(_OfNumbers, msgspec.Struct, frozen=True, tag="number"):
    """(x - mean) / scale; missing values become the mean, which is 0."""

    column: str  # nested ones with dots: user.age
    mean: float
    scale: Annotated[float, msgspec.Meta(gt=0)]
    marked: bool = False  # an extra 0/1 feature is 1 if the value is missing
    place: int | None = None  # which entry of the column's lists
    seconds: bool = False  # it is a timestamp or a duration
    comma: bool = False  # as text it has a decimal comma: 1,5

    @property
    def description(self) -> str:
        """The encoding, in words."""
        unit = " in seconds" if self.seconds else ""
        return f"number{unit}, mean {self.mean:.6g}, standard deviation {self.scale:.6g}"


class Flag(_OfNumbers, msgspec.Struct, frozen=True, tag="flag"):
    """0 or 1, unchanged; missing values become 0."""

    column: str
    marked: bool = False
    place: int | None = None
    comma: bool = False
    mean: ClassVar[float] = 0.0
    scale: ClassVar[float] = 1.0
    seconds: ClassVar[bool] = False

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
    def width(self) -> int:
        """Number of its features."""
        return len(self.values) + 1 + self.marked

    @property
    def names(self) -> tuple[str, ...]:
        """Of its features."""
        return _labels([f"{self.column}={value}" for value in (*self.values, "other")], self.column, self.marked)

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
    def width(self) -> int:
        """Number of its features."""
        return self.buckets + self.marked

    @property
    def names(self) -> tuple[str, ...]:
        """Of its features."""
        return _labels([f"{self.column} bucket {i}" for i in range(self.buckets)], self.column, self.marked)

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
        n_shared, n_pool = width_of(self.shared), width_of(self.pool)
        return n_pool * (1 + n_shared * self.crossed) if self.pool else n_shared

    @property
    def least_name_length(self) -> int:
        """A lower bound on the total length of ``context_names``: each name contains the names of its columns."""
        shared, pool = (sum(len(each.column) * each.width for each in side) for side in (self.shared, self.pool))
        if not self.pool:
            return shared
        n_shared, n_pool = width_of(self.shared), width_of(self.pool)
        return pool + self.crossed * (pool * n_shared + shared * n_pool)

    def encodes_like(self, other: Self) -> bool:
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
        it is an error. Extra keys are ignored, except that a key which looks like the misspelled name of an absent
        column is an error. If each round has its own list of actions, pass it under ``actions``: one mapping per
        action, or their names.
        """
        return self._encoder(record)

    @cached_property
    def _encoder(self) -> Callable[[Mapping[str, Any]], Encoded]:
        return _record_encoder(self)

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
        starts = accumulate((feature.width for feature in features), initial=0)
        scales = {names[i]: each.scale for each, i in zip(features, starts, strict=False) if isinstance(each, Number)}
        return scales.get(name)


def width_of(features: Iterable[Feature]) -> int:
    """The number of features that ``features`` make."""
    return sum(feature.width for feature in features)


def plain_features(context_names: Sequence[str], action_names: Sequence[str]) -> FeatureSpec:
    """Numbers unchanged, for models that were learned from arrays."""
    numbers = tuple(Number(name, 0.0, 1.0) for name in context_names)
    return FeatureSpec("arrays", {}, tuple(action_names), numbers, holders=tuple(context_names))


def _numbered(names: Sequence[str]) -> tuple[str, ...]:
    """The names; repeated ones are numbered."""
    seen: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(1))
    numbered = ((name, next(seen[name])) for name in names)
    return tuple(name if number == 1 else f"{name} ({number})" for name, number in numbered)


def code_of(feature: Category | Hashed) -> Callable[[str], int]:
    """Maps a text to its place among the features of ``feature``."""
    if isinstance(feature, Hashed):
        buckets = feature.buckets
        return lambda text: crc32(text.encode()) % buckets
    codes, other = {value: place for place, value in enumerate(feature.values)}, len(feature.values)
    return lambda text: codes.get(text, other)


def code_of_missing(feature: Category | Hashed) -> int:
    """The place of a missing value; -1 if it has none."""
    if feature.marked:
        return feature.width - 1
    return len(feature.values) if isinstance(feature, Category) and not feature.several else -1


def _record_encoder(spec: FeatureSpec) -> Callable[[Record], Encoded]:
    """A function that encodes records, bit-equal to the rows of a table."""
    width, n_own, n_actions = width_of(spec.shared), width_of(spec.pool), spec.n_actions
    write_shared = _row_writer(spec, spec.shared, "a record")
    write_own = _row_writer(spec, spec.pool, f"each of {ACTIONS!r}")
    places = {name: place for place, name in enumerate(spec.action_names)}

    def shared_row(record: Record) -> Floats:
        row = np.zeros(width, dtype=spec.precision)
        write_shared(record, row)
        return row

    def mask_of(actions: Sequence[Any]) -> Bools:
        mask = np.zeros(n_actions, dtype=bool)
        if not spec.named:
            mask[: len(actions)] = True
            return mask
        mask[[places[name] for name in map(text_of, actions) if name in places]] = True
        if not mask.any():
            known = ", ".join(spec.action_names)
            raise LogError(f"none of the record's {len(actions)} actions is known; the known actions are {known}.")
        return mask

    def encoded(record: Record) -> Encoded:
        if not isinstance(record, Mapping):
            raise LogError(f"a record must be a mapping of columns to values; got a {type(record).__name__}.")
        if not spec.pool:
            context = shared_row(record) if width else None
            return context, mask_of(_listed_actions(record, spec)) if spec.listed else None
        actions = _listed_actions(record, spec)
        context = np.zeros((n_actions, spec.n_features), dtype=spec.precision)
        for place, action in enumerate(actions):
            write_own(action, context[place], place)
        if spec.crossed:
            products = shared_row(record)[:, None] * context[: len(actions), None, :n_own]
            context[: len(actions), n_own:] = products.reshape(len(actions), -1)
        return context, mask_of(actions)

    return encoded


def _listed_actions(record: Record, spec: FeatureSpec) -> Sequence[Any]:
    actions = record.get(ACTIONS)
    if not isinstance(actions, Sequence) or isinstance(actions, str) or len(actions) == 0:
        raise LogError(f"a record must list its available actions under {ACTIONS!r}; this one has {actions!r}.")
    if not spec.named and len(actions) > spec.n_actions:
        raise LogError(f"a record can list at most {spec.n_actions} actions, the most in the log; got {len(actions)}.")
    if spec.pool and not all(isinstance(action, Mapping) for action in actions):
        raise LogError(f"each of {ACTIONS!r} must be a mapping of columns to values.")
    return actions


def _row_writer(spec: FeatureSpec, features: Sequence[Feature], whose: str) -> Callable[..., None]:
    """A function that writes all ``features`` of a record into a row of zeros."""
    fields: list[tuple[Get, Write]] = []
    first = 0
    for feature in features:
        if isinstance(feature, Number | Flag):
            write = _number_writer(feature, first)
        else:
            write = _text_writer(feature, first, spec.format in EMPTY_IS_MISSING)
        fields.append((_getter(feature.column, None if feature.marked else ABSENT), write))
        first += feature.width

    optional = {feature.column for feature in features if feature.marked}
    named = {*spec.sources, *spec.columns.values(), *(each.column for each in spec.left_out), ACTIONS}
    known = {name[:end] for name in named for end in (*_dots(name), len(name))}

    def write_row(record: Record, row: Any, index: int | None = None) -> None:
        if optional and not (known >= record.keys() and not any(isinstance(v, Mapping) for v in record.values())):
            _refuse_misspelled(record, optional, known, whose)
        for get, write in fields:
            value = get(record)
            if value is ABSENT:
                where = "" if index is None else f" from the one at index {index}"
                raise _absent_fields(features, record, whose, where)
            write(value, row)

    return write_row


def _number_writer(feature: Number | Flag, first: int) -> Write:
    mean, scale, seconds, comma, marked = feature.mean, feature.scale, feature.seconds, feature.comma, feature.marked
    place, label, convert = feature.place, feature.names[0], time_of if seconds else number_of

    def write(value: Any, row: Any) -> None:
        if place is not None and value is not None:
            try:
                if isinstance(value, str):
                    raise TypeError("text is not a list")
                value = value[place] if place < len(value) else None
            except (TypeError, KeyError) as error:
                raise LogError(f"{feature.column!r} must be a list of numbers; the record has {value!r}.") from error
        try:
            if type(value) is str and not seconds:
                value = number_in(value, comma)
            if value is None or value != value:
                if marked:
                    row[first + 1] = 1.0
                return
            number = value if type(value) is float else convert(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise LogError(f"{label!r} must be a number; the record has {value!r}.") from error
        if not -LARGEST <= number <= LARGEST:
            raise LogError(f"{label!r} must be finite and at most {LARGEST:g} in size; the record has {value!r}.")
        row[first] = (number - mean) / scale

    return write


def _text_writer(feature: Category | Hashed, first: int, empty_is_missing: bool) -> Write:
    code, missing, several = code_of(feature), code_of_missing(feature), feature.several
    nothing = "" if empty_is_missing and not several else None

    def write(value: Any, row: Any) -> None:
        if several and value is not None:
            if isinstance(value, str) or not hasattr(value, "__iter__"):
                raise LogError(f"{feature.column!r} must be a list; the record has {value!r}.")
            for each in value:
                if each is not None and each == each:
                    row[first + code(text_of(each))] = 1.0
            return
        absent = value is None or value != value or value == nothing
        place = missing if absent else code(value if type(value) is str else text_of(value))
        if place >= 0:
            row[first + place] = 1.0

    return write


@lru_cache(4096)
def _getter(column: str, absent: Any) -> Get:
    """A function that finds a column in a record, under its own name or nested if it has dots; else ``absent``.

    A column whose parent is None is present: otherwise a misspelled name would silently count as missing.
    """
    heads = [(column[:dot], column[dot + 1 :]) for dot in _dots(column)]

    def get(record: Record) -> Any:
        value = record.get(column)
        if value is not None or column in record:
            return value
        for head, rest in heads:
            inner = record.get(head)
            if isinstance(inner, Mapping):
                return _getter(rest, absent)(inner)
        return None if any(head in record and record[head] is None for head, _ in heads) else absent

    return get


def _dots(column: str) -> list[int]:
    """The first dots of a name; each may stand between a record and one of its fields."""
    return list(islice((place for place, letter in enumerate(column) if letter == "."), MOST_DOTS))


def _refuse_misspelled(record: Record, optional: set[str], known: set[str], whose: str) -> None:
    """Raise if a key is unknown and resembles an optional column that the record lacks, which would count as missing.

    Names that differ only in their digits are different features, not mistakes.
    """
    absent = [column for column in optional if _getter(column, ABSENT)(record) is ABSENT]
    for key in _keys(record):
        unknown, lower = key not in known, {each.lower(): each for each in absent}
        near = [lower[each] for each in get_close_matches(key.lower(), lower, n=1, cutoff=ALIKE) if unknown]
        if near and re.sub(r"\d", "", key) != re.sub(r"\d", "", near[0]):
            raise LogError(
                f"{whose} has the field {key!r}, which the log did not have. Did you mean {near[0]!r}? Rename it or "
                "leave it out."
            )


def _absent_fields(features: Iterable[Feature], record: Record, whose: str, where: str) -> LogError:
    """The error that names the fields of ``features`` that ``record`` lacks, and its most similar field."""
    wanted = list(dict.fromkeys(feature.column for feature in features if not feature.marked))
    absent = [column for column in wanted if _getter(column, ABSENT)(record) is ABSENT]
    near = ((key, did_you_mean(key, absent)) for key in _keys(record) if key not in wanted)
    guess = next((f" There is {key!r}.{question}" for key, question in near if question), "")
    verb = "is" if len(absent) == 1 else "are"
    return LogError(
        f"{whose} must have all fields that the log always had ({_some(wanted)}); {_some(absent, repr)} "
        f"{verb} missing{where}.{guess} Pass None for an unknown value."
    )


def _keys(record: Record, prefix: str = "") -> Iterator[str]:
    """The names of all fields, nested ones with dots."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _some(names: list[str], shown: Callable[[str], str] = str) -> str:
    more = [f"{len(names) - LISTED_FIELDS} more"] if len(names) > LISTED_FIELDS else []
    return ", ".join([*map(shown, names[:LISTED_FIELDS]), *more])
