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

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np

from seachange.errors import LogError, OutputError
from seachange.formats.action_lists import MAX_LINES, LineBatch, line_batches
from seachange.formats.text_blocks import TextLog, shown
from seachange.formats.value_types import Shape, frame_of
from seachange.log.raw import PART_ROWS, Pool, RawRounds, Rejected
from seachange.protocols import Ints

NEAR = 1 << 16
MAX_DEPTH = 64
COLUMNS = {name: name for name in ("action", "reward", "propensity", "time")}
# Rules that a line may break.
NOT_DECISION = "the line is neither a decision nor a reward: {error}"
TOO_DEEP = f"objects and lists are nested more than {MAX_DEPTH} deep"
BAD_YEAR = "the time is not in the years 1 to 9999"
MIXED_LISTS = "some decisions have a list of actions and others have none"
EMPTY = "a line must have an action (a decision) or a reward"
NO_ACTION = "a decision must have an action"
REWARD_INSIDE = "a decision and its reward must be separate lines"
NO_CONTEXT = "a decision must have a context and a propensity"
NO_LIST = "features and probs need a list of actions"
REPEATED_ACTION = "actions must differ"
NOT_LISTED = "the action must be one of actions"
WRONG_LENGTH = "{name} must have one entry per action"
SECOND_REWARD = "the decision already has a reward"
SECOND_DECISION = "a recent decision has the same id"
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
            return EMPTY
        given = (line.context, line.propensity, line.actions, line.features, line.probs)
        return None if given == (None,) * len(given) else NO_ACTION
    if line.reward is not None:
        return REWARD_INSIDE
    if line.propensity is None or line.context is None:
        return NO_CONTEXT
    if line.actions is None:
        return NO_LIST if line.features or line.probs else None
    if len(set(line.actions)) < len(line.actions):
        return REPEATED_ACTION
    if line.action not in line.actions:
        return NOT_LISTED
    for name, each in (("features", line.features), ("probs", line.probs)):
        if each is not None and len(each) != len(line.actions):
            return WRONG_LENGTH.format(name=name)
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
            self._file = self.path.open("ab", buffering=0)
            unfinished = self._file.tell() > 0 and self._last_byte() != b"\n"
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, line: DecisionLine) -> None:
        if rule := broken_rule(line):
            raise LogError(f"cannot write decision {line.decision!r}: {rule}.")
        if max(map(_depth, (line.context, line.features))) > MAX_DEPTH - 1:
            raise LogError(f"cannot write decision {line.decision!r}: {TOO_DEEP}.")
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

    def _last_byte(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(-1, 2)
            return file.read(1)


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
    """Numbers and arrays of numpy as JSON."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _depth(value: Any) -> int:
    """How deep objects and lists are nested in a value, up to a little more than allowed."""
    depth, level = 0, [value]
    while depth <= MAX_DEPTH and (level := [each for each in level if isinstance(each, dict | list)]):
        depth += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return depth


# Reading


class Place(NamedTuple):
    """Where a line is; later lines are greater."""

    file: int
    line: int
    source: str


@dataclass
class Survey:
    """Results of the first pass."""

    context: Shape = field(default_factory=lambda: Shape("object"))
    features: Shape = field(default_factory=lambda: Shape("object"))
    timed: bool = False
    pooled: bool = False
    probs: bool = True
    far: dict[str, list[tuple[Place, float, str]]] = field(default_factory=dict)  # rewards, with their text


@dataclass
class Pending:
    """A decision whose reward may still come."""

    place: Place
    decision: DecisionLine
    reward: float | None = None
    reward_place: Place | None = None
    reward_text: str = ""


class DecisionsLog(TextLog):
    """The decisions of one or more files, in the order in which they were made, with their rewards."""

    format, columns, description = "decisions", COLUMNS, "the decision log"

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        columns: Mapping[str, Any] | None = None,
        *,
        near: int = NEAR,
    ) -> None:
        super().__init__(path, columns)
        self.near = near

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All decisions, at most ``rows`` at a time, with the rewards that came."""
        survey = self._survey()
        rejected: list[Rejected] = []
        joined: list[Pending] = []
        for each in self._joined(survey, rejected):
            full = len(joined) == rows or len(rejected) >= MAX_LINES
            if (joined or full) and (full or each is None or joined[0].place.file != each.place.file):
                source = joined[0].place.source if joined else rejected[0].source
                yield _rounds(source, joined, survey, rejected)
                joined, rejected[:] = [], []
            if each is not None:
                joined.append(each)
        if joined or rejected:
            yield _rounds(joined[0].place.source if joined else rejected[0].source, joined, survey, rejected)

    def _survey(self) -> Survey:
        survey = Survey()
        near: dict[str, None] = {}
        first = True
        for place, text, line in _lines(line_batches(self.blocks())):
            if isinstance(line, str):
                continue
            if line.action is not None and line.decision not in near:
                _add(near, line.decision, None, self.near)
                survey.context = survey.context.with_value(line.context)
                for record in line.features or ():
                    survey.features = survey.features.with_value(record)
                survey.timed |= line.time is not None
                survey.pooled = line.actions is not None if first else survey.pooled
                survey.probs &= line.probs is not None
                first = False
            elif line.action is None and line.decision not in near and line.reward is not None:
                survey.far.setdefault(line.decision, []).append((place, line.reward, shown(text)))
        return survey

    def _joined(self, survey: Survey, rejected: list[Rejected]) -> Iterator[Pending | None]:
        """Decisions that no near reward can change, in order; None if there is only more to reject."""
        pending: dict[str, Pending] = {}
        far = dict(survey.far)

        def reject(place: Place, reason: str, text: str) -> None:
            rejected.append(Rejected(place.source, place.line, reason, text))

        def with_reward(each: Pending) -> Pending:
            rewards = far.pop(each.decision.decision, [])
            if each.reward is not None and each.reward_place is not None:
                rewards = [*rewards, (each.reward_place, each.reward, each.reward_text)]
            for nth, (place, reward, text) in enumerate(sorted(rewards)):
                if nth == 0:
                    each.reward = reward
                else:
                    reject(place, SECOND_REWARD, text)
            return each

        for place, text, line in _lines(line_batches(self.blocks())):
            if isinstance(line, str):
                reject(place, line, shown(text))
            elif line.action is not None:
                if line.decision in pending:
                    reject(place, SECOND_DECISION, shown(text))
                elif oldest := _add(pending, line.decision, Pending(place, line), self.near):
                    yield with_reward(oldest)
            elif line.decision in pending:
                each = pending[line.decision]
                if each.reward is None:
                    each.reward, each.reward_place, each.reward_text = line.reward, place, shown(text)
                else:
                    reject(place, SECOND_REWARD, shown(text))
            if len(rejected) >= MAX_LINES:
                yield None
        for each in pending.values():
            yield with_reward(each)
        for rewards in far.values():
            for place, _, line_text in rewards:
                reject(place, NO_DECISION, line_text)
                if len(rejected) >= MAX_LINES:
                    yield None


def looks_like(path: Path, head: bytes) -> bool:
    """Whether the first line that is not blank is a decision or a reward."""
    first = next((line for line in head.splitlines() if line.strip()), b"")
    return isinstance(_parsed(first), DecisionLine)


def _add(held: dict[str, Any], key: str, value: Any, most: int) -> Any:
    """Add an entry; returns the oldest one, which is dropped, if there are more than ``most``."""
    held[key] = value
    return held.pop(next(iter(held))) if len(held) > most else None


def _lines(batches: Iterable[LineBatch]) -> Iterator[tuple[Place, bytes, DecisionLine | str]]:
    """Place, text and content of every line; the content of a bad line is the rule that it breaks."""
    file, source = -1, None
    pooled: bool | None = None
    for batch in batches:
        if batch.source != source:
            file, source = file + 1, batch.source
        for number, text in enumerate(batch.lines, batch.first):
            if not text.strip():
                continue
            line = _parsed(text)
            if isinstance(line, DecisionLine) and line.action is not None:
                if pooled is None:
                    pooled = line.actions is not None
                elif pooled != (line.actions is not None):
                    line = MIXED_LISTS
            yield Place(file, number, batch.source), text, line


def _parsed(text: bytes) -> DecisionLine | str:
    try:
        line = _DECODER.decode(text)
        if line.time is not None and line.time.tzinfo is not None:
            line.time = line.time.astimezone(UTC).replace(tzinfo=None)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return NOT_DECISION.format(error=error)
    except RecursionError:
        return TOO_DEEP
    except OverflowError:
        return BAD_YEAR
    if text.count(b"{") + text.count(b"[") > MAX_DEPTH and max(map(_depth, (line.context, line.features))) >= MAX_DEPTH:
        return TOO_DEEP
    return broken_rule(line) or line


_DECODER = msgspec.json.Decoder(DecisionLine)


def _rounds(source: str, joined: list[Pending], survey: Survey, rejected: list[Rejected]) -> RawRounds:
    from polars import Datetime, Float64, Series, String

    decisions = [each.decision for each in joined]
    pool = _pool(decisions, survey) if survey.pooled else None
    actions = [each.action for each in decisions]
    return RawRounds(
        source=source,
        lines=np.array([each.place.line for each in joined], dtype=np.int64),
        features=frame_of([each.context or {} for each in decisions], survey.context),
        action=Series("action", actions, dtype=String) if pool is None else Series("action", _places(decisions)),
        reward=Series("reward", [each.reward for each in joined], dtype=Float64),
        propensity=Series("propensity", [each.propensity for each in decisions], dtype=Float64),
        time=Series("time", [each.time for each in decisions], dtype=Datetime("us")) if survey.timed else None,
        event=Series("decision", [each.decision for each in decisions], dtype=String),
        pool=pool,
        rejected=tuple(rejected),
    )


def _places(decisions: list[DecisionLine]) -> Ints:
    """Places of the chosen actions in their lists."""
    return np.array([(each.actions or []).index(each.action or "") for each in decisions], dtype=np.int64)


def _pool(decisions: list[DecisionLine], survey: Survey) -> Pool:
    from polars import Series, String

    names = [each.actions or [] for each in decisions]
    records = [record for each in decisions for record in each.features or [{}] * len(each.actions or [])]
    probs = [prob for each in decisions for prob in each.probs or ()]
    return Pool(
        offsets=np.concatenate([[0], np.cumsum([len(each) for each in names], dtype=np.int64)]).astype(np.int64),
        features=frame_of(records, survey.features),
        names=Series("action", [name for each in names for name in each], dtype=String),
        probs=np.array(probs, dtype=np.float64) if survey.probs else None,
    )
