"""Bad input: every rule of a log, what its error says, and what dropping leaves."""

import pickle

import numpy as np
import pytest

from log.logged import assert_equal_logs
from seachange import BanditLog
from seachange.errors import LogError, ParameterError, SeachangeError
from seachange.log.validation import RULES

NAN, INF = float("nan"), float("inf")
N = 10


def good_columns():
    """Ten rounds of two actions that keep every rule, with a shared context and every optional column."""
    return {
        "actions": np.array([0, 1] * 5, dtype=float),
        "rewards": np.linspace(0, 1, N),
        "propensities": np.array([0.25, 0.75] * 5),
        "contexts": np.arange(2.0 * N).reshape(N, 2),
        "action_mask": np.ones((N, 2), dtype=bool),
        "logging_probs": np.tile([0.25, 0.75], (N, 1)),
        "times": np.arange(N, dtype=float),
        "sequences": np.repeat([0, 1], 5),
        "n_actions": 2,
    }


def per_action_columns():
    columns = good_columns()
    del columns["contexts"]
    return columns | {"action_features": np.arange(4.0 * N).reshape(N, 2, 2)}


def with_values(columns, name, values):
    """The columns with ``values``, {row: value}, written into one of them; a row may be (row, column)."""
    changed = columns[name].copy()
    for row, value in values.items():
        changed[row] = value
    return columns | {name: changed}


def only(columns, rows):
    return {name: value if name == "n_actions" else value[rows] for name, value in columns.items()}


# (the column to spoil, {row: value}, the rule in the message, the value in the message)
BROKEN = {
    "zero propensity": ("propensities", {3: 0, 7: 0}, "propensities must be in (0, 1]", "0"),
    "negative propensity": ("propensities", {3: -0.5}, "propensities must be in (0, 1]", "-0.5"),
    "propensity above 1": ("propensities", {2: 1.5, 3: 2, 9: 7}, "propensities must be in (0, 1]", "1.5"),
    "NaN propensity": ("propensities", {0: NAN}, "propensities must be in (0, 1]", "nan"),
    "propensity of nothing": (
        "propensities", {1: 1e-200, 4: 9e-13, 6: 5e-324}, "propensities must be at least 1e-12", "1e-200",
    ),
    "NaN reward": ("rewards", {5: NAN}, "rewards must not be missing", "nan"),
    "infinite reward": ("rewards", {5: -INF, 6: INF}, "rewards must be finite", "-inf"),
    "action too large": ("actions", {4: 2}, "actions must be integers from 0 to 1", "2"),
    "negative action": ("actions", {4: -1, 5: -1, 6: -1}, "actions must be integers from 0 to 1", "-1"),
    "fractional action": ("actions", {9: 0.5}, "actions must be integers from 0 to 1", "0.5"),
    "NaN action": ("actions", {9: NAN}, "actions must be integers from 0 to 1", "nan"),
    "infinite action": ("actions", {1: INF}, "actions must be integers from 0 to 1", "inf"),
    "NaN context": ("contexts", {(6, 1): NAN, (8, 0): NAN}, "contexts must be finite (column 1)", "nan"),
    "infinite context": ("contexts", {(6, 0): INF}, "contexts must be finite (column 0)", "inf"),
    "mask forbids what was done": (
        "action_mask", {(3, 1): False}, "action_mask must allow the action that was taken", "1",
    ),
    "mask forbids everything": (
        "action_mask", {2: False}, "action_mask must allow the action that was taken", "0",
    ),
    "logging_probs sum to more than 1": (
        "logging_probs", {(4, 1): 0.85, (6, 1): 0.85}, "logging_probs must be non-negative and sum to 1", "1.1",
    ),
    "negative logging_probs": (
        "logging_probs", {4: (-0.25, 1.25)}, "logging_probs must be non-negative and sum to 1", "1",
    ),
    "NaN in logging_probs": (
        "logging_probs", {(4, 1): NAN}, "logging_probs must be non-negative and sum to 1", "nan",
    ),
    "logging_probs differ from propensities": (
        "logging_probs", {4: (0.75, 0.25)}, "logging_probs at the action taken must equal propensities", "0.75",
    ),
    "NaN time": ("times", {4: NAN}, "times must be known", "nan"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "values", "rule", "shown"), BROKEN.values(), ids=BROKEN)
def test_error_names_the_rule_the_row_the_extent_and_the_fix(name, values, rule, shown):
    with pytest.raises(LogError) as caught:
        BanditLog.from_arrays(**with_values(good_columns(), name, values))
    assert isinstance(caught.value, SeachangeError)
    assert isinstance(caught.value, ValueError)
    rows = sorted({row if isinstance(row, int) else row[0] for row in values})
    message = str(caught.value)
    assert message.startswith(rule)
    assert f"; row {rows[0]} has {shown} ({len(rows)} of {N} rows)." in message
    assert 'Drop those rows with on_bad_rows="drop"' in message


