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

import math
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from seachange.errors import LogError, warn
from seachange.formats.action_lists import MAX_LINES, line_batches
from seachange.formats.column_roles import Columns, require_no_columns
from seachange.formats.sources import blocks_of, head_of, shown
from seachange.log.raw import PART_ROWS, Pool, RawRounds, Rejected

# A part has at most this many feature words, and rejects at most MAX_LINES lines.
PART_WORDS = 1 << 21
# The challenge kept one in this many impressions without a click.
SAMPLED = 10
NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?"
KEY, WORDS = "(?P<key>[0-9]+)", rf"(?P<words>(?: +[^\s:|]+:{NUMBER})*) *"
LABEL, STATED = f"(?P<label>{NUMBER})", f"(?P<stated>{NUMBER})"
# The first line of an impression and the lines of candidates, by whether it is the test-bed's.
FIRST = {
    False: re.compile(rf"{KEY} +\|l +{LABEL} +\|p +{STATED} *\|f{WORDS}", re.ASCII),
    True: re.compile(
        rf"example +{KEY}: +\S+ +{LABEL} +{STATED} +(?P<slots>[0-9]{{1,9}}) +(?P<candidates>[0-9]{{1,9}}){WORDS}",
        re.ASCII,
    ),
}
CANDIDATE = {
    False: re.compile(rf"{KEY} +\|f{WORDS}", re.ASCII),
    True: re.compile(rf"{NUMBER} +exid:{KEY}{WORDS}", re.ASCII),
}
# The impression that an unreadable line belongs to.
ANY_KEY = re.compile(r"example +([0-9]+):|([0-9]+) +\||\S+ +exid:([0-9]+)(?:\s|$)", re.ASCII)
CLICKS = {0.0: 0.0, 1.0: 1.0, 0.999: 0.0, 0.001: 1.0}
NO_FIRST_LINE = "the first line of the impression is missing, or has no label and propensity"
UNREADABLE = "the line is neither the first of an impression nor a candidate"
COLUMNS = {"action": "the first candidate", "reward": "click", "propensity": "propensity"}


class Impression(NamedTuple):
    """A valid impression."""

    line: int
    reward: float
    propensity: float
    display: list[str]
    candidates: list[list[str]]


class CriteoLog:
    """Impressions with one slot, in file order."""

    format = "criteo"
    columns: dict[str, str] = COLUMNS

    def __init__(self, path: str | Path, columns: Columns | None = None) -> None:
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
        whole: list[Impression] = []
        rejected: list[Rejected] = []
        n_words, n_rounds, n_clicks = 0, 0, 0.0
        for lines in self._groups():
            if len(whole) == rows or n_words >= PART_WORDS or len(rejected) == MAX_LINES:
                yield self._rounds(whole, rejected)
                whole, rejected, n_words = [], [], 0
            try:
                impression = _impression(lines, self.testbed)
            except ValueError as error:
                number, text = lines[0]
                rejected.append(Rejected(self.path.name, number, str(error), shown(text)))
                continue
            whole.append(impression)
            n_words += sum(map(len, impression.candidates))
            n_rounds, n_clicks = n_rounds + 1, n_clicks + impression.reward
        if whole or rejected:
            yield self._rounds(whole, rejected)
        if not self.testbed and n_rounds:
            share = n_rounds / (n_clicks + SAMPLED * (n_rounds - n_clicks))
            warn(
                f"{self.path.name!r} has only one in ten of the impressions without a click, so its rewards are too "
                "high and its importance weights do not average 1. To get the value for all impressions, multiply an "
                f"ips estimate by {share:.3g}; other estimates cannot be corrected."
            )

    def _groups(self) -> Iterator[list[tuple[int, bytes]]]:
        """Yield the numbered lines of each impression; a line without a key belongs to the impression before it."""
        group: list[tuple[int, bytes]] = []
        first, group_key = FIRST[self.testbed], None
        for batch in line_batches(blocks_of(self.path)):
            for number, text in enumerate(batch.lines, batch.first):
                if not text.strip():
                    continue
                line = _decoded(text)
                match = ANY_KEY.match(line)
                key = match and (match[1] or match[2] or match[3])
                if group and (key not in (None, group_key) or first.fullmatch(line)):
                    yield group
                    group = []
                if not group:
                    group_key = key
                group.append((number, text))
        if group:
            yield group

    def _rounds(self, whole: list[Impression], rejected: list[Rejected]) -> RawRounds:
        lengths = [len(each.candidates) for each in whole]
        words = pl.List(pl.String)
        display = pl.Series("display", [each.display for each in whole], dtype=words)
        candidates = pl.Series("features", [each for one in whole for each in one.candidates], dtype=words)
        return RawRounds(
            source=self.path.name,
            lines=np.array([each.line for each in whole], dtype=np.int64),
            features=display.to_frame() if self.testbed else pl.DataFrame(),
            action=pl.Series("action", np.zeros(len(whole), dtype=np.int64)),
            reward=pl.Series("reward", [each.reward for each in whole], dtype=pl.Float64),
            propensity=pl.Series("propensity", [each.propensity for each in whole], dtype=pl.Float64),
            pool=Pool(np.cumsum([0, *lengths], dtype=np.int64), candidates.to_frame()),
            rejected=tuple(rejected),
        )


def looks_like(path: Path, head: bytes) -> bool:
    """Whether the first line starts an impression."""
    first = _first_line(head)
    return FIRST[first.startswith(b"example")].fullmatch(_decoded(first)) is not None


def _first_line(head: bytes) -> bytes:
    return next((line for line in head.split(b"\n") if line.strip()), b"")


def _decoded(text: bytes) -> str:
    """Return text; bytes that are not text become an empty line, which no rule fits."""
    try:
        return text.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        return ""


def _words(line: re.Match[str]) -> list[str]:
    return [word.removesuffix(":1") for word in line["words"].split(" ") if word]


def _impression(lines: list[tuple[int, bytes]], testbed: bool) -> Impression:
    """Read the lines of an impression; a ValueError names the first rule that they break."""
    (start, text), *others = lines
    first = FIRST[testbed].fullmatch(_decoded(text))
    if first is None:
        raise ValueError(NO_FIRST_LINE if CANDIDATE[testbed].fullmatch(_decoded(text)) else UNREADABLE)
    reward, stated = CLICKS.get(float(first["label"])), float(first["stated"])
    if reward is None:
        raise ValueError("the label must be 0.001 or 1 (a click) or 0.999 or 0 (no click)")
    if not (0 if testbed else 1) <= stated < math.inf or stated == 0:
        raise ValueError("the propensity must be above 0" if testbed else "|p must be 1 / propensity, at least 1")
    if testbed and int(first["slots"]) != 1:
        raise ValueError(f"a banner with {int(first['slots'])} slots does not choose one candidate")
    candidates = [] if testbed else [_words(first)]
    for number, text in others:
        candidate = CANDIDATE[testbed].fullmatch(_decoded(text))
        if candidate is None:
            raise ValueError(f"line {number} of the impression is not a candidate")
        candidates.append(_words(candidate))
    if testbed and (not candidates or len(candidates) != int(first["candidates"])):
        raise ValueError(f"the impression should have {int(first['candidates'])} candidates but has {len(candidates)}")
    propensity = 1 / stated if stated >= 1 else stated
    return Impression(start, reward, propensity, _words(first) if testbed else [], candidates)
