"""Raw logs to logs: lists of actions, rejected lines, places in errors, memory and disk."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log.logged import assert_equal_logs
from log.raw_rounds import ListLog, rounds_of
from properties import examples
from seachange import BanditLog
from seachange.errors import LogError, ParameterError, SeachangeWarning
from seachange.log import feature_fitting
from seachange.log.encoding import log_from_raw
from seachange.log.feature_fitting import fit_features
from seachange.log.raw import Pool, Rejected

pytestmark = pytest.mark.small

HOURS = pl.DataFrame({"hour": [1.0, 3.0, 1.0]})
OFFSETS = np.array([0, 2, 5, 6])


def pooled(features=None, names=None, probs=None, taken=(1, 2, 0), shared=HOURS, **more):
    """Three rounds with two, three and one actions to choose among."""
    features = pl.DataFrame() if features is None else pl.DataFrame(features)
    pool = Pool(OFFSETS, features, None if names is None else pl.Series(names), probs)
    return rounds_of(shared, action=pl.Series(taken), pool=pool, **more)


def test_lists_of_named_actions_are_a_mask():
    log = log_from_raw(ListLog([pooled(names=["x", "y", "x", "y", "z", "z"])]))
    assert log.action_names == ("x", "y", "z")
    assert log.actions.tolist() == [1, 2, 2]
    assert log.action_mask.tolist() == [[True, True, False], [True, True, True], [False, False, True]]
    assert log.contexts.tolist() == [
        [pytest.approx(-(0.5**0.5))],
        [pytest.approx(2**0.5)],
        [pytest.approx(-(0.5**0.5))],
    ]
    context, mask = log.features.encode_record({"hour": 3, "actions": ["z", "x", "new"]})
    assert context.tolist() == log.contexts[1].tolist()
    assert mask.tolist() == [True, False, True]


def test_lists_without_names_and_features_are_places():
    log = log_from_raw(ListLog([pooled()]))
    assert log.action_names == ("action 0", "action 1", "action 2")
    assert log.actions.tolist() == [1, 2, 0]
    assert log.action_mask.tolist() == [[True, True, False], [True, True, True], [True, False, False]]


def test_features_of_actions_are_crossed_with_those_they_share():
    prices = [1.0, 3.0, 1.0, 1.0, 3.0, 3.0]
    log = log_from_raw(ListLog([pooled({"price": prices})]))
    assert log.context_names == ("price", "hour × price")
    price = (np.array(prices) - np.mean(prices)) / np.std(prices)
    hour = np.array([-(0.5**0.5), 2**0.5, -(0.5**0.5)])
    expected = np.zeros((3, 3, 2))
    for t, (start, end) in enumerate(pairwise(OFFSETS)):
        expected[t, : end - start] = np.stack([price[start:end], hour[t] * price[start:end]], axis=1)
    np.testing.assert_allclose(log.contexts, expected, atol=1e-12)
    assert log.action_mask.tolist() == [[True, True, False], [True, True, True], [True, False, False]]


def test_features_of_actions_stay_alone_if_there_would_be_too_many(monkeypatch):
    parts = [pooled({"price": [1.0, 3.0, 1.0, 1.0, 3.0, 3.0]})]
    monkeypatch.setattr(feature_fitting, "MOST_CROSSED", 1)
    with pytest.warns(SeachangeWarning, match="are not crossed with the 1 per action"):
        spec = fit_features(ListLog(), parts)
    assert spec.context_names == ("price",)
    assert log_from_raw(ListLog(parts), spec).contexts.shape == (3, 3, 1)


VALUES = st.one_of(st.none(), st.floats(-1e6, 1e6))
ACTION = st.fixed_dictionaries({"price": VALUES, "kind": st.one_of(st.none(), st.sampled_from("abc"))})
ROUND = st.fixed_dictionaries({"hour": VALUES, "actions": st.lists(ACTION, min_size=1, max_size=4)})


@settings(deadline=None, max_examples=examples(80))
@given(rounds=st.lists(ROUND, min_size=1, max_size=8))
def test_records_with_lists_are_the_table_to_the_bit(rounds):
    actions = pl.DataFrame(
        [a for record in rounds for a in record["actions"]], schema={"price": pl.Float64, "kind": pl.String}
    )
    offsets = np.cumsum([0, *(len(record["actions"]) for record in rounds)])
    shared = pl.DataFrame({"hour": [record["hour"] for record in rounds]}, schema={"hour": pl.Float64})
    part = rounds_of(shared, action=pl.Series([0] * len(rounds)), pool=Pool(offsets, actions))
    log = log_from_raw(ListLog([part], contexts=()))
    assert log.joint.kind == "per action"
    for t, record in enumerate(rounds):
        context, mask = log.features.encode_record(record)
        assert context.tobytes() == np.ascontiguousarray(log.contexts[t]).tobytes()
        expected = np.ones(log.n_actions, dtype=bool) if log.action_mask is None else log.action_mask[t]
        assert mask.tolist() == expected.tolist()


@pytest.mark.parametrize("names", [None, ["x", "y", "x", "y", "z", "z"]])
def test_probabilities_of_lists_are_the_logging_distribution(names):
    probs = np.array([0.25, 0.75, 0.5, 0.25, 0.25, 1.0])
    log = log_from_raw(ListLog([pooled(names=names, probs=probs, propensity=None)]))
    assert log.propensities.tolist() == [0.75, 0.25, 1.0]
    last = [1, 0, 0] if names is None else [0, 0, 1]
    assert log.logging_probs.tolist() == [[0.25, 0.75, 0], [0.5, 0.25, 0.25], last]


@pytest.mark.parametrize("taken", [(2, 2, 0), (-1, 2, 0), (0.5, 2, 0), (None, 2, 0)])
@pytest.mark.parametrize("names", [None, ["x", "y", "x", "y", "z", "z"]])
def test_an_action_that_is_not_in_its_list_is_a_bad_row(taken, names):
    raw = ListLog([pooled({"price": [1.0, 3.0, 1.0, 1.0, 3.0, 3.0]} if names is None else None, names, taken=taken)])
    with pytest.raises(LogError, match=r"one of the 3 known actions; line 1 of clicks\.jsonl has nan \(1 of 3 rows\)"):
        log_from_raw(raw)
    assert len(log_from_raw(raw, on_bad_rows="drop")) == 2


def test_a_list_that_is_longer_than_those_of_the_spec_is_a_bad_row():
    spec = fit_features(ListLog(), [pooled({"price": [1.0, 3.0, 1.0, 1.0, 3.0, 3.0]})])
    long = rounds_of(
        HOURS[:2], action=pl.Series([0, 0]), pool=Pool(np.array([0, 4, 5]), pl.DataFrame({"price": [1.0] * 5}))
    )
    with pytest.raises(LogError, match="actions must be one of the 3 known actions; line 1"):
        log_from_raw(ListLog([long]), spec)
    assert len(log_from_raw(ListLog([long]), spec, on_bad_rows="drop")) == 1
    with pytest.raises(LogError, match="at most 3 actions, the most in the log; got 4"):
        spec.encode_record({"hour": 1, "actions": [{"price": 1}] * 4})


@pytest.mark.parametrize("actions", [None, [], "x", [1, 2]])
def test_a_record_without_a_list_is_an_error_that_says_what_is_needed(actions):
    spec = fit_features(ListLog(), [pooled({"price": [1.0, 3.0, 1.0, 1.0, 3.0, 3.0]})])
    with pytest.raises(LogError, match="'actions'"):
        spec.encode_record({"hour": 1, "actions": actions})


def test_a_log_from_raw_rounds_is_the_log_of_its_own_arrays():
    prices = {"price": [1.0, 3.0, 1.0, 1.0, 3.0, 3.0]}
    for part in (pooled(prices), pooled(names=["x", "y", "x", "y", "z", "z"]), rounds_of(HOURS)):
        log = log_from_raw(ListLog([part]))
        contexts = {"action_features" if log.joint.kind == "per action" else "contexts": log.contexts}
        columns = {"action_mask": log.action_mask, "n_actions": log.n_actions, "action_names": log.action_names}
        again = BanditLog.from_arrays(
            log.actions, log.rewards, log.propensities, context_names=log.context_names, **columns, **contexts
        )
        assert_equal_logs(again, log)


REJECTED = (
    Rejected("clicks.jsonl", 3, "a line must be JSON", "{oops"),
    Rejected("clicks.jsonl", 9, "a line must be JSON"),
)


def test_rejected_lines_are_refused_with_the_first_of_them_named():
    raw = ListLog([rounds_of(HOURS), rounds_of(HOURS, rejected=REJECTED)])
    with pytest.raises(
        LogError,
        match=r"a line must be JSON; line 3 of clicks\.jsonl has '{oops' \(2 of 8 lines\)\. "
        r'Drop those rows with on_bad_rows="drop"',
    ):
        log_from_raw(raw)


def test_rejected_lines_are_counted_where_they_are_dropped():
    raw = ListLog([rounds_of(HOURS, rejected=REJECTED), rounds_of(HOURS, reward=pl.Series([1.0, None, 0.0]))])
    log = log_from_raw(raw, on_bad_rows="drop")
    assert len(log) == 5
    assert log.dropped[0] == ("a line must be JSON", 2)
    assert [count for _, count in log.dropped] == [2, 1]


def test_a_log_of_rejected_lines_alone_is_empty():
    raw = ListLog([rounds_of(HOURS[:0], rejected=REJECTED)])
    with pytest.raises(LogError, match="the log is empty"):
        log_from_raw(raw, on_bad_rows="drop")


@pytest.mark.parametrize("on_disk", [False, True])
def test_bad_rows_are_named_by_their_line_in_the_file(on_disk):
    bad = rounds_of(HOURS, first_line=40, propensity=pl.Series([0.5, 2.0, 0.5]))
    with pytest.raises(LogError, match=r"propensities must be in \(0, 1\]; line 41 of clicks\.jsonl has 2 \(1 of "):
        log_from_raw(ListLog([rounds_of(HOURS), bad]), on_disk=on_disk)
    back = [rounds_of(HOURS, first_line=line, time=pl.Series([5.0, 6.0, 5.5])) for line in (10, 20)]
    with pytest.raises(LogError, match=r"times must not go backwards; line 12 of clicks\.jsonl has 5\.5 after 6 "):
        log_from_raw(ListLog(back), on_disk=on_disk)


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("word", ["propensity", "time", "sequence"])
def test_what_one_part_lacks_is_not_a_column_that_others_lose(word, on_disk):
    column = {word: pl.Series([0.5, 0.5, 0.5])}
    with_it, without = rounds_of(HOURS, **column), rounds_of(HOURS, first_line=4, **{word: None})
    for parts in ([with_it, without], [without, with_it]):
        with pytest.raises(LogError, match=rf"a {word} or none does; line 4 of clicks\.jsonl has none, unlike line 1"):
            log_from_raw(ListLog(parts), on_disk=on_disk)
    empty = rounds_of(HOURS[:0], **{word: None})
    assert len(log_from_raw(ListLog([empty, with_it, empty]), on_disk=on_disk)) == 3


def test_a_part_that_is_bad_throughout_leaves_the_others_on_disk():
    parts = [rounds_of(HOURS), rounds_of(HOURS, reward=pl.Series([None] * 3, dtype=pl.Float64)), rounds_of(HOURS)]
    for on_disk in (False, True):
        log = log_from_raw(ListLog(parts), on_bad_rows="drop", on_disk=on_disk)
        assert (len(log), [count for _, count in log.dropped]) == (6, [3])


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_a_log_on_disk_is_the_log_in_memory(parts):
    frame = pl.DataFrame({"age": [1.0, None, 3.0, 4.0] * 6, "city": ["a", "b", "a", None] * 6})
    size = len(frame) // parts
    raw = ListLog([rounds_of(frame[start : start + size]) for start in range(0, len(frame), size)])
    memory, disk = log_from_raw(raw), log_from_raw(raw, on_disk=True)
    assert disk.features == memory.features
    assert disk.fingerprint() == memory.fingerprint()


def test_action_names_other_than_those_of_the_features_are_refused():
    raw = ListLog([rounds_of(HOURS)])
    spec = log_from_raw(raw).features
    assert log_from_raw(raw, spec, action_names=["a", "b"]).action_names == ("a", "b")
    with pytest.raises(ParameterError, match="action_names must be those of features: a, b"):
        log_from_raw(raw, spec, action_names=["b", "a"])
