"""What a deployment writes down is a log again."""

import gzip
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from properties import examples
from seachange.errors import LogError, SeachangeWarning
from seachange.formats.decisions import NO_DECISION, SECOND_REWARD, DecisionLog, DecisionsLog, looks_like
from seachange.reading import open_raw, read_log

NOON = datetime(2026, 11, 16, 12)
WHOLE = st.integers(-(2**63), 2**63 - 1)
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "age": WHOLE,
        "price": st.floats(allow_nan=False, allow_infinity=False),
        "member": st.booleans(),
        "city": st.text(max_size=5),
        "tags": st.lists(st.text(max_size=2), max_size=3),
        "device": st.fixed_dictionaries({"kind": st.text(max_size=3)}, optional={"width": WHOLE}),
    },
)
DECISIONS = st.lists(st.tuples(RECORDS, st.sampled_from("abc"), st.floats(1e-6, 1)), min_size=1, max_size=12)
LATER = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def joined(parts):
    """One part of many."""
    parts = list(parts)
    rounds = {
        "line": [line for part in parts for line in part.lines.tolist()],
        "action": [each for part in parts for each in part.action],
        "reward": [each for part in parts for each in part.reward],
        "propensity": [each for part in parts for each in part.propensity],
        "time": [each for part in parts if part.time is not None for each in part.time],
    }
    return pl.concat([part.features for part in parts]), rounds, [each for part in parts for each in part.rejected]


def without_nulls(record):
    """A record as it was written: what a column adds for records that lack a field is taken away again."""
    plain = {name: without_nulls(each) if isinstance(each, dict) else each for name, each in record.items()}
    return {name: each for name, each in plain.items() if each is not None}


def write_lines(path, *lines):
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


def decision(name, action="red", **more):
    return {"decision": name, "action": action, "propensity": 0.5, "context": {"age": 3}, **more}


@pytest.mark.parametrize("near", [1, 100])
def test_rewards_may_be_in_another_file_than_their_decisions(near, tmp_path):
    reward = {name: {"decision": name, "reward": number} for number, name in enumerate("abcd", 1)}
    days = [
        [decision("a"), reward["a"], decision("b")],
        [reward["b"], decision("c"), reward["a"], reward["d"]],
        [reward["c"]],
    ]
    files = [write_lines(tmp_path / f"{day}.jsonl", *lines) for day, lines in enumerate(days)]
    for asked in (tmp_path, tmp_path / "*.jsonl", files):
        parts = list(open_raw(asked).parts()) if near > 1 else list(DecisionsLog(files, near=near).parts())
        assert [(part.source, part.lines.tolist()) for part in parts] == [("0.jsonl", [1, 3]), ("1.jsonl", [2])]
        assert [part.reward.to_list() for part in parts] == [[1, 2], [3]]
        rejected = [(each.source, each.line, each.reason) for part in parts for each in part.rejected]
        assert sorted(rejected) == [("1.jsonl", 3, SECOND_REWARD), ("1.jsonl", 4, NO_DECISION)]


@LATER
@given(DECISIONS, st.data(), st.integers(1, 5), st.integers(1, 20))
def test_what_is_written_is_read_back(tmp_path_factory, decisions, data, near, rows):
    path = tmp_path_factory.mktemp("log") / "decisions.jsonl"
    events = [("decision", i) for i in range(len(decisions))]
    for i in range(len(decisions)):
        for _ in range(data.draw(st.integers(0, 2), label="rewards")):
            events.insert(data.draw(st.integers(0, len(events)), label="when"), ("reward", i))
    with DecisionLog(path) as log:
        for number, (event, i) in enumerate(events, 1):
            if event == "decision":
                record, action, propensity = decisions[i]
                log.decision(record, action, propensity, NOON + timedelta(seconds=i), f"d{i}")
            else:
                log.reward(f"d{i}", number, NOON)

    # Rewards in the file's order, by brute force: the first of each decision counts.
    rewards = {i: [n for n, event in enumerate(events, 1) if event == ("reward", i)] for i in range(len(decisions))}
    features, rounds, rejected = joined(DecisionsLog(path, near=near).parts(rows))
    if features.width:
        assert [without_nulls(row) for row in features.rows(named=True)] == [record for record, _, _ in decisions]
    else:
        assert not any(record for record, _, _ in decisions)
    assert rounds["action"] == [action for _, action, _ in decisions]
    assert rounds["propensity"] == [propensity for _, _, propensity in decisions]
    assert rounds["time"] == [NOON + timedelta(seconds=i) for i in range(len(decisions))]
    assert rounds["line"] == [events.index(("decision", i)) + 1 for i in range(len(decisions))]
    assert rounds["reward"] == [rewards[i][0] if rewards[i] else None for i in range(len(decisions))]
    assert sorted(each.line for each in rejected) == sorted(n for lines in rewards.values() for n in lines[1:])
    assert {each.reason for each in rejected} <= {SECOND_REWARD}


