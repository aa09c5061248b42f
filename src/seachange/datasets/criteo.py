"""Criteo's logs for counterfactual learning: which candidate a banner showed, and whether it was clicked.

The NIPS 2017 ad placement challenge, as its starter kit reads it (spMohanty, crowdai-criteo-ad-placement-challenge):

    17 |l 0.999 |p 11.32|f 0:300 1:250 12:1     cost (0.999 no click, 0.001 click), 1 / propensity, features
    17 |f 0:300 1:250 14:2                      the other candidates; the first one was shown

The test-bed it was taken from (Lefortier, Swaminathan, Gu, Joachims and de Rijke, 2016), as its page describes it:

    example 17: 5e9c 1 0.08 1 2 0:300 1:250     hash, click, propensity, slots, candidates, features of the display
    1 exid:17 12:1                              click and features of a candidate; the first ones were shown
    0 exid:17 14:2

The page calls the fourth field the propensity, but the same field of the challenge is its inverse; numbers above 1 are
read as the inverse. Banners with several slots do not choose one action; they are rejected. Features are words: "12"
for 12:1, and "14:2" as it is. The challenge keeps one in ten impressions without a click and counts each for ten;
rewards are read as they are, and a warning says that their mean is not the true click rate.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seachange.errors import LogError, SeachangeWarning
from seachange.formats.action_lists import MAX_LINES, line_batches
from seachange.formats.column_roles import require_no_columns
from seachange.formats.sources import blocks_of, head_of, shown
from seachange.log.raw import PART_ROWS, Pool, RawRounds, Rejected

if TYPE_CHECKING:
    import polars

# A part has at most this many feature words, and rejects at most MAX_LINES lines.
PART_WORDS = 1 << 21
# The challenge kept one in this many impressions without a click.
SAMPLED = 10
NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?"
WORDS = rf"(?: +[^\s:|]+:{NUMBER})*"
SHOWN = re.compile(rf"([0-9]+) +\|l +({NUMBER}) +\|p +({NUMBER}) *\|f({WORDS}) *", re.ASCII)
OTHER = re.compile(rf"([0-9]+) +\|f({WORDS}) *", re.ASCII)
HEADER = re.compile(
    rf"example +([0-9]+): +\S+ +({NUMBER}) +({NUMBER}) +([0-9]{{1,9}}) +([0-9]{{1,9}})({WORDS}) *", re.ASCII
)
CANDIDATE = re.compile(rf"{NUMBER} +exid:([0-9]+)({WORDS}) *", re.ASCII)
KEY = re.compile(r"example +([0-9]+):|([0-9]+) +\||\S+ +exid:([0-9]+)(?:\s|$)", re.ASCII)
CLICKS = {0.0: 0.0, 1.0: 1.0, 0.999: 0.0, 0.001: 1.0}
NOT_CANDIDATE = "line {line} of the impression is not a candidate"
UNKNOWN_LINE = "the line is neither the first of an impression nor a candidate"
NO_FIRST_LINE = "the first line of the impression is missing, or has no label and propensity"
BAD_LABEL = "the label must be 0.001 or 1 (a click) or 0.999 or 0 (no click)"
BAD_PROPENSITY = {True: "the propensity must be above 0", False: "|p must be 1 / propensity, at least 1"}
SEVERAL_SLOTS = "a banner with {n} slots does not choose one candidate"
WRONG_NUMBER = "the impression should have {stated} candidates but has {found}"
COLUMNS = {"action": "the first candidate", "reward": "click", "propensity": "propensity"}


class Line(NamedTuple):
    """A line."""

    key: str | None = None  # of its impression
    words: tuple[str, ...] = ()
    opens: tuple[float, float, int, int | None] | None = None  # label, propensity, slots, candidates
    readable: bool = True


@dataclass
class Impression:
    """The lines of one impression."""

    line: int
    text: bytes
    key: str | None
    reward: float = 0.0
    propensity: float = 0.0
    n_candidates: int | None = None
    display: tuple[str, ...] = ()
    candidates: list[tuple[str, ...]] = field(default_factory=list)
    fault: str | None = None


class CriteoLog:
    """Impressions with one slot, in file order."""

    format = "criteo"
    columns: dict[str, str] = COLUMNS

    def __init__(self, path: str | Path, columns: Mapping[str, Any] | None = None) -> None:
        require_no_columns(columns, "Criteo's format")
        self.path = Path(path)

    @cached_property
    def testbed(self) -> bool:
        """Whether impressions have a header line, as in the test-bed."""
        head = head_of(self.path)
        if not looks_like(self.path, head):
            raise LogError(f"{str(self.path)!r} is not a file of Criteo: its first line does not start an impression.")
        return _first_line(head).startswith(b"example")

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds, at most ``rows`` at a time."""
        held: list[Impression] = []
        rejected: list[Rejected] = []
        words, seen, clicks = 0, 0, 0.0
        for impression in self._impressions():
            if impression.fault is not None:
                text = shown(impression.text)
                rejected.append(Rejected(self.path.name, impression.line, impression.fault, text))
                if len(rejected) >= MAX_LINES:
                    yield self._rounds(held, rejected)
                    held, rejected, words = [], [], 0
                continue
            held.append(impression)
            seen, clicks = seen + 1, clicks + impression.reward
            words += sum(map(len, impression.candidates))
            if len(held) == rows or words >= PART_WORDS:
                yield self._rounds(held, rejected)
                held, rejected, words = [], [], 0
        if held or rejected:
            yield self._rounds(held, rejected)
        if not self.testbed and seen:
            share = seen / (clicks + SAMPLED * (seen - clicks))
            warnings.warn(
                f"{self.path.name!r} has only one in ten of the impressions without a click, so its rewards are too "
                "high and its importance weights do not average 1. To get the value for all impressions, multiply an "
                f"ips estimate by {share:.3g}; other estimates cannot be corrected.",
                SeachangeWarning,
                stacklevel=2,
            )

    def _impressions(self) -> Iterator[Impression]:
        testbed, current = self.testbed, None
        for batch in line_batches(blocks_of(self.path)):
            for number, text in enumerate(batch.lines, batch.first):
                if not text.strip():
                    continue
                line = _testbed_line(text) if testbed else _challenge_line(text)
                if current is not None and line.opens is None and line.key in (None, current.key):
                    _add(current, line, number)
                    continue
                if current is not None:
                    yield _finished(current)
                current = _opened(line, number, text, testbed)
        if current is not None:
            yield _finished(current)

    def _rounds(self, held: list[Impression], rejected: list[Rejected]) -> RawRounds:
        from polars import DataFrame, Float64, Series

        lengths = [len(each.candidates) for each in held]
        return RawRounds(
            source=self.path.name,
            lines=np.array([each.line for each in held], dtype=np.int64),
            features=_table("display", [each.display for each in held]) if self.testbed else DataFrame(),
            action=Series("action", np.zeros(len(held), dtype=np.int64)),
            reward=Series("reward", [each.reward for each in held], dtype=Float64),
            propensity=Series("propensity", [each.propensity for each in held], dtype=Float64),
            pool=Pool(
                np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
                _table("features", [words for each in held for words in each.candidates]),
            ),
            rejected=tuple(rejected),
        )


