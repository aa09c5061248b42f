"""Tables of text: what stands there is what is read, or it is said where it does not."""

import bz2
import datetime as dt
import gzip
import lzma
import warnings

import polars
import pyarrow
import pytest

from formats.whole import whole
from seachange.errors import LogError, SeachangeWarning
from seachange.formats.csv import CsvLog
from seachange.reading import read_log

HEADER = "action,reward,propensity,x\n"


@pytest.fixture
def csv(tmp_path):
    """Writes a table and opens it."""

    def opened(text, columns=None, name="log.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return CsvLog(path, columns)

    return opened


def column(csv, texts, name="x"):
    """What becomes of texts in a column among whole rounds."""
    rows = "".join(f'a,1,0.5,"{text}"\n' if name == "x" else f'"{text}",1,0.5,2\n' for text in texts)
    frame, _, rejected = whole(csv(HEADER + rows))
    return frame[name], rejected


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_recognized_by_the_head(csv, separator):
    text = "action,reward,propensity,x\na,1,0.5,3\nb,0,0.25,4\n".replace(",", separator)
    log = csv(text)
    frame, lines, rejected = whole(log)
    assert frame.rows() == [("a", 1, 0.5, 3), ("b", 0, 0.25, 4)]
    assert lines == [2, 3]
    assert rejected == []
    assert log.format == ("tsv" if separator == "\t" else "csv")


def test_commas_in_fields_of_a_table_with_semicolons_do_not_mislead(csv):
    text = 'action;reward;note\na;1;"x, y, z"\nb;0;"p, q, r"\n'
    assert whole(csv(text))[0]["note"].to_list() == ["x, y, z", "p, q, r"]


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["1", "2"], [1, 2]),
        (["1", "2.5"], [1.0, 2.5]),
        (["1e5", "1"], [100000.0, 1.0]),
        (["9007199254740993", "1"], [9007199254740993, 1]),
        ([" 1", "2 "], [1, 2]),
        (["+1", "-2"], [1, -2]),
        ([".5", "5."], [0.5, 5.0]),
        (["1,5", "0,25"], [1.5, 0.25]),
        (["1,000", "2,000"], ["1,000", "2,000"]),
        (["007", "012"], ["007", "012"]),
        (["0x10", "0x11"], ["0x10", "0x11"]),
        (["1_000", "2_000"], ["1_000", "2_000"]),
        (["\N{ARABIC-INDIC DIGIT ONE}", "\N{ARABIC-INDIC DIGIT TWO}"], ["\u0661", "\u0662"]),
        (["18446744073709551616", "18446744073709551617"], ["18446744073709551616", "18446744073709551617"]),
        (["true", "False", ""], [True, False, None]),
        (["yes", "NO"], [True, False]),
        (["red", "", "NA"], ["red", None, "NA"]),
        (["inf", "-Infinity", *["1"] * 20], [float("inf"), float("-inf"), *[1.0] * 20]),
    ],
)
def test_features_are_numbers_flags_or_themselves(csv, texts, values):
    found, rejected = column(csv, texts)
    assert found.to_list() == values
    assert rejected == []


@pytest.mark.parametrize("word", ["", "NA", "n/a", "NaN", "nan", "null", "None", "-", "?", " "])
def test_a_usual_word_for_missing_in_a_column_of_numbers_is_missing(csv, word):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, rejected = column(csv, ["1", word, "3"])
    assert found.to_list() == [1, None, 3]
    assert rejected == []


@pytest.mark.parametrize("text", ["abc", "0x10", "1_000", "1,5", "1e999", "\N{ARABIC-INDIC DIGIT ONE}", "1 000", "--1"])
def test_any_other_text_in_a_column_of_numbers_is_missing_with_one_warning(csv, text):
    texts = ["1.5"] * 10 + [text] + ["2.5"] * 10 + [text]
    with pytest.warns(
        SeachangeWarning, match=r"2 values do not match .* type .*'x' has .* in line 12 of log\.csv"
    ) as told:
        found, rejected = column(csv, texts)
    assert found.to_list() == [1.5] * 10 + [None] + [2.5] * 10 + [None]
    assert len(told) == 1
    assert rejected == []


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["10", "2"], [10, 2]),
        (["007", "7"], ["007", "7"]),
        (["1.0", "2.0", ""], [1.0, 2.0, None]),
        (["1e5", "2"], ["1e5", "2"]),
        (["true", "false"], ["true", "false"]),
        (["none", "red"], ["none", "red"]),
        (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
    ],
)
def test_actions_keep_their_spelling_unless_it_is_that_of_a_number(csv, texts, values):
    found, rejected = column(csv, texts, "action")
    assert found.to_list() == values
    assert rejected == []