def test_the_first_of_two_rewards_counts_wherever_they_are(tmp_path):
    first, second = {"decision": "a", "reward": 1}, {"decision": "a", "reward": 2}
    others = [decision(f"o{i}") for i in range(5)]
    for lines in (
        [decision("a"), first, second, *others],
        [decision("a"), first, *others, second],
        [decision("a"), *others, first, second],
        [first, decision("a"), *others, second],
        [first, decision("a"), second, *others],
        [first, second, decision("a"), *others],
    ):
        _, rounds, rejected = joined(DecisionsLog(write_lines(tmp_path / "log", *lines), near=2).parts())
        assert rounds["reward"] == [1, None, None, None, None, None]
        assert [(each.line, each.reason) for each in rejected] == [(lines.index(second) + 1, SECOND_REWARD)]


def test_rewards_without_a_decision_and_decisions_of_one_name_are_named(tmp_path):
    path = write_lines(tmp_path / "log", decision("a"), decision("a", "blue"), {"decision": "b", "reward": 1})
    _, rounds, rejected = joined(DecisionsLog(path).parts())
    assert rounds["action"] == ["red"]
    assert [(each.line, each.reason) for each in rejected] == [
        (2, "a recent decision has the same id"),
        (3, "there is no decision with this id"),
    ]


def test_a_name_that_is_used_again_much_later_is_another_decision(tmp_path):
    lines = [decision("a"), {"decision": "a", "reward": 1}, decision("b"), decision("c"), decision("a", "blue")]
    path = write_lines(tmp_path / "log", *lines, {"decision": "a", "reward": 2})
    _, rounds, rejected = joined(DecisionsLog(path, near=2).parts())
    assert rounds["action"] == ["red", "red", "red", "blue"]
    assert rounds["reward"] == [1, None, None, 2]
    assert rejected == []


def test_lists_of_actions_become_pools(tmp_path):
    path = tmp_path / "log"
    with DecisionLog(path) as log:
        log.decision({"age": 3}, "b", 0.75, NOON, "1", actions=["a", "b"], probs=[0.25, 0.75], model="m")
        log.decision({}, "c", 1.0, NOON, "2", actions=["c"], features=[{"price": 2}], probs=[1.0])
    (part,) = DecisionsLog(path).parts()
    assert part.action.to_list() == [1, 0]
    assert part.pool.offsets.tolist() == [0, 2, 3]
    assert part.pool.names.to_list() == ["a", "b", "c"]
    assert part.pool.probs.tolist() == [0.25, 0.75, 1.0]
    assert part.pool.features.rows() == [(None,), (None,), (2,)]


