"""Vowpal Wabbit's text: a line or a group of lines is a round, and what it would mend or pass over is rejected."""

import numpy as np
import polars
import pytest

from formats.vowpal_wabbit import driven
from seachange.errors import LogError
from seachange.formats import sources, vw_text
from seachange.formats.vw_text import VwTextLog, looks_like
from seachange.reading import open_raw


def read(tmp_path, text, rows=1 << 17):
    path = tmp_path / "log.vw"
    path.write_text(text, newline="")
    return list(VwTextLog(path).parts(rows))


def test_a_line_is_a_round(tmp_path):
    (part,) = read(
        tmp_path, "1:2:0.4 |user age:31 city=NY tall |item:0.5 price:3\n3:-0.5:.25 'tag|user age:20 city:LA\r\n"
    )
    assert part.rejected == ()
    assert part.lines.tolist() == [1, 2]
    assert part.action.to_list() == [1, 3]
    assert part.reward.to_list() == [-2.0, 0.5]
    assert part.propensity.to_list() == [0.4, 0.25]
    assert part.pool is None
    assert part.features.to_dicts() == [
        {"user.age": 31.0, "user.city": "NY", "user": ["tall"], "item.price": 1.5},
        {"user.age": 20.0, "user.city": "LA", "user": None, "item.price": None},
    ]


def test_actions_without_a_cost_are_those_that_could_be_chosen(tmp_path):
    (part,) = read(tmp_path, "2 1:0.5:0.25 7 | a\n4 9:1:0.5 | b\n3:0:1 | c\n")
    assert part.pool.offsets.tolist() == [0, 3, 5]
    assert part.pool.names.to_list() == [2, 1, 7, 4, 9]
    assert part.pool.features.width == 0
    assert part.action.to_list() == [1, 1]
    assert [(each.line, each.reason) for each in part.rejected] == [
        (3, "the possible actions are not listed, unlike in the first round")
    ]


def test_lines_between_empty_lines_are_the_actions_of_a_round(tmp_path):
    first = "shared |user age:31\n|item id=x price:1\n0:-1:0.5 |item id=y price:2\n"
    (part,) = read(tmp_path, f"{first}\n|item id=z\n0:2:0.25 |item id=x\n|item id=y\n")
    assert part.rejected == ()
    assert part.lines.tolist() == [1, 5]
    assert part.action.to_list() == [1, 1]
    assert part.reward.to_list() == [1.0, -2.0]
    assert part.propensity.to_list() == [0.5, 0.25]
    assert part.features.to_dicts() == [{"user.age": 31.0}, {"user.age": None}]
    assert part.pool.offsets.tolist() == [0, 2, 5]
    assert part.pool.features["item.id"].to_list() == ["x", "y", "z", "x", "y"]
    assert part.pool.features["item.price"].to_list() == [1, 2, None, None, None]


@pytest.mark.parametrize("line", ["{}|item id={}", "{}'{}| a:1"])
def test_actions_known_by_a_word_alone_are_named(line, tmp_path):
    (part,) = read(tmp_path, "\n".join([line.format("0:1:0.5 ", "x"), line.format("", "y"), ""]))
    assert part.pool.names.to_list() == ["x", "y"]


def test_a_text_that_stands_twice_is_a_list(tmp_path):
    (part,) = read(tmp_path, "1:0:1 | genre=a genre=b\n1:0:1 | genre=c\n1:0:1 | x:1 x:2\n")
    assert part.features["genre"].to_list() == [["a", "b"], ["c"]]
    assert [(each.line, each.reason) for each in part.rejected] == [
        (3, "x must be a single number, as in earlier rounds")
    ]


