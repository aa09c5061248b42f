"""Damaged files of Vowpal Wabbit: what is read is what a slow reader reads, and every line is read or rejected."""

import json
import math
import re

import polars
import pytest

from fuzz import vw_by_hand
from fuzz.mutations import mutations
from fuzz.vw_by_hand import NoRoundError, Written
from seachange.formats import dsjson
from seachange.formats.dsjson import DsjsonLog
from seachange.formats.vw_text import VwTextLog, has_action_lines
from seachange.log.raw import text_of

pytestmark = pytest.mark.filterwarnings("ignore:the share of events dropped")
# Reasons that depend on other lines of the file, which the slow reader does not know.
OTHERS = ("as in earlier rounds", "but the first rounds have it", "in the first round", "share a name or lack one")

DECISIONS = [
    {"_label_cost": -1.5, "_label_probability": 0.7, "_label_Action": 2, "_labelIndex": 1,
     "o": [{"v": 1.5, "EventId": "x"}], "Timestamp": "2026-03-01T10:00:00.1230000Z", "EventId": "é0", "a": [2, 1, 3],
     "c": {"user": {"age": 31, "city": "Oslo", "_id": 7, "member": True, "visits": [1, 2.5]}, "hour": 0.1,
           "_multi": [{"_tag": "x", "i": {"price": 1e2}}, {"_tag": "y", "i": {"price": 3.25, "words": ["a", "b"]}},
                      {"_tag": "z", "_text": "to be"}]}, "p": [0.7, 0.1, 0.2], "VWState": {"m": "a/b"}},
    {"_label_cost": 0, "_label_probability": 0.5, "a": [1, 2], "p": [0.5, 0.5], "pdrop": 0.25, "_skipLearn": False,
     "Timestamp": "2026-03-01T10:00:01Z", "c": {"user": {"age": 45, "city": "Ro\"me\u2028"}, "_multi": [
         {"_tag": "y", "i": {"price": 0.30000000000000004, "new": None}},
         {"_tag": "x", "far": [{"a": 1}, {"b": "c"}]}]}},
    {"_label_cost": 2, "_label_probability": 0.4, "_label_Action": 1, "a": [1], "p": [1.0],
     "c": {"_multi": [{"_tag": "only"}]}},
]  # fmt: skip
DSJSON = {
    "compact": b"".join(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in DECISIONS),
    "spaced": b"\n".join(json.dumps(each, ensure_ascii=False).encode() for each in DECISIONS),
}
TEXT = {
    "cb": b"1:2:0.4 |user age:31 city=NY |  tall\n2:-1.5:.25 'tag |user:0.5 age:2e1 b\n"
    b"3:0:1 |user age:1 city=LA city=SF\r\n1:1:0.5 | a:b c:-3\n\n2:0:0.5 tag|user x=1:2 \xc3\xa9t\xc3\xa9:1\n",
    "listed": b"1:2:0.4 2 3 |user age:31\n1 2:-1:0.25 |user age:20\n4 2:0:0.5 9 |user age:1\n",
    "adf": b"shared |user age:31 city=NY\n0:1:0.5 'x|item price:3 red\n 'y|item price:4 blue red\n\n"
    b"'x|item price:5\r\n1:-0.5:0.25 'z |item price:6 |other a=b\r\n\r\nshared | age:3\n0:0:1 'x| a\n",
}  # fmt: skip


def expected(found, dtype):
    """What a column of a type must hold of a feature."""
    if not found:
        return None
    if isinstance(dtype, polars.List):
        return [expected([(value, False)], dtype.inner) for value, _ in found]
    assert len(found) == 1
    assert not found[0][1]
    value = found[0][0]
    if dtype == polars.String:
        return text_of(json.loads(value) if isinstance(value, Written) and value[-1].isdigit() else value)
    if dtype == polars.Boolean:
        assert isinstance(value, bool)
        return value
    assert dtype == polars.Float64
    assert isinstance(value, bool | Written | float)
    return float(value)


def rounded(value):
    """The same value; numerals of integers above 2^53 as doubles, since a text feature may hold them so."""
    if isinstance(value, list):
        return [rounded(each) for each in value]
    large = isinstance(value, str) and re.fullmatch(r"-?[0-9]{16,}", value)
    return float(value) if large else value


def check_row(frame, row, found, *, names=()):
    """A row of features is what was found, and nothing is lost."""
    for name, value in frame.row(row, named=True).items():
        wanted = expected(found.get(name), frame.schema[name])
        assert rounded(value) == rounded(wanted) or (value != value and wanted != wanted), (name, value, wanted)
    assert {*found} <= {*frame.columns, "_tag", *names}


def check_items(pool, row, items):
    start, stop = pool.offsets[row], pool.offsets[row + 1]
    assert stop - start == len(items)
    for place, item in enumerate(items):
        if pool.names is None:
            check_row(pool.features, start + place, item)
        else:
            name = pool.names[int(start + place)]
            naming = [key for key in item if key not in pool.features.columns]
            assert [str(item[key][0][0]) for key in naming] == [name]
            check_row(pool.features, start + place, item, names=naming)


