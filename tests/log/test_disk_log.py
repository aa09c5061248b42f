"""Logs on disk are the logs that would be in memory."""

import numpy as np
import polars as pl
import pytest

import seachange as sc
from seachange.errors import LogError
from seachange.log import bandit_log, encoding
from seachange.log.column_statistics import moments_of


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Clicks of two states of the world in a Parquet file, read in parts of 700 rows."""
    monkeypatch.setattr(encoding, "PART_ROWS", 700)
    monkeypatch.setattr(bandit_log.BanditLog.chunk_slices, "__defaults__", (512,))
    generator = np.random.default_rng(0)
    n = 3000
    states, actions = (np.arange(n) // 500) % 2, generator.integers(3, size=n)
    frame = pl.DataFrame(
        {
            "action": np.array(["boots", "coats", "lamps"])[actions],
            "reward": (generator.random(n) < np.array([[0.2, 0.5, 0.8], [0.8, 0.5, 0.2]])[states, actions]) * 1.0,
            "propensity": np.full(n, 1 / 3),
            "time": np.arange(n) * 60,
            "age": generator.normal(size=n),
        }
    )
    path = tmp_path / "clicks.parquet"
    frame.write_parquet(path)
    return path


def test_times_on_disk_may_be_moments(tmp_path):
    moments = pl.datetime_range(pl.datetime(2026, 1, 1), pl.datetime(2026, 1, 2), "1h", eager=True)
    frame = pl.DataFrame({"action": ["a", "b"] * 12 + ["a"], "reward": 1, "propensity": 0.5, "time": moments})
    frame.write_parquet(tmp_path / "log.parquet")
    memory, disk = (sc.read_log(tmp_path / "log.parquet", on_disk=on_disk) for on_disk in (False, True))
    np.testing.assert_array_equal(disk.times, memory.times)


def test_a_log_on_disk_equals_the_log_in_memory(table):
    memory, disk = sc.read_log(table), sc.read_log(table, on_disk=True)
    assert disk.fingerprint() == memory.fingerprint()
    assert disk.action_names == memory.action_names == ("boots", "coats", "lamps")
    assert disk.context_names == memory.context_names
    np.testing.assert_array_equal(disk.times, memory.times)
    assert type(disk.rewards) is np.ndarray


def test_states_of_a_log_on_disk_are_those_of_the_log_in_memory(table):
    memory, disk = sc.read_log(table), sc.read_log(table, on_disk=True)
    for oracle in (sc.HMMOracle(), sc.HMMOracle(rewards="gaussian"), sc.HMMOracle(n_states=3)):
        one, two = oracle.clone().fit(memory), oracle.clone().fit(disk)
        np.testing.assert_array_equal(one.model_.reward_coefs, two.model_.reward_coefs)
        np.testing.assert_array_equal(one.predict(memory).state_probs, two.predict(disk).state_probs)
        np.testing.assert_array_equal(one.model_.forecast(memory), two.model_.forecast(disk))


def test_a_slice_keeps_the_files_it_needs(table):
    part = sc.read_log(table, on_disk=True)[100:200]
    assert part.new_array(3).shape == (3,)
    np.testing.assert_array_equal(part.rewards, sc.read_log(table).rewards[100:200])


def test_a_bad_row_is_found_in_its_part(table):
    frame = pl.read_parquet(table).with_columns(propensity=pl.when(pl.col("time") == 60 * 1500).then(0).otherwise(0.5))
    frame.write_parquet(table)
    with pytest.raises(LogError, match=r"propensities must be in .0, 1.; row 1501 of clicks\.parquet has 0 "):
        sc.read_log(table, on_disk=True)
    dropped = sc.read_log(table, on_disk=True, on_bad_rows="drop")
    assert len(dropped) == 2999
    assert sum(rows for _, rows in dropped.dropped) == 1


def test_times_that_fall_between_two_parts_are_refused(table):
    frame = pl.read_parquet(table)
    pl.concat([frame[700:1400], frame[:700]]).write_parquet(table)
    with pytest.raises(LogError, match="times must not go backwards; row 700 has"):
        sc.read_log(table, on_disk=True)


def test_any_format_can_be_kept_on_disk(table):
    pl.read_parquet(table).write_csv(table.with_suffix(".csv"))
    disk = sc.read_log(table.with_suffix(".csv"), on_disk=True)
    assert disk.disk is not None
    assert disk.fingerprint() == sc.read_log(table).fingerprint()


def test_moments_in_parts_are_those_of_the_whole(monkeypatch):
    monkeypatch.setattr("seachange.log.column_statistics.ROWS", 7)
    column = np.random.default_rng(0).normal(1e6, 2.0, 100)
    column[::9] = np.nan
    found = moments_of(column)
    assert found.n_seen == np.isfinite(column).sum()
    assert found.mean == pytest.approx(np.nanmean(column), rel=1e-14)
    assert found.variance == pytest.approx(np.nanvar(column), rel=1e-9)
    assert moments_of(np.full(3, np.nan)) == (0, 0.0, 0.0)
