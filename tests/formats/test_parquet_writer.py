"""Logs written as Parquet are the same logs when they are read."""

import numpy as np
import polars
import pytest

import seachange as sc
from seachange.errors import LogError


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


def test_a_context_with_the_name_of_a_role_is_refused(tmp_path):
    log = sc.BanditLog.from_arrays([0, 1], [1.0, 0.0], contexts=np.eye(2), context_names=["time", "reward"])
    with pytest.raises(LogError, match="two columns cannot both be named 'reward'"):
        sc.write_log(log, tmp_path / "log.parquet")
