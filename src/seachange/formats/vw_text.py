"""Vowpal Wabbit's text format for contextual bandits.

cb       one line per round: ``action:cost:probability |namespace features``; more actions, without a cost, are the
         others that could be chosen
cb_adf   one line per action, rounds separated by an empty line: first ``shared |features``, if anything is shared;
         ``action:cost:probability`` on the line of the chosen action

reward    minus the cost
features  ``|user age:31 city=NY tall`` gives user.age, a number; user.city, text (as ``city:NY`` does); and the list of
          bare words, user
names     of actions that have lines: their tags, or their only feature if it is text that differs within each round

The first lines decide between cb and cb_adf. Vowpal Wabbit repairs or skips what breaks its rules; here the round is
rejected with the reason.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars

from seachange.errors import LogError
from seachange.formats.action_lists import TAG, FeatureColumns, FeatureList, LineBatch, Reasons, line_batches
from seachange.formats.sources import HEAD_BYTES, LONGEST_LINE, NOT_UTF8, TextLog
from seachange.log.raw import PART_ROWS, Pool, RawRounds

COLUMNS = {"action": "action:cost:probability", "reward": "-cost", "propensity": "probability"}
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
NOT_TEXT = re.compile(r"[0-9+.-]|nan|inf", re.IGNORECASE)
ACTION = re.compile(r"[1-9][0-9]{0,8}")  # Vowpal Wabbit counts actions from 1
PLACE = re.compile(r"[0-9]{1,9}")  # if actions have lines, the number has no meaning

NO_COST = "no action has a cost and a probability"
LISTED = "the possible actions are listed, unlike in the first round"


def looks_like(path: Path, head: bytes) -> bool:
    """Whether the first lines are bandit labels, a bar, and features."""
    lines = [line.strip() for line in head.split(b"\n")[:50]]
    lines = [line for line in lines if line]
    labelled = [_is_label(word) for line in lines for word in line.partition(b"|")[0].split()]
    return bool(lines) and all(b"|" in line for line in lines[:-1]) and b"|" in lines[0] and any(labelled)


def _is_label(word: bytes) -> bool:
    parts = word.split(b":")
    try:
        return len(parts) == 3 and parts[0].isdigit() and 0 <= float(parts[2]) <= 1 and float(parts[1]) < np.inf
    except ValueError:
        return False


class VwTextLog(TextLog):
    """Rounds of files in Vowpal Wabbit's text format."""

    format, columns, description = "vw", COLUMNS, "Vowpal Wabbit's text"

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds in file order, at most ``rows`` at a time; each call reads the files again."""
        batches = line_batches(self.blocks())
        if (first := next(batches, None)) is None:
            return
        with_items = has_action_lines(first.text)
        rounds = _Rounds(with_items, self.named)
        for source, groups in _grouped(chain([first], batches), with_items):
            yield from rounds.rounds(source, groups).in_parts(rows)
        rounds.columns.warn(self.name)


def has_action_lines(text: bytes) -> bool:
    """Whether actions have their own lines: a line is shared, or most groups of lines have at most one label."""
    lines = [line.strip() for line in text[:HEAD_BYTES].split(b"\n")]
    if any(line.startswith((b"shared ", b"shared|", b"shared\t")) for line in lines):
        return True
    sizes, labels = [0], [0]
    for line in lines:
        if not line:
            sizes.append(0)
            labels.append(0)
            continue
        sizes[-1] += 1
        labels[-1] += any(map(_is_label, line.partition(b"|")[0].split()))
    groups = [found <= 1 for size, found in zip(sizes, labels, strict=True) if size > 1]
    return 2 * sum(groups) > len(groups)


class _Group(NamedTuple):
    """The lines of one round."""

    lines: list[tuple[int, bytes]]
    after_blank: bool = False  # the line before the first has only blanks


def _grouped(batches: Iterable[LineBatch], with_items: bool) -> Iterator[tuple[str, list[_Group]]]:
    """The groups of lines that end in each batch; the last one of a file ends with it."""
    source, group, size = "", _Group([]), 0
    groups: list[_Group] = []
    for batch in batches:
        if batch.source != source and group.lines:
            groups.append(group)
            group, size = _Group([]), 0
        if groups:
            yield source, groups
        source, groups = batch.source, []
        for number, line in enumerate(batch.lines, batch.first):
            text = line.rstrip(b"\r")
            if not with_items:
                if text.strip(b" \t\r"):
                    groups.append(_Group([(number, line)]))
                continue
            within = any(not _is_blank(each) for _, each in group.lines[-1:])
            if text:
                group.lines.append((number, line))
                size += len(line)
            if group.lines and (not text or (within and _is_blank(text))):
                groups.append(group)
                group, size = _Group([], after_blank=bool(text)), 0
            elif not text:
                group = _Group([])
        if size > LONGEST_LINE:
            raise LogError(
                f"{source!r} has more than {LONGEST_LINE:,} bytes without an empty line. Actions have their own lines "
                "in this file, so an empty line, without blanks, must end every round."
            )
    if group.lines:
        groups.append(group)
    if groups:
        yield source, groups


def _is_blank(line: bytes) -> bool:
    """Whether a line is blank, apart from what is before a tab."""
    line = line.rstrip(b"\r")
    return b"|" not in line and not (line.partition(b"\t")[2] if b"\t" in line else line).strip(b" ")


class _BadRoundError(Exception):
    """A round that is rejected: the reason, and the line if it is known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line


