"""Logs that are joined are the log that they are parts of."""

import numpy as np
import polars as pl
import pytest

import seachange as sc
from log.logged import KINDS, K, N, assert_equal_logs, log_of, logged_arrays
from seachange import BanditLog
from seachange.errors import LogError

OPTIONAL = ("times", "sequences", "logging_probs", "propensities")


def joined(*logs):
    return BanditLog.joined(logs)


def pieces(log, *cuts):
    return [log[start:end] for start, end in zip((0, *cuts), (*cuts, len(log)), strict=True)]


@pytest.mark.parametrize("left_out", [(), *((name,) for name in OPTIONAL[:3]), OPTIONAL])
@pytest.mark.parametrize("kind", KINDS)
def test_the_pieces_of_a_log_are_joined_to_the_log(kind, left_out):
    whole = log_of(kind, **dict.fromkeys(left_out))
    for cuts in ([1], [N // 2], [7, 8, N - 1]):
        found = joined(*pieces(whole, *cuts))
        if "propensities" not in left_out:
            assert_equal_logs(found, whole)
        assert found.fingerprint() == whole.fingerprint()
        assert (found.joint, found.action_names, found.context_names) == (
            whole.joint, whole.action_names, whole.context_names
        )  # fmt: skip
        assert found.propensity_source == whole.propensity_source


@pytest.mark.parametrize("kind", KINDS)
def test_missing_rewards_stay_missing(kind):
    rewards = np.random.default_rng(0).random(N)
    rewards[::3] = np.nan
    whole = log_of(kind, rewards=rewards, missing_rewards=True)
    assert_equal_logs(joined(*pieces(whole, 10, 20)), whole)


def test_a_single_log_is_itself():
    log = log_of("shared")
    assert joined(log) is log
    assert joined(joined(log)) is log


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_logs_with_times_are_joined_in_the_order_of_their_times(order):
    whole = log_of("masked", sequences=None)
    parts = pieces(whole, 5, 25)
    assert_equal_logs(joined(*(parts[i] for i in order)), whole)
    # A log ends at the moment at which the next begins.
    times = np.minimum(np.arange(N), N // 2)
    whole = log_of("shared", sequences=None, times=times)
    early, late = whole[: N // 2 + 1], whole[N // 2 + 1 :]
    assert_equal_logs(joined(late, early), whole)


def test_logs_without_times_are_joined_in_the_order_given():
    whole = log_of("shared", times=None, sequences=None)
    early, late = pieces(whole, 11)
    np.testing.assert_array_equal(joined(late, early).rewards, np.concatenate([late.rewards, early.rewards]))


def test_rounds_of_sequences_that_run_at_the_same_time_are_sorted_by_time():
    whole = log_of("masked", sequences=np.arange(N) % 4)
    parts = [whole.take(np.flatnonzero(whole.sequences // 2 == pair)) for pair in (0, 1)]
    assert_equal_logs(joined(*parts), whole)
    assert_equal_logs(joined(*parts[::-1]), whole)
    # Two logs of the same sequences: each continues.
    parts = [whole.take(np.flatnonzero(np.arange(N) // 3 % 2 == side)) for side in (0, 1)]
    assert_equal_logs(joined(*parts[::-1]), whole)


def test_logs_that_overlap_in_time_without_sequences_are_refused():
    whole = log_of("shared", sequences=None, times=np.arange(N) + 0.0)
    early, late = whole[:25], whole[20:]
    message = r"the logs overlap in time: log 1 starts at 20\.0, before log 2 ends at 24\.0\. If all .* merge"
    with pytest.raises(LogError, match=message):
        joined(late, early)
    # The second log lies within the first, and the third after both.
    with pytest.raises(LogError, match=r"log 3 starts at 5\.0, before log 2 ends at 29\.0"):
        joined(whole[30:], whole[:30], whole[5:10])


def test_a_log_without_a_mask_allows_all_actions():
    masked, free = log_of("masked", sequences=None), with_times(N)
    found = joined(free, masked)
    np.testing.assert_array_equal(found.action_mask, np.concatenate([masked.action_mask, np.ones((N, K), bool)]))
    assert joined(free, log_of("shared", sequences=None)).action_mask is None


def with_times(first, **changes):
    times = (first + np.arange(N)).astype("datetime64[s]")
    own = logged_arrays("shared", seed=first) | {"sequences": None, "times": times}
    return BanditLog.from_arrays(**(own | changes))


def test_the_logging_policies_may_differ():
    early = with_times(0)
    late = with_times(N, logging_probs=None, propensities=np.full(N, 0.01))
    found = joined(late, early)
    np.testing.assert_array_equal(found.propensities, np.concatenate([early.propensities, late.propensities]))
    assert found.logging_probs is None  # it is unknown in half of the rounds
    assert found.propensity_source == "logged"


def test_propensities_count_as_estimated_if_any_are():
    early, late = (with_times(first, propensities=np.full(N, 0.5), logging_probs=None) for first in (0, N))
    guessed = late.with_propensities(np.full(N, 0.5), estimated=True)
    for found in (joined(early, guessed), joined(guessed, early)):
        assert found.propensities_estimated
    with pytest.warns(sc.SeachangeWarning, match="uses estimated propensities"):
        sc.learn([early, guessed], oracle="none", objective="ips")


def test_rows_that_were_dropped_are_added_up():
    bad = np.where(np.arange(N) < 3, 0.0, 0.5)
    logs = [with_times(first, propensities=bad, logging_probs=None, on_bad_rows="drop") for first in (0, N)]
    assert joined(*logs).dropped == (("propensities are 0", 6),)


def test_types_that_differ_become_one_that_holds_both():
    early = with_times(0, contexts=np.ones((N, 2), dtype=np.float32))
    late = with_times(1000, contexts=np.full((N, 2), 0.1), times=np.datetime64("1971-01-01T00:00:00.5") + np.arange(N))
    found = joined(early, late)
    np.testing.assert_array_equal(found.contexts[N:], np.full((N, 2), 0.1))
    assert found.times[0] == np.datetime64("1970-01-01T00:00:00")
    assert found.times[N] == np.datetime64("1971-01-01T00:00:00.5")


def test_seconds_and_dates_are_compared():
    late = with_times(0, times=1_767_225_600.25 + np.arange(N))
    early = with_times(N)
    found = joined(late, early)
    np.testing.assert_array_equal(found.times[:N], early.times)
    np.testing.assert_array_equal(
        found.times[N:], np.datetime64("2026-01-01T00:00:00.25", "us") + 1_000_000 * np.arange(N)
    )


def test_times_that_some_logs_lack_are_left_out():
    with pytest.warns(sc.SeachangeWarning, match="some of the logs have no times: they are joined in the order given"):
        found = joined(with_times(N), with_times(0, times=None))
    assert found.times is None
    np.testing.assert_array_equal(found.rewards[:N], with_times(N).rewards)


def test_what_differs_is_named():
    log = with_times(0)

    def refused(other, *words):
        with pytest.raises(LogError) as caught:
            joined(log, other)
        for word in words:
            assert word in str(caught.value)

    names = {"action_names": ["boots", "coats", "lamps"]}
    more = logged_arrays("shared") | {"sequences": None, "n_actions": K + 1, "logging_probs": None}
    refused(BanditLog.from_arrays(**more), "log 2 has the action 'action 3', which log 1 does not have", "n_actions")
    refused(with_times(N, **names), "log 2 has the action 'boots'")
    refused(with_times(N, action_names=["action 1", "action 0", "action 2"]), "the actions of log 1 in another order")
    refused(with_times(N, context_names=["x0", "age"]), "log 2 has the feature 'age', which log 1 does not have")
    refused(with_times(N, contexts=np.ones((N, 1))), "log 2 does not have the feature 'x1' of log 1")
    pools = log_of("per action", sequences=None)
    refused(pools, "log 2 has 2 features per action, and log 1 has 2 features per round")
    refused(with_times(N, propensities=None, logging_probs=None), "log 2 has no propensities, unlike log 1", "estimate")
    refused(with_times(N, sequences=np.zeros(N)), "log 1 has no sequences, unlike log 2", 'columns={"sequence": ...}')
    refused(with_times(0), "log 2 is the same as log 1")
    log = with_times(0, sequences=np.zeros(N))
    refused(with_times(N, sequences=["a"] * N), "sequences are numbers in some logs and text in others")


def test_logs_to_join_must_be_logs_with_rounds():
    with pytest.raises(LogError, match="needs at least one log"):
        joined()
    with pytest.raises(LogError, match=r"BanditLog\.joined needs a BanditLog; got a str"):
        joined(with_times(0), "late.csv")
    with pytest.raises(LogError, match=r"BanditLog\.joined needs at least one round"):
        joined(with_times(0), with_times(N)[:0])


@pytest.fixture
def tables(tmp_path):
    """A table in two halves, early.csv and late.parquet, and as a whole, all.csv."""
    generator, n = np.random.default_rng(0), 600
    frame = pl.DataFrame(
        {
            "action": generator.choice(["boots", "coats", "lamps"], n),
            "reward": generator.normal(size=n),
            "propensity": np.full(n, 1 / 3),
            "time": np.arange(n),
            "age": generator.normal(size=n),
            "city": ["Rome", "Rome", "Oslo"] * (n // 3),
        }
    )
    frame.write_csv(tmp_path / "all.csv")
    frame[:350].write_csv(tmp_path / "early.csv")
    frame[350:].write_parquet(tmp_path / "late.parquet")
    return tmp_path


def test_files_of_different_formats_are_joined(tables):
    early = sc.read_log(tables / "early.csv")
    late = sc.read_log(tables / "late.parquet", features=early.features)
    whole = sc.read_log(tables / "all.csv", features=early.features)
    found = joined(late, early)
    assert_equal_logs(found, whole)
    assert found.features == early.features
    message = "log 2 encodes its columns differently from log 1. Read it with features=log_1.features"
    with pytest.raises(LogError, match=message):
        joined(early, sc.read_log(tables / "late.parquet"))


def test_logs_on_disk_are_joined_on_disk(tables, monkeypatch):
    monkeypatch.setattr(BanditLog.chunk_slices, "__defaults__", (64,))
    early = sc.read_log(tables / "early.csv")
    late = sc.read_log(tables / "late.parquet", features=early.features, on_disk=True)
    found = joined(late, early)
    assert found.disk is not None
    assert_equal_logs(found, joined(sc.read_log(tables / "late.parquet", features=early.features), early))


def test_sequences_on_disk_that_run_at_the_same_time_are_sorted_by_time(tmp_path, monkeypatch):
    monkeypatch.setattr(BanditLog.chunk_slices, "__defaults__", (16,))
    frame = pl.DataFrame({"action": ["a", "a", "b"] * 33 + ["b"], "reward": np.arange(100.0), "propensity": 0.5})
    frame = frame.with_columns(time=np.arange(100), sequence=np.arange(100) % 4)
    for name, side in (("even", 0), ("odd", 1)):
        frame.filter(pl.col("sequence") % 2 == side).write_parquet(tmp_path / f"{name}.parquet")
    even = sc.read_log(tmp_path / "even.parquet", on_disk=True)
    odd = sc.read_log(tmp_path / "odd.parquet", features=even.features, on_disk=True)
    found = joined(odd, even)
    assert found.disk is not None
    np.testing.assert_array_equal(found.rewards, np.arange(100.0))