def check_verdicts(parts, rounds, line_of):
    """Every line is read or rejected once; what the slow reader takes is taken, but for reasons in other lines."""
    taken = [line for part in parts for line in part.lines.tolist()]
    assert taken == sorted(set(taken))
    refused = {}
    for each in (each for part in parts for each in part.rejected):
        line = line_of(each.line)
        assert line not in refused
        assert line not in taken
        refused[line] = each.reason
    assert {*taken, *refused} == {*rounds}
    for line, found in rounds.items():
        if line in refused and not isinstance(found, NoRoundError):
            assert refused[line].endswith(OTHERS), (line, refused[line], found)
        if line not in refused:
            assert not isinstance(found, NoRoundError), (line, found)


def slowly(read, *arguments):
    try:
        return read(*arguments)
    except NoRoundError as reason:
        return reason


def check_dsjson(content, path):
    path.write_bytes(content)
    parts = list(DsjsonLog(path).parts(2))
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    rounds = {i + 1: slowly(vw_by_hand.dsjson, line) for i, line in enumerate(lines) if line.strip(b" \t\r")}
    check_verdicts(parts, rounds, lambda line: line)
    for part in parts:
        for row, line in enumerate(part.lines.tolist()):
            cost, action, probs, propensity, time, shared, items = rounds[line]
            assert (part.reward[row], part.action[row]) == (-cost, action)
            assert math.isclose(part.propensity[row], propensity, rel_tol=1e-12)
            assert part.time is None or part.time[row] == time
            check_row(part.features, row, shared)
            check_items(part.pool, row, items)
            if part.pool.probs is not None:
                found = part.pool.probs[part.pool.offsets[row] : part.pool.offsets[row + 1]]
                assert all(map(math.isclose, found, probs))


def only_blanks(line):
    """Whether nothing stands in a line, or nothing but what is before a tab."""
    line = line.rstrip(b"\r")
    return b"|" not in line and not (line.partition(b"\t")[2] if b"\t" in line else line).strip(b" ")


def check_text(content, path):
    path.write_bytes(content)
    parts = list(VwTextLog(path).parts(2))
    content = content.removeprefix(b"\xef\xbb\xbf")
    lines = content.split(b"\n")
    lines = lines[:-1] if lines[-1] == b"" else lines
    with_items = has_action_lines(content)
    groups, begun, before = {}, False, []
    for i, line in enumerate(lines):
        if not line.rstrip(b"\r"):
            begun, before = False, []
            continue
        if begun and with_items:
            groups[start].append(line)  # noqa: F821
        else:
            start, begun = i + 1, True
            groups[start] = [*before, line]
            before = []
        if with_items and only_blanks(line) and not all(map(only_blanks, groups[start])):
            begun, before = False, [line]  # it is a fault of the round that follows, too
    if not with_items:
        groups = {start: group for start, group in groups.items() if b"".join(group).strip(b" \t\r")}
    starts = sorted(groups)
    one = vw_by_hand.cb_adf if with_items else lambda group: vw_by_hand.cb(group[0])
    rounds = {start: slowly(one, group) for start, group in groups.items()}
    check_verdicts(parts, rounds, lambda line: max(start for start in starts if start <= line))
    for part in parts:
        for row, line in enumerate(part.lines.tolist()):
            if with_items:
                action, cost, propensity, shared, items, tags = rounds[line]
                items = [
                    item | ({"_tag": [(tag, False)]} if tag else {}) for item, tag in zip(items, tags, strict=True)
                ]
                check_items(part.pool, row, items)
            else:
                listed, action, cost, propensity, shared = rounds[line]
                if part.pool is not None:
                    assert part.pool.names[part.pool.offsets[row] : part.pool.offsets[row + 1]].to_list() == listed
                    action = listed.index(action)
            assert (part.action[row], part.reward[row], part.propensity[row]) == (action, -cost, propensity)
            check_row(part.features, row, shared)


def survived(check, files, count, path):
    for content in files.values():
        check(content, path)
    for seed in range(count):
        check(mutations(list(files.values())[seed % len(files)], seed), path)


@pytest.mark.parametrize("sample", [0, 1, 512])  # lines that teach polars what to read
@pytest.mark.parametrize("count", [50, pytest.param(10_000, marks=pytest.mark.long)])
def test_damaged_dsjson_is_read_as_a_slow_reader_reads_it(count, sample, tmp_path, monkeypatch):
    monkeypatch.setattr(dsjson, "SAMPLE", sample)
    survived(check_dsjson, DSJSON, count, tmp_path / "log.json")


@pytest.mark.parametrize("count", [50, pytest.param(10_000, marks=pytest.mark.long)])
def test_damaged_text_is_read_as_a_slow_reader_reads_it(count, tmp_path):
    survived(check_text, TEXT, count, tmp_path / "log.vw")
