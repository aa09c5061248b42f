"""Tables: columns with roles, types that the first rows decide, rows that do not fit them; files or data frames."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import narwhals as nw
import numpy as np
import polars as pl
from narwhals.typing import IntoDataFrame

from seachange.errors import LogError, warn
from seachange.formats.column_roles import (
    Columns,
    context_columns,
    default_contexts,
    find_roles,
    named_like_propensities,
)
from seachange.formats.nested_fields import FieldPath, fields_in
from seachange.formats.sources import SHOWN, names_of, partition_keys
from seachange.formats.value_types import (
    Clock,
    Mismatch,
    TextType,
    Use,
    action_text_type,
    clock_of,
    converted,
    converted_times,
    fitted_text_types,
    known_texts,
    text_type,
)
from seachange.log.features import FeatureSpec
from seachange.log.raw import NUMBER, PART_ROWS, PER_ROUND, UNREADABLE, RawRounds, Rejected, kind_of, number_in, text_of
from seachange.protocols import Ints

# Rows of the first file, and of every further one, that decide the types; at most FEW_ROWS files are looked at.
HEAD_ROWS, FEW_ROWS = 10_000, 100
# Words for yes, for the example in an error message.
YES = ("ja", "oui", "si", "sí", "sì", "sim", "tak", "ano", "da", "evet", "kyllä", "y", "j", "t", "1")
# The rule that a value which cannot be read breaks.
RULE_OF_ROLE = {"reward": "reward-text", "propensity": "propensity-missing", "time": "time-missing"}
USES: dict[str, Use] = {"action": "name", "sequence": "name", "reward": "measure", "propensity": "measure"}


@dataclass(frozen=True)
class TableBlock:
    """Rows of one file, as the file has them."""

    path: Path
    lines: Ints
    frame: pl.DataFrame  # columns that are needed; texts that still have to be converted
    text: Callable[[int], str]  # the text of a row
    rejected: Sequence[Rejected] = ()
    mismatches: Sequence[Mismatch] = ()  # found inside records and lists


class Plan(NamedTuple):
    """What the first rows of a table decide."""

    features: list[str]
    types: dict[str, TextType]  # of the columns that hold texts
    clock: Clock


@dataclass
class UnusedValues:
    """Values that a pass over a log could not use, for one warning at its end."""

    mismatches: int = 0
    first: dict[str, str] = field(default_factory=dict)  # column → its first mismatch
    overruled: dict[str, str] = field(default_factory=dict)  # folder key → what a file has instead

    def add(self, mismatches: Sequence[Mismatch], lines: Ints, source: str) -> None:
        """Count the mismatches of a block."""
        self.mismatches += len(mismatches)
        for one in mismatches:
            self.first.setdefault(one.name, f"{_cut(one.text)!r} in line {lines[one.row]} of {source}")

    def warn(self) -> None:
        """Warn of the values that were not used."""
        messages = [
            f"column {name!r} is also a key of the folders, and they differ: {example}. The column is used."
            for name, example in self.overruled.items()
        ]
        if self.mismatches:
            verbs = ("values do", "count") if self.mismatches > 1 else ("value does", "counts")
            examples = "; ".join(f"{name!r} has {first}" for name, first in self.first.items())
            messages.append(
                f"{self.mismatches:,} {verbs[0]} not match the column's type and {verbs[1]} as missing: {examples}."
            )
        for message in messages:
            warn(message, stacklevel=4)


class TableLog:
    """A table in one or many files; subclasses read one format."""

    format: str
    every_column = False  # whether contexts include columns that may hold the propensities; set before ``parts``
    _by_file: Mapping[Path, Collection[str]] = {}

    def __init__(
        self, path: Path | Sequence[Path], columns: Columns | None = None, features: FeatureSpec | None = None
    ) -> None:
        self.paths = [path] if isinstance(path, Path) else list(path)
        self._asked = dict(columns or {})
        self.chosen_contexts = "contexts" in self._asked  # by the user
        self._paths: dict[str, FieldPath] = {}  # of columns that are nested fields
        self._spec = features
        self._sources = names_of(self.paths)
        # Folder names such as day=2026-01-01 are columns, too.
        self._keys = {file: {} if isinstance(path, Path) else partition_keys(file) for file in self.paths}
        keys = [key for pairs in self._keys.values() for key in pairs]
        self._available = list(dict.fromkeys([*self._names(), *keys]))
        roles = find_roles(self._available, self._asked, lambda: list(dict.fromkeys([*self._fields(), *keys])))
        self.columns, self.found, self.contexts = roles
        for column in self.columns.values():
            for file, names in self._by_file.items():
                if column not in names and column not in self._keys[file]:
                    raise LogError(
                        f"all files of a log must have the same columns; {column!r} is not in {file.name!r}."
                    )
        # Features that are fitted already decide the types, even if a later file looks different.
        self._fixed_types: dict[str, TextType] = {}
        if features is not None:
            self._fixed_types = fitted_text_types(features.shared)
            self._fixed_types[self.columns["action"]] = action_text_type(features.action_names)

    @property
    def commas(self) -> frozenset[str]:
        """The columns that have decimal commas."""
        return frozenset(name for name, kind in self._plan.types.items() if kind == "decimal comma")

    @cached_property
    def needed(self) -> list[str]:
        """The columns that are read, in the order of the table."""
        wanted = {*self.columns.values(), *self._plan.features}
        return [name for name in self._available if name in wanted]

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """Yield all rounds, in the order of the files, at most ``rows`` at a time."""
        types, unused = dict(self._plan.types), UnusedValues()
        for blocks in self._blocks(rows):
            yield from joined([self._rounds(block, types, unused) for block in blocks]).in_parts(rows)
        unused.warn()

    def _names(self) -> list[str]:
        """Return the columns that the files have."""
        self._by_file = self._names_by_file()
        return list(dict.fromkeys(name for names in self._by_file.values() for name in names))

    def _head(self) -> pl.DataFrame:
        """Return the first rows of these columns."""
        raise NotImplementedError

    def _blocks(self, rows: int) -> Iterator[Sequence[TableBlock]]:
        """Yield the needed columns of all rows, in order; the blocks of one item come from the same lines."""
        raise NotImplementedError

    def _names_by_file(self) -> Mapping[Path, Collection[str]]:
        """Return the columns of each file; all files must have the columns of the roles."""
        raise NotImplementedError

    def _fields(self) -> list[str]:
        """Return everything that can be named as a column."""
        return self._available

    def _nested(self, names: Collection[str]) -> list[str]:
        """Return what the user named that may be a nested field; a column of the same name goes first."""
        asked = [str(name) for role, name in self._asked.items() if role != "contexts"]
        return [name for name in (*asked, *(context_columns(self._asked) or [])) if "." in name and name not in names]

    @cached_property
    def _plan(self) -> Plan:
        samples, time = self._samples(), self.columns.get("time")
        clock: Clock = "number" if time is None else clock_of(samples[time], self.paths[0].name)
        uses = {name: USES.get(role, "feature") for role, name in self.columns.items()}
        found = {name: self._text_type(name, sample, uses.get(name, "feature")) for name, sample in samples.items()}
        types = {name: kind for name, kind in found.items() if kind is not None and name != time}
        _require_measures(self.columns, samples, types)
        features = self.contexts
        if features is None:
            values = {
                name: converted(samples[name], kind, "feature").values
                for name, kind in types.items()
                if samples[name].dtype == pl.String and named_like_propensities(name)
            }
            features = default_contexts(self._available, self.columns, samples | values, self.every_column)
        return Plan(features, types, clock)

    def _text_type(self, name: str, sample: pl.Series, use: Use) -> TextType | None:
        """Return what the texts of a column stand for; None if it holds no texts."""
        return (self._fixed_types.get(name) or text_type(sample, use)) if sample.dtype == pl.String else None

    def _samples(self) -> dict[str, pl.Series]:
        """Return the first values of every column; all values of a folder key."""
        samples = self._head().to_dict()
        for name in self._available:
            values = [keys[name] for keys in self._keys.values() if name in keys]
            samples.setdefault(name, pl.Series(name, values, dtype=pl.String))
        return samples

    def _rounds(self, block: TableBlock, types: dict[str, TextType], unused: UnusedValues) -> RawRounds:
        """Convert a block to rounds, and reject the rows whose roles cannot be converted."""
        roles = {name: role for role, name in self.columns.items()}
        source, lines, keys = self._sources[block.path], block.lines, self._keys[block.path]
        columns: dict[str, pl.Series] = {}
        rejected, mismatches = list(block.rejected), list(block.mismatches)
        good, present = np.ones(len(lines), dtype=bool), {*block.frame.columns}
        for name in self.needed:
            role = roles.get(name, "")
            if name not in present:
                column = pl.Series(name, [keys.get(name)]).new_from_index(0, len(lines))
            else:
                column = block.frame[name]
                if name in keys and (other := _difference(column, keys[name])):
                    unused.overruled.setdefault(name, f"{other} in {source}")
            use: Use = USES.get(role, "feature")
            if role == "time":
                found, expected = converted_times(column, self._plan.clock), "a time"
            elif column.dtype == pl.String:
                if types.setdefault(name, "text") == "empty":
                    types[name] = text_type(column, use)
                texts = column
                if types[name] == "number" and self._fixed_types.get(name) == "decimal comma":
                    texts = column.str.replace(r"^([^.,]*),([^.]*)$", "${1}.${2}")  # JSON may have 1.5 and "1,5"
                found = converted(texts, types[name], use)
                expected = "an integer" if use == "name" and types[name] == "integer" else "a number"
            else:
                columns[name] = column
                continue
            columns[name] = found.values
            bad = found.bad.arg_true().to_list()
            if not role:
                mismatches += [Mismatch(name, row, column[row]) for row in bad]
                continue
            rule = RULE_OF_ROLE.get(role, UNREADABLE)
            for row in (row for row in bad if good[row]):
                good[row] = False
                reason = f"the {role} {_cut(str(column[row]))!r} is not {expected}"
                rejected.append(Rejected(source, int(lines[row]), reason, _cut(block.text(row)), rule))
        unused.add([one for one in mismatches if good[one.row]], lines, source)
        frame = pl.DataFrame(columns)
        if not good.all():
            frame, lines = frame.filter(pl.Series(good)), lines[good]
        rejected.sort(key=lambda one: one.line)
        parts: dict[str, Any] = {role: frame[name] for role, name in self.columns.items()}
        for role in parts.keys() & {"reward", "propensity"}:
            if not parts[role].dtype.is_numeric():
                parts[role] = parts[role].cast(pl.Float64)
        return RawRounds(source, lines, frame.select(self._plan.features), rejected=tuple(rejected), **parts)


class FrameLog:
    """A data frame of any library as a raw log; its rows count from 0."""

    format = "frame"

    def __init__(self, frame: IntoDataFrame, columns: Columns, features: FeatureSpec | None = None) -> None:
        if features is not None:
            columns = features.words(columns)
        self.table = as_polars(frame)
        roles = find_roles(self.table.columns, columns, lambda: fields_in([self.table.schema]))
        self.columns, self.found, self.contexts = roles
        self._features = self.contexts
        if self._features is None:
            self._features = default_contexts(self.table.columns, self.columns, self.table.to_dict())
        self._rejected: dict[int, Rejected] = {}  # row → why it is not a round
        self._read_measures()

    def _read_measures(self) -> None:
        """Convert rewards and propensities that are text, such as yes and no, as files do."""
        measures = {role: name for role, name in self.columns.items() if USES.get(role) == "measure"}
        texts = {name: self.table[name] for name in measures.values() if kind_of(self.table[name].dtype) == "text"}
        texts = {name: column.cast(pl.String) for name, column in texts.items()}
        types = {name: text_type(column, "measure") for name, column in texts.items()}
        _require_measures(measures, self.table.to_dict() | texts, types)
        for role, name in measures.items():
            if name not in texts:
                continue
            found = converted(texts[name], types[name], "measure")
            self.table = self.table.with_columns(found.values.cast(pl.Float64).alias(name))
            for row in found.bad.arg_true().to_list():
                reason = f"the {role} {_cut(texts[name][row])!r} is not a number"
                self._rejected.setdefault(row, Rejected("", row, reason, rule=RULE_OF_ROLE[role]))

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """Yield the rows of the frame, in order."""
        for start in range(0, self.table.height, rows):
            part = self.table.slice(start, rows)
            columns: dict[str, Any] = {role: part[name] for role, name in self.columns.items()}
            lines = np.arange(start, start + part.height)
            found = RawRounds("", lines, part.select(self._features), **columns)
            rejected = [self._rejected[row] for row in sorted(self._rejected) if start <= row < start + rows]
            if rejected:
                good = ~np.isin(lines, [each.line for each in rejected])
                found = replace(found.filter(good), rejected=tuple(rejected))
            yield found


def as_polars(frame: IntoDataFrame) -> pl.DataFrame:
    """Convert a table of any library to polars."""
    if isinstance(frame, str | Path):
        raise LogError(f"expected a pandas, polars or Arrow table; got a path. Use read_log({str(frame)!r}).")
    try:
        table = nw.from_native(frame, eager_only=True)
    except (TypeError, ValueError) as error:
        raise LogError(f"expected a pandas, polars or Arrow table: {error}.") from error
    if table.implementation.is_polars():
        return cast("pl.DataFrame", table.to_native())
    if table.implementation.is_pyarrow():
        return pl.DataFrame(table.to_arrow())
    return pl.DataFrame([_as_series(table[name]) for name in table.columns])


def _as_series(column: Any) -> pl.Series:
    """Convert a column without pyarrow; values of mixed types become text."""
    if (column.dtype.is_numeric() or column.dtype == nw.Boolean) and not column.is_null().any():
        return pl.Series(column.name, column.to_numpy())
    if column.dtype == nw.Datetime and column.dtype.time_zone is None:
        return pl.Series(column.name, column.to_numpy().astype("datetime64[us]"))
    # pandas.NA cannot be compared, not even with itself.
    pairs = zip(column.to_list(), column.is_null().to_list(), strict=True)
    values = [None if missing or value != value else value for value, missing in pairs]
    with suppress(TypeError, pl.exceptions.PolarsError):
        series = pl.Series(column.name, values)
        if series.dtype != pl.Object:
            return series
    return pl.Series(column.name, [None if value is None else str(value) for value in values])


def _require_measures(
    columns: Mapping[str, str], samples: Mapping[str, pl.Series], types: Mapping[str, TextType]
) -> None:
    """Raise a LogError if rewards or propensities are not numbers at all."""
    for role, name in columns.items():
        if USES.get(role) != "measure":
            continue
        column, kind = samples[name], types.get(name, "text")
        if column.dtype.is_numeric() or column.dtype in (pl.Null, pl.Boolean):
            continue
        distinct = known_texts(column.cast(pl.String, strict=False)).unique(maintain_order=True)
        words = distinct.filter(~distinct.str.contains(NUMBER)).to_list()
        pair = len(words) == len(distinct) == 2
        # Two words such as si and no are not numbers, although one of them is known.
        if kind == "text" or (pair and kind not in ("boolean", "decimal comma")):
            raise _not_numbers(role, name, words if pair else (words or [str(column.dtype)])[:1])


def joined(pieces: Sequence[RawRounds]) -> RawRounds:
    """Return rounds of the same lines of a file as one, in the order of their lines."""
    if len(pieces) == 1:
        return pieces[0]
    rejected = sorted((one for piece in pieces for one in piece.rejected), key=lambda one: one.line)
    pieces = [piece for piece in pieces if len(piece)] or pieces
    lines = np.concatenate([piece.lines for piece in pieces])
    order = np.argsort(lines)

    def merged(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat(frames, how="vertical_relaxed")[order]

    roles: dict[str, Any] = {
        role: merged([getattr(piece, role).to_frame() for piece in pieces]).to_series()
        for role in PER_ROUND
        if getattr(pieces[0], role) is not None
    }
    features = merged([piece.features for piece in pieces]) if pieces[0].features.width else pieces[0].features
    return RawRounds(pieces[0].source, lines[order], features, rejected=tuple(rejected), **roles)


def _not_numbers(role: str, name: str, words: Sequence[str]) -> LogError:
    allowed = "numbers, true and false, or yes and no" if role == "reward" else "numbers"
    fix = ""
    if role == "reward" and len(words) == 2:
        yes = next((word for word in words if word.lower() in YES), words[0])
        fix = f"If {yes!r} is the reward: frame.with_columns(polars.col({name!r}) == {yes!r}) in polars. "
    return LogError(
        f"the {role} must be {allowed}; column {name!r} has {' and '.join(map(repr, words))}. {fix}Name another column "
        f"with columns={{{role!r}: ...}}, or --columns {role}=... in a shell."
    )


def _difference(column: pl.Series, key: str) -> str:
    """Return a value of a column that differs from the key of its folder, next to that key; empty if none does."""
    temporal = column.dtype.is_temporal()
    for value in column.drop_nulls().unique(maintain_order=True):
        text = str(value) if temporal else text_of(value)
        same = text.startswith(key) if temporal else text == key
        with suppress(ValueError):
            same = same or number_in(text) == number_in(key)
        if not same:
            return f"{_cut(text)!r} instead of {key!r}"
    return ""


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
