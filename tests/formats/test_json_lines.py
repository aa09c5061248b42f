"""JSON lines: objects as they are, and every line that is none by its number."""

import gzip
import json
import warnings

import polars
import pytest

from formats.whole import whole
from seachange.errors import LogError, SeachangeWarning
from seachange.formats.json_lines import JsonLinesLog


@pytest.fixture
def lines(tmp_path):
    """Writes lines and opens them."""

    def opened(texts, columns=None):
        path = tmp_path / "log.jsonl"
        path.write_bytes(b"".join((text if isinstance(text, bytes) else text.encode()) + b"\n" for text in texts))
        return JsonLinesLog(path, columns)

    return opened


def rounds(*features, **fields):
    """Lines of whole rounds, each with a field x; further fields are the same in all."""
    return [json.dumps({"action": "a", "reward": 1, "propensity": 0.5, "x": feature, **fields}) for feature in features]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], [1, 2]),
        ([1, 2.5, None], [1.0, 2.5, None]),
        ([True, False], [True, False]),
        (["1", "2"], ["1", "2"]),
        (["red", None], ["red", None]),
        ([[1, 2], []], [[1, 2], []]),
        ([{"a": 1}, {"b": {"c": "x"}}], [{"a": 1, "b": None}, {"a": None, "b": {"c": "x"}}]),
        ([1, "red"], ["1", "red"]),
        ([True, "red", 2.5], ["true", "red", "2.5"]),
        ([{"a": 1}, 5], ['{"a":1}', "5"]),
        ([9007199254740993, 1], [9007199254740993, 1]),
    ],
)
def test_fields_keep_their_types(lines, values, expected):
    frame, numbers, rejected = whole(lines(rounds(*values)))
    assert frame["x"].to_list() == expected
    assert numbers == list(range(1, len(values) + 1))
    assert rejected == []


def test_a_field_that_is_not_there_is_missing(lines):
    frame, _, _ = whole(lines(['{"action":"a","reward":1,"x":3}', '{"action":"b","reward":0,"y":"z"}']))
    assert frame.select("x", "y").rows() == [(3, None), (None, "z")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"action":"b","reward":0', "not valid JSON"),
        ('{"action":"b","reward":0}{}', "not valid JSON"),
        ("[1, 2]", "not a JSON object"),
        ("5", "not a JSON object"),
        ('{"action":"b","reward":0,"reward":1}', "the key 'reward' twice"),
        ('{"action" :"b","reward":0,"reward":1}', "the key 'reward' twice"),
        ('{"action":"b","reward"\t:0,"reward":1}', "the key 'reward' twice"),
        ('{"action":"b","reward":0,"reward":null}', "the key 'reward' twice"),
        ('{"action":"b","reward":0,"x":{"k":1,"k":2}}', "the key 'k' twice"),
        ('{"action":"b","reward":0,"x":1e999}', "too large"),
        ('{"action":"\\ud800","reward":0}', "half of a surrogate pair"),
        (b'{"action":"\xff","reward":0}', "not UTF-8"),
        ('{"action":"b","reward":"won"}', "the reward 'won' is not a number"),
        ('{"action":"b","reward":[1]}', "is not a number"),
        ("[" * 100_000, "nested more than 32 deep"),
    ],
)
def test_a_line_that_holds_no_round_is_rejected_by_its_number(lines, text, reason):
    log = lines(['{"action":"a","reward":1}'] * 100 + [text] + ['{"action":"c","reward":0}'])
    frame, numbers, rejected = whole(log)
    assert frame["action"].to_list() == ["a"] * 100 + ["c"]
    assert numbers == [*range(1, 101), 102]
    assert [one.line for one in rejected] == [101]
    assert reason in rejected[0].reason


def test_two_objects_in_one_line_may_have_the_same_keys(lines):
    frame, _, rejected = whole(lines(rounds([{"k": 1}, {"k": 2}], x2={"k": 3}, y={"k": {"k": 4}})))
    assert frame["x"].to_list() == [[{"k": 1}, {"k": 2}]]
    assert rejected == []


def test_escapes_are_what_they_stand_for(lines):
    frame, _, rejected = whole(lines([r'{"action":"\ud83d\ude00 \u00e9 \"q\" \\","reward":1,"\u0078":"a\nb"}']))
    assert frame.rows() == [('\N{GRINNING FACE} é "q" \\', 1, "a\nb")]
    assert rejected == []


def test_what_python_writes_for_a_number_that_is_none_is_missing(lines):
    frame, _, _ = whole(lines(rounds(1.5, float("nan"), 2.5, *[1.0] * 20)))
    assert frame["x"].to_list()[:3] == [1.5, None, 2.5]


def test_numbers_and_words_for_missing_that_are_texts_are_read_among_numbers(lines):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame, _, _ = whole(lines(rounds(*[1.5] * 30, "2.5", "n/a")))
    assert frame["x"].to_list()[-3:] == [1.5, 2.5, None]