@pytest.mark.parametrize("text", ["007", "seven", "7.5", "+7", "1e1"])
def test_an_action_that_is_not_a_number_among_numbers_is_rejected_by_its_line(csv, text, monkeypatch):
    monkeypatch.setattr("seachange.formats.csv.HEAD_ROWS", 20)
    _, rejected = column(csv, ["7"] * 20 + [text], "action")
    assert [(one.line, one.reason) for one in rejected] == [(22, f"the action {text!r} is not an integer")]
    assert rejected[0].text == f'"{text}",1,0.5,2'


def test_rewards_and_propensities_that_are_not_numbers_are_rejected_by_their_lines(csv):
    text = HEADER + "a,1,0.5,1\nb,won,0.5,1\nc,0,half,1\nd,,0.5,1\ne,1,n/a,1\n"
    frame, lines, rejected = whole(csv(text))
    assert lines == [2, 5, 6]
    assert frame["reward"].to_list() == [1, None, 1]
    assert frame["propensity"].to_list() == [0.5, 0.5, None]
    assert [(one.source, one.line, one.reason, one.text) for one in rejected] == [
        ("log.csv", 3, "the reward 'won' is not a number", "b,won,0.5,1"),
        ("log.csv", 4, "the propensity 'half' is not a number", "c,0,half,1"),
    ]


@pytest.mark.parametrize(("yes", "no"), [("true", "false"), ("Yes", "No"), ("TRUE", "FALSE")])
def test_rewards_may_be_words(csv, yes, no):
    assert whole(csv(f"action,reward\na,{yes}\nb,{no}\n"))[0]["reward"].to_list() == [1.0, 0.0]


def test_rewards_that_are_words_are_refused_with_the_cure(csv):
    with pytest.raises(LogError, match=r"the reward must be numbers.*column 'outcome' has 'won'.*--columns reward="):
        whole(csv("action,outcome\na,won\nb,lost\nb,drew\n"))


@pytest.mark.parametrize(("yes", "no"), [("ja", "nein"), ("Oui", "Non"), ("si", "no"), ("sí", "no")])
def test_two_words_for_rewards_are_refused_with_a_line_that_maps_them(csv, yes, no):
    texts = f"action,reward\na,{no}\nb,{yes}\nb,{no}\nb,NA\n"
    with pytest.raises(LogError, match=rf"has '{no}' and '{yes}'\. If '{yes}' is the reward: .* in polars") as error:
        whole(csv(texts))
    line = str(error.value).partition("reward: ")[2].partition(" in polars")[0]
    frame = polars.read_csv(texts.encode(), null_values="NA")
    mapped = eval(line, {"frame": frame, "polars": polars})
    assert mapped["reward"].to_list() == [False, True, False, None]


def test_lines_with_too_few_or_too_many_fields_are_rejected_and_shift_nothing(csv):
    text = HEADER + "a,1,0.5,1\nb,1,0.5\nc,1,0.5,3,4\nd,0,0.25,4\n"
    frame, lines, rejected = whole(csv(text))
    assert frame["action"].to_list() == ["a", "d"]
    assert lines == [2, 5]
    assert [(one.line, one.reason) for one in rejected] == [
        (3, "the line has 3 fields, but the header has 4"),
        (4, "the line has 5 fields, but the header has 4"),
    ]


def test_quotes_hold_separators_newlines_and_quotes(csv):
    text = 'action,reward,city\n"a, ""b""",1,"New\nYork"\nc,0,x\n'
    frame, lines, _ = whole(csv(text))
    assert frame.rows() == [('a, "b"', 1, "New\nYork"), ("c", 0, "x")]
    assert lines == [2, 4]


def test_returns_within_quotes_are_letters(csv):
    log = csv('action,reward,city,member\r\n1,0,"\r",yes\r\n2,1,"a\rb",no\r\n')
    assert whole(log)[0]["city"].to_list() == ["\r", "a\rb"]


def test_a_quote_that_never_closes_costs_its_own_line_only(csv):
    text = 'action,reward,city\na,1,x\nb,1,"y\nc,0,z\nd,1,"w"\n'
    frame, lines, rejected = whole(csv(text))
    assert frame["action"].to_list() == ["a", "c", "d"]
    assert lines == [2, 4, 5]
    assert [one.line for one in rejected] == [3]


def test_a_quote_within_a_field_is_a_letter(csv):
    assert whole(csv('action,reward,size\na,1,5" pipe\nb,0,x\n'))[0]["size"].to_list() == ['5" pipe', "x"]