@dataclass
class _Line:
    """A line, taken apart."""

    words: list[str]  # of the label
    tag: str
    features: list[tuple[str, Any, bool]]


class _Label(NamedTuple):
    action: int
    cost: float | None = None
    probability: float | None = None


@dataclass
class _Round:
    """A round."""

    action: int  # its number, or with items its place
    cost: float
    propensity: float
    shared: list[tuple[str, Any, bool]]
    items: list[list[tuple[str, Any, bool]]] = field(default_factory=list)
    listed: list[int] = field(default_factory=list)  # actions that could be chosen, if they have no lines


def _parsed(content: bytes) -> _Line:
    """Take a line apart."""
    try:
        line = content.rstrip(b"\r").decode()
    except UnicodeDecodeError:
        raise _BadRoundError(NOT_UTF8) from None
    if _is_blank(content):
        raise _BadRoundError("the line has only blanks; an empty line must end a round")
    label, bar, rest = line.partition("|")
    label = label.partition("\t")[2] if "\t" in label else label
    words, tag = [word for word in label.split(" ") if word], ""
    if words and (label.endswith(words[-1]) or words[-1].startswith("'")):  # a tag touches the bar or has a quote
        tag = words.pop().removeprefix("'")
    return _Line(words, tag, list(_features(rest)) if bar else [])


def _features(text: str) -> Iterator[tuple[str, Any, bool]]:
    """Features behind the first bar: name, value, whether it is in a list."""
    for part in text.replace("\t", " ").replace("\r", " ").split("|"):
        namespace, *words = part.split(" ")
        namespace, colon, value = namespace.partition(":")
        if colon and not namespace:
            raise _BadRoundError("a namespace has a scale but no name")
        if colon and not NUMBER.fullmatch(value):
            raise _BadRoundError("the scale of a namespace is not a number")
        scale = _finite(value) if colon else 1.0
        prefix = f"{namespace}." if namespace else ""
        for word in filter(None, words):
            name, colon, value = word.partition(":")
            if not name:
                raise _BadRoundError("a feature has no name")
            if colon:
                yield prefix + name, _value(value, scale), False
            elif scale != 1:
                yield prefix + name, scale, False
            elif (place := name.find("=", 1)) > 0:
                yield prefix + name[:place], name[place + 1 :], False
            else:
                yield namespace or "words", name, True


def _value(text: str, scale: float) -> str | float:
    """The value of a feature: a scaled number, or text."""
    if NUMBER.fullmatch(text):
        return _finite(_finite(text) * scale)
    if not text:
        raise _BadRoundError("a feature has no value after its colon")
    if NOT_TEXT.match(text) or ":" in text:
        raise _BadRoundError("the value of a feature is neither a number nor text")
    if scale != 1:
        raise _BadRoundError("a namespace with a scale has a feature whose value is not a number")
    return text


def _finite(value: str | float) -> float:
    number = float(value)
    if abs(number) == np.inf:
        raise _BadRoundError("a number is too large for a double")
    return number


def _labels(words: list[str], action: re.Pattern[str]) -> list[_Label]:
    labels = []
    for word in words:
        number, *values = word.split(":")
        if not action.fullmatch(number) or len(values) > 2 or not all(NUMBER.fullmatch(each) for each in values):
            raise _BadRoundError("the label is not action:cost:probability")
        labels.append(_Label(int(number), *map(float, values)))
    return labels


def _chosen(labels: Iterable[_Label]) -> tuple[int, float, float]:
    """Place, cost and probability of the only label with a cost."""
    costs = [(place, each) for place, each in enumerate(labels) if each.cost is not None]
    if any(each.probability is None for _, each in costs):
        raise _BadRoundError("a cost has no probability")
    if len(costs) != 1:
        raise _BadRoundError("more than one action has a cost; a round has one chosen action" if costs else NO_COST)
    place, (_, cost, probability) = costs[0]
    assert cost is not None
    assert probability is not None
    if not 0 < probability <= 1:
        raise _BadRoundError("the probability of the chosen action is not in (0, 1]")
    return place, _finite(cost), probability


