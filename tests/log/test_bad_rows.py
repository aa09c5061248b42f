"""Rows that may be bad in any way: which are refused, and what dropping them leaves."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log.logged import assert_equal_logs
from properties import examples
from seachange import BanditLog
from seachange.errors import LogError

NAN, INF = float("nan"), float("inf")
# The properties below decide with plain Python which rows are good, and never ask the code that they check.
ROUNDS = st.lists(
    st.fixed_dictionaries(
        {
            "action": st.sampled_from([0, 1, 2, 2, 1, 0, 3, -1, 0.5, NAN, INF]),
            "reward": st.sampled_from([0, 1, 0.5, -3, 2, NAN, INF, -INF]),
            "propensity": st.sampled_from([0.5, 0.1, 1, 1, 0.3, 0, -0.1, 1.01, NAN, INF]),
            "context": st.sampled_from([(0, 1), (1, 2), (-1, 0.5), (2, 2), (NAN, 1), (1, -INF)]),
            "allowed": st.sampled_from([(1, 1, 1), (1, 1, 1), (1, 0, 1), (0, 1, 0), (0, 0, 0)]),
        }
    ),
    min_size=1,
    max_size=25,
)


def is_good(row):
    return (
        row["action"] in (0, 1, 2)
        and -INF < row["reward"] < INF
        and 0 < row["propensity"] <= 1
        and all(-INF < x < INF for x in row["context"])
        and row["allowed"][int(row["action"])] == 1
    )


def log_of_rows(rows, on_bad_rows):
    return BanditLog.from_arrays(
        [row["action"] for row in rows],
        [row["reward"] for row in rows],
        [row["propensity"] for row in rows],
        contexts=[row["context"] for row in rows],
        action_mask=[row["allowed"] for row in rows],
        n_actions=3,
        on_bad_rows=on_bad_rows,
    )


@settings(deadline=None, max_examples=examples(200))
@given(rows=ROUNDS)
def test_dropping_leaves_the_log_of_the_good_rows_whatever_is_bad(rows):
    good = [row for row in rows if is_good(row)]
    if not good:
        with pytest.raises(LogError, match=f"all {len(rows)} rows are bad"):
            log_of_rows(rows, "drop")
        return
    dropped, expected = log_of_rows(rows, "drop"), log_of_rows(good, "raise")
    assert_equal_logs(dropped, expected)
    np.testing.assert_array_equal(
        np.ones((1, 3), dtype=bool) if dropped.action_mask is None else dropped.action_mask,
        np.ones((1, 3), dtype=bool) if expected.action_mask is None else expected.action_mask,
    )


@settings(deadline=None, max_examples=examples(200))
@given(rows=ROUNDS)
def test_a_log_is_refused_exactly_where_a_row_is_bad(rows):
    if all(is_good(row) for row in rows):
        assert len(log_of_rows(rows, "raise")) == len(rows)
        return
    with pytest.raises(LogError) as caught:
        log_of_rows(rows, "raise")
    row = int(re.search(r"row (\d+) has", str(caught.value)).group(1))
    assert not is_good(rows[row])


def test_dropping_every_row_is_never_the_fix():
    with pytest.raises(LogError, match="divide percentages by 100") as error:
        BanditLog.from_arrays([0, 1, 0], [1, 0, 1], [40.0, 30.0, 30.0])
    assert "on_bad_rows" not in str(error.value)