BROKEN = {
    "the line is neither a decision nor a reward: JSON is malformed": '{"decision": "a" "\n',
    "the line is neither a decision nor a reward: Object missing required field `decision`": {"action": "a"},
    "the line is neither a decision nor a reward: Expected `str`, got `int`": decision(7),
    "a line must have an action (a decision) or a reward": {"decision": "z"},
    "a decision must have an action": {"decision": "z", "propensity": 0.5, "reward": 1},
    "a decision and its reward must be separate lines": decision("z", reward=1),
    "a decision must have a context and a propensity": {"decision": "z", "action": "a", "context": {}},
    "the line is neither a decision nor a reward: Object contains unknown field `contexts`": decision("z", contexts={}),
    "features and probs need a list of actions": decision("z", probs=[1.0]),
    "some decisions have a list of actions and others have none": decision("z", actions=["red"]),
    "objects and lists are nested more than 32 deep": '{"decision": "z", "context": '
    + '{"x": ' * 70
    + "1"
    + "}" * 70
    + "}\n",
    "objects and lists are nested more than 32": '{"decision": "z", "context": ' + '{"x": ' * 100_000 + "\n",
    "the time is not in the years 1 to 9999": decision("z", time="9999-12-31T23:59:59-10:00"),
}


@pytest.mark.parametrize("reason", BROKEN)
def test_a_broken_line_is_named_and_the_rest_is_read(tmp_path, reason):
    path = write_lines(tmp_path / "log", decision("a"), "\n", BROKEN[reason], decision("b"))
    features, rounds, (rejected,) = joined(DecisionsLog(path).parts())
    assert rounds["line"] == [1, 4]
    assert rejected.line == 3
    assert rejected.reason.startswith(reason)
    assert features["age"].to_list() == [3, 3]


POOL_RULES = {
    "actions must differ": decision("z", actions=["red", "red"]),
    "the action must be one of actions": decision("z", actions=["blue"]),
    "features must have one entry per action": decision("z", actions=["red"], features=[]),
    "probs must have one entry per action": decision("z", actions=["red"], probs=[0.5, 0.5]),
}


@pytest.mark.parametrize("reason", POOL_RULES)
def test_a_broken_pool_is_named(tmp_path, reason):
    path = write_lines(tmp_path / "log", decision("a", actions=["red", "blue"]), POOL_RULES[reason])
    _, rounds, (rejected,) = joined(DecisionsLog(path).parts())
    assert (rounds["action"], rejected.reason) == ([0], reason)


def test_times_are_in_utc_whatever_their_zone(tmp_path):
    times = ["2026-11-16T12:00:00+02:00", "2026-11-16T10:00:00Z", "2026-11-16T10:00:00"]
    path = write_lines(tmp_path / "log", *(decision(str(i), time=time) for i, time in enumerate(times)))
    assert joined(DecisionsLog(path).parts())[1]["time"] == [datetime(2026, 11, 16, 10)] * 3
    with DecisionLog(tmp_path / "ours") as log:
        log.decision({}, "a", 1.0, datetime(2026, 11, 16, 12, tzinfo=timezone(timedelta(hours=2))), "1")
        log.decision({}, "a", 1.0, datetime(2026, 11, 16, 10), "2")
        log.decision({}, "a", 1.0, datetime(2026, 11, 16, 10, tzinfo=UTC), "3")
    assert joined(DecisionsLog(tmp_path / "ours").parts())[1]["time"] == [datetime(2026, 11, 16, 10)] * 3


def test_a_log_without_times_has_none(tmp_path):
    (part,) = DecisionsLog(write_lines(tmp_path / "log", decision("a"))).parts()
    assert part.time is None


def test_values_of_different_kinds_in_one_field_become_their_text(tmp_path):
    values = [1, "1", None, [2], {"a": True}, 10**30]
    path = write_lines(tmp_path / "log", *(decision(str(i), context={"x": each}) for i, each in enumerate(values)))
    (part,) = DecisionsLog(path).parts(100)
    assert part.features["x"].to_list() == ["1", "1", None, "[2]", '{"a":true}', str(10**30)]


def test_every_part_has_the_same_columns(tmp_path):
    records = [{"a": 1}, {"b": {"c": 1}}, {"a": 2.5}, {"b": {"d": [None]}}, {}, {"b": {}}]
    path = write_lines(tmp_path / "log", *(decision(str(i), context=each) for i, each in enumerate(records)))
    whole = pl.concat([part.features for part in DecisionsLog(path).parts(1)])
    (part,) = DecisionsLog(path).parts()
    assert_frame_equal(whole, part.features)
    assert part.features["a"].to_list() == [1.0, None, 2.5, None, None, None]