BROKEN_LINES = {
    "the label action:cost": "| a",
    "the label action:cost:probability is missing": "1:2:0.5| a",  # what touches the bar is a tag
    "the label is not action:cost:probability": "1:2:0.5:3 | a",
    "the label is not action:cost": "0:2:0.5 | a",
    "the label is not action": "1:nan:0.5 | a",
    "the label is": "# a comment | a",
    "a cost has no probability": "1:2 | a",
    "no action has a cost": "1 2 | a",
    "more than one action has a cost": "1:2:0.5 2:2:0.5 | a",
    "an action is listed twice": "1:2:0.5 1 | a",
    "not in (0, 1]": "1:2:1.5 | a",
    "not in (0, 1": "1:2:0 | a",
    "a number is too large": "1:1e999:0.5 | a",
    "a number is too large for a double": "1:2:0.5 | a:1e999",
    "a feature has no value": "1:2:0.5 | a: b",
    "neither a number nor text": "1:2:0.5 | a:1_0",
    "neither a number nor": "1:2:0.5 | a:nan",
    "neither a number": "1:2:0.5 | a:1:2",
    "a feature has no name": "1:2:0.5 | :3",
    "a namespace has a scale but no name": "1:2:0.5 |:2 a",
    "the scale of a namespace": "1:2:0.5 |n:x a",
    "the line has only blanks": "  ",
}  # fmt: skip


@pytest.mark.parametrize("reason", BROKEN_LINES)
def test_lines_that_are_not_rounds_are_rejected_with_a_reason(reason, tmp_path):
    (part,) = read(tmp_path, f"1:2:0.5 | a\n{BROKEN_LINES[reason]}\n2:1:0.5 | b\n")
    assert part.lines.tolist() == [1, 3]
    if BROKEN_LINES[reason].strip():
        ((line, found),) = [(each.line, each.reason) for each in part.rejected]
        assert line == 2
        assert reason in found


BROKEN_GROUPS = {
    "no action has a cost": "shared | a\n| b\n| c\n",
    "more than one action has a cost": "0:1:0.5 | b\n0:1:0.5 | c\n",
    "a cost has no probability": "0:1 | b\n| c\n",
    "the round has no actions": "shared | a\n",
    "the shared line is not the first of the round": "| b\nshared | a\n0:1:0.5 | c\n",
    "a line has more than one": "shared 0:1:0.5 | a\n| b\n",
    "a line has more than one label": "0:1:0.5 0:1:0.5 | b\n| c\n",
    "a feature has no value": "0:1:0.5 | b:\n| c\n",
}


@pytest.mark.parametrize("reason", BROKEN_GROUPS)
def test_groups_that_are_not_rounds_are_rejected_with_a_reason(reason, tmp_path):
    sound = "shared | a\n0:1:0.5 | b\n| c\n"
    parts = read(tmp_path, "\n".join([sound, BROKEN_GROUPS[reason], sound]))
    assert sum(map(len, parts)) == 2
    ((line, found),) = [(each.line, each.reason) for part in parts for each in part.rejected]
    assert line == 5
    assert reason in found


@pytest.mark.parametrize("blanks", ["   ", "\t", " \r"])
def test_a_line_of_blanks_is_named_and_costs_the_rounds_around_it(blanks, tmp_path):
    group = "shared | a\n0:1:0.5 | b\n| c\n"
    parts = read(tmp_path, f"{group}\n{group}{blanks}\n{group}\n{group}\n{blanks}\n{group}\n{group}")
    assert [int(line) for part in parts for line in part.lines] == [1, 13, 22]
    found = [(each.line, each.reason) for part in parts for each in part.rejected]
    assert [line for line, _ in found] == [8, 9, 17]
    alone = read(tmp_path, f"{group}\n{blanks}\n\n{group}")
    assert [int(line) for part in alone for line in part.lines] == [1, 7]
    assert [each.line for part in alone for each in part.rejected] == [5]
    assert found[0][1] == found[2][1] == "the line has only blanks; an empty line must end a round"
    assert found[1][1] == "the line before has only blanks; an empty line must end a round"


def test_a_file_without_empty_lines_is_not_held_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK_BYTES", 100)
    monkeypatch.setattr(vw_text, "LONGEST_LINE", 1000)
    with pytest.raises(LogError, match=r"'log.vw' has more than 1,000 bytes without an empty line"):
        read(tmp_path, "shared | a\n0:1:0.5 | b\n" + "| c\n" * 400)
    assert sum(map(len, read(tmp_path, "shared | a\n0:1:0.5 | b\n| c\n\n" * 100))) == 100


