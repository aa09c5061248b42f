"""What all tables have in common: columns with places, kinds that are decided once, parts of an even size."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seachange.errors import LogError, SeachangeWarning
from seachange.log.raw import PART_ROWS, RawRounds, Rejected
from seachange.log.raw_columns import text_of
from seachange.log.readers.even_parts import even_parts
from seachange.log.readers.kinds import (
    MISSING,
    NUMBER,
    Kind,
    Odd,
    Role,
    kind_of_actions,
    kind_of_texts,
    number_in,
    typed,
    wanted_kinds,
)
from seachange.log.readers.lines import SHOWN
from seachange.log.readers.nested import FieldPath
from seachange.log.readers.places import asked_contexts, find_places, free_columns
from seachange.log.readers.sources import names_of, partition_keys
from seachange.log.readers.times import Clock, clock_of, moments
from seachange.protocols import Ints

if TYPE_CHECKING:
    import polars

    from seachange.log.features import Feature, FeatureSpec

# The rows that a column's kind is decided by.
HEAD_ROWS = 10_000
FEW_ROWS = 100  # of every further file, as long as there are not more files than that
# Words for yes in other languages than that of logs.
YES = ("ja", "oui", "si", "sí", "sì", "sim", "tak", "ano", "da", "evet", "kyllä", "y", "j", "t", "1")
# The cure of propensities in percent.
DIVIDE = "Divide them by 100."
ROLES: dict[str, Role] = {"action": "name", "sequence": "name", "reward": "measure", "propensity": "measure"}


@dataclass(frozen=True)
class Block:
    """Rows of one file that follow each other, as the file has them."""

    path: Path
    lines: Ints
    frame: (
        polars.DataFrame
    )  # the columns of this file that are needed; texts where a column's kind is still to be seen to
    text: Callable[[int], str]  # what stands in a row
    rejected: Sequence[Rejected] = ()
    odd: Sequence[Odd] = ()  # what is inside of objects and lists and not of its field's type


@dataclass(frozen=True)
class Plan:
    """What was decided by the head of a table."""

    features: list[str]
    kinds: dict[str, Kind]  # of the columns that hold texts
    clock: Clock


@dataclass
class Oddities:
    """Values of features that could not be read as their column's kind."""

    count: int = 0
    first: dict[str, str] = field(default_factory=dict)  # a column, and where it has its first one
    overruled: dict[str, str] = field(default_factory=dict)  # a folder's key, and what a file has in its stead

    def add(self, odd: Sequence[Odd], lines: Ints, source: str) -> None:
        """Take up those of a block."""
        self.count += len(odd)
        for one in odd:
            self.first.setdefault(one.name, f"{_cut(one.text)!r} in line {lines[one.row]} of {source}")