def test_a_record_that_is_rejected_takes_its_further_lines_with_it(csv):
    text = 'action,reward,x,y\na,1,"two\nb,1,2,3\nlines"\nc,0,4,5\n'
    frame, lines, rejected = whole(csv(text))
    assert frame["action"].to_list() == ["c"]
    assert lines == [5]
    assert [(one.line, one.reason) for one in rejected] == [(2, "the line has 3 fields, but the header has 4")]


@pytest.mark.parametrize("content", [b"b,1,\xff\xfe\n", b"b,1,\x00\n", b"b,1,x\ry\n"], ids=["latin", "nul", "return"])
def test_bytes_that_are_not_text_cost_their_line(csv, content):
    frame, lines, rejected = whole(csv(b"action,reward,city\na,1,x\n" + content + b"c,0,z\n"))
    assert frame["city"].to_list() == ["x", "z"]
    assert lines == [2, 4]
    assert [one.line for one in rejected] == [3]


def test_marks_returns_blank_lines_and_a_missing_last_newline_change_nothing(csv):
    frame, lines, rejected = whole(csv(b"\xef\xbb\xbfaction, reward ,x\r\n\r\na,1,2\r\n\r\nb,0,3"))
    assert frame.rows() == [("a", 1, 2), ("b", 0, 3)]
    assert lines == [3, 5]
    assert rejected == []


def test_a_mark_of_byte_order_in_the_midst_of_a_file_is_part_of_its_field(csv):
    frame, _, _ = whole(csv("action,reward\n\ufeffa,1\n\ufeffb,0\n"))
    assert frame["action"].to_list() == ["\ufeffa", "\ufeffb"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"action,reward,reward\na,1,2\n", "'reward' occurs twice"),
        (b"3,1,0.5\n2,0,0.5\n", "should name the columns; it has numbers"),
        (b"action\na\n", "has one column"),
        ("action,reward\na,1\n".encode("utf-16"), "is UTF-16.*iconv -f utf-16 -t utf-8 in > out"),
        (b"action,reward\ra,1\r", "carriage returns alone"),
        ("action,größe\na,1\n".encode("cp1252"), "line 1 of .* not UTF-8.*iconv -f cp1252 -t utf-8 in > out"),
        (b"action,rew\x00ard\na,1\n", "NUL"),
        (b"a," * 40_000 + b"\n1\n", "more than 65,536 bytes"),
    ],
)
def test_a_file_that_is_not_a_table_is_refused_by_its_first_line(csv, content, message):
    with pytest.raises(LogError, match=message):
        csv(content)


def test_windows_text_is_reported_with_its_first_line_and_the_fix(tmp_path):
    path = tmp_path / "clicks.csv"
    path.write_bytes("action,reward,city\na,1,Bonn\nb,0,Köln\na,1,Zürich\nb,0,Rom\n".encode("cp1252"))
    with pytest.raises(LogError, match=r"not UTF-8.*cp1252 -t utf-8 in > out; line 3 of clicks\.csv .*\(2 of 4 lines"):
        read_log(path)


def test_a_header_without_rows_is_a_log_without_rounds(csv):
    assert list(csv("action,reward,propensity\n").parts()) == []


def test_kinds_hold_when_later_lines_say_otherwise(csv):
    rows = ["a,1,0.5,1\n"] * 10_100 + ["a,1,0.5,2.5\n", "a,1,0.5,word\n"]
    with pytest.warns(SeachangeWarning, match="1 value does"):
        frame, _, _ = whole(csv(HEADER + "".join(rows)))
    assert frame["x"].dtype == polars.Float64
    assert frame["x"].to_list()[-3:] == [1.0, 2.5, None]


def test_a_column_that_is_empty_at_first_gets_its_kind_when_it_has_values(csv, monkeypatch):
    monkeypatch.setattr("seachange.formats.sources.BLOCK_BYTES", 200)
    monkeypatch.setattr("seachange.formats.csv.HEAD_ROWS", 5)
    rows = ["a,1,0.5,\n"] * 50 + ["a,1,0.5,7\n"] * 50
    assert whole(csv(HEADER + "".join(rows)))[0]["x"].to_list() == [None] * 50 + [7] * 50


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_the_size_of_blocks_and_parts_changes_nothing(csv, monkeypatch, block, rows):
    text = 'action,reward,city\n"a",1,"New\nYork"\nb,x,y\n\nc,0,"é"\nd,1\ne,1,"q\nf,0,g\nh,1,"i ""j"""\n'
    expected = whole(csv(text))
    monkeypatch.setattr("seachange.formats.sources.BLOCK_BYTES", block)
    found = whole(csv(text), rows)
    assert found[0].rows() == expected[0].rows()
    assert found[1:] == expected[1:]
    assert expected[1] == [2, 6, 9, 10]
    assert [one.line for one in expected[2]] == [4, 7, 8]


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        ("gz", gzip.compress),
        ("bz2", bz2.compress),
        ("xz", lzma.compress),
        ("zst", lambda content: pyarrow.compress(content, codec="zstd", asbytes=True)),
    ],
)
def test_packed_files_are_unpacked_on_the_way(csv, suffix, pack):
    content = b"action,reward,city\n" + b'"a",1,"x, y"\nb,0,z\n' * 500
    frame, lines, _ = whole(csv(pack(content), name=f"log.csv.{suffix}"))
    assert frame.rows() == [("a", 1, "x, y"), ("b", 0, "z")] * 500
    assert lines == list(range(2, 1002))