def _cb_round(group: _Group) -> _Round:
    """A line as a round."""
    line = _parsed(group.lines[0][1])
    if not line.words:
        raise _BadRoundError("the label action:cost:probability is missing")
    if "shared" in line.words:
        raise _BadRoundError("there is a shared line, but actions have no lines")
    labels = _labels(line.words, ACTION)
    listed = [label.action for label in labels]
    if len(set(listed)) < len(listed):
        raise _BadRoundError("an action is listed twice")
    place, cost, probability = _chosen(labels)
    return _Round(listed[place], cost, probability, line.features, listed=listed)


def _adf_round(group: _Group) -> _Round:
    """A group of lines as a round."""
    lines: list[_Line] = []
    for number, content in group.lines:
        try:
            lines.append(_parsed(content))
            if number == group.lines[0][0] and group.after_blank:
                raise _BadRoundError("the line before has only blanks; an empty line must end a round")
        except _BadRoundError as error:
            raise _BadRoundError(error.reason, number) from None
    is_shared = ["shared" in line.words for line in lines]
    actions = [line for line, shared in zip(lines, is_shared, strict=True) if not shared]
    if not actions:
        raise _BadRoundError("the round has no actions")
    if any(is_shared[1:]):
        raise _BadRoundError("the shared line is not the first of the round")
    if any(len(line.words) > 1 for line in lines):
        raise _BadRoundError("a line has more than one label")
    labels = [_labels(line.words, PLACE) for line in actions]
    chosen, cost, probability = _chosen(each[0] if each else _Label(0) for each in labels)
    tags: list[Any] = [[(TAG, line.tag, False)] if line.tag else [] for line in actions]
    items = [line.features + tag for line, tag in zip(actions, tags, strict=True)]
    return _Round(chosen, cost, probability, lines[0].features if is_shared[0] else [], items=items)


class _Rounds:
    """Builds rounds from groups of lines, with columns and types as in the groups before."""

    def __init__(self, with_items: bool, named: bool | None) -> None:
        self.with_items = with_items
        self.columns = FeatureColumns(named, repeated=("text",))
        self.with_lists: bool | None = None

    def rounds(self, source: str, groups: list[_Group]) -> RawRounds:
        """The rounds of some groups."""
        reasons, bad_lines = Reasons(len(groups)), [group.lines[0] for group in groups]
        rounds: list[_Round | None] = []
        shared, items, n_items, row = FeatureList(), FeatureList(), np.zeros(len(groups), np.int64), 0
        for k, group in enumerate(groups):
            try:
                rounds.append(found := _adf_round(group) if self.with_items else self._listed(_cb_round(group)))
            except _BadRoundError as error:
                rounds.append(None)
                reasons.texts[k] = error.reason
                bad_lines[k] = next((each for each in group.lines if each[0] == error.line), group.lines[0])
                continue
            shared.add(k, found.shared)
            n_items[k] = len(found.items)
            for item in found.items:
                items.add(row, item)
                row += 1
        frames = self.columns.frames(shared.features(), items.features(), n_items, reasons)
        kept = [each for k, each in enumerate(rounds) if each is not None and k not in reasons.texts]
        good = reasons.good
        actions, pool = [each.action for each in kept], None
        if self.with_items:
            pool = Pool(np.concatenate([[0], np.cumsum(n_items[good])]), frames[1], frames[2])
        elif self.with_lists:
            names = [action for each in kept for action in each.listed]
            offsets = np.cumsum([0, *(len(each.listed) for each in kept)])
            pool = Pool(offsets, polars.DataFrame(height=len(names)), polars.Series("name", names, dtype=polars.Int64))
            actions = [each.listed.index(each.action) for each in kept]
        lines = np.array([group.lines[0][0] for group in groups], np.int64)
        texts = {k: bad_lines[k][1].strip(b" \t\r") for k in reasons.texts}
        return RawRounds(
            source=source,
            lines=lines[good],
            features=frames[0],
            action=polars.Series("action", actions, dtype=polars.Int64),
            reward=polars.Series("reward", [0.0 - each.cost for each in kept], dtype=polars.Float64),
            propensity=polars.Series("propensity", [each.propensity for each in kept], dtype=polars.Float64),
            pool=pool,
            rejected=reasons.rejected(source, [number for number, _ in bad_lines], texts),
        )

    def _listed(self, found: _Round) -> _Round:
        """Either all rounds list the possible actions or none does."""
        if self.with_lists is None:
            self.with_lists = len(found.listed) > 1
        if self.with_lists != (len(found.listed) > 1):
            raise _BadRoundError(
                "the possible actions are not listed, unlike in the first round" if self.with_lists else LISTED
            )
        return found
