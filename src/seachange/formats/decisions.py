"""Decision logs: the lines that a deployment writes, and the log that is read from them.

    {"decision": "7f3a", "time": "2026-11-16T10:00:00Z", "context": {"age": 31}, "action": "red", "propensity": 0.25}
    {"decision": "7f3a", "time": "2026-11-16T10:04:09Z", "reward": 1.0}

A line with an action is a decision: the raw record, the name of the chosen action, and its propensity. If the possible
actions differ between decisions, the line also has ``actions`` (their names) and optionally, in the same order,
``features`` (their raw records) and ``probs`` (the whole distribution). ``model`` is the fingerprint of the model that
decided. A line without an action is a reward, which may come at any time, or never.

A log may have several files, in order. They are read twice. The first pass collects the fields of the records and the
rewards that are far from their decisions: more than ``NEAR`` decisions later, or earlier. The second pass keeps the
last ``NEAR`` decisions and joins rewards. So a reward may be anywhere, even in a later file, and memory grows only with
the number of far rewards. The first reward of a decision counts, because the deployment learned from it; other rewards
are rejected, as are rewards without a decision.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
import polars as pl

from seachange.errors import LogError, OutputError
from seachange.formats.action_lists import MAX_LINES, line_batches
from seachange.formats.column_roles import Columns
from seachange.formats.sources import SHOWN, Paths, TextLog, shown
from seachange.formats.table import UnusedValues
from seachange.formats.value_types import MAX_DEPTH, TOO_DEEP, Mismatch, Shape, frame_of, too_deep
from seachange.log.features import FeatureSpec
from seachange.log.raw import PART_ROWS, Pool, RawRounds, Rejected
from seachange.protocols import Ints

NEAR = 1 << 16
COLUMNS = {name: name for name in ("action", "reward", "propensity", "time")}
# Rules that a line may break.
SECOND_REWARD = "the decision already has a reward"
NO_DECISION = "there is no decision with this id"


class DecisionLine(msgspec.Struct, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """A decision or a reward. Unknown fields are errors, so that nothing is lost silently."""

    decision: str
    time: datetime | None = None
    context: dict[str, Any] | None = None
    action: str | None = None
    propensity: float | None = None
    actions: list[str] | None = None
    features: list[dict[str, Any]] | None = None
    probs: list[float] | None = None
    model: str | None = None
    reward: float | None = None


def broken_rule(line: DecisionLine) -> str | None:
    """The first rule that a line breaks."""
    if line.action is None:
        if line.reward is None:
            return "a line must have an action (a decision) or a reward"
        given = (line.context, line.propensity, line.actions, line.features, line.probs)
        return None if given == (None,) * len(given) else "a decision must have an action"
    if line.reward is not None:
        return "a decision and its reward must be separate lines"
    if line.propensity is None or line.context is None:
        return "a decision must have a context and a propensity"
    if line.actions is None:
        return "features and probs need a list of actions" if line.features or line.probs else None
    if len(set(line.actions)) < len(line.actions):
        return "actions must differ"
    if line.action not in line.actions:
        return "the action must be one of actions"
    for name, each in (("features", line.features), ("probs", line.probs)):
        if each is not None and len(each) != len(line.actions):
            return f"{name} must have one entry per action"
    return None


# Writing


class DecisionLog:
    """Append decisions and rewards to a file; each is on disk as one whole line when the call returns.

    Several processes may append to the same file. If a process is killed while it writes, its unfinished line is
    rejected on reading, and everything else is read.

    >>> import tempfile
    >>> from datetime import datetime
    >>> import seachange as sc
    >>> path = tempfile.mktemp(suffix=".jsonl")
    >>> with DecisionLog(path) as log:
    ...     for t in range(20):
    ...         id = log.decision({"age": 20 + t}, ("boots", "coats")[t % 2], 0.5, datetime(2026, 11, 16, 10, t))
    ...         log.reward(id, float(t % 3 == 0))
    >>> len(sc.read_log(path))
    20
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._file = self.path.open("ab+", buffering=0)
            self._file.seek(max(0, self._file.tell() - 1))
            unfinished = self._file.read(1) not in (b"", b"\n")
        except OSError as error:
            raise OutputError(f"cannot write to {str(path)!r}: {error.strerror}.") from error
        if unfinished:
            self._append(b"\n")

    def decision(
        self,
        record: Mapping[str, Any],
        action: str,
        propensity: float,
        time: datetime | None = None,
        id: str | None = None,
        *,
        actions: Sequence[str] | None = None,
        features: Sequence[Mapping[str, Any]] | None = None,
        probs: Sequence[float] | None = None,
        model: str | None = None,
    ) -> str:
        """Append a decision and return its id, which is made up if none is given.

        ``record`` is the raw context. ``actions`` are the possible actions if they differ between decisions, with their
        raw ``features`` and the probabilities ``probs`` of all of them. A ``time`` without a zone is in UTC.
        """
        if not 0 < _finite("propensity", propensity) <= 1:
            raise LogError(f"propensity must be in (0, 1]; got {propensity}.")
        line = DecisionLine(
            decision=token_hex(8) if id is None else str(id),
            time=_in_utc(time),
            context=dict(record),
            action=str(action),
            propensity=float(propensity),
            actions=None if actions is None else [str(each) for each in actions],
            features=None if features is None else [dict(each) for each in features],
            probs=None if probs is None else [_finite("probs", each) for each in probs],
            model=model,
        )
        self._write(line)
        return line.decision

    def reward(self, id: str, reward: float, time: datetime | None = None) -> None:
        """Append the reward of the decision ``id``; only the first one counts."""
        self._write(DecisionLine(decision=str(id), time=_in_utc(time), reward=_finite("reward", reward)))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write(self, line: DecisionLine) -> None:
        if rule := broken_rule(line) or (TOO_DEEP if too_deep([line.context, line.features]) else None):
            raise LogError(f"cannot write decision {line.decision!r}: {rule}.")
        try:
            self._append(msgspec.json.encode(line, enc_hook=_plain) + b"\n")
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise LogError(f"cannot write decision {line.decision!r} as JSON: {error}.") from error

    def _append(self, content: bytes) -> None:
        try:
            written = self._file.write(content)
        except OSError as error:
            raise OutputError(f"cannot write to {str(self.path)!r}: {error.strerror}.") from error
        if written != len(content):
            raise OutputError(f"{str(self.path)!r} took only {written} of {len(content)} bytes; is the disk full?")


