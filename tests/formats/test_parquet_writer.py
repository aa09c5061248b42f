"""Logs written as Parquet are the same logs when they are read."""

import datetime as dt

import numpy as np
import polars
import pytest

import seachange as sc
from seachange.errors import LogError
from seachange.formats.parquet import write_parquet
from seachange.reading import open_raw

TABLE = polars.DataFrame(
    {
        "item": ["a", "b", "c"],
        "click": [1, 0, None],
        "when": [dt.datetime(2026, 1, 1, hour) for hour in range(3)],
        "age": [30.5, None, 20.0],
        "city": ["Oslo", None, "Rome"],
    }
)
COLUMNS = {"action": "item", "reward": "click", "time": "when"}


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_raw_log_is_written_with_its_own_columns(tmp_path, suffix):
    writers = {"csv": TABLE.write_csv, "jsonl": TABLE.write_ndjson, "parquet": TABLE.write_parquet}
    writers[suffix](tmp_path / f"log.{suffix}")
    write_parquet(open_raw(tmp_path / f"log.{suffix}", COLUMNS), tmp_path / "out.parquet")
    assert polars.read_parquet(tmp_path / "out.parquet").rows() == TABLE.rows()
    assert polars.read_parquet(tmp_path / "out.parquet").columns == TABLE.columns


def test_parts_of_a_raw_log_are_written_as_they_come(tmp_path):
    (tmp_path / "log.csv").write_text("action,reward,x\na,1,1\nb,bad,2\nc,0,3\n")
    kept = (part for part in open_raw(tmp_path / "log.csv").parts(1))
    write_parquet(kept, tmp_path / "out.parquet", {"action": "item"})
    assert polars.read_parquet(tmp_path / "out.parquet").to_dict(as_series=False) == {
        "item": ["a", "c"],
        "reward": [1, 0],
        "x": [1, 3],
    }


def test_parts_that_differ_are_written_as_what_holds_both(tmp_path):
    (tmp_path / "1.csv").write_text("action,reward,x\na,1,1\n")
    (tmp_path / "2.csv").write_text("action,reward,y\nb,0,2.5\n")
    write_parquet(open_raw(tmp_path / "*.csv"), tmp_path / "out.parquet")
    assert polars.read_parquet(tmp_path / "out.parquet").rows() == [("a", 1, 1, None), ("b", 0, None, 2.5)]


@pytest.mark.parametrize("names", [("2", "10", "x"), ("2", "10", "33")])
def test_a_log_is_written_with_the_names_of_its_actions(tmp_path, names):
    log = sc.BanditLog.from_arrays(
        [0, 2, 1, 1],
        [1.0, 0.5, 0.0, 1.0],
        [0.5, 0.25, 0.25, 0.25],
        contexts=np.arange(8.0).reshape(4, 2),
        times=np.arange(4),
        sequences=np.array([0, 0, 1, 1]),
        action_names=names,
        context_names=["age", "hour"],
    )
    sc.write_log(log, tmp_path / "log.parquet")
    frame = polars.read_parquet(tmp_path / "log.parquet")
    assert frame.columns == ["action", "reward", "propensity", "time", "sequence", "age", "hour"]
    assert [str(name) for name in frame["action"]] == [names[action] for action in log.actions]
    assert frame.select("age", "hour").to_numpy().tolist() == log.contexts.tolist()
    assert frame["propensity"].to_list() == log.propensities.tolist()
    assert frame["action"].dtype == (polars.Int64 if names[2] == "33" else polars.String)


def test_a_log_without_propensities_is_written_without_them(tmp_path, make_log):
    log = make_log("shared")
    unknown = sc.BanditLog.from_arrays(log.actions, log.rewards, None, contexts=log.contexts, n_actions=3)
    sc.write_log(unknown, tmp_path / "log.parquet")
    assert polars.read_parquet_schema(tmp_path / "log.parquet").keys() == {"action", "reward", "x0", "x1"}


def test_what_a_table_cannot_hold_is_refused_and_leaves_no_file(tmp_path, make_log):
    with pytest.raises(LogError, match=r"no place for features of each action.*\.dsjson"):
        sc.write_log(make_log("per action"), tmp_path / "log.parquet")
    with pytest.raises(LogError, match=r"the name must end in \.parquet"):
        sc.write_log(make_log(), tmp_path / "log.xlsx")
    assert list(tmp_path.iterdir()) == []