@pytest.mark.parametrize(("name", "values"), [(name, values) for name, values, *_ in BROKEN.values()], ids=BROKEN)
def test_dropping_leaves_the_log_of_the_good_rows(name, values):
    bad = {row if isinstance(row, int) else row[0] for row in values}
    rows = np.array([t for t in range(N) if t not in bad])
    dropped = BanditLog.from_arrays(**with_values(good_columns(), name, values), on_bad_rows="drop")
    assert_equal_logs(dropped, BanditLog.from_arrays(**only(good_columns(), rows)))


def test_action_features_name_the_action_and_the_feature():
    columns = with_values(per_action_columns(), "action_features", {(7, 1, 0): NAN})
    with pytest.raises(LogError, match=r"action_features must be finite \(column 1, 0\); row 7 has nan \(1 of 10 rows"):
        BanditLog.from_arrays(**columns)
    dropped = BanditLog.from_arrays(**columns, on_bad_rows="drop")
    rows = np.delete(np.arange(N), 7)
    assert_equal_logs(dropped, BanditLog.from_arrays(**only(per_action_columns(), rows)))


def test_an_action_beyond_its_own_list_is_bad_even_where_others_have_longer_lists():
    rows, offsets = np.arange(5.0).reshape(5, 1), np.array([0, 2, 5])
    with pytest.raises(LogError, match="row 0 has 2"):
        BanditLog.from_arrays([2, 2], [0, 1], [0.5, 0.5], action_features=(rows, offsets))


def test_missing_time_of_a_datetime_column_is_bad():
    times = np.array(["2026-01-01", "NaT", "2026-01-03"], dtype="datetime64[D]")
    with pytest.raises(LogError, match=r"times must be known; row 1 has NaT \(1 of 3 rows\)"):
        BanditLog.from_arrays([0, 1, 0], [0, 1, 0], [0.5] * 3, times=times)


def test_the_message_of_the_design_is_the_message():
    propensities = np.full(10_000, 0.5)
    propensities[[17, 500, 9_999]] = 0
    with pytest.raises(LogError) as caught:
        BanditLog.from_arrays(np.arange(10_000) % 2, np.ones(10_000), propensities)
    assert str(caught.value) == (
        'propensities must be in (0, 1]; row 17 has 0 (3 of 10,000 rows). Drop those rows with on_bad_rows="drop".'
    )


def test_propensities_are_right_from_a_trillionth_up_to_1():
    assert len(BanditLog.from_arrays([0, 0], [0, 1], [1.0, 1e-12])) == 2


def test_a_propensity_of_nothing_has_its_cure():
    log = BanditLog.from_arrays([0, 0], [0, 1], n_actions=1)
    with pytest.raises(LogError, match=r"at least 1e-12; row 1 has 1e-13 \(1 of 2 rows\)\. Log the probability"):
        log.with_propensities(np.array([0.5, 1e-13]))


def test_missing_rewards_lets_nan_stand_and_nothing_else():
    columns = with_values(good_columns(), "rewards", {2: NAN, 3: NAN})
    log = BanditLog.from_arrays(**columns, missing_rewards=True)
    np.testing.assert_array_equal(log.rewards, columns["rewards"])
    assert len(BanditLog.from_arrays(**columns, missing_rewards=True, on_bad_rows="drop")) == N
    with pytest.raises(
        LogError, match=r"rewards must be finite and at most 1e.100 in size; row 4 has inf \(1 of 10 rows\)"
    ):
        BanditLog.from_arrays(**with_values(columns, "rewards", {4: INF}), missing_rewards=True)


def test_nan_rewards_are_refused_with_a_word_on_missing_rewards():
    with pytest.raises(LogError, match="missing_rewards=True"):
        BanditLog.from_arrays(**with_values(good_columns(), "rewards", {2: NAN}))


@pytest.mark.parametrize(
    "name", ["rewards", "propensities", "contexts", "action_mask", "logging_probs", "times", "sequences"]
)
@pytest.mark.parametrize("length", [N - 3, N + 3, 0])
def test_columns_of_different_lengths_are_named_with_both(name, length):
    columns = good_columns()
    columns[name] = np.resize(columns[name], (length, *columns[name].shape[1:]))
    with pytest.raises(LogError, match=f"actions has {N} and {name} has {length}"):
        BanditLog.from_arrays(**columns, on_bad_rows="drop")


def test_action_features_of_another_length_are_named_with_both():
    columns = per_action_columns()
    columns["action_features"] = columns["action_features"][:7]
    with pytest.raises(LogError, match="actions has 10 and action_features has 7"):
        BanditLog.from_arrays(**columns)


