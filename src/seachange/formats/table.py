"""What all tables have in common: columns with roles, types that are decided once, and rows that do not fit them."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seachange.errors import LogError, SeachangeWarning
from seachange.formats.column_roles import context_columns, default_contexts, find_roles
from seachange.formats.nested_fields import FieldPath
from seachange.formats.sources import names_of, partition_keys
from seachange.formats.text_blocks import SHOWN
from seachange.formats.timestamps import Clock, clock_of, converted_times
from seachange.formats.value_types import (
    Mismatch,
    TextType,
    Use,
    action_text_type,
    converted,
    fitted_text_types,
    text_type,
)
from seachange.log.raw import MISSING, NUMBER, PART_ROWS, UNREADABLE, RawRounds, Rejected, number_in, text_of
from seachange.protocols import Ints

if TYPE_CHECKING:
    import polars

    from seachange.log.features import Feature, FeatureSpec

# Rows of the first file, and of every further one, that decide the types; at most FEW_ROWS files are looked at.
HEAD_ROWS, FEW_ROWS = 10_000, 100
# Words for yes, for the example in an error message.
YES = ("ja", "oui", "si", "sí", "sì", "sim", "tak", "ano", "da", "evet", "kyllä", "y", "j", "t", "1")
# How to fix propensities in percent.
DIVIDE = "Divide them by 100."
# The rule that a value which cannot be read breaks.
RULE_OF_ROLE = {"reward": "reward-text", "propensity": "propensity-missing", "time": "time-missing"}
ROLES = ("action", "reward", "propensity", "time", "sequence")
ROLE = "\0role "  # prefix that keeps roles and features of the same name apart
USES: dict[str, Use] = {"action": "name", "sequence": "name", "reward": "measure", "propensity": "measure"}


@dataclass(frozen=True)
class TableBlock:
    """Rows of one file, as the file has them."""

    path: Path
    lines: Ints
    frame: polars.DataFrame  # columns that are needed; texts that still have to be converted
    text: Callable[[int], str]  # the text of a row
    rejected: Sequence[Rejected] = ()
    mismatches: Sequence[Mismatch] = ()  # found inside records and lists


@dataclass(frozen=True)
class Plan:
    """What the first rows of a table decide."""

    features: list[str]
    types: dict[str, TextType]  # of the columns that hold texts
    clock: Clock


@dataclass
class Exceptions:
    """Values that a pass over the table could not use, for one warning at its end."""

    mismatches: int = 0
    first: dict[str, str] = field(default_factory=dict)  # column → its first mismatch
    overruled: dict[str, str] = field(default_factory=dict)  # folder key → what a file has instead

    def add(self, mismatches: Sequence[Mismatch], lines: Ints, source: str) -> None:
        """Count the mismatches of a block."""
        self.mismatches += len(mismatches)
        for one in mismatches:
            self.first.setdefault(one.name, f"{_cut(one.text)!r} in line {lines[one.row]} of {source}")

    def warn(self) -> None:
        """Warn of what was found."""
        for name, example in self.overruled.items():
            warnings.warn(
                f"column {name!r} is also a key of the folders, and they differ: {example}. The column is used.",
                SeachangeWarning,
                stacklevel=4,
            )
        if self.mismatches:
            examples = "; ".join(f"{name!r} has {first}" for name, first in self.first.items())
            several = self.mismatches > 1
            warnings.warn(
                f"{self.mismatches:,} {'values do' if several else 'value does'} not match the column's type and "
                f"{'count' if several else 'counts'} as missing: {examples}.",
                SeachangeWarning,
                stacklevel=4,
            )


class TableLog:
    """A table in one or many files; subclasses read one format."""

    format: str

    def __init__(
        self,
        path: Path | Sequence[Path],
        columns: Mapping[str, str | Sequence[str]] | None = None,
        features: FeatureSpec | None = None,
    ) -> None:
        self.paths = [path] if isinstance(path, Path) else list(path)
        self.notes: list[str] = []
        self._asked = dict(columns or {})
        self._paths: dict[str, FieldPath] = {}  # of columns that are nested fields
        self._spec = features
        self._sources = names_of(self.paths)
        # Folder names such as day=2026-01-01 are columns, too.
        self._keys = {file: {} if isinstance(path, Path) else partition_keys(file) for file in self.paths}
        keys = [key for pairs in self._keys.values() for key in pairs]
        self._available = list(dict.fromkeys([*self._names(), *keys]))
        roles = find_roles(self._available, self._asked, lambda: list(dict.fromkeys([*self._fields(), *keys])))
        self.columns, self.found, self.contexts = roles.columns, roles.found, context_columns(self._asked)
        # Features that are fitted already decide the types, even if a later file looks different.
        self._fixed_types: dict[str, TextType] = {}
        if features is not None:
            self._fixed_types = fitted_text_types(features.shared)
            self._fixed_types[self.columns["action"]] = action_text_type(features.action_names)

    @property
    def commas(self) -> frozenset[str]:
        """The columns that have decimal commas."""
        return frozenset(name for name, kind in self._plan.types.items() if kind == "decimal comma")

    @property
    def needed(self) -> list[str]:
        """The columns that are read, in the order of the table."""
        wanted = {*self.columns.values(), *self._plan.features}
        return [name for name in self._available if name in wanted]

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """Yield all rounds, in the order of the files, at most ``rows`` at a time."""
        types, exceptions = dict(self._plan.types), Exceptions()
        for blocks in self._blocks(rows):
            rounds = joined([self._rounds(block, types, exceptions) for block in blocks])
            yield from in_parts(rounds, rows)
        exceptions.warn()

    def _names(self) -> list[str]:
        """Return the columns that the files have."""
        raise NotImplementedError

    def _head(self) -> polars.DataFrame:
        """Return the first rows of these columns."""
        raise NotImplementedError

    def _blocks(self, rows: int) -> Iterator[Sequence[TableBlock]]:
        """Yield the needed columns of all rows, in order; the blocks of one item come from the same lines."""
        raise NotImplementedError

    def _fields(self) -> list[str]:
        """Return everything that can be named as a column."""
        return self._available

    def _nested(self, names: Collection[str]) -> list[str]:
        """Return what the user named that may be a nested field; a column of the same name goes first."""
        asked = [str(name) for role, name in self._asked.items() if role != "contexts"]
        return [name for name in (*asked, *(context_columns(self._asked) or [])) if "." in name and name not in names]

    def _require_roles(self, names_by_file: Mapping[Path, Collection[str]]) -> None:
        """Raise a LogError if a file lacks the column of a role."""
        for column in self.columns.values():
            for path, names in names_by_file.items():
                if column not in names and column not in self._keys[path]:
                    raise LogError(
                        f"all files of a log must have the same columns; {column!r} is not in {path.name!r}."
                    )

    @cached_property
    def _plan(self) -> Plan:
        import polars

        samples = self._samples()
        uses = {name: USES.get(role, "feature") for role, name in self.columns.items()}
        clock: Clock = "number"
        if "time" in self.columns:
            clock, note = clock_of(samples[self.columns["time"]], self.paths[0].name)
            self.notes += [note] if note else []
        found = {name: self._text_type(name, sample, uses.get(name, "feature")) for name, sample in samples.items()}
        types = {name: kind for name, kind in found.items() if kind is not None and name != self.columns.get("time")}
        self._require_measures(samples, types)
        features = self.contexts
        if features is None:
            texts = {
                name: sample for name, sample in samples.items() if sample.dtype == polars.String and name in types
            }
            values = {name: converted(sample, types[name], "feature").values for name, sample in texts.items()}
            features = default_contexts(self._available, self.columns, samples | values)
        commas = [name for name in [*self.columns.values(), *features] if types.get(name) == "decimal comma"]
        self.notes += [f"column {name!r} is read with decimal commas: 1,5 is 1.5." for name in commas]
        return Plan(features, types, clock)

    def _text_type(self, name: str, sample: polars.Series, use: Use) -> TextType | None:
        """Return what the texts of a column stand for; None if it holds no texts."""
        import polars

        if sample.dtype != polars.String:
            return None
        return self._fixed_types[name] if name in self._fixed_types else text_type(sample, use)

    def _fitted_features(self) -> dict[str, list[Feature]]:
        """Return the features that are fitted already, by the column of the table that holds them."""
        found: dict[str, list[Feature]] = {}
        if self._spec is None:
            return found
        for feature in self._spec.shared:
            heads = [feature.column[:i] for i, letter in enumerate(feature.column) if letter == "."]
            holders = [name for name in (feature.column, *heads) if name in self._spec.holders]
            found.setdefault(holders[0] if holders else feature.column, []).append(feature)
        return found

    def _samples(self) -> dict[str, polars.Series]:
        """Return the first values of every column; all values of a folder key."""
        import polars

        head = self._head()
        samples = {name: head[name] for name in head.columns}
        for name in self._available:
            values = [keys[name] for keys in self._keys.values() if name in keys]
            samples.setdefault(name, polars.Series(name, values, dtype=polars.String))
        return samples

    def _require_measures(self, samples: Mapping[str, polars.Series], types: Mapping[str, TextType]) -> None:
        """Raise a LogError if rewards or propensities are not numbers at all."""
        import polars

        for role in ("reward", "propensity"):
            if role not in self.columns:
                continue
            name = self.columns[role]
            column = samples[name]
            numeric = column.dtype.is_numeric() or column.dtype in (polars.Null, polars.Boolean)
            kind = types.get(name, "text")
            words, pair = ([], False) if numeric else _words(column)
            # Two words such as si and no are not numbers, although one of them is known.
            if not numeric and (kind == "text" or (pair and kind not in ("boolean", "decimal comma"))):
                allowed = "numbers, true and false, or yes and no" if role == "reward" else "numbers"
                has = " and ".join(map(repr, words)) if pair else repr((words or [str(column.dtype)])[0])
                fix = _mapping(name, words) if pair and role == "reward" else ""
                raise LogError(
                    f"the {role} must be {allowed}; column {name!r} has {has}. {fix}Name another column with "
                    f"columns={{{role!r}: ...}}, or --columns {role}=... in a shell."
                )
            if role == "propensity":
                text = column.dtype == polars.String
                _warn_of_percents(name, converted(column, types[name], "measure").values if text else column)

    def _rounds(self, block: TableBlock, types: dict[str, TextType], exceptions: Exceptions) -> RawRounds:
        """Convert a block to rounds, and reject the rows whose roles cannot be converted."""
        import polars

        roles = {name: role for role, name in self.columns.items()}
        source = self._sources[block.path]
        columns: dict[str, polars.Series] = {}
        rejected, mismatches = list(block.rejected), list(block.mismatches)
        good = np.ones(len(block.lines), dtype=bool)
        for name in self.needed:
            column, role = self._column(block, name), roles.get(name)
            if name in block.frame.columns and (other := _difference(column, self._keys[block.path].get(name))):
                exceptions.overruled.setdefault(name, f"{other} in {source}")
            use: Use = USES.get(role or "", "feature")
            if role == "time":
                found = converted_times(column, self._plan.clock)
            elif column.dtype == polars.String:
                if types.setdefault(name, "text") == "empty":
                    types[name] = text_type(column, use)
                found = converted(column, types[name], use)
            else:
                columns[name] = column
                continue
            columns[name] = found.values
            bad = found.bad.arg_true().to_list()
            if role is None:
                mismatches += [Mismatch(name, row, column[row]) for row in bad]
                continue
            expected = (
                "time" if role == "time" else "integer" if use == "name" and types[name] == "integer" else "number"
            )
            rule = RULE_OF_ROLE.get(role, UNREADABLE)
            for row in (row for row in bad if good[row]):
                good[row] = False
                reason = (
                    f"the {role} {_cut(str(column[row]))!r} is not {'an' if expected == 'integer' else 'a'} {expected}"
                )
                rejected.append(Rejected(source, int(block.lines[row]), reason, _cut(block.text(row)), rule))
        exceptions.add([one for one in mismatches if good[one.row]], block.lines, source)
        frame, lines = polars.DataFrame(list(columns.values())), block.lines
        if not good.all():
            frame, lines = frame.filter(polars.Series(good)), lines[good]
        rejected.sort(key=lambda one: one.line)
        parts: dict[str, Any] = {role: frame[name] for role, name in self.columns.items()}
        for role in ("reward", "propensity"):
            if role in parts and parts[role].dtype in (polars.Boolean, polars.String, polars.Null):
                parts[role] = parts[role].cast(polars.Float64)
        return RawRounds(source, lines, frame.select(self._plan.features), rejected=tuple(rejected), **parts)

    def _column(self, block: TableBlock, name: str) -> polars.Series:
        """Return a column of a block: from the file or its folders, or empty."""
        import polars

        if name in block.frame.columns:
            return block.frame[name]
        return polars.Series(name, [self._keys[block.path].get(name)]).new_from_index(0, len(block.lines))


def joined(pieces: Sequence[RawRounds]) -> RawRounds:
    """Return rounds of the same lines of a file as one, in the order of their lines."""
    import polars

    if len(pieces) == 1:
        return pieces[0]
    lines = np.concatenate([piece.lines for piece in pieces])
    order = np.argsort(lines)
    frames = [_as_frame(piece) for piece in pieces if len(piece)] or [_as_frame(pieces[0])]
    whole = polars.concat(frames, how="vertical_relaxed")[order]
    roles: dict[str, Any] = {name.removeprefix(ROLE): whole[name] for name in whole.columns if name.startswith(ROLE)}
    rejected = sorted((one for piece in pieces for one in piece.rejected), key=lambda one: one.line)
    features = whole.drop([name for name in whole.columns if name.startswith(ROLE)])
    return RawRounds(pieces[0].source, lines[order], features, rejected=tuple(rejected), **roles)


def in_parts(rounds: RawRounds, rows: int) -> Iterator[RawRounds]:
    """Yield rounds at most ``rows`` at a time, each part with the rejected lines before and between its own."""
    if len(rounds) <= rows:
        if len(rounds) or rounds.rejected:
            yield rounds
        return
    rejected_lines = [one.line for one in rounds.rejected]
    done = 0
    for start in range(0, len(rounds), rows):
        end = start + rows
        until = len(rejected_lines) if end >= len(rounds) else bisect_left(rejected_lines, rounds.lines[end])
        columns = {role: getattr(rounds, role) for role in ROLES}
        pieces: dict[str, Any] = {role: None if each is None else each[start:end] for role, each in columns.items()}
        lines, features = rounds.lines[start:end], rounds.features[start:end]
        yield RawRounds(rounds.source, lines, features, rejected=rounds.rejected[done:until], **pieces)
        done = until


def _as_frame(rounds: RawRounds) -> polars.DataFrame:
    import polars

    roles = [column.alias(ROLE + role) for role in ROLES if (column := getattr(rounds, role)) is not None]
    return polars.DataFrame([*roles, *rounds.features.get_columns()])


def _words(column: polars.Series) -> tuple[list[str], bool]:
    """Return the words of a column that are not numbers, and whether they are two and all there is."""
    import polars

    texts = column.cast(polars.String, strict=False).drop_nulls().str.strip_chars()
    distinct = texts.filter(~texts.str.to_lowercase().is_in(MISSING)).unique(maintain_order=True)
    words = distinct.filter(~distinct.str.contains(NUMBER)).to_list()
    return words, len(words) == len(distinct) == 2


def _mapping(name: str, words: Sequence[str]) -> str:
    """Return a line of polars that turns two words into rewards."""
    yes = next((word for word in words if word.lower() in YES), words[0])
    return f"If {yes!r} is the reward: frame.with_columns(polars.col({name!r}) == {yes!r}) in polars. "


def _warn_of_percents(name: str, values: polars.Series) -> None:
    import polars

    seen = values.cast(polars.Float64).drop_nulls()
    most = max(seen.to_list(), default=0.0)
    if 1 < most <= 100 and (seen > 0).all() and (seen > 1).sum() > len(seen) / 2:
        warnings.warn(
            f"propensities must be in (0, 1]; column {name!r} has values up to {most:g}, which look like percentages. "
            f"{DIVIDE}",
            SeachangeWarning,
            stacklevel=2,
        )


def _difference(column: polars.Series, key: str | None) -> str:
    """Return a value of a column that differs from the key of its folder, next to that key; empty if none does."""
    if key is None:
        return ""
    for value in column.drop_nulls().unique(maintain_order=True):
        text = str(value) if column.dtype.is_temporal() else text_of(value)
        same = text == key or (column.dtype.is_temporal() and text.startswith(key))
        with suppress(ValueError):
            same = same or number_in(text) == number_in(key)
        if not same:
            return f"{_cut(text)!r} instead of {key!r}"
    return ""


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