def test_other_texts_among_numbers_are_missing_with_one_warning(lines):
    with pytest.warns(SeachangeWarning, match=r"2 values .*'x' has 'word' in line 31 of log\.jsonl") as told:
        frame, _, _ = whole(lines(rounds(*[1.5] * 30, "word", "n o", True)))
    assert frame["x"].to_list()[-4:] == [1.5, None, None, 1.0]
    assert len(told) == 1


def test_whole_numbers_may_have_decimals_later(lines):
    frame, _, _ = whole(lines(rounds(*[1] * 10_050, 2.5)))
    assert frame["x"].dtype == polars.Float64
    assert frame["x"].to_list()[-2:] == [1.0, 2.5]


def test_fields_that_come_after_the_head_are_reported(lines):
    texts = rounds(*[1] * 10_050) + rounds(2, late=3)
    with pytest.warns(SeachangeWarning, match=r"1 lines have fields .* line is line 10051 of log\.jsonl"):
        frame, _, _ = whole(lines(texts))
    assert "late" not in frame.columns
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole(lines(texts, {"contexts": ["x"]}))


def test_a_field_that_is_null_in_the_head_is_read_later(lines, monkeypatch):
    monkeypatch.setattr("seachange.formats.json_lines.HEAD_ROWS", 5)
    frame, _, _ = whole(lines(rounds(*[None] * 10, "red", "blue")))
    assert frame["x"].to_list()[-3:] == [None, "red", "blue"]


@pytest.mark.parametrize("rows", [1, 3, 1000])
@pytest.mark.parametrize("block", [1, 100, 10_000])
def test_the_size_of_blocks_and_parts_changes_nothing(lines, monkeypatch, block, rows):
    texts = [*rounds(1, 2), "", "no", *rounds(3.5, None), '{"action":"b","reward":1,"reward":2}', *rounds(4)]
    expected = whole(lines(texts))
    monkeypatch.setattr("seachange.formats.sources.BLOCK_BYTES", block)
    found = whole(lines(texts), rows)
    assert found[0].rows() == expected[0].rows()
    assert found[1:] == expected[1:]
    assert expected[1] == [1, 2, 5, 6, 8]
    assert [one.line for one in expected[2]] == [4, 7]


def test_packed_lines_are_unpacked_on_the_way(tmp_path):
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(rounds(1, 2)).encode()))
    assert whole(JsonLinesLog(path))[0]["x"].to_list() == [1, 2]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b'[{"action": 1}]', r"is one JSON list.*jq -c"), (b"{no\n{", "no line with a JSON object")],
)
def test_other_text_is_not_read_as_json_lines(tmp_path, content, message):
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    with pytest.raises(LogError, match=message):
        JsonLinesLog(path)


def test_nested_numbers_are_read_and_other_values_are_reported(lines):
    inner = [{"age": 30, "vip": True}] * 10_010 + [{"age": 31.5, "vip": 1}, {"age": "44", "vip": 0.5}]
    inner += [{"age": {"y": 1}, "vip": None}, "bob"]
    with pytest.warns(
        SeachangeWarning, match=r"2 values .*'x\.age' has '\{\"y\":1\}' in line 10013 .*'x' has 'bob' in line 10014"
    ):
        frame, _, rejected = whole(lines(rounds(*inner), {"contexts": ["x"]}))
    assert rejected == []
    ages, flags = (frame["x"].struct.field(name).to_list() for name in ("age", "vip"))
    assert ages[-5:] == [30, 31.5, 44, None, None]
    assert flags[-5:] == [1, 1, 0.5, None, None]


def test_lists_of_whole_numbers_may_have_decimals_later(lines):
    with pytest.warns(SeachangeWarning, match=r"1 value .*'x' has 'a' in line 10003"):
        frame, _, _ = whole(lines(rounds(*[[1, 2]] * 10_001, [1.5, 2.5], ["a", 2])))
    assert frame["x"].to_list()[-3:] == [[1, 2], [1.5, 2.5], [None, 2]]


def test_whole_numbers_below_the_top_level_keep_all_their_digits(lines):
    frame, _, _ = whole(lines(rounds({"id": 2**53 + 1})))
    assert frame["x"].to_list() == [{"id": 2**53 + 1}]


def test_numbers_among_flags_below_the_top_level_stay_numbers(lines):
    frame, _, _ = whole(lines(rounds(*[{"vip": True}] * 10_010, {"vip": 2}, {"vip": 0.5}), {"contexts": ["x"]}))
    assert frame["x"].struct.field("vip").to_list()[-3:] == [1, 2, 0.5]


@pytest.mark.parametrize("line", ['{"action":1,"reward":0,"x%s":true}', '{"action":1,"reward":0,"in":{"x%s":true}}'])
def test_a_key_that_ends_in_nul_is_not_taken_for_a_null(line, tmp_path):
    path = tmp_path / "log.jsonl"
    texts = [line % "", line % r"\u0000", (line % "").replace("true", "null")]
    path.write_text("\n".join(texts))
    (part,) = JsonLinesLog(path).parts()
    features = part.features if "in" not in part.features.columns else part.features["in"].struct.unnest()
    assert features["x"].to_list() == [True, None, None]
    assert features["x\0"].to_list() == [None, True, None]
