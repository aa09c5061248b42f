"""Raw logs to BanditLogs: features encoded as a FeatureSpec says, rules of logs checked, nothing copied twice."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from seachange.engine import cores, map_in_order
from seachange.errors import LogError, ParameterError
from seachange.log.bandit_log import BanditLog
from seachange.log.columns import Columns
from seachange.log.feature_encoding import columns_of, fill, fill_lists
from seachange.log.feature_fitting import LogFacts, facts_of, features_of, fit_features, spec_of
from seachange.log.features import FeatureSpec
from seachange.log.joining import BrokenRules, Together
from seachange.log.joint import ContextKind, JointFeatures
from seachange.log.number_rows import NumberRows
from seachange.log.raw import PART_ROWS, RawLog, RawRounds, Rejected
from seachange.log.raw_columns import distinct_texts, raw_columns
from seachange.log.readers.ahead import made_ahead
from seachange.log.room import Room
from seachange.log.validation import Broken, OnBadRows, broken_rules, require_some, without_broken
from seachange.protocols import Floats

# Formats whose places are rows of a table; in all others they are lines of text.
OF_ROWS = ("frame", "parquet", "arrow", "obp")


def log_from_raw(
    raw: RawLog,
    features: FeatureSpec | None = None,
    *,
    action_names: Sequence[str] | None = None,
    missing_rewards: bool = False,
    on_bad_rows: OnBadRows = "raise",
    on_disk: bool = False,
) -> BanditLog:
    """The rounds of ``raw``, encoded by ``features``; where none are given they are fitted, and ``log.features`` says.

    They are fitted on all rounds, those that ``on_bad_rows="drop"`` leaves out as well. ``on_disk`` keeps the log's
    columns in temporary files and reads ``raw`` twice, so that neither need fit into memory.
    """
    if features is not None and action_names is not None and tuple(action_names) != features.action_names:
        raise ParameterError(f"action_names are those of features: {', '.join(features.action_names)}.")
    if on_disk:
        return _on_disk(raw, features, action_names, missing_rewards, on_bad_rows)
    held = _Held()
    spec = _fitted(raw, held, action_names) if features is None else features
    if features is not None:
        held.parts += raw.parts(PART_ROWS)
        _require_sources(spec, _sources_in(held.parts))
    if not any(map(len, held.parts)):
        raise LogError("the log is empty: it needs at least one round.")
    alike = _Alike(raw)
    for part in held.parts:
        alike.require(part)
    fields = _encoded(raw, spec, held, missing_rewards, on_bad_rows)
    return BanditLog(**require_some(fields, sum(map(len, held.parts))))


@dataclass
class _Held:
    """The parts of a log that have been read."""

    parts: list[RawRounds] = field(default_factory=list)
    numbers: NumberRows | None = None  # their numbers, where these are laid out already
    in_place: bool = False  # and stand where they belong

    def starts(self) -> list[int]:
        """The number of the first round of every part."""
        return list(accumulate((len(part) for part in self.parts), initial=0))

    def read(self, raw: RawLog) -> Iterator[tuple[int, int]]:
        """The place of every part, as soon as it has been read, and the number of its first round."""
        n, start = getattr(raw, "likely_rounds", None), 0
        for part in raw.parts(PART_ROWS):
            if not self.parts and n is not None and part.pool is None:
                features, _ = features_of(raw, facts_of(part).shared, len(part))
                self.numbers = NumberRows(features, part, n)
            self.parts.append(part)
            yield len(self.parts) - 1, start
            start += len(part)

    def look(self, where: tuple[int, int]) -> LogFacts:
        """What a part says; its numbers are laid out then."""
        place, start = where
        part = self.parts[place]
        if part.features.n_chunks() > 1:
            part = replace(part, features=part.features.rechunk())
        facts = facts_of(part)
        part = _in_few_bytes(part)
        roomy = self.numbers is not None and start + len(part) <= len(self.numbers.rows)
        self.parts[place] = self.numbers.take(start, part) if self.numbers is not None and roomy else part
        return facts


def _fitted(raw: RawLog, held: _Held, action_names: Sequence[str] | None) -> FeatureSpec:
    """The features of a log, looked at while it is read; what is read goes to ``held``."""
    facts = LogFacts()
    for found in made_ahead(held.read(raw), held.look):
        facts.merge(found)
    spec = spec_of(raw, facts, action_names=action_names)
    # Numbers that are too large are told as they were.
    small = all(column.numbers.usable == column.numbers.seen for column in facts.shared.values())
    held.in_place = held.numbers is not None and small and held.numbers.fit(spec, facts.rounds)
    return spec


def _on_disk(
    raw: RawLog, features: FeatureSpec | None, action_names: Any, missing_rewards: bool, on_bad_rows: OnBadRows
) -> BanditLog:
    from seachange.log.spool import spooled

    spec = fit_features(raw, raw.parts(PART_ROWS), action_names=action_names) if features is None else features
    found: set[str] = set()

    def encoded() -> Iterator[BanditLog]:
        alike = _Alike(raw)
        for rounds in raw.parts(PART_ROWS):
            alike.require(rounds)
            found.update(_sources_in([rounds]))
            yield BanditLog(**_encoded(raw, spec, _Held([rounds]), missing_rewards, on_bad_rows))

    log = spooled(encoded())
    if features is not None:
        _require_sources(spec, found)
    return log


def _sources_in(parts: Sequence[RawRounds]) -> set[str]:
    """The raw columns that any of the parts has."""
    frames = [part.features for part in parts] + [part.pool.features for part in parts if part.pool is not None]
    distinct = {tuple(frame.schema.items()): frame for frame in frames}
    return {name for frame in distinct.values() for name in raw_columns(frame)}


def _require_sources(spec: FeatureSpec, found: set[str]) -> None:
    absent = [name for name in (*spec.sources, *spec.pool_sources) if name not in found]
    if absent:
        raise LogError(
            f"the features need the column {absent[0]!r}, which this log does not have ({len(absent)} of "
            f"{len(spec.sources) + len(spec.pool_sources)} are absent). It has {', '.join(sorted(found)) or 'none'}."
        )


class _Alike:
    """What all parts of a log have or all lack."""

    def __init__(self, raw: RawLog) -> None:
        self.word = _word_of(raw)
        self.first: RawRounds | None = None

    def require(self, rounds: RawRounds) -> None:
        """Raise where a part has what the first one lacks, or lacks what that has."""
        if not len(rounds):
            return
        self.first = rounds if self.first is None else self.first
        ours, theirs = _optional(self.first), _optional(rounds)
        for what in ours:
            if ours[what] != theirs[what]:
                has, lacks = (self.first, rounds) if ours[what] else (rounds, self.first)
                here, there = (f"{self.word} {part.lines[0]} of {part.source}" for part in (lacks, has))
                raise LogError(
                    f"either all rounds of a log have {what} or none has; {here} has none, unlike {there}. Read the "
                    "files that have them by themselves."
                )


def _optional(rounds: RawRounds) -> dict[str, bool]:
    return {
        "a propensity": rounds.propensity is not None,
        "a time": rounds.time is not None,
        "a sequence": rounds.sequence is not None,
        "a list of actions": rounds.pool is not None,
        "a whole logging distribution": rounds.pool is not None and rounds.pool.probs is not None,
    }


def _word_of(raw: RawLog) -> str:
    return "row" if raw.format in OF_ROWS else "line"


@dataclass(frozen=True)
class Places:
    """Where each round stands in its file, for errors."""

    parts: Sequence[RawRounds]
    word: str  # row or line

    def __call__(self, row: int) -> str:
        """In words."""
        ends = list(accumulate(len(part) for part in self.parts))
        i = bisect_right(ends, row)
        part = self.parts[i]
        source = f" of {part.source}" if part.source else ""
        return f"{self.word} {part.lines[row - (ends[i] - len(part))]}{source}"


def _encoded(
    raw: RawLog, spec: FeatureSpec, held: _Held, missing_rewards: bool, on_bad_rows: OnBadRows
) -> dict[str, Any]:
    """The fields of a BanditLog, maybe without any rounds."""
    parts, numbers, starts = held.parts, held.numbers, held.starts()
    n, word = starts[-1], _word_of(raw)
    rejected = [line for part in parts for line in part.rejected]
    if rejected and on_bad_rows == "raise":
        raise LogError(_said_of(rejected, n, word))
    rows = numbers.rows[:n] if numbers is not None and held.in_place else _room(spec, n)

    def encoded(place: int) -> _Piece:
        part, start = parts[place], starts[place]
        there: Collection[str] = ()
        if numbers is not None and held.in_place:
            numbers.standardise(spec, start, start + len(part))
            there = numbers.names
        elif numbers is not None and start + len(part) <= len(numbers.rows):
            part = numbers.given_back(start, part)
        piece = _piece(spec, part, rows[start : start + len(part)], missing_rewards, there)
        # What is raw makes room for what is still to be encoded; actions that nobody knows are told later.
        keep = part.pool is not None or piece.unknown
        parts[place] = replace(part, features=part.features.clear()) if keep else _emptied(part)
        return piece

    together, rules = Together(n), BrokenRules(n)
    unknown = False
    for piece, start in zip(map_in_order(encoded, range(len(parts)), workers=cores()), starts, strict=False):
        together.put(start, piece.columns)
        rules.put(start, piece.broken)
        unknown |= piece.unknown
    if on_bad_rows == "raise" and spec.named and unknown:
        _require_known_actions(spec, parts)
    columns = together.columns(spec, _joint(spec), rows)
    fields = without_broken(columns, list(rules.found.values()), on_bad_rows, Places(parts, word))
    lines = Counter(line.reason for line in rejected)
    return fields | {"dropped": (*lines.items(), *fields["dropped"]), "features": spec}


def _in_few_bytes(part: RawRounds) -> RawRounds:
    """The same rounds: whole numbers as short as they can be, the numbers of lines as a range."""
    lines: Any = part.lines
    first, last = (int(lines[0]), int(lines[-1])) if len(lines) else (0, -1)
    if last - first == len(lines) - 1:
        lines = range(first, last + 1)
    action, reward = (each.shrink_dtype() if each.dtype.is_integer() else each for each in (part.action, part.reward))
    return replace(part, lines=lines, action=action, reward=reward)


def _emptied(part: RawRounds) -> RawRounds:
    """Where its rounds stand, and nothing else."""
    features, action, reward = part.features.clear(), part.action.clear(), part.reward.clear()
    return RawRounds(part.source, part.lines, features, action, reward, rejected=part.rejected)


def _joint(spec: FeatureSpec) -> JointFeatures:
    kind: ContextKind = "per action" if spec.pool else "shared" if spec.context_names else "none"
    return JointFeatures(kind, spec.n_actions, len(spec.context_names))


def _room(spec: FeatureSpec, n: int) -> Floats:
    """Rows of zeros as kernels take them, to be filled."""
    width = len(spec.context_names)
    if spec.pool:
        return Room((n, spec.n_actions, width), spec.precision).array
    return Room((n, 1, width + 1), spec.precision).array if width else np.ones((1, 1, 1))


class _Piece(NamedTuple):
    """What a part of a log says, beside its features, and the rules that it breaks."""

    columns: Columns
    broken: list[Broken]
    unknown: bool  # some action is none of the log's


def _piece(spec: FeatureSpec, rounds: RawRounds, rows: Floats, missing_rewards: bool, there: Collection[str]) -> _Piece:
    """Encode a part; its features go into ``rows``, but for those of the columns that are ``there``."""
    if spec.pool:
        large = fill_lists(spec, rounds, rows)
    elif spec.context_names:
        large = fill(spec.shared, rounds.features, rows[:, 0], there)
    else:
        large = []
    columns = columns_of(spec, rounds)
    broken = broken_rules(columns, missing_rewards)
    what = "action_features" if spec.pool else "contexts"
    for column, bad, values in large:
        found = Broken(
            np.zeros(len(rounds), dtype=bool), f"{what} must be finite (column {column})", np.zeros(len(rounds))
        )
        found.rows[bad], found.values[bad] = True, values
        broken.append(found)
    return _Piece(columns, broken, bool(np.isnan(columns.actions).any()))


def _require_known_actions(spec: FeatureSpec, parts: Sequence[RawRounds]) -> None:
    columns = (part.action if part.pool is None else part.pool.names for part in parts)
    found = {name for column in columns if column is not None for name in distinct_texts(column)}
    strangers = sorted(found - set(spec.action_names))
    if strangers:
        raise LogError(
            f"action {strangers[0]!r} is not one of {', '.join(spec.action_names)} ({len(strangers)} such actions). "
            'Drop their rows with on_bad_rows="drop".'
        )


def _said_of(rejected: Sequence[Rejected], n: int, word: str) -> str:
    first = rejected[0]
    has = f" has {first.text!r}" if first.text else ""
    return (
        f"{first.reason}; {word} {first.line} of {first.source}{has} ({len(rejected)} of {n + len(rejected)} {word}s "
        'are bad). Drop them with on_bad_rows="drop".'
    )
