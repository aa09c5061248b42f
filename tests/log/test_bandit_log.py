"""BanditLog: what it holds, how it is cut, and that nobody can change it."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log.logged import KINDS, D, K, N, log_of, logged_arrays
from seachange import BanditLog
from seachange.errors import LogError, ParameterError, SeachangeError
from seachange.log.bandit_log import require_rewards
from seachange.log.joint_features import JointFeatures

COLUMNS = ("actions", "rewards", "propensities", "contexts", "action_mask", "logging_probs", "times", "sequences")


def columns_of(log):
    return {name: getattr(log, name) for name in COLUMNS}


def assert_same_columns(found, expected):
    for name in COLUMNS:
        assert (found[name] is None) == (expected[name] is None), name
        if expected[name] is not None:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_log_holds_what_it_was_given(kind):
    given = logged_arrays(kind)
    log = BanditLog.from_arrays(**given)
    assert len(log) == N
    assert log.n_actions == K
    for name in ("actions", "rewards", "propensities", "logging_probs", "times", "sequences"):
        np.testing.assert_array_equal(getattr(log, name), given[name])
    assert log.actions.dtype == np.int64
    assert log.rewards.dtype == log.propensities.dtype == np.float64


def test_contexts_have_the_shape_that_policies_take():
    assert log_of("none").contexts.shape == (N, 0)
    np.testing.assert_array_equal(log_of("shared").contexts, logged_arrays("shared")["contexts"])
    np.testing.assert_array_equal(log_of("per action").contexts, logged_arrays("per action")["action_features"])
    assert log_of("none", contexts=np.empty((N, 0))).fingerprint() == log_of("none").fingerprint()


def test_ragged_action_features_are_lists_filled_up_and_masked():
    rows, offsets = logged_arrays("ragged")["action_features"]
    log = log_of("ragged")
    for t, (start, end) in enumerate(pairwise(offsets)):
        np.testing.assert_array_equal(log.contexts[t, : end - start], rows[start:end])
        assert not log.contexts[t, end - start :].any()
        assert log.action_mask[t].tolist() == [a < end - start for a in range(K)]


def test_ragged_action_features_equal_the_filled_up_ones_with_a_mask():
    ragged = log_of("ragged")
    dense = log_of("ragged", action_features=ragged.contexts, action_mask=ragged.action_mask)
    assert dense.fingerprint() == ragged.fingerprint()


def test_a_mask_on_ragged_action_features_is_a_further_restriction():
    lists = log_of("ragged").action_mask
    extra = np.random.default_rng(1).random((N, K)) < 0.5
    extra[np.arange(N), log_of("ragged").actions] = True
    np.testing.assert_array_equal(log_of("ragged", action_mask=extra).action_mask, lists & extra)


def test_action_mask_is_kept_where_it_forbids_something_and_none_where_it_does_not():
    np.testing.assert_array_equal(log_of("masked").action_mask, logged_arrays("masked")["action_mask"])
    assert log_of("masked").masked
    allowed = log_of("masked", action_mask=np.ones((N, K)))
    assert allowed.action_mask is None
    assert not allowed.masked
    assert allowed.fingerprint() == log_of("shared", contexts=allowed.contexts).fingerprint()


def test_optional_columns_are_none_where_there_are_none():
    log = BanditLog.from_arrays([0, 1], [0.0, 1.0], [0.5, 0.5])
    assert (log.action_mask, log.logging_probs, log.times, log.sequences) == (None, None, None, None)


@pytest.mark.parametrize(
    ("more", "n_actions"),
    [
        ({}, 2),
        ({"n_actions": 5}, 5),
        ({"action_names": ["a", "b", "c"]}, 3),
        ({"action_mask": np.ones((2, 4))}, 4),
        ({"logging_probs": np.full((2, 2), 0.5)}, 2),
        ({"action_features": np.ones((2, 6, 1))}, 6),
        ({"action_features": (np.ones((5, 1)), [0, 2, 5])}, 3),
    ],
)
def test_number_of_actions_is_given_or_follows_from_what_is(more, n_actions):
    assert BanditLog.from_arrays([0, 1], [0.0, 1.0], [0.5, 0.5], **more).n_actions == n_actions


def test_names_are_given_or_numbered():
    named = log_of("shared", action_names=["a", "b", "c"], context_names=["age", "hour"])
    assert (named.action_names, named.context_names) == (("a", "b", "c"), ("age", "hour"))
    numbered = log_of("shared")
    assert (len(set(numbered.action_names)), len(set(numbered.context_names))) == (K, D)


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_cannot_be_written_into(name):
    log = log_of("masked")
    for part in (log, log[3:9], log.take(np.arange(5))):
        column = getattr(part, name)
        with pytest.raises(ValueError, match="read-only"):
            column[0] = column[1]


@pytest.mark.parametrize("name", [*COLUMNS, "arrays", "joint", "action_names"])
def test_columns_cannot_be_replaced(name):
    log = log_of("masked")
    with pytest.raises((AttributeError, dataclasses.FrozenInstanceError)):
        setattr(log, name, getattr(log, name))


@pytest.mark.parametrize("kind", KINDS)
def test_from_arrays_copies_what_it_is_given(kind):
    given = logged_arrays(kind)
    log = BanditLog.from_arrays(**given)
    expected = columns_of(log_of(kind))
    rows, offsets = given["action_features"] if kind == "ragged" else (None, None)
    for array in (*given.values(), rows, offsets):
        if isinstance(array, np.ndarray):
            array[...] = np.roll(array, 1, axis=0) if array.dtype.kind in "Mb" else array + 7
    assert_same_columns(columns_of(log), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_slices_share_memory(kind):
    log = log_of(kind)
    whole, part = columns_of(log), columns_of(log[5:30])
    for name in COLUMNS:
        if whole[name] is not None and whole[name].size:
            assert np.shares_memory(whole[name], part[name]), name
    assert np.shares_memory(log.arrays.rows, log[5:30].arrays.rows)


@given(
    kind=st.sampled_from(KINDS),
    start=st.none() | st.integers(-2 * N, 2 * N),
    stop=st.none() | st.integers(-2 * N, 2 * N),
)
def test_a_slice_of_a_log_is_the_log_of_the_slices(kind, start, stop):
    log, rounds = log_of(kind), slice(start, stop)
    part = log[rounds]
    assert len(part) == len(range(N)[rounds])
    expected = {name: None if column is None else column[rounds] for name, column in columns_of(log).items()}
    # A mask that allows all there is to choose in these rounds may be left out.
    if part.action_mask is None and expected["action_mask"] is not None:
        assert expected.pop("action_mask").all()
        expected["action_mask"] = None
    assert_same_columns(columns_of(part), expected)
    assert (part.action_names, part.context_names, part.joint) == (log.action_names, log.context_names, log.joint)


@pytest.mark.parametrize("rounds", [3, slice(None, None, 2), slice(None, None, -1), [1, 2], "a"])
def test_a_log_is_sliced_by_runs_of_rounds_only(rounds):
    with pytest.raises(ParameterError, match="log"):
        log_of("shared")[rounds]


@pytest.mark.parametrize(("share", "cut"), [(0.5, 20), (0.25, 10), (0.99, 40), (0.01, 0)])
def test_split_cuts_at_the_share(share, cut):
    log = log_of("masked")
    first, rest = log.split(share)
    assert (len(first), len(rest)) == (cut, N - cut)
    assert_same_columns(columns_of(rest), columns_of(log[cut:]))
    np.testing.assert_array_equal(np.concatenate([first.rewards, rest.rewards]), log.rewards)


@pytest.mark.parametrize("share", [0, 1, -0.5, 1.5, float("nan")])
def test_split_needs_a_share_between_0_and_1(share):
    with pytest.raises(ParameterError, match="between 0 and 1"):
        log_of("none").split(share)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 7, N, 1000])
def test_chunks_put_together_are_the_log(kind, rows):
    log = log_of(kind)
    chunks = list(log.chunks(rows))
    assert all(len(chunk) == rows for chunk in chunks[:-1])
    assert 0 < len(chunks[-1]) <= rows
    for name, column in columns_of(log).items():
        if column is not None:
            everything = np.ones((1, K), dtype=bool)
            parts = [
                np.repeat(everything, len(chunk), axis=0) if getattr(chunk, name) is None else getattr(chunk, name)
                for chunk in chunks
            ]
            np.testing.assert_array_equal(np.concatenate(parts), column)


def test_chunks_need_a_row():
    with pytest.raises(ParameterError, match="rows must be at least 1"):
        log_of("none").chunks(0)


@pytest.mark.parametrize("kind", KINDS)
def test_take_copies_the_rounds_in_the_order_asked_for(kind):
    log, rounds = log_of(kind), np.array([7, 3, 3, 39])
    taken = log.take(rounds)
    expected = {name: None if column is None else column[rounds] for name, column in columns_of(log).items()}
    assert_same_columns(columns_of(taken), expected)
    for name, column in columns_of(log).items():
        assert column is None or column.size == 0 or not np.shares_memory(column, getattr(taken, name)), name


@pytest.mark.parametrize("kind", ["shared", "per action", "ragged"])
def test_float32_contexts_stay_float32(kind):
    given = logged_arrays(kind)
    if kind == "shared":
        given["contexts"] = given["contexts"].astype(np.float32)
    elif kind == "per action":
        given["action_features"] = given["action_features"].astype(np.float32)
    else:
        rows, offsets = given["action_features"]
        given["action_features"] = (rows.astype(np.float32), offsets)
    log = BanditLog.from_arrays(**given)
    for part in (log, log[3:8], log.take(np.array([1, 2]))):
        assert part.contexts.dtype == part.arrays.rows.dtype == np.float32


@pytest.mark.parametrize("dtype", [np.int64, np.float16, bool])
def test_other_contexts_become_float64(dtype):
    assert log_of("shared", contexts=np.ones((N, D), dtype=dtype)).contexts.dtype == np.float64


def test_plain_lists_make_a_log():
    log = BanditLog.from_arrays([0, 1], [1, 0], [0.5, 0.25], contexts=[[1, 2], [3, 4]])
    assert log.contexts.tolist() == [[1, 2], [3, 4]]
    assert log.rewards.tolist() == [1, 0]


def test_missing_rewards_are_counted_and_refused_where_they_are_needed():
    log = BanditLog.from_arrays([0, 1, 0], [1, np.nan, np.nan], [0.5] * 3, missing_rewards=True)
    with pytest.raises(LogError, match=r"juggling needs a reward in every round; 2 of 3 have none.*numpy\.isnan"):
        require_rewards(log, "juggling")
    observed = log.take(np.flatnonzero(~np.isnan(log.rewards)))
    require_rewards(observed, "juggling")


@pytest.mark.parametrize(
    ("kind", "contexts"),
    [("none", "no contexts"), ("shared", "2 features per round"), ("per action", "2 features per action")],
)
def test_repr_shows_sizes_and_rates(kind, contexts):
    log = log_of(kind)
    assert repr(log) == f"BanditLog(40 rounds, 3 actions, {contexts}, mean reward {log.rewards.mean():.4g})"


def test_repr_of_a_log_without_any_reward_is_silent():
    nothing = BanditLog.from_arrays([0, 1], [np.nan, np.nan], [0.5, 0.5], missing_rewards=True)
    assert repr(nothing) == "BanditLog(2 rounds, 2 actions, no contexts, mean reward nan)"
    assert repr(nothing[:0]) == "BanditLog(0 rounds, 2 actions, no contexts, mean reward nan)"


@pytest.mark.parametrize(
    ("kind", "shape"), [("none", (K, 1)), ("shared", (K, D + 1)), ("per action", (1, D + 1)), ("ragged", (1, D + 1))]
)
def test_joint_features_have_a_block_for_every_action_unless_actions_have_features(kind, shape):
    joint = log_of(kind).joint
    assert joint.shape == shape
    assert joint.size == shape[0] * shape[1]


@pytest.mark.parametrize("kind", ["shared", "per action"])
def test_contexts_get_an_intercept(kind):
    rows = log_of(kind).arrays.rows
    np.testing.assert_array_equal(rows[..., :-1].reshape(log_of(kind).contexts.shape), log_of(kind).contexts)
    assert (rows[..., -1] == 1).all()


@pytest.mark.parametrize(
    ("joint", "contexts"),
    [
        (JointFeatures("none", K, 0), np.ones((4, 1))),
        (JointFeatures("shared", K, D), np.ones((4, D + 1))),
        (JointFeatures("shared", K, D), np.ones(D)),
        (JointFeatures("per action", K, D), np.ones((4, D))),
        (JointFeatures("per action", K, D), np.ones((4, K + 1, D))),
    ],
)
def test_contexts_of_another_shape_than_the_log_had_are_refused(joint, contexts):
    with pytest.raises(LogError, match="contexts must have shape"):
        joint.rows(contexts)


def test_a_mask_must_fit_and_allow_something():
    joint = JointFeatures("none", K, 0)
    assert joint.mask(None, 4).shape == (1, K)
    with pytest.raises(SeachangeError, match=r"action_mask must have shape \(4, 3\)"):
        joint.mask(np.ones((4, 2)), 4)
    with pytest.raises(SeachangeError, match="row 1 allows none"):
        joint.mask([[1, 1, 1], [0, 0, 0]], 2)