@pytest.mark.parametrize("on_bad_rows", ["raise", "drop"])
def test_times_must_not_go_backwards(on_bad_rows):
    columns = good_columns() | {"times": np.array([0, 1, 2, 1, 4, 5, 4, 7, 8, 9.0]), "sequences": np.zeros(N)}
    with pytest.raises(
        LogError, match=r"times must not go backwards; row 3 has 1 after 2 \(2 of 10 rows\)\. Sort the log"
    ):
        BanditLog.from_arrays(**columns, on_bad_rows=on_bad_rows)
    del columns["sequences"]
    with pytest.raises(LogError, match="times must not go backwards; row 3"):
        BanditLog.from_arrays(**columns, on_bad_rows=on_bad_rows)


def test_times_may_stand_still():
    assert len(BanditLog.from_arrays(**(good_columns() | {"times": np.zeros(N)}))) == N


@pytest.mark.parametrize("sequences", [[7, 3, 7, 3], ["u", "v", "u", "v"], np.array(["u", "v"] * 2, dtype=object)])
def test_times_may_go_backwards_from_one_sequence_to_another(sequences):
    log = BanditLog.from_arrays([0, 1, 0, 1], [0, 1, 0, 1], [0.5] * 4, times=[5, 1, 6, 2], sequences=sequences)
    assert log.times.tolist() == [5, 1, 6, 2]
    with pytest.raises(LogError, match=r"row 3 has 0 after 1 \(1 of 4 rows\)"):
        BanditLog.from_arrays([0, 1, 0, 1], [0, 1, 0, 1], [0.5] * 4, times=[5, 1, 6, 0], sequences=sequences)


def test_a_dropped_row_may_go_back_in_time():
    columns = with_values(with_values(good_columns(), "times", {2: 100.0}), "rewards", {2: NAN})
    log = BanditLog.from_arrays(**columns, on_bad_rows="drop")
    assert log.times.tolist() == [0, 1, 3, 4, 5, 6, 7, 8, 9]


def test_the_row_of_a_backward_time_is_counted_in_the_table_that_was_given():
    columns = with_values(good_columns(), "rewards", {0: NAN, 1: NAN})
    with pytest.raises(LogError, match="times must not go backwards; row 4 has"):
        BanditLog.from_arrays(**with_values(columns, "times", {4: 0.0}), on_bad_rows="drop")


@pytest.mark.parametrize("on_bad_rows", ["raise", "drop"])
def test_a_log_needs_a_round(on_bad_rows):
    with pytest.raises(LogError, match="the log is empty"):
        BanditLog.from_arrays([], [], [], on_bad_rows=on_bad_rows)


def test_a_log_of_bad_rows_only_is_an_error_even_where_they_are_dropped():
    with pytest.raises(LogError, match="all 3 rows are bad"):
        BanditLog.from_arrays([0, 1, 0], [NAN] * 3, [0.5] * 3, on_bad_rows="drop")


def test_a_bad_action_adds_none_to_the_number_of_actions():
    log = BanditLog.from_arrays([0, 1, 7.5], [0, 1, 1], [0.5] * 3, on_bad_rows="drop")
    assert (len(log), log.n_actions) == (2, 2)