def looks_like(path: Path, head: bytes) -> bool:
    """Whether the first line starts an impression."""
    first = _first_line(head)
    return (_testbed_line(first) if first.startswith(b"example") else _challenge_line(first)).opens is not None


def _first_line(head: bytes) -> bytes:
    return next((line for line in head.split(b"\n") if line.strip()), b"")


def _table(name: str, words: list[tuple[str, ...]]) -> polars.DataFrame:
    from polars import DataFrame, List, Series, String

    return DataFrame([Series(name, [list(each) for each in words], dtype=List(String))])


def _challenge_line(text: bytes) -> Line:
    line = _decoded(text)
    if match := OTHER.fullmatch(line):
        return Line(match[1], _words(match[2]))
    if match := SHOWN.fullmatch(line):
        inverse = float(match[3])
        propensity = 1 / inverse if 1 <= inverse < math.inf else math.nan
        return Line(match[1], _words(match[4]), (float(match[2]), propensity, 1, None))
    return Line(_key(line), readable=False)


def _testbed_line(text: bytes) -> Line:
    line = _decoded(text)
    if match := CANDIDATE.fullmatch(line):
        return Line(match[1], _words(match[2]))
    if match := HEADER.fullmatch(line):
        stated = float(match[3])
        propensity = math.nan if not 0 < stated < math.inf else 1 / stated if stated > 1 else stated
        return Line(match[1], _words(match[6]), (float(match[2]), propensity, int(match[4]), int(match[5])))
    return Line(_key(line), readable=False)


def _decoded(text: bytes) -> str:
    """Text; bytes that are not text become an empty line, which no rule fits."""
    try:
        return text.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        return ""


def _key(line: str) -> str | None:
    """The impression that an unreadable line belongs to."""
    match = KEY.match(line)
    return None if match is None else match[1] or match[2] or match[3]


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.removesuffix(":1") for word in text.split(" ") if word)


def _opened(line: Line, number: int, text: bytes, testbed: bool) -> Impression:
    """The impression that a line starts."""
    impression = Impression(number, text, line.key)
    if not line.readable:
        impression.fault = UNKNOWN_LINE
    elif line.opens is None:
        impression.fault = NO_FIRST_LINE
    else:
        label, impression.propensity, n_slots, impression.n_candidates = line.opens
        impression.reward = CLICKS.get(label, math.nan)
        if testbed:
            impression.display = line.words
        else:
            impression.candidates.append(line.words)
        if math.isnan(impression.reward):
            impression.fault = BAD_LABEL
        elif math.isnan(impression.propensity):
            impression.fault = BAD_PROPENSITY[testbed]
        elif n_slots != 1:
            impression.fault = SEVERAL_SLOTS.format(n=n_slots)
    return impression


def _add(impression: Impression, line: Line, number: int) -> None:
    if not line.readable:
        impression.fault = impression.fault or NOT_CANDIDATE.format(line=number)
    elif impression.fault is None:
        impression.candidates.append(line.words)


def _finished(impression: Impression) -> Impression:
    found, stated = len(impression.candidates), impression.n_candidates
    if impression.fault is None and (found == 0 or stated not in (None, found)):
        impression.fault = WRONG_NUMBER.format(stated=stated, found=found)
    return impression
