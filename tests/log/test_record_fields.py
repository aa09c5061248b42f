"""Fields that a log always had are asked of every record; those that it lacked at times are not."""

from collections import defaultdict

import polars as pl
import pytest

from log.raw_rounds import ListLog, rounds_of
from seachange.errors import LogError
from seachange.log.encoding import log_from_raw
from seachange.log.features import LISTED_FIELDS
from seachange.log.raw import Pool

FRAME = pl.DataFrame(
    {
        "age": [31.0, 45.0, 28.0, 60.0],
        "city": ["Oslo", "Bergen", "Oslo", "Bergen"],
        "tags": [["new"], ["old"], [], ["new"]],
        "size": [[1.0, 2.0], [2.0, 4.0], [3.0, 1.0], [0.0, 5.0]],
        "income": [1.0, None, 3.0, 5.0],
        "user": [
            {"home": {"floor": floor}, "pet": pet} for floor, pet in ((1, "cat"), (2, None), (5, "dog"), (7, "cat"))
        ],
    }
)
WHOLE = {"age": 1, "city": "Oslo", "tags": [], "size": [1, 2], "user": {"home": {"floor": 3}}}


@pytest.fixture(scope="module")
def spec():
    n = len(FRAME)
    rewards, actions = pl.Series([1.0, 0.0] * (n // 2)), pl.Series([0, 1] * (n // 2))
    return log_from_raw(ListLog([rounds_of(FRAME, action=actions, reward=rewards)])).features


def without(record, *keys):
    return {key: value for key, value in record.items() if key not in keys}


def test_what_the_log_lacked_at_times_may_be_absent(spec):
    marked = {feature.column for feature in spec.shared if feature.marked}
    assert marked == {"income", "user.pet"}
    known = WHOLE | {"income": None, "user": {"home": {"floor": 3}, "pet": None}}
    assert spec.encode_record(WHOLE)[0].tolist() == spec.encode_record(known)[0].tolist()


@pytest.mark.parametrize(("misspelled", "meant"), [({"incom": 3.0}, "income"), ({"user": {"pets": "cat"}}, "user.pet")])
def test_a_misspelled_optional_field_is_refused(spec, misspelled, meant):
    record = WHOLE | misspelled
    record["user"] = WHOLE["user"] | misspelled.get("user", {})
    with pytest.raises(LogError, match=rf"which the log did not have\. Did you mean '{meant}'\?"):
        spec.encode_record(record)


def test_other_extra_fields_are_ignored(spec):
    plain = spec.encode_record(WHOLE)[0].tolist()
    assert spec.encode_record(WHOLE | {"request_id": 7, "income2": 3.0, "reward": 1.0})[0].tolist() == plain
    assert spec.encode_record(WHOLE | {"incom": 3.0, "income": None})[0].tolist() == plain


@pytest.mark.parametrize("column", ["age", "city", "tags", "size"])
def test_what_the_log_always_had_must_be_there_and_may_be_none(spec, column):
    spec.encode_record(WHOLE | {column: None})
    with pytest.raises(LogError, match=rf"age, city, tags, size, user\.home\.floor\); '{column}' is missing\."):
        spec.encode_record(without(WHOLE, column))


@pytest.mark.parametrize("user", [{}, {"home": {}}, {"home": 3}, {"flat": {"floor": 3}}, 3])
def test_nested_fields_must_be_there_too(spec, user):
    with pytest.raises(LogError, match=r"'user\.home\.floor' is missing"):
        spec.encode_record(WHOLE | {"user": user})


@pytest.mark.parametrize("user", [None, {"home": None}, {"home": {"floor": None}}, {"home.floor": None}])
def test_nested_fields_are_missing_where_what_holds_them_is_none(spec, user):
    flat = without(WHOLE, "user") | {"user.home.floor": None}
    assert spec.encode_record(WHOLE | {"user": user})[0].tolist() == spec.encode_record(flat)[0].tolist()


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (without(WHOLE, "age") | {"aeg": 1}, "'age' is missing. There is 'aeg'. Did you mean 'age'?"),
        (without(WHOLE, "city") | {"City": "Oslo"}, "'city' is missing. There is 'City'. Did you mean 'city'?"),
        (
            WHOLE | {"user": {"home": {"flor": 3}}},
            "'user.home.floor' is missing. There is 'user.home.flor'. Did you mean 'user.home.floor'?",
        ),
        ({}, "'age', 'city', 'tags', 'size', 'user.home.floor' are missing. Pass None for an unknown value."),
    ],
)
def test_the_nearest_key_that_the_record_has_is_named(spec, record, said):
    with pytest.raises(LogError) as raised:
        spec.encode_record(record)
    assert said in str(raised.value)


def test_a_record_that_makes_up_what_it_lacks_is_not_an_exception(spec):
    record = defaultdict(float, without(WHOLE, "age"))
    with pytest.raises(LogError, match="'age' is missing"):
        spec.encode_record(record)
    assert "age" not in record


def test_each_action_of_a_list_must_have_the_fields_of_actions():
    offsets, price = [0, 2, 4, 6, 8], [3.0, 5.0, 2.0, 7.0, 4.0, 1.0, 6.0, 8.0]
    pool = Pool(pl.Series(offsets).to_numpy(), pl.DataFrame({"price": price, "stock": [1.0, None] * 4}))
    part = rounds_of(
        pl.DataFrame({"hour": [1.0, 2.0, 3.0, 4.0]}), action=pl.Series([0, 1, 0, 1]),
        reward=pl.Series([1.0, 0.0, 0.0, 1.0]), pool=pool,
    )  # fmt: skip
    spec = log_from_raw(ListLog([part])).features
    spec.encode_record({"hour": 1, "actions": [{"price": 1}, {"price": None, "stock": 3}]})
    with pytest.raises(
        LogError, match=r"each of 'actions' .*\(price\); 'price' is missing from the one at index 1\. There is 'prise'"
    ):
        spec.encode_record({"hour": 1, "actions": [{"price": 1}, {"prise": 1}]})
    with pytest.raises(LogError, match=r"a record must have .*\(hour\); 'hour' is missing"):
        spec.encode_record({"actions": [{"price": 1}]})
    with pytest.raises(LogError, match="a record must be a mapping of columns to values; got a list"):
        spec.encode_record([{"price": 1}])


def test_a_message_lists_a_limited_number_of_fields():
    n = LISTED_FIELDS + 3
    frame = pl.DataFrame({f"x{i}": [1.0, 2.0, 4.0, 3.0] for i in range(n)})
    part = rounds_of(frame, action=pl.Series([0, 1, 0, 1]), reward=pl.Series([1.0, 0.0, 0.0, 1.0]))
    with pytest.raises(LogError, match="'x11', 3 more are missing"):
        log_from_raw(ListLog([part])).features.encode_record({})


def test_a_name_of_very_many_dots_takes_no_longer():
    """Each dot doubled the time: 20 of them took 40 seconds."""
    name = ".".join(["a"] * 500)
    frame = pl.DataFrame({name: [1.0, 2.0, None, 4.0]})
    raw = ListLog([rounds_of(frame, action=pl.Series([0, 1, 0, 1]), reward=pl.Series([1.0, 0.0, 1.0, 0.0]))])
    spec = log_from_raw(raw).features
    assert spec.encode_record({name: 4.0})[0] == pytest.approx(spec.encode_record({"a": {name[2:]: 4.0}})[0])
    assert spec.encode_record({})[0] == pytest.approx(spec.encode_record({name: None})[0])