class TableLog:
    """A table in one or many files; what differs between the formats is left to those below."""

    format: str
    n_rounds: int | None = None
    likely_rounds: int | None = None  # room for so many will do, most likely; None where nobody can tell

    def __init__(
        self,
        path: Path | Sequence[Path],
        columns: Mapping[str, str | Sequence[str]] | None = None,
        features: FeatureSpec | None = None,
    ) -> None:
        self.paths = [path] if isinstance(path, Path) else list(path)
        self.notes: list[str] = []
        self._asked = dict(columns or {})
        self._paths: dict[str, FieldPath] = {}  # of columns that are fields inside of records
        self._spec = features
        self._sources = names_of(self.paths)
        # What the names of folders say of their files is a column too.
        self._keys = {file: {} if isinstance(path, Path) else partition_keys(file) for file in self.paths}
        keys = [key for said in self._keys.values() for key in said]
        self._available = list(dict.fromkeys([*self._names(), *keys]))
        places = find_places(self._available, self._asked, lambda: list(dict.fromkeys([*self._fields(), *keys])))
        self.columns, self.found, self.contexts = places.columns, places.found, asked_contexts(self._asked)
        # Features that are fitted already say what the texts of their columns are; a later file may look otherwise.
        self._wanted: dict[str, Kind] = {}
        if features is not None:
            self._wanted = wanted_kinds(features.shared)
            self._wanted[self.columns["action"]] = kind_of_actions(features.action_names)

    @property
    def commas(self) -> frozenset[str]:
        """The columns that are read with decimal commas."""
        return frozenset(name for name, kind in self._plan.kinds.items() if kind == "comma number")

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds, in the order of the files, at most ``rows`` at a time."""
        kinds, oddities = dict(self._plan.kinds), Oddities()
        waiting: list[RawRounds] = []
        n_waiting = n_rejected = 0
        for block in self._blocks(rows):
            rounds = self._rounds(block, kinds, oddities)
            # Half a part or more need not be joined with what comes next.
            if waiting and (
                rounds.source != waiting[0].source or rows // 2 <= n_waiting < rows < n_waiting + len(rounds)
            ):
                yield from even_parts(waiting, rows)
                waiting, n_waiting, n_rejected = [], 0, 0
            waiting.append(rounds)
            n_waiting, n_rejected = n_waiting + len(rounds), n_rejected + len(rounds.rejected)
            if n_waiting >= rows or n_rejected >= rows:
                *full, last = even_parts(waiting, rows)
                yield from full
                waiting, n_waiting, n_rejected = [last], len(last), len(last.rejected)
        yield from even_parts(waiting, rows)
        self._tell(oddities)

    def _fields(self) -> list[str]:
        """Everything in the files that may be named as a column."""
        return self._available

    def _names(self) -> list[str]:
        """The columns that the files have."""
        raise NotImplementedError

    def _nested(self, names: Collection[str]) -> list[str]:
        """What is asked for and may be a field inside of a record; a column of that very name stands before it."""
        asked = [str(place) for word, place in self._asked.items() if word != "contexts"]
        return [name for name in (*asked, *(asked_contexts(self._asked) or [])) if "." in name and name not in names]

    def _require_places(self, held: Mapping[Path, Collection[str]]) -> None:
        """Raise where a file lacks the column of a place that others have."""
        for place in self.columns.values():
            for path, names in held.items():
                if place not in names and place not in self._keys[path]:
                    raise LogError(f"all files of a log must have its columns; {place!r} is not in {path.name!r}.")

    def _head(self) -> polars.DataFrame:
        """The first rows of the columns that the files have."""
        raise NotImplementedError

    def _blocks(self, rows: int) -> Iterator[Block]:
        """All rows, with those columns of the files that are needed."""
        raise NotImplementedError

    @property
    def needed(self) -> list[str]:
        """The columns that are read, in the order of the table."""
        wanted = {*self.columns.values(), *self._plan.features}
        return [name for name in self._available if name in wanted]

    @cached_property
    def _plan(self) -> Plan:
        samples = self._samples()
        roles = {place: ROLES.get(word, "feature") for word, place in self.columns.items()}
        clock: Clock = "number"
        if "time" in self.columns:
            clock, note = clock_of(samples[self.columns["time"]], self.paths[0].name)
            self.notes += [note] if note else []
        told = {name: self._kind(name, sample, roles.get(name, "feature")) for name, sample in samples.items()}
        kinds = {name: kind for name, kind in told.items() if kind is not None and name != self.columns.get("time")}
        self._require_measures(samples, kinds)
        features = self.contexts
        if features is None:
            numbers = {name: _as_numbers(sample, kinds.get(name)) for name, sample in samples.items()}
            features = free_columns(self._available, self.columns, numbers)
        commas = [name for name in [*self.columns.values(), *features] if kinds.get(name) == "comma number"]
        self.notes += [f"column {name!r} is read with decimal commas, 1,5 for 1.5." for name in commas]
        return Plan(features, kinds, clock)

    def _kind(self, name: str, sample: polars.Series, role: Role) -> Kind | None:
        """What the texts of a column stand for; None where it holds no texts."""
        import polars

        if sample.dtype != polars.String:
            return None
        return self._wanted[name] if name in self._wanted else kind_of_texts(sample, role)

    def _features_by_holder(self) -> dict[str, list[Feature]]:
        """The features that are asked for, by the table's own column that holds them."""
        found: dict[str, list[Feature]] = {}
        if self._spec is None:
            return found
        for feature in self._spec.shared:
            heads = [feature.column[:i] for i, letter in enumerate(feature.column) if letter == "."]
            holders = [name for name in (feature.column, *heads) if name in self._spec.holders]
            found.setdefault(holders[0] if holders else feature.column, []).append(feature)
        return found

    def _samples(self) -> dict[str, polars.Series]:
        """The first values of every column; of one that only folders have, all."""
        import polars

        head = self._head()
        samples = {name: head[name] for name in head.columns}
        for name in self._available:
            said = [keys[name] for keys in self._keys.values() if name in keys]
            samples.setdefault(name, polars.Series(name, said, dtype=polars.String))
        return samples

    def _require_measures(self, samples: Mapping[str, polars.Series], kinds: Mapping[str, Kind]) -> None:
        """Raise where rewards or propensities are no numbers at all."""
        import polars

        for word in ("reward", "propensity"):
            if word not in self.columns:
                continue
            name = self.columns[word]
            column = samples[name]
            fine = column.dtype.is_numeric() or column.dtype in (polars.Null, polars.Boolean)
            kind = kinds.get(name, "text")
            odd, pair = ([], False) if fine else _odd_words(column)
            # Two words such as si and no are no numbers either, though one of them is known.
            if not fine and (kind == "text" or (pair and kind not in ("flag", "comma number"))):
                words = "numbers, true and false, or yes and no" if word == "reward" else "numbers"
                has = " and ".join(map(repr, odd)) if pair else repr((odd or [str(column.dtype)])[0])
                cure = _mapped(name, odd) if pair and word == "reward" else ""
                raise LogError(
                    f"the {word} must be {words}; column {name!r} has {has}. {cure}Name another column with "
                    f"columns={{{word!r}: ...}}, or --columns {word}=... in a shell."
                )
            if word == "propensity":
                values = typed(column, kinds[name], "measure").values if column.dtype == polars.String else column
                _warn_of_percents(name, values)

    def _rounds(self, block: Block, kinds: dict[str, Kind], oddities: Oddities) -> RawRounds:
        """The rounds of a block, and the rows that are none."""
        import polars

        places = {place: word for word, place in self.columns.items()}
        source = self._sources[block.path]
        columns: dict[str, polars.Series] = {}
        rejected, odd = list(block.rejected), list(block.odd)
        good = np.ones(len(block.lines), dtype=bool)
        for name in self.needed:
            column, word = self._column(block, name), places.get(name)
            if name in block.frame.columns and (other := _unlike(column, self._keys[block.path].get(name))):
                oddities.overruled.setdefault(name, f"{other} in {source}")
            role: Role = ROLES.get(word or "", "feature")
            if word == "time":
                read = moments(column, self._plan.clock)
            elif column.dtype == polars.String:
                if kinds.setdefault(name, "text") == "nothing":
                    kinds[name] = kind_of_texts(column, role)
                read = typed(column, kinds[name], role)
            else:
                columns[name] = column
                continue
            columns[name] = read.values
            bad = read.bad.arg_true().to_list()
            if word is None:
                odd += [Odd(name, row, column[row]) for row in bad]
                continue
            for row in bad:
                if good[row]:
                    good[row] = False
                    reason = f"the {word} {_cut(str(column[row]))!r} is no {_wanted(str(word), kinds.get(name))}"
                    rejected.append(Rejected(source, int(block.lines[row]), reason, _cut(block.text(row))))
        oddities.add([one for one in odd if good[one.row]], block.lines, source)
        frame, lines = polars.DataFrame(list(columns.values())), block.lines
        if not good.all():
            frame, lines = frame.filter(polars.Series(good)), lines[good]
        rejected.sort(key=lambda one: one.line)
        parts: dict[str, Any] = {word: frame[place] for word, place in self.columns.items()}
        parts["reward"] = _measure(parts["reward"])
        if "propensity" in parts:
            parts["propensity"] = _measure(parts["propensity"])
        features = frame.select(self._plan.features)
        return RawRounds(source, lines, features, rejected=tuple(rejected), **parts)

    def _column(self, block: Block, name: str) -> polars.Series:
        """A column of a block: the file's, or what its folders say, or nothing."""
        import polars

        if name in block.frame.columns:
            return block.frame[name]
        return polars.Series(name, [self._keys[block.path].get(name)]).new_from_index(0, len(block.lines))

    def _tell(self, oddities: Oddities) -> None:
        for name, example in oddities.overruled.items():
            warnings.warn(
                f"column {name!r} is also a key of the folders, which say otherwise: {example}. The column counts.",
                SeachangeWarning,
                stacklevel=3,
            )
        if oddities.count:
            places = "; ".join(f"{name!r} has {first}" for name, first in oddities.first.items())
            warnings.warn(
                f"{oddities.count:,} value{'s are' if oddities.count > 1 else ' is'} not of the column's kind and "
                f"{'count' if oddities.count > 1 else 'counts'} as missing: {places}.",
                SeachangeWarning,
                stacklevel=3,
            )