def test_gzipped_logs_are_read(tmp_path):
    path = write_lines(tmp_path / "log", decision("a"), {"decision": "a", "reward": 3})
    zipped = tmp_path / "log.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert joined(DecisionsLog(zipped).parts())[1]["reward"] == [3]


def test_decision_logs_are_distinguished_from_other_json_lines():
    assert looks_like(Path("log"), b'\n{"decision": "a", "action": "red", "propensity": 0.5, "context": {}}\n')
    assert looks_like(Path("log"), b'{"decision": "a", "reward": 1}')
    assert not looks_like(
        Path("log"), b'{"decision": "a", "action": "red", "propensity": 0.5, "context": {}, "reward": 1}'
    )
    assert not looks_like(Path("log"), b'{"action": 1, "reward": 2}')
    assert not looks_like(Path("log"), b"")


def test_columns_cannot_be_named(tmp_path):
    with pytest.raises(LogError, match="a fixed place for everything"):
        DecisionsLog(tmp_path / "log", {"action": "item"})


ROWS = [("yes", "3", "1,5"), ("no", "41", "2,25"), ("Yes", "7", "0,5"), ("NO", "x", "3")] * 5


def test_texts_are_read_as_the_features_of_a_table_need_them(tmp_path):
    lines = [f'{"ab"[i % 3 > 0]},1,0.5,{member},{age},"{price}"' for i, (member, age, price) in enumerate(ROWS)]
    (tmp_path / "log.csv").write_text("\n".join(["action,reward,propensity,member,age,price", *lines, ""]))
    columns = {"contexts": ["member", "price"]}
    table = read_log(tmp_path / "log.csv", columns)
    assert [type(feature).__name__ for feature in table.features.shared] == ["Flag", "Number"]
    with DecisionLog(tmp_path / "decisions") as log:
        for i, (member, _, price) in enumerate(ROWS):
            log.decision({"member": member, "price": price, "other": [i]}, "ab"[i % 3 > 0], 0.5, NOON)
            log.decision({"member": member.lower() == "yes", "price": float(price.replace(",", "."))}, "a", 0.5, NOON)
    read = read_log(tmp_path / "decisions", features=table.features, missing_rewards=True)
    np.testing.assert_array_equal(read.contexts[::2], table.contexts)
    np.testing.assert_array_equal(read.contexts[1::2], table.contexts)


def test_texts_that_are_not_numbers_count_as_missing_with_a_warning(tmp_path):
    write_lines(tmp_path / "first", *(decision(str(i), context={"age": i, "kind": {"size": i}}) for i in range(9)))
    features = read_log(tmp_path / "first", missing_rewards=True).features
    path = write_lines(tmp_path / "log", decision("1", context={"age": "young", "kind": {"size": "4"}}), decision("2"))
    with pytest.warns(SeachangeWarning, match="1 value does not match .* 'age' has 'young' in line 1 of log"):
        read = read_log(path, features=features, missing_rewards=True)
    assert read.contexts.tolist() == [[0.0, 0.0], [(3 - 4) / features.shared[0].scale, 0.0]]


def test_features_of_listed_actions_are_read_as_the_fitted_ones_are(tmp_path):
    def lines(*prices):
        items = [[{"price": price}, {"price": 1}] for price in prices]
        named = {"actions": ["red", "blue"]}
        return [decision(str(i), context={"age": i}, features=each, **named) for i, each in enumerate(items)]

    first = read_log(write_lines(tmp_path / "first", *lines(2, 3, 4)), missing_rewards=True)
    second = read_log(
        write_lines(tmp_path / "second", *lines("2", "3", 4)), features=first.features, missing_rewards=True
    )
    np.testing.assert_array_equal(second.contexts, first.contexts)
