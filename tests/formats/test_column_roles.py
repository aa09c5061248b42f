"""Columns found by their usual names, and everything else asked for."""

import pytest

from seachange.errors import LogError
from seachange.formats.column_roles import find_roles


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("action", "item_id"), ("action", "ItemID"), ("action", "arm"), ("action", "variant"), ("action", "ad id"),
        ("reward", "click"), ("reward", "Clicked"), ("reward", "converted"), ("reward", "revenue"), ("reward", "y"),
        ("time", "timestamp"), ("time", "ts"), ("time", "event_time"), ("time", "Date"),
        ("propensity", "pscore"), ("propensity", "P-Score"), ("propensity", "Propensity Score"),
        ("sequence", "sequence_id"),
    ],
)  # fmt: skip
def test_usual_names_are_found_in_any_spelling(word, name):
    others = {"action": "action", "reward": "reward"}
    others.pop(word, None)
    roles = find_roles([*others.values(), name, "age"], {})
    assert roles.columns[word] == name
    assert roles.found == roles.columns


@pytest.mark.parametrize("name", ["user_id", "user", "customer", "id", "age", "action_count", "rewarded_by"])
def test_other_names_are_not_taken_for_anything(name):
    roles = find_roles(["action", "reward", name], {})
    assert roles.columns == {"action": "action", "reward": "reward"}


def test_the_word_itself_goes_before_its_likes():
    assert find_roles(["action", "reward", "click", "item", "Reward"], {}).columns == {
        "action": "action", "reward": "reward",
    }  # fmt: skip


def test_two_candidates_are_refused_by_name_with_the_cure():
    with pytest.raises(LogError, match=r"the reward could be 'click' or 'revenue'.*--columns reward=click"):
        find_roles(["action", "click", "revenue"], {})
    assert find_roles(["action", "click", "revenue"], {"reward": "revenue"}).found == {"action": "action"}


def test_a_column_that_is_asked_for_as_a_context_is_not_taken_for_anything_else():
    assert "time" not in find_roles(["action", "reward", "date"], {"contexts": ["date"]}).columns


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"rewrad": "click"}, r"has no 'rewrad'. Did you mean 'reward'\?"),
        ({"reward": "clik"}, r"no column 'clik'.*Did you mean 'click'\?"),
        ({"contexts": ["aeg"]}, r"no column 'aeg'.*Did you mean 'age'\?"),
        ({"reward": "nothing"}, r"no column 'nothing'; it has action, click, age\.$"),
        ({"reward": "action"}, "cannot be both action and reward"),
    ],
)
def test_a_wrong_word_is_answered_with_the_nearest_right_one(columns, message):
    with pytest.raises(LogError, match=message):
        find_roles(["action", "click", "age"], {"action": "action"} | columns)


def test_all_missing_columns_are_named_at_once():
    with pytest.raises(LogError, match=r"column holds the action or the reward; the table has age.*--columns action="):
        find_roles(["age"], {})
