"""Parquet of every writer, a part at a time."""

import datetime as dt
import decimal

import pandas
import polars
import pyarrow.parquet
import pytest

from formats.whole import whole
from seachange.errors import LogError, SeachangeWarning
from seachange.formats.parquet import ParquetLog

COLUMNS = {
    "action": ["a", "b", "a", "c"],
    "reward": [1.0, 0.0, None, 1.0],
    "propensity": [0.5, 0.25, 0.5, 0.25],
    "time": [dt.datetime(2026, 1, 1, hour) for hour in range(4)],
    "x": [1, 2, 3, 4],
    "city": ["p", None, "q", "r"],
}


def written(frame, path, writer):
    """The same table by another hand."""
    if writer == "polars":
        frame.write_parquet(path, row_group_size=3)
    elif writer == "pyarrow":
        pyarrow.parquet.write_table(frame.to_arrow(), path, row_group_size=2, compression="gzip")
    else:
        frame.to_pandas().to_parquet(path)


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
@pytest.mark.parametrize("writer", ["polars", "pandas", "pyarrow"])
def test_what_any_writer_wrote_is_read(tmp_path, writer, rows):
    written(polars.DataFrame(COLUMNS), tmp_path / "log.parquet", writer)
    log = ParquetLog(tmp_path / "log.parquet")
    frame, lines, rejected = whole(log, rows)
    assert frame.rows() == polars.DataFrame(COLUMNS).rows()
    assert lines == [1, 2, 3, 4]
    assert rejected == []


def test_columns_of_other_types_become_what_a_log_knows(tmp_path):
    frame = polars.DataFrame(
        {
            "action": polars.Series(["a", "b"], dtype=polars.Categorical),
            "reward": ["1", "0.5"],
            "propensity": [decimal.Decimal("0.5"), decimal.Decimal("0.25")],
            "time": polars.Series([dt.datetime(2026, 1, 1, 12)] * 2).dt.replace_time_zone("Europe/Berlin"),
            "code": ["007", "7"],
        }
    )
    frame.write_parquet(tmp_path / "log.parquet")
    found, _, _ = whole(ParquetLog(tmp_path / "log.parquet"))
    assert found["action"].to_list() == ["a", "b"]
    assert found["reward"].to_list() == [1.0, 0.5]
    assert found["propensity"].cast(float).to_list() == [0.5, 0.25]
    assert found["time"].to_list() == [dt.datetime(2026, 1, 1, 11)] * 2
    assert found["code"].to_list() == ["007", "7"]


def test_texts_that_are_not_numbers_are_rejected_by_their_rows(tmp_path):
    frame = polars.DataFrame({"action": ["a", "b", "c"], "reward": ["1", "won", "0"]})
    frame.write_parquet(tmp_path / "log.parquet")
    found, lines, rejected = whole(ParquetLog(tmp_path / "log.parquet"))
    assert found["reward"].to_list() == [1, 0]
    assert lines == [1, 3]
    assert [(one.line, one.reason) for one in rejected] == [(2, "the reward 'won' is not a number")]


@pytest.mark.parametrize("scale", [1_000, 1_000_000, 1_000_000_000])
def test_the_size_of_large_times_decides_their_unit(tmp_path, scale):
    seconds = [1_767_225_600, 1_767_225_601]
    frame = polars.DataFrame({"action": [0, 1], "reward": [0, 1], "time": [second * scale for second in seconds]})
    frame.write_parquet(tmp_path / "log.parquet")
    log = ParquetLog(tmp_path / "log.parquet")
    assert whole(log)[0]["time"].to_list() == [dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, 0, 0, 1)]


def test_seconds_and_days_are_read_as_times(tmp_path):
    frame = polars.DataFrame({"action": [0, 1], "reward": [0, 1], "time": [1_767_225_600, 5]})
    frame.write_parquet(tmp_path / "log.parquet")
    assert whole(ParquetLog(tmp_path / "log.parquet"))[0]["time"].to_list() == [1_767_225_600, 5]
    frame.with_columns(time=polars.Series([20260131, 20260201])).write_parquet(tmp_path / "days.parquet")
    days = whole(ParquetLog(tmp_path / "days.parquet"))[0]["time"].to_list()
    assert days == [dt.datetime(2026, 1, 31), dt.datetime(2026, 2, 1)]


def test_times_of_a_type_that_tells_none_are_refused(tmp_path):
    polars.DataFrame({"action": [0], "reward": [0], "time": [[1]]}).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(LogError, match=r"times must be seconds or dates .* 'time' .* has values of type List"):
        whole(ParquetLog(tmp_path / "log.parquet"))


def test_the_index_of_pandas_is_not_a_feature(tmp_path):
    pandas.DataFrame(COLUMNS, index=[3, 5, 7, 9]).to_parquet(tmp_path / "log.parquet")
    with pytest.warns(SeachangeWarning, match="look like the index of a table"):
        frame, _, _ = whole(ParquetLog(tmp_path / "log.parquet"))
    assert frame.columns == list(COLUMNS)


@pytest.mark.parametrize("name", ["p", "prob", "pi_0"])
def test_possible_propensities_are_not_a_feature_and_reported_once(tmp_path, name):
    polars.DataFrame({"action": [0, 1], "reward": [0, 1], name: [0.5, 0.25]}).write_parquet(tmp_path / "log.parquet")
    log = ParquetLog(tmp_path / "log.parquet")
    with pytest.warns(SeachangeWarning, match=f"'{name}' may hold the propensities") as told:
        assert whole(log)[0].columns == ["action", "reward"]
    assert len(told) == 1
    assert whole(log)[0].columns == ["action", "reward"]


def test_a_column_of_two_kinds_in_two_files_is_refused(tmp_path):
    for name, x in (("1", [1, 2]), ("2", ["p", "q"])):
        polars.DataFrame({"action": [0, 1], "reward": [0, 1], "x": x}).write_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(LogError, match=r"'x' is numbers in '1\.parquet' and text in '2\.parquet'"):
        ParquetLog(sorted(tmp_path.iterdir()))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1\0\0PAR1", bytes(range(256))])
def test_a_file_that_is_not_parquet_is_refused_by_name(tmp_path, content):
    (tmp_path / "log.parquet").write_bytes(content)
    with pytest.raises(LogError, match=r"log\.parquet' cannot be read as Parquet"):
        ParquetLog(tmp_path / "log.parquet")
