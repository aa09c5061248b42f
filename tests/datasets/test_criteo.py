"""Criteo's impressions, of the challenge and of the test-bed, on invented ones."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from datasets.criteo_lines import invented_challenge, invented_testbed, read_slowly, rounds_of
from seachange.datasets import criteo
from seachange.datasets.criteo import CriteoLog, looks_like
from seachange.errors import LogError, SeachangeWarning
from seachange.formats import sources
from seachange.reading import open_raw

CHALLENGE = ["17 |l 0.001 |p 4|f 0:300 12:1 ", "17 |f 0:300 14:2", "18 |l 0.999 |p 1.25|f 0:2"]
TESTBED = [
    "example 17: 5e9c 1 0.25 1 2 0:300 1:1",
    "1 exid:17 12:1",
    "0 exid:17 14:2",
    "example 18: 5e9d 0 8 1 1",
    "0 exid:18",
]


pytestmark = pytest.mark.filterwarnings("ignore:.* of the impressions without a click")


@pytest.fixture
def written(tmp_path):
    def write(lines):
        path = tmp_path / "impressions"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write


def only_part(path):
    (part,) = CriteoLog(path).parts()
    return part


def test_an_impression_of_the_challenge_is_a_round(written):
    part = only_part(written(CHALLENGE))
    assert part.lines.tolist() == [1, 3]
    assert part.action.to_list() == [0, 0]
    assert part.reward.to_list() == [1, 0]
    assert part.propensity.to_list() == [0.25, 0.8]
    assert part.pool.offsets.tolist() == [0, 2, 3]
    assert part.pool.features["features"].to_list() == [["0:300", "12"], ["0:300", "14:2"], ["0:2"]]
    assert (part.pool.names, part.rejected, part.features.width) == (None, (), 0)


def test_the_sampling_of_the_challenge_is_reported_once_a_pass(written):
    log = CriteoLog(written([*CHALLENGE, "19 |l 0.999 |p 2|f 0:2"]))
    for _ in range(2):
        # Three impressions stand for 1 + 2 × 10.
        with pytest.warns(
            SeachangeWarning, match=r"'impressions' has only one in ten .*ips estimate by 0\.143;"
        ) as said:
            list(log.parts(1))
        assert len(said) == 1


@pytest.mark.parametrize("format", [None, "criteo"])
def test_a_folder_of_impressions_is_one_log(written, format):
    folder = written(CHALLENGE).parent
    (folder / "later").write_text("\n".join(CHALLENGE))
    assert [(part.source, len(part)) for part in open_raw(folder, format=format).parts()] == [
        ("impressions", 2), ("later", 2)
    ]  # fmt: skip


@pytest.mark.filterwarnings("error")
def test_the_testbed_has_no_note_on_sampling(written):
    only_part(written(TESTBED))


def test_an_impression_of_the_testbed_is_a_round(written):
    part = only_part(written(TESTBED))
    assert part.reward.to_list() == [1, 0]
    assert part.propensity.to_list() == [0.25, 0.125], "8 can only be one over the propensity"
    assert part.features["display"].to_list() == [["0:300", "1"], []]
    assert part.pool.features["features"].to_list() == [["12"], ["14:2"], []]


@pytest.mark.parametrize("testbed", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 1_000])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_rounds_are_those_of_a_slow_reader(tmp_path, monkeypatch, testbed, rows, ends):
    lines = (invented_testbed if testbed else invented_challenge)(40, np.random.default_rng(4))
    lines[30] = "oops"
    content = ends.join(lines).encode()
    (tmp_path / "log").write_bytes(content)
    parts = list(CriteoLog(tmp_path / "log").parts(rows))
    assert max(map(len, parts)) <= rows
    rounds, rejected = rounds_of(parts, testbed)
    assert (rounds, rejected) == read_slowly(content, testbed)
    assert (len(rounds) + len(rejected), len(rejected)) in ((40, 1), (40, 2), (41, 2))
    monkeypatch.setattr(criteo, "PART_WORDS", 1)
    assert rounds_of(CriteoLog(tmp_path / "log").parts(), testbed) == (rounds, rejected)


BROKEN = {
    "the label must be 0.001 or 1 (a click) or 0.999 or 0 (no click)": ["20 |l 0.5 |p 4|f 1:1"],
    "|p must be 1 / propensity, at least 1": ["20 |l 0.001 |p 0.25|f 1:1", "20 |f 1:1"],
    "the first line of the impression is missing, or has no label and propensity": ["20 |f 1:1", "20 |f 2:1"],
    "the line is neither the first of an impression nor a candidate": ["20 |l 0.001|f 1:1"],
    "line 4 of the impression is not a candidate": ["20 |l 0.001 |p 4|f 1:1", "20 |f 1:x", "20 |f 1:1"],
}


@pytest.mark.parametrize("reason", BROKEN)
def test_an_impression_that_breaks_a_rule_is_named_and_the_rest_is_read(written, reason):
    part = only_part(written([*CHALLENGE[:2], *BROKEN[reason], CHALLENGE[2]]))
    assert part.lines.tolist() == [1, 3 + len(BROKEN[reason])]
    (rejected,) = part.rejected
    assert (rejected.line, rejected.reason, rejected.text) == (3, reason, BROKEN[reason][0])


BROKEN_TESTBED = {
    "a banner with 3 slots does not choose one candidate": ["example 20: a 0 0.5 3 1", "0 exid:20 1:1"],
    "the propensity must be above 0": ["example 20: a 0 0 1 1", "0 exid:20 1:1"],
    "the impression should have 2 candidates but has 1": ["example 20: a 0 0.5 1 2", "0 exid:20 1:1"],
    "the impression should have 0 candidates but has 0": ["example 20: a 0 0.5 1 0"],
    "the first line of the impression is missing, or has no label and propensity": ["0 exid:20 1:1"],
    "line 5 of the impression is not a candidate": ["example 20: a 0 0.5 1 1", "0 exid:20 1"],
    "the line is neither the first of an impression nor a candidate": ["example 20: a 0 0.5 1", "0 exid:20 1:1"],
}


@pytest.mark.parametrize("reason", BROKEN_TESTBED)
def test_an_impression_of_the_testbed_that_breaks_a_rule_is_named(written, reason):
    part = only_part(written([*TESTBED[:3], *BROKEN_TESTBED[reason], *TESTBED[3:]]))
    assert part.lines.tolist() == [1, 4 + len(BROKEN_TESTBED[reason])]
    assert [(each.line, each.reason) for each in part.rejected] == [(4, reason)]


def test_a_line_that_names_no_impression_spoils_the_one_it_stands_in(written):
    part = only_part(written([CHALLENGE[0], "?", *CHALLENGE[1:]]))
    assert part.lines.tolist() == [4]
    assert [(each.line, each.reason) for each in part.rejected] == [(1, "line 2 of the impression is not a candidate")]


def test_an_impression_may_stand_on_both_sides_of_a_block(written, monkeypatch):
    path = written(invented_challenge(50, np.random.default_rng(5)))
    whole = rounds_of(CriteoLog(path).parts(), False)
    monkeypatch.setattr(sources, "BLOCK_BYTES", 100)
    assert rounds_of(CriteoLog(path).parts(), False) == whole
    assert len(whole[0]) == 50


def test_gzipped_impressions_are_read(tmp_path):
    (tmp_path / "log.gz").write_bytes(gzip.compress("\n".join(CHALLENGE).encode()))
    assert sum(len(part) for part in CriteoLog(tmp_path / "log.gz").parts()) == 2


def test_impressions_are_distinguished_from_other_lines(written):
    assert looks_like(Path("log"), f"\n{CHALLENGE[0]}\r\n".encode())
    assert looks_like(Path("log"), TESTBED[0].encode())
    for other in (b"", b"1:0.5:0.2 | a b\n", b"17 |f 1:1\n", b"a,b\n"):
        assert not looks_like(Path("log"), other)
    with pytest.raises(LogError, match="is not a file of Criteo"):
        list(CriteoLog(written(["a,b"])).parts())


def test_columns_cannot_be_named(tmp_path):
    with pytest.raises(LogError, match="a fixed place for everything"):
        CriteoLog(tmp_path / "log", {"action": "item"})
