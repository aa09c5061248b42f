"""Decision logs keep what they are given, whole lines only, and refuse what could not be read again."""

import json
import math
import multiprocessing
from datetime import datetime

import numpy as np
import pytest

from seachange.errors import LogError, OutputError
from seachange.formats.decisions import DecisionLog, DecisionsLog

NOON = datetime(2026, 11, 16, 12)


def test_a_line_is_in_the_file_when_the_call_returns(tmp_path):
    log = DecisionLog(tmp_path / "log")
    log.decision({"age": np.int64(3), "scores": np.array([0.5, 1.0])}, "red", np.float64(0.5), NOON, "a", model="m")
    written = json.loads((tmp_path / "log").read_text())
    assert written == {
        "decision": "a",
        "time": "2026-11-16T12:00:00Z",
        "context": {"age": 3, "scores": [0.5, 1.0]},
        "action": "red",
        "propensity": 0.5,
        "model": "m",
    }
    log.close()


def test_a_log_is_added_to_and_never_written_over(tmp_path):
    for i in range(3):
        with DecisionLog(tmp_path / "log") as log:
            log.decision({}, "red", 1.0, NOON, str(i))
    (part,) = DecisionsLog(tmp_path / "log").parts()
    assert part.lines.tolist() == [1, 2, 3]


def test_what_a_crash_left_unfinished_harms_no_other_line(tmp_path):
    with DecisionLog(tmp_path / "log") as log:
        log.decision({}, "red", 1.0, NOON, "a")
    whole = (tmp_path / "log").read_bytes()
    (tmp_path / "log").write_bytes(whole + whole[:20])
    with DecisionLog(tmp_path / "log") as log:
        log.decision({}, "blue", 1.0, NOON, "b")
    (part,) = DecisionsLog(tmp_path / "log").parts()
    assert part.action.to_list() == ["red", "blue"]
    assert [each.line for each in part.rejected] == [2]


def test_a_torn_last_line_is_rejected_and_the_rest_is_read(tmp_path):
    with DecisionLog(tmp_path / "log") as log:
        for i in range(3):
            log.decision({"age": i}, "red", 1.0, NOON, str(i))
            log.reward(str(i), i)
    whole = (tmp_path / "log").read_bytes()
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(start + 1, len(whole) - 1):
        (tmp_path / "log").write_bytes(whole[:cut])
        (part,) = DecisionsLog(tmp_path / "log").parts()
        assert part.reward.to_list() == [0.0, 1.0, None]
        assert [each.line for each in part.rejected] == [6]


def test_ids_are_made_up_if_none_is_given(tmp_path):
    with DecisionLog(tmp_path / "log") as log:
        ids = [log.decision({}, "red", 1.0) for _ in range(3)]
        log.reward(ids[1], 2.0)
        assert log.decision({}, "red", 1.0, id="mine") == "mine"
    assert len(set(ids)) == 3
    (part,) = DecisionsLog(tmp_path / "log").parts()
    assert part.event.to_list() == [*ids, "mine"]
    assert part.reward.to_list() == [None, 2.0, None, None]


def write_many(path, name):
    with DecisionLog(path) as log:
        for i in range(300):
            log.decision({"text": name * 500}, "red", 1.0, NOON, f"{name}{i}")


def test_processes_that_share_a_file_do_not_tear_lines(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=write_many, args=(tmp_path / "log", name)) for name in "xy"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    (part,) = DecisionsLog(tmp_path / "log").parts()
    assert (len(part), part.rejected) == (600, ())


@pytest.mark.parametrize("propensity", [0, -0.5, 1.5, math.nan, math.inf, None, "often"])
def test_propensities_that_are_none_are_refused(tmp_path, propensity):
    with DecisionLog(tmp_path / "log") as log, pytest.raises(LogError, match="propensity must be"):
        log.decision({}, "red", propensity, NOON, "a")
    assert (tmp_path / "log").read_bytes() == b""


@pytest.mark.parametrize("reward", [math.nan, -math.inf, None, "much"])
def test_rewards_that_are_not_numbers_are_refused(tmp_path, reward):
    with DecisionLog(tmp_path / "log") as log, pytest.raises(LogError, match="reward must be a finite number"):
        log.reward("a", reward, NOON)


def test_what_could_not_be_read_again_is_refused(tmp_path):
    with DecisionLog(tmp_path / "log") as log:
        with pytest.raises(LogError, match="the action must be one of actions"):
            log.decision({}, "red", 1.0, NOON, "a", actions=["blue"])
        with pytest.raises(LogError, match="cannot write decision 'a' as JSON"):
            log.decision({"x": object()}, "red", 1.0, NOON, "a")
        with pytest.raises(LogError, match="time must be a datetime"):
            log.reward("a", 1.0, "yesterday")
        nested = 1
        for _ in range(2_000):
            nested = [nested]
        with pytest.raises(LogError, match="nested more than 32 deep"):
            log.decision({"x": nested}, "red", 1.0, NOON, "a")
    assert (tmp_path / "log").read_bytes() == b""


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(OutputError, match="cannot write to"):
        DecisionLog(tmp_path)