def _finite(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise LogError(f"{name} must be a finite number; got {value!r}.")
    return number


def _in_utc(time: Any) -> datetime | None:
    if time is None:
        return None
    if not isinstance(time, datetime):
        raise LogError(f"time must be a datetime; got {time!r}.")
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


# Reading


class Line(NamedTuple):
    """A line and its place; later lines are greater."""

    file: int
    number: int
    source: str
    text: bytes  # at most as much as messages show
    content: DecisionLine | str  # of a bad line, the rule that it breaks

    def rejected(self, reason: str) -> Rejected:
        """The line, rejected."""
        return Rejected(self.source, self.number, reason, shown(self.text))


Decided = tuple[Line, float | None]  # a decision and its reward


@dataclass
class Survey:
    """Results of the first pass."""

    context: Shape = field(default_factory=Shape)
    features: Shape = field(default_factory=Shape)
    timed: bool = False
    pooled: bool = False
    probs: bool = True
    far: dict[str, list[Line]] = field(default_factory=dict)  # rewards by decision


class DecisionsLog(TextLog):
    """The decisions of one or more files, in the order in which they were made, with their rewards.

    ``features`` are those of a fitted model: contexts are read in the types that these need.
    """

    format, columns, description = "decisions", COLUMNS, "the decision log"

    def __init__(
        self, path: Paths, columns: Columns | None = None, *, features: FeatureSpec | None = None, near: int = NEAR
    ) -> None:
        super().__init__(path, columns, features=features)
        self.features, self.near = features, near

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All decisions, at most ``rows`` at a time, with the rewards that came."""
        survey, unused = self._survey(), UnusedValues()
        decided: list[Decided] = []
        rejected: list[Rejected] = []
        for each in self._joined(survey.far):
            full = len(decided) == rows or len(rejected) == MAX_LINES
            if full or (decided and not isinstance(each, Rejected) and each[0].file != decided[0][0].file):
                yield self._rounds(decided, rejected, survey, unused)
                decided, rejected = [], []
            if isinstance(each, Rejected):
                rejected.append(each)
            else:
                decided.append(each)
        if decided or rejected:
            yield self._rounds(decided, rejected, survey, unused)
        unused.warn()

    def _lines(self) -> Iterator[Line]:
        file, pooled = -1, None
        for batch in line_batches(self.blocks()):
            file += batch.first == 1
            for number, text in enumerate(batch.lines, batch.first):
                if not text.strip():
                    continue
                content = _parsed(text)
                if isinstance(content, DecisionLine) and content.action is not None:
                    pooled = content.actions is not None if pooled is None else pooled
                    if pooled != (content.actions is not None):
                        content = "some decisions have a list of actions and others have none"
                yield Line(file, number, batch.source, text[: 4 * SHOWN], content)

    def _survey(self) -> Survey:
        survey = Survey()
        near: dict[str, None] = {}
        for line in self._lines():
            content = line.content
            if isinstance(content, str) or content.decision in near:
                continue
            if content.reward is not None:
                survey.far.setdefault(content.decision, []).append(line)
                continue
            near[content.decision] = None
            if len(near) > self.near:
                near.pop(next(iter(near)))
            survey.context.with_value(content.context)
            for record in content.features or ():
                survey.features.with_value(record)
            survey.timed |= content.time is not None
            survey.pooled = content.actions is not None
            survey.probs &= content.probs is not None
        return survey

    def _joined(self, far: dict[str, list[Line]]) -> Iterator[Decided | Rejected]:
        """Yield decisions that no near reward can change, in order, and lines that are rejected."""
        pending: dict[str, list[Line]] = {}  # recent decisions, each followed by its first near reward

        def settled(id: str) -> Iterator[Decided | Rejected]:
            decision, *near = pending.pop(id)
            rewards = sorted([*far.pop(id, []), *near])
            yield from (reward.rejected(SECOND_REWARD) for reward in rewards[1:])
            yield decision, rewards[0].content.reward if rewards else None  # type: ignore[union-attr]

        for line in self._lines():
            content = line.content
            if isinstance(content, str):
                yield line.rejected(content)
            elif content.reward is None:
                if content.decision in pending:
                    yield line.rejected("a recent decision has the same id")
                    continue
                pending[content.decision] = [line]
                if len(pending) > self.near:
                    yield from settled(next(iter(pending)))
            elif len(near := pending.get(content.decision, ())) == 1:
                pending[content.decision].append(line)
            elif near:
                yield line.rejected(SECOND_REWARD)
        for id in [*pending]:
            yield from settled(id)
        for rewards in far.values():
            yield from (reward.rejected(NO_DECISION) for reward in rewards)

    def _rounds(
        self, decided: Sequence[Decided], rejected: Sequence[Rejected], survey: Survey, unused: UnusedValues
    ) -> RawRounds:
        source = decided[0][0].source if decided else rejected[0].source
        lines = np.array([line.number for line, _ in decided], dtype=np.int64)
        decisions = [line.content for line, _ in decided if isinstance(line.content, DecisionLine)]

        def column(name: str, dtype: Any) -> pl.Series:
            return pl.Series(name, [getattr(each, name) for each in decisions], dtype=dtype)

        def frame(records: Sequence[dict[str, Any]], shape: Shape, features: Any, lines: Ints) -> pl.DataFrame:
            mismatches: list[Mismatch] = []
            found = frame_of(records, shape, features, mismatches)
            unused.add(mismatches, lines, source)
            return found

        action, pool, spec = column("action", pl.String), None, self.features
        if survey.pooled:
            lists = [each.actions or [] for each in decisions]
            lengths = np.array([len(each) for each in lists], dtype=np.int64)
            records = [record for each in decisions for record in each.features or [{}] * len(each.actions or [])]
            probs = np.array([prob for each in decisions for prob in each.probs or ()], dtype=np.float64)
            pool = Pool(
                offsets=np.concatenate([[0], np.cumsum(lengths)]),
                features=frame(records, survey.features, spec and spec.pool, np.repeat(lines, lengths)),
                names=pl.Series("action", [name for each in lists for name in each], dtype=pl.String),
                probs=probs if survey.probs else None,
            )
            places = [names.index(name) for names, name in zip(lists, action, strict=True)]
            action = pl.Series("action", places, dtype=pl.Int64)
        return RawRounds(
            source=source,
            lines=lines,
            features=frame([each.context or {} for each in decisions], survey.context, spec and spec.shared, lines),
            action=action,
            reward=pl.Series("reward", [reward for _, reward in decided], dtype=pl.Float64),
            propensity=column("propensity", pl.Float64),
            time=column("time", pl.Datetime("us")) if survey.timed else None,
            event=column("decision", pl.String),
            pool=pool,
            rejected=tuple(rejected),
        )


def looks_like(path: Path, head: bytes) -> bool:
    """Whether the first line that is not blank is a decision or a reward."""
    first = next((line for line in head.splitlines() if line.strip()), b"")
    return isinstance(_parsed(first), DecisionLine)


def _parsed(text: bytes) -> DecisionLine | str:
    try:
        line = _DECODER.decode(text)
        if line.time is not None and line.time.tzinfo is not None:
            line.time = line.time.astimezone(UTC).replace(tzinfo=None)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"the line is neither a decision nor a reward: {error}"
    except RecursionError:
        return TOO_DEEP
    except OverflowError:
        return "the time is not in the years 1 to 9999"
    if text.count(b"{") + text.count(b"[") > MAX_DEPTH and too_deep([line.context, line.features]):
        return TOO_DEEP
    return broken_rule(line) or line


_DECODER = msgspec.json.Decoder(DecisionLine)
