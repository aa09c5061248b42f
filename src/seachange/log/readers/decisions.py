"""Our own decision log (``seachange.log.decision_lines`` says what a line holds), with each reward at its decision.

The files, which follow each other, are read twice. The first pass learns the fields of the records and keeps the
rewards that are far from their decisions: more than ``NEAR`` decisions later, or before them. The second holds the last
``NEAR`` decisions and joins. So a reward may be anywhere, in a later file as well; memory grows only with those that
are far. Of several rewards the first counts, because it is what the deployment learned from when it came; the others
are named, as are rewards of decisions that are not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from seachange.log.decision_lines import DecisionLine, broken_rule
from seachange.log.raw import PART_ROWS, Pool, RawRounds, Rejected
from seachange.log.readers.json_values import Shape, frame_of
from seachange.log.readers.lines import shown
from seachange.log.readers.text_blocks import Block
from seachange.log.readers.text_log import TextLog

NEAR = 1 << 16
SECOND_REWARD = "the decision has a reward already"
SECOND_DECISION = "a decision of this name was made shortly before"
NO_DECISION = "there is no decision of this name"
COLUMNS = {word: word for word in ("action", "reward", "propensity", "time")}


class Place(NamedTuple):
    """Where a line stands; those that come later are greater."""

    file: int
    line: int
    source: str


@dataclass
class Survey:
    """What the first pass finds."""

    context: Shape = field(default_factory=lambda: Shape("object"))
    features: Shape = field(default_factory=lambda: Shape("object"))
    timed: bool = False
    pooled: bool = False
    probs: bool = True
    far: dict[str, list[tuple[Place, float, str]]] = field(default_factory=dict)  # rewards, with their text


@dataclass
class Waiting:
    """A decision whose reward may still come."""

    place: Place
    decision: DecisionLine
    reward: float | None = None
    reward_place: Place | None = None
    reward_text: str = ""


class DecisionsLog(TextLog):
    """The decisions in one file or several, in the order in which they were made."""

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
        settled: list[Waiting] = []
        rejected: list[Rejected] = []
        for each in self._settled(survey, rejected):
            if settled and (len(settled) == rows or settled[0].place.file != each.place.file):
                yield _rounds(settled[0].place.source, settled, survey, rejected)
                settled.clear()
                rejected.clear()
            settled.append(each)
        if settled or rejected:
            source = settled[0].place.source if settled else rejected[0].source
            yield _rounds(source, settled, survey, rejected)

    def _survey(self) -> Survey:
        survey = Survey()
        near: dict[str, None] = {}
        first = True
        for place, text, line in _lines(self.blocks()):
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

    def _settled(self, survey: Survey, rejected: list[Rejected]) -> Iterator[Waiting]:
        """Decisions that no near reward can change any more, in order."""
        waiting: dict[str, Waiting] = {}
        far = dict(survey.far)

        def reject(place: Place, reason: str, text: str) -> None:
            rejected.append(Rejected(place.source, place.line, reason, text))

        def settle(each: Waiting) -> Waiting:
            rewards = far.pop(each.decision.decision, [])
            if each.reward is not None and each.reward_place is not None:
                rewards = [*rewards, (each.reward_place, each.reward, each.reward_text)]
            for nth, (place, reward, line_text) in enumerate(sorted(rewards)):
                if nth == 0:
                    each.reward = reward
                else:
                    reject(place, SECOND_REWARD, line_text)
            return each

        for place, text, line in _lines(self.blocks()):
            if isinstance(line, str):
                reject(place, line, shown(text))
            elif line.action is not None:
                if line.decision in waiting:
                    reject(place, SECOND_DECISION, shown(text))
                elif gone := _add(waiting, line.decision, Waiting(place, line), self.near):
                    yield settle(gone)
            elif line.decision in waiting:
                each = waiting[line.decision]
                if each.reward is None:
                    each.reward, each.reward_place, each.reward_text = line.reward, place, shown(text)
                else:
                    reject(place, SECOND_REWARD, shown(text))
        for each in waiting.values():
            yield settle(each)
        for rewards in far.values():
            for place, _, line_text in rewards:
                reject(place, NO_DECISION, line_text)


def looks_like(path: Path, head: bytes) -> bool:
    """Whether the first line that is not blank is one of a decision log."""
    first = next((line for line in head.splitlines() if line.strip()), b"")
    line = _parsed(first)
    return isinstance(line, DecisionLine)


def _add(held: dict[str, Any], key: str, value: Any, most: int) -> Any:
    """Add to ``held`` what is newest; what is oldest goes, and comes back, where there are too many."""
    held[key] = value
    return held.pop(next(iter(held))) if len(held) > most else None


def _lines(blocks: Iterable[Block]) -> Iterator[tuple[Place, bytes, DecisionLine | str]]:
    """Place, text and content of the lines; a line that holds neither decision nor reward has a reason instead."""
    file, number, source = -1, 0, None
    pooled: bool | None = None
    for block in blocks:
        if block.source != source:
            file, number, source = file + 1, 0, block.source
        for text in bytes(block.text).split(b"\n"):
            number += 1
            if not text.strip():
                continue
            line = _parsed(text)
            if isinstance(line, DecisionLine) and line.action is not None:
                if pooled is None:
                    pooled = line.actions is not None
                elif pooled != (line.actions is not None):
                    line = "either every decision has a list of actions or none has"
            yield Place(file, number, block.source), text, line
        # A block ends with a line, so that its last piece is the empty one that the next line begins.
        number -= 1


def _parsed(text: bytes) -> DecisionLine | str:
    try:
        line = _DECODER.decode(text)
        if line.time is not None and line.time.tzinfo is not None:
            line.time = line.time.astimezone(UTC).replace(tzinfo=None)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return f"the line is no decision and no reward: {error}"
    except OverflowError:
        return "the time is not in the years 1 to 9999"
    return broken_rule(line) or line


_DECODER = msgspec.json.Decoder(DecisionLine)


def _rounds(source: str, settled: list[Waiting], survey: Survey, rejected: list[Rejected]) -> RawRounds:
    from polars import Datetime, Float64, Series, String

    decisions = [each.decision for each in settled]
    pool = _pool(decisions, survey) if survey.pooled else None
    actions = [each.action for each in decisions]
    times: list[datetime | None] = [each.time for each in decisions]
    return RawRounds(
        source=source,
        lines=np.array([each.place.line for each in settled], dtype=np.int64),
        features=frame_of([each.context or {} for each in decisions], survey.context),
        action=Series("action", actions, dtype=String) if pool is None else Series("action", _places(decisions)),
        reward=Series("reward", [each.reward for each in settled], dtype=Float64),
        propensity=Series("propensity", [each.propensity for each in decisions], dtype=Float64),
        time=Series("time", times, dtype=Datetime("us")) if survey.timed else None,
        event=Series("decision", [each.decision for each in decisions], dtype=String),
        pool=pool,
        rejected=tuple(rejected),
    )


def _places(decisions: list[DecisionLine]) -> Any:
    places = [(each.actions or []).index(each.action or "") for each in decisions]
    return np.array(places, dtype=np.int64)


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
