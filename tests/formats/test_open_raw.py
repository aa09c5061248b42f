"""Formats told by content, and data sets of many files."""

import datetime as dt
import gzip

import polars
import pytest

from formats.whole import whole
from seachange.errors import LogError
from seachange.reading import FORMATS, open_raw

TABLE = polars.DataFrame({"action": ["a", "b"], "reward": [1, 0], "propensity": [0.5, 0.25], "x": [3, 4]})
CONTENTS = {
    "csv": TABLE.write_csv().encode(),
    "tsv": TABLE.write_csv(separator="\t").encode(),
    "json-lines": TABLE.write_ndjson().encode(),
}


@pytest.mark.parametrize("pack", [lambda content: content, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", ["log", "log.txt", "log.parquet", "log.csv.bak"])
@pytest.mark.parametrize("word", CONTENTS)
def test_the_content_tells_the_format_whatever_the_name(tmp_path, word, name, pack):
    (tmp_path / name).write_bytes(pack(CONTENTS[word]))
    log = open_raw(tmp_path / name)
    assert log.format == word
    assert whole(log)[0].rows() == TABLE.rows()


def test_parquet_is_recognized_by_its_mark(tmp_path):
    TABLE.write_parquet(tmp_path / "log.csv")
    assert open_raw(str(tmp_path / "log.csv")).format == "parquet"


def test_the_name_tells_the_format_where_the_content_does_not(tmp_path):
    for name, word in (("log.parquet", "Parquet"), ("log.csv", "empty"), ("log.jsonl", "empty")):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(LogError, match=word):
            open_raw(tmp_path / name)


@pytest.mark.parametrize("name", ["log.xlsx", "log"])
def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04" + bytes(range(256)))
    with pytest.raises(LogError, match=r"could not be detected.*\(--format\): parquet, .*json-lines, csv, tsv"):
        open_raw(tmp_path / name)


def test_a_format_may_be_given_and_the_nearest_name_is_suggested(tmp_path):
    (tmp_path / "log").write_bytes(CONTENTS["csv"])
    assert open_raw(tmp_path / "log", format="csv").format == "csv"
    with pytest.raises(LogError, match=r"format must be one of .*; got 'parqet'\. Did you mean 'parquet'\?"):
        open_raw(tmp_path / "log", format="parqet")
    with pytest.raises(LogError, match="cannot be read as Parquet"):
        open_raw(tmp_path / "log", format="parquet")


def test_every_format_has_one_word():
    assert len({one.name for one in FORMATS}) == len(FORMATS)


@pytest.mark.parametrize("ask", [lambda d: d, lambda d: str(d / "*.csv"), lambda d: sorted(d.iterdir(), reverse=True)])
def test_files_of_one_data_set_follow_each_other(tmp_path, ask):
    for day, actions in (("1", "ab"), ("2", "cd"), ("3", "e")):
        rows = "".join(f"{action},1\n" for action in actions)
        (tmp_path / f"{day}.csv").write_text(f"action,reward\n{rows}")
    log = open_raw(ask(tmp_path))
    parts = list(log.parts())
    order = "".join(action for part in parts for action in part.action)
    assert order == ("ecdab" if isinstance(ask(tmp_path), list) else "abcde")
    assert {part.source for part in parts} == {"1.csv", "2.csv", "3.csv"}
    assert [part.lines.tolist() for part in parts if part.source == "2.csv"] == [[2, 3]]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_folders_that_name_a_value_are_a_column(tmp_path, suffix):
    for day in ("2026-01-01", "2026-01-02"):
        for hour in (7, 12):
            folder = tmp_path / f"day={day}" / f"hour={hour}"
            folder.mkdir(parents=True)
            writers = {
                "parquet": TABLE.write_parquet,
                "csv": TABLE.write_csv,
                "jsonl": TABLE.write_ndjson,
            }
            writers[suffix](folder / f"part-0.{suffix}")
    (tmp_path / "_SUCCESS").write_bytes(b"")
    (tmp_path / ".part-0.crc").write_bytes(b"x")
    frame, _, _ = whole(open_raw(tmp_path, {"time": "day"}))
    assert frame["hour"].to_list() == [7, 7, 12, 12] * 2
    assert frame["time"].to_list() == [dt.datetime(2026, 1, 1)] * 4 + [dt.datetime(2026, 1, 2)] * 4
    assert frame["action"].to_list() == ["a", "b"] * 4
    assert {part.source for part in open_raw(tmp_path).parts()} == {
        f"day=2026-01-0{day}/hour={hour}/part-0.{suffix}" for day in (1, 2) for hour in (7, 12)
    }


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_columns_that_some_files_lack_are_missing_there(tmp_path, suffix):
    other = TABLE.drop("x").with_columns(y=polars.Series(["p", "q"]))
    for name, frame in (("1", TABLE), ("2", other)):
        writers = {"parquet": frame.write_parquet, "csv": frame.write_csv, "jsonl": frame.write_ndjson}
        writers[suffix](tmp_path / f"{name}.{suffix}")
    frame, _, _ = whole(open_raw(tmp_path))
    assert frame.select("x", "y").rows() == [(3, None), (4, None), (None, "p"), (None, "q")]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_file_without_actions_is_named(tmp_path, suffix):
    for name, frame in (("1", TABLE), ("2", TABLE.drop("action"))):
        {"parquet": frame.write_parquet, "csv": frame.write_csv}[suffix](tmp_path / f"{name}.{suffix}")
    with pytest.raises(LogError, match=rf"'action' is not in '2\.{suffix}'"):
        open_raw(tmp_path)


def test_files_of_several_formats_are_not_one_log(tmp_path):
    TABLE.write_csv(tmp_path / "1.csv")
    TABLE.write_parquet(tmp_path / "2.parquet")
    with pytest.raises(LogError, match=r"'1.csv' is csv and '2.parquet' is parquet"):
        open_raw(tmp_path)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda d: d / "nothing.csv", r"there is no file '.*nothing\.csv'"),
        (lambda d: d / "*.csv", r"there is no file '.*\*\.csv'"),
        (lambda d: d, "there is no file in the folder"),
        (lambda d: [], "names no file"),
    ],
)
def test_what_is_not_there_is_named(tmp_path, ask, message):
    with pytest.raises(LogError, match=message):
        open_raw(ask(tmp_path))


def test_a_file_of_a_name_like_it_is_asked_for(tmp_path):
    TABLE.write_csv(tmp_path / "clicks.csv")
    with pytest.raises(LogError, match=r"there is no file '.*clicks\.cvs'\. Did you mean 'clicks\.csv'\?"):
        open_raw(tmp_path / "clicks.cvs")
    with pytest.raises(LogError, match=r"there is no file '.*orders\.csv'\.$"):
        open_raw(tmp_path / "orders.csv")


@pytest.mark.parametrize("name", ["clicks", "clicks.txt", "clicks.jsonl"])
def test_wide_text_of_any_name_is_reported(tmp_path, name):
    (tmp_path / name).write_bytes('{"action":1,"reward":0}\n'.encode("utf-16"))
    with pytest.raises(LogError, match=r"is UTF-16 text.*iconv -f utf-16 -t utf-8 in > out"):
        open_raw(tmp_path / name)