def test_a_round_ends_with_its_file(tmp_path):
    files = [tmp_path / "1.vw", tmp_path / "2.vw"]
    for file in files:
        file.write_text("shared | a\n0:1:0.5 'x| b\n'y| c\n\nshared | a\n'x| c\n0:1:0.5 'y| b\n")
    parts = list(open_raw(files).parts())
    assert [(part.source, part.lines.tolist()) for part in parts] == [("1.vw", [1, 5]), ("2.vw", [1, 5])]
    assert [part.pool.names.to_list() for part in parts] == [["x", "y"] * 2] * 2


def test_rounds_are_whole_whatever_the_size_of_blocks_and_parts(tmp_path, monkeypatch):
    rounds = [
        f"shared |u age:{k}\n" + "".join(f"{f'0:{k}:0.5 ' if j == k % 3 else ''}|i p:{k + j}\n" for j in range(3))
        for k in range(40)
    ]
    whole = read(tmp_path, "\n".join(rounds))
    monkeypatch.setattr(sources, "BLOCK_BYTES", 100)
    parts = read(tmp_path, "\n".join(rounds), rows=1)
    assert [part.action.to_list() for part in parts if len(part)] == [[k % 3] for k in range(40)]
    assert [int(line) for part in parts for line in part.lines] == [5 * k + 1 for k in range(40)]
    for frames in zip(*([p.features for p in ps] for ps in (parts, whole)), strict=False):
        assert frames[0].columns == frames[1].columns
    assert polars.concat([part.pool.features for part in parts]).equals(
        polars.concat([part.pool.features for part in whole])
    )


def test_a_file_is_recognized_by_its_first_lines(tmp_path):
    assert looks_like(tmp_path, b"1:2:0.4 | a b\n3:1:0.2 | b\n")
    assert looks_like(tmp_path, b"shared | a\n| b\n0:1:0.5 | c\n\n")
    assert not looks_like(tmp_path, b"1 | a b\n-1 | b\n")  # a regression
    assert not looks_like(tmp_path, b"a|b|c\n1|2|3\n")
    assert not looks_like(tmp_path, b'{"_label_cost": 1}\n')


def test_a_mapping_of_columns_is_refused(tmp_path):
    with pytest.raises(LogError, match="takes no columns"):
        VwTextLog(tmp_path / "log.vw", {"action": "a"})


def test_vowpal_wabbit_reads_the_same_lines(tmp_path):
    chance = np.random.default_rng(0)
    lines = [
        f"{chance.integers(1, 5)}:{-chance.random():.4f}:{chance.uniform(0.1, 1):.4f} |u a:{k}\n" for k in range(200)
    ]
    (part,) = read(tmp_path, "".join(lines))
    theirs = driven(f"--cb 4 --cb_type ips -d {tmp_path / 'log.vw'}")
    assert theirs["examples"] == len(part) == 200
    # A model that has learned nothing takes the first action.
    ours = -(part.reward / part.propensity).filter(part.action == 1).sum()
    assert theirs["loss"] == pytest.approx(ours, rel=1e-5)


def test_vowpal_wabbit_reads_the_same_groups(tmp_path):
    chance = np.random.default_rng(1)
    groups = []
    for k in range(200):
        labels = ["", "", ""]
        labels[chance.integers(3)] = f"0:{-chance.random():.4f}:{chance.uniform(0.1, 1):.4f} "
        groups.append(f"shared |u a:{k}\n" + "".join(f"{label}|i b:{j}\n" for j, label in enumerate(labels)))
    (part,) = read(tmp_path, "\n".join(groups))
    theirs = driven(f"--cb_adf --cb_type ips -d {tmp_path / 'log.vw'}")
    assert theirs["examples"] == len(part) == 200
    ours = -(part.reward / part.propensity).filter(part.action == 0).sum()
    assert theirs["loss"] == pytest.approx(ours, rel=1e-5)