@pytest.mark.parametrize("action", [1e15, 1e18])
def test_an_action_that_cannot_be_a_place_in_a_list_is_an_error_of_ours(action):
    with pytest.raises(SeachangeError, match="action"):
        BanditLog.from_arrays([0, 1, action], [0, 1, 1], [0.5] * 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.zeros((N, 1))}, "actions must have one entry per round"),
        ({"rewards": np.zeros((N, 1))}, "rewards must have one entry per round"),
        ({"propensities": 0.5}, "propensities must have one entry per round"),
        ({"contexts": np.zeros(N)}, r"contexts must have shape \(n, d\)"),
        ({"contexts": np.zeros((N, 2, 2))}, r"contexts must have shape \(n, d\)"),
        ({"action_mask": np.ones(N)}, r"action_mask must have shape \(n, K\)"),
        ({"logging_probs": np.ones(N)}, r"logging_probs must have shape \(n, K\)"),
        ({"action_mask": np.ones((N, 3))}, "action_mask must have one column per action; it has 3 columns for 2"),
        (
            {"logging_probs": np.ones((N, 3)) / 3},
            "logging_probs must have one column per action; it has 3 columns for 2",
        ),
        ({"contexts": None, "action_features": np.zeros((N, 2))}, r"\(n, K, d\)"),
        ({"action_names": ["a", "b", "c"]}, "action_names"),
        ({"context_names": ["age"]}, "context_names"),
        ({"times": np.zeros((N, 2))}, "times"),
        ({"times": 3.0}, "times"),
        ({"sequences": np.zeros((N, 2))}, "sequences"),
        ({"sequences": 3}, "sequences"),
    ],
)
def test_arrays_of_the_wrong_shape_are_named(changes, message):
    with pytest.raises(LogError, match=message):
        BanditLog.from_arrays(**(good_columns() | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": ["boots"] * N}, "actions must be numbers.*from_frame"),
        ({"rewards": ["a"] * N}, "rewards must be numbers"),
        ({"rewards": [1j] * N}, "rewards must be numbers"),
        ({"propensities": [{}] * N}, "propensities must be numbers"),
        ({"contexts": [["a", "b"]] * N}, "contexts must be numbers"),
        ({"contexts": [[1.0], [1.0, 2.0]] * 5}, "contexts"),
        ({"contexts": None, "action_features": [[["a"], ["b"]]] * N}, "action_features"),
        ({"contexts": None, "action_features": [[[1.0], [1.0, 2.0]]] * N}, "action_features"),
        ({"logging_probs": [["a", "b"]] * N}, "logging_probs"),
        ({"logging_probs": [[1.0], [0.5, 0.5]] * 5}, "logging_probs"),
        ({"times": ["yesterday"] * N}, "times must be numbers .* or datetime64"),
        ({"sequences": ["u", None] * 5}, "sequences"),
        ({"sequences": [0, NAN] * 5}, "sequences"),
    ],
)
def test_columns_that_are_not_what_they_should_be_are_named(changes, message):
    with pytest.raises(LogError, match=message):
        BanditLog.from_arrays(**(good_columns() | changes))


@pytest.mark.parametrize(
    ("offsets", "n_rows"),
    [
        ([0, 2, 4], 6),  # too few
        ([0, 2, 4, 6, 8], 6),  # too many
        ([1, 2, 4, 6], 6),  # from 1
        ([0, 2, 4, 5], 6),  # not to the end
        ([0, 2, 2, 6], 6),  # an empty list
        ([0, 4, 2, 6], 6),  # back
        ([], 6),
        ([0.0, 1.5, 4.0, 6.0], 6),
        ([[0, 2, 4, 6]], 6),
    ],
)
def test_offsets_must_rise_from_0_to_the_number_of_rows(offsets, n_rows):
    with pytest.raises(LogError, match="offsets must"):
        BanditLog.from_arrays([0, 1, 0], [0, 1, 0], [0.5] * 3, action_features=(np.ones((n_rows, 1)), offsets))


def test_a_mask_on_ragged_action_features_must_be_as_wide_as_the_longest_list():
    features = (np.ones((5, 1)), [0, 2, 5])
    with pytest.raises(LogError, match="action_mask must have one column per action; it has 2 columns for 3"):
        BanditLog.from_arrays([0, 1], [0, 1], [0.5] * 2, action_features=features, action_mask=np.ones((2, 2)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"on_bad_rows": "ignore"}, 'on_bad_rows must be "raise" or "drop"'),
        ({"action_features": np.zeros((N, 2, 1))}, "not both"),
        ({"n_actions": 0, "action_mask": None, "logging_probs": None}, "n_actions must be at least 1"),
        ({"n_actions": -2, "action_mask": None, "logging_probs": None}, "n_actions must be at least 1"),
        ({"n_actions": 2.5, "action_mask": None, "logging_probs": None}, "n_actions"),
    ],
)
def test_settings_that_cannot_work_are_parameter_errors(changes, message):
    with pytest.raises(ParameterError, match=message):
        BanditLog.from_arrays(**(good_columns() | changes))


def test_a_number_of_actions_that_contradicts_the_action_features_is_named():
    with pytest.raises(LogError, match="n_actions=3, but action_features has 2"):
        BanditLog.from_arrays(**(per_action_columns() | {"n_actions": 3}))


def test_an_error_has_its_fields_and_both_renderings():
    columns = with_values(good_columns(), "propensities", {3: 0, 7: 0})
    with pytest.raises(LogError) as caught:
        BanditLog.from_arrays(**columns)
    problem = caught.value.details
    assert (problem.rule, problem.place, problem.value) == ("propensity-zero", "row 3", "0")
    assert (problem.count, problem.total) == (2, N)
    message = "propensities must be in (0, 1]; row 3 has 0 (2 of 10 rows). Drop those rows with "
    assert str(caught.value) == message + 'on_bad_rows="drop".'
    assert caught.value.shell_text == message + "--drop-bad-rows."
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_every_rule_has_its_own_identifier_and_its_words():
    for name, rule in RULES.items():
        assert rule.id == name
        assert rule.title
        assert rule.evidence
        assert rule.fix.python
        assert rule.fix.shell