def _odd_words(column: polars.Series) -> tuple[list[str], bool]:
    """The words of a column that are no numbers, in their order, and whether they are two and all there is."""
    import polars

    texts = column.cast(polars.String, strict=False).drop_nulls().str.strip_chars()
    words = texts.filter(~texts.str.to_lowercase().is_in(MISSING)).unique(maintain_order=True)
    odd = words.filter(~words.str.contains(NUMBER)).to_list()
    return odd, len(odd) == len(words) == 2


def _mapped(name: str, words: Sequence[str]) -> str:
    """How two words become rewards, in a line of polars."""
    yes = next((word for word in words if word.lower() in YES), words[0])
    return f"If {yes!r} is the reward: frame.with_columns(polars.col({name!r}) == {yes!r}) in polars. "


def _warn_of_percents(name: str, values: polars.Series) -> None:
    import polars

    seen = values.cast(polars.Float64).drop_nulls()
    most = max(seen.to_list(), default=0.0)
    if 1 < most <= 100 and (seen > 0).all() and (seen > 1).sum() > len(seen) / 2:
        warnings.warn(
            f"propensities must be in (0, 1]; those of column {name!r} go up to {most:g} and look like percents. "
            f"{DIVIDE}",
            SeachangeWarning,
            stacklevel=2,
        )


def _measure(column: polars.Series) -> polars.Series:
    """Flags as 0 and 1, and nothing at all as missing numbers."""
    import polars

    return column.cast(polars.Float64) if column.dtype in (polars.Boolean, polars.String, polars.Null) else column


def _wanted(word: str, kind: Kind | None) -> str:
    if word == "time":
        return "time"
    return "whole number" if word in ("action", "sequence") and kind == "whole" else "number"


def _unlike(column: polars.Series, key: str | None) -> str:
    """A value of a column that is not what a folder says, beside that; nothing where all are."""
    if key is None:
        return ""
    for value in column.drop_nulls().unique(maintain_order=True):
        text = str(value) if column.dtype.is_temporal() else text_of(value)
        same = text == key or (column.dtype.is_temporal() and text.startswith(key))
        with suppress(ValueError):
            same = same or number_in(text) == number_in(key)
        if not same:
            return f"{_cut(text)!r} for {key!r}"
    return ""


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _as_numbers(sample: polars.Series, kind: Kind | None) -> polars.Series:
    """The values of a column as they will be read."""
    import polars

    return typed(sample, kind, "feature").values if kind is not None and sample.dtype == polars.String else sample