def test_a_packed_file_that_breaks_off_is_an_error_of_ours(csv):
    packed = gzip.compress(b"action,reward\n" + b"a,1\nb,0\n" * 100_000)
    with pytest.raises(LogError, match=r"log\.csv\.gz.*breaks off or is damaged"):
        whole(csv(packed[:-20], name="log.csv.gz"))


def test_only_the_columns_that_are_asked_for_are_read(csv):
    log = csv("action,reward,p,x,y\na,1,0.5,3,4\n", {"contexts": ["y"], "propensity": "p"})
    frame, _, _ = whole(log)
    assert frame.columns == ["action", "reward", "propensity", "y"]
    assert log.needed == ["action", "reward", "p", "y"]


def test_times_are_read_in_utc(csv):
    rows = ["2026-01-01T12:00:00+02:00", "2026-01-01 10:00:01", "2026-01-01T10:00:02.5Z", "2026-01-02", "soon"]
    frame, _, rejected = whole(csv("action,reward,ts\n" + "".join(f"a,1,{row}\n" for row in rows)))
    start = dt.datetime(2026, 1, 1, 10)
    assert frame["time"].to_list() == [
        start,
        start + dt.timedelta(seconds=1),
        start + dt.timedelta(seconds=2.5),
        dt.datetime(2026, 1, 2),
    ]
    assert [(one.line, one.reason) for one in rejected] == [(6, "the time 'soon' is not a time")]


def test_decimal_commas_are_read(csv):
    log = csv("action;reward;propensity\na;1;0,5\nb;0;0,25\n")
    assert whole(log)[0]["propensity"].to_list() == [0.5, 0.25]


def test_rewards_may_mix_flags_and_numbers(csv):
    frame, _, rejected = whole(csv("action,reward,x\na,true,1\nb,0,2\na,False,3\nb,1,1\na,yes,0\nb,0.5,1\nc,maybe,2\n"))
    assert frame["reward"].to_list() == [1, 0, 0, 1, 1, 0.5]
    assert [(one.line, one.reason) for one in rejected] == [(8, "the reward 'maybe' is not a number")]


def test_a_column_that_is_not_what_its_folder_says_is_reported(tmp_path):
    for day, own in (("2026-01-01", "2026-01-01"), ("2026-01-02", "2026-01-05")):
        folder = tmp_path / f"day={day}" / "n=1"
        folder.mkdir(parents=True)
        (folder / "log.csv").write_text(f"action,reward,day,n\na,1,{own},1.0\nb,0,{own},1.0\n")
    log = CsvLog(sorted(tmp_path.rglob("*.csv")), {"contexts": ["day", "n"]})
    with pytest.warns(SeachangeWarning, match="'day' is also a key .*'2026-01-05' instead of '2026-01-02' in") as told:
        frame, _, _ = whole(log)
    assert len(told) == 1
    assert frame["day"].to_list() == ["2026-01-01"] * 2 + ["2026-01-05"] * 2


@pytest.mark.parametrize("day", ["31.01.2026", "2026/01/31", "2026-01-31"])
def test_days_in_usual_orders_are_read(csv, day):
    frame, _, _ = whole(csv(f"action,reward,ts\na,1,{day} 18:30:05\nb,1,{day} 18:31\n"))
    assert frame["time"].to_list() == [dt.datetime(2026, 1, 31, 18, 30, 5), dt.datetime(2026, 1, 31, 18, 31)]


@pytest.mark.parametrize("day", ["01/31/2026 18:30", "1.2.26", "yesterday"])
def test_days_in_orders_that_must_be_guessed_are_refused_with_those_that_are_read(csv, day):
    with pytest.raises(LogError, match=rf"'ts' of log.csv has '{day}'") as caught:
        whole(csv(f"action,reward,ts\na,1,{day}\nb,1,{day}\n"))
    assert "31.01.2026 18:30" in str(caught.value)
