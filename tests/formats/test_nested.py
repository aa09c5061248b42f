"""Places that are fields inside of records."""

import json

import numpy as np
import polars
import pytest

import seachange as sc
from seachange.errors import LogError
from seachange.reading import open_raw

PLACES = {"action": "item.id", "reward": "event.outcome.click", "propensity": "event.p"}


def records(n=300):
    rng = np.random.default_rng(0)
    return [
        {
            "item": {"id": f"i{rng.integers(3)}", "price": float(rng.normal())},
            "event": {"outcome": {"click": int(rng.integers(2)), "speed": float(rng.normal())}, "p": 0.5},
            "user": {"age": int(rng.integers(18, 80))},
        }
        for _ in range(n)
    ]


def written(folder, suffix, rows):
    path = folder / f"log.{suffix}"
    if suffix == "parquet":
        polars.DataFrame(rows).write_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(params=["jsonl", "parquet"])
def suffix(request):
    return request.param


def test_fields_of_records_are_places_and_the_rest_of_the_records_features(tmp_path, suffix):
    rows = records()
    log = sc.read_log(written(tmp_path, suffix, rows), PLACES)
    assert [log.action_names[action] for action in log.actions] == [row["item"]["id"] for row in rows]
    assert log.rewards.tolist() == [row["event"]["outcome"]["click"] for row in rows]
    assert set(log.propensities) == {0.5}
    assert log.context_names == ("item.price", "event.outcome.speed", "user.age")


def test_the_log_is_that_of_the_flat_table(tmp_path, suffix):
    rows = records()
    flat = [
        {
            "item.id": row["item"]["id"], "event.outcome.click": row["event"]["outcome"]["click"],
            "event.p": row["event"]["p"], "item.price": row["item"]["price"],
            "event.outcome.speed": row["event"]["outcome"]["speed"], "user.age": row["user"]["age"],
        }
        for row in rows
    ]  # fmt: skip
    nested = sc.read_log(written(tmp_path, suffix, rows), PLACES)
    expected = sc.read_log(written(tmp_path / "..", suffix, flat), PLACES)
    assert nested.context_names == expected.context_names
    assert np.array_equal(nested.contexts, expected.contexts)
    assert np.array_equal(nested.actions, expected.actions)


def test_a_model_reads_the_next_file_and_decides_on_records_as_they_are(tmp_path, suffix):
    rows = records()
    path = written(tmp_path, suffix, rows)
    for columns in (PLACES, {**PLACES, "contexts": ["user.age", "event.outcome.speed"]}):
        log = sc.read_log(path, columns)
        assert np.array_equal(sc.read_log(path, features=log.features).contexts, log.contexts)
        assert log.features.encode_record(rows[7])[0] == pytest.approx(log.contexts[7])


def test_contexts_may_be_fields_too(tmp_path, suffix):
    log = sc.read_log(written(tmp_path, suffix, records()), {**PLACES, "contexts": ["user.age"]})
    assert log.context_names == ("user.age",)


def test_a_column_of_that_very_name_stands_before_a_field(tmp_path, suffix):
    rows = [{**row, "item.id": f"flat {t % 2}"} for t, row in enumerate(records())]
    raw = open_raw(written(tmp_path, suffix, rows), PLACES)
    (part,) = raw.parts()
    assert part.action.unique().sort().to_list() == ["flat 0", "flat 1"]
    assert part.features.schema["item"] == polars.Struct({"id": polars.String, "price": polars.Float64})


def test_a_record_of_which_nothing_is_left_is_not_a_feature(tmp_path, suffix):
    rows = [{"item": {"id": t % 2}, "reward": t % 3 // 2, "age": t % 7} for t in range(100)]
    (part,) = open_raw(written(tmp_path, suffix, rows), {"action": "item.id"}).parts()
    assert part.features.columns == ["age"]
    assert part.action.to_list() == [t % 2 for t in range(100)]


@pytest.mark.parametrize("name", ["item.idd", "itm.id"])
def test_a_field_that_is_nowhere_is_answered_with_the_nearest(tmp_path, suffix, name):
    with pytest.raises(LogError, match=rf"neither a column '{name}' nor a nested field .* Did you mean 'item\.id'\?"):
        open_raw(written(tmp_path, suffix, records()), {**PLACES, "action": name})


def test_a_field_is_missing_in_lines_where_its_parent_is_not_a_record(tmp_path):
    rows = [{"item": {"id": "a", "x": 1}, "reward": 1}] * 50 + [{"item": "b", "reward": 0}, {"reward": 0}]
    (part,) = open_raw(written(tmp_path, "jsonl", rows), {"action": "item.id"}).parts()
    assert part.action.to_list() == ["a"] * 50 + [None, None]
    assert part.features["item"].to_list() == ['{"x":1}'] * 50 + ["b", None]


def test_lines_that_are_read_one_by_one_have_the_same_fields(tmp_path):
    path = written(tmp_path, "jsonl", records(100))
    path.write_text(path.read_text() + "no json\n")
    (part,) = open_raw(path, PLACES).parts()
    assert part.action.to_list() == [row["item"]["id"] for row in records(100)]
    assert [each.line for each in part.rejected] == [101]


def test_every_file_of_a_data_set_must_have_the_field(tmp_path):
    written(tmp_path, "parquet", records()).rename(tmp_path / "1.parquet")
    others = [{**row, "item": {"price": 1.0}} for row in records()]
    written(tmp_path, "parquet", others).rename(tmp_path / "2.parquet")
    with pytest.raises(LogError, match=r"'item\.id' is not in '2\.parquet'"):
        open_raw(tmp_path, PLACES)


@pytest.mark.parametrize("write", ["write_ndjson", "write_parquet"])
def test_a_table_without_an_action_tells_the_fields_inside_of_its_records(tmp_path, write):
    shown = [{"item": {"id": 7}, "price": 3}, {"item": {"id": 8}, "price": 4}]
    getattr(polars.DataFrame({"at": [1, 2], "shown": shown}), write)(tmp_path / "log")
    fields = r"the table has at, shown\.item\.id, shown\.price\."
    with pytest.raises(LogError, match=rf"column holds the action or the reward; {fields}"):
        sc.read_log(tmp_path / "log")
