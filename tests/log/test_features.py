"""Raw columns to features: what each kind becomes, the same for a row as for a table."""

import datetime as dt
import json
import math
import zlib
from itertools import pairwise

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seachange as sc
from log.raw_rounds import ListLog, fitted, rounds_of
from properties import examples
from seachange.errors import LogError, SeachangeWarning
from seachange.log import feature_fitting
from seachange.log.encoding import fill, log_from_raw
from seachange.log.feature_fitting import fit_features
from seachange.log.features import Category, FeatureSpec, Flag, Hashed, Number

pytestmark = pytest.mark.small

NUMBERS = st.one_of(
    st.none(), st.floats(-1e6, 1e6), st.sampled_from([math.nan, 0.0, -0.0, 0.1, 1e-9, 1e15]), st.floats(-1e30, 1e30)
)
TEXTS = st.one_of(st.none(), st.sampled_from(["Oslo", "Bergen", "other", "", "Å", "é 漢"]), st.text(max_size=3))
ROWS = st.fixed_dictionaries(
    {
        "age": NUMBERS,
        "visits": st.one_of(st.none(), st.integers(-(2**62), 2**62)),
        "vip": st.one_of(st.none(), st.booleans()),
        "city": TEXTS,
        "tags": st.one_of(st.none(), st.lists(TEXTS, max_size=4)),
        "v": st.one_of(st.none(), st.lists(NUMBERS, min_size=2, max_size=2)),
        "user": st.one_of(
            st.none(), st.fixed_dictionaries({"height": NUMBERS, "home": st.fixed_dictionaries({"town": TEXTS})})
        ),
        "since": st.one_of(st.none(), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))),
        "lasted": st.one_of(st.none(), st.timedeltas(dt.timedelta(0), dt.timedelta(days=400))),
    }
)
SCHEMA = {
    "age": pl.Float64, "visits": pl.Int64, "vip": pl.Boolean, "city": pl.String, "tags": pl.List(pl.String),
    "v": pl.List(pl.Float64), "user": pl.Struct({"height": pl.Float64, "home": pl.Struct({"town": pl.String})}),
    "since": pl.Datetime("us"), "lasted": pl.Duration("us"),
}  # fmt: skip


def contexts_of(spec, frame):
    rows = np.empty((len(frame), len(spec.context_names)), dtype=spec.precision)
    fill(spec.shared, frame, rows)
    return rows


@settings(deadline=None, max_examples=examples(150))
@given(rows=st.lists(ROWS, min_size=1, max_size=12), later=st.lists(ROWS, max_size=6), single=st.booleans())
def test_records_one_by_one_are_the_table_to_the_bit(rows, later, single):
    schema = SCHEMA | ({"age": pl.Float32, "visits": pl.Float32} if single else {})
    spec = fitted(pl.DataFrame(rows, schema=schema, strict=False))
    table = pl.DataFrame([*rows, *later], schema=schema, strict=False)
    encoded = contexts_of(spec, table)
    assert encoded.shape == (len(table), len(spec.context_names))
    for row, record in zip(encoded, table.to_dicts(), strict=True):
        context, mask = spec.encode_record(record)
        assert (context.dtype, mask) == (encoded.dtype, None)
        assert context.tobytes() == row.tobytes()


@settings(deadline=None, max_examples=examples(60))
@given(
    rows=st.lists(ROWS, min_size=1, max_size=20),
    cuts=st.lists(st.integers(0, 20), max_size=3),
)
def test_parts_are_fitted_like_the_whole(rows, cuts):
    table = pl.DataFrame(rows, schema=SCHEMA, strict=False)
    bounds = sorted({0, len(table), *(cut for cut in cuts if cut < len(table))})
    parts = [rounds_of(table[a:b]) for a, b in pairwise(bounds)]
    whole, pieces = fitted(table), fit_features(ListLog(contexts=()), iter(parts))
    assert pieces.context_names == whole.context_names
    for one, two in zip(whole.shared, pieces.shared, strict=True):
        if isinstance(one, Number):
            size = max(abs(one.mean), one.scale)
            assert abs(one.mean - two.mean) <= 1e-9 * size
            assert abs(one.scale - two.scale) <= 1e-6 * size
        else:
            assert one == two


def test_numbers_are_standardised_by_mean_and_population_deviation():
    spec = fitted(pl.DataFrame({"age": [20.0, 30.0, 70.0]}))
    assert spec.shared == (Number("age", 40.0, pytest.approx(np.std([20, 30, 70]))),)
    assert contexts_of(spec, pl.DataFrame({"age": [40.0]})).tolist() == [[0.0]]


def test_a_number_far_from_zero_keeps_its_deviation():
    values = 1e9 + np.random.default_rng(0).normal(size=1000)
    (age,) = fitted(pl.DataFrame({"age": values})).shared
    assert age.scale == pytest.approx(np.std(values), rel=1e-9)


@pytest.mark.parametrize("values", [[0, 1, 1], [0.0, 1.0, 1.0], [False, True, True], [None, 1, 0]])
def test_zeros_and_ones_stay_as_they_are(values):
    spec = fitted(pl.DataFrame({"vip": values}))
    assert spec.shared == (Flag("vip", marked=None in values),)
    assert contexts_of(spec, pl.DataFrame({"vip": values}))[:, 0].tolist() == [float(value or 0) for value in values]


def test_a_missing_number_is_the_mean_and_is_marked_where_the_log_had_any():
    spec = fitted(pl.DataFrame({"age": [1.0, None, 3.0, math.nan], "hour": [1.0, 2.0, 3.0, 4.0]}))
    assert spec.context_names == ("age", "age missing", "hour")
    later = pl.DataFrame({"age": [1.0, None, 3.0, math.nan], "hour": [1.0, 2.0, 3.0, None]})
    assert contexts_of(spec, later).tolist() == [
        [-1.0, 0.0, pytest.approx(-1.3416407864998738)],
        [0.0, 1.0, pytest.approx(-0.4472135954999579)],
        [1.0, 0.0, pytest.approx(0.4472135954999579)],
        [0.0, 1.0, 0.0],
    ]
    assert spec.encode_record({"hour": None})[0].tolist() == [0.0, 1.0, 0.0]


def test_texts_have_a_feature_for_each_frequent_value_and_one_for_the_others():
    spec = fitted(pl.DataFrame({"city": ["Oslo"] * 4 + ["Bergen"] * 3 + ["Molde"] * 2}))
    assert spec.context_names == ("city=Oslo", "city=Bergen", "city=other")
    seen = pl.DataFrame({"city": ["Bergen", "Molde", "Paris", "other", None]})
    assert contexts_of(spec, seen).tolist() == [[0, 1, 0], *[[0, 0, 1]] * 4]


def test_missing_texts_are_marked_where_the_log_had_any():
    spec = fitted(pl.DataFrame({"city": ["Oslo"] * 3 + [None]}))
    assert spec.context_names == ("city=Oslo", "city=other", "city missing")
    assert spec.encode_record({"city": None})[0].tolist() == [0, 0, 1]
    assert spec.encode_record({"city": "Rome"})[0].tolist() == [0, 1, 0]


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["3", "5"]), pl.String])
def test_whole_numbers_can_be_categories(dtype):
    spec = fitted(pl.DataFrame({"zone": ["3", "5"] * 5}, schema={"zone": dtype}))
    assert spec.context_names == ("zone=3", "zone=5", "zone=other")
    for same in ("5", 5, 5.0, np.int64(5)):
        assert spec.encode_record({"zone": same})[0].tolist() == [0, 1, 0]
    assert contexts_of(spec, pl.DataFrame({"zone": [5, 4]})).tolist() == [[0, 1, 0], [0, 0, 1]]


def test_a_category_has_at_most_fifty_values_the_most_frequent():
    values = [f"v{i:02}" for i in range(60) for _ in range(3 + i)]
    (city,) = fitted(pl.DataFrame({"city": values})).shared
    assert city == Category("city", tuple(f"v{i:02}" for i in range(59, 9, -1)))


def test_past_a_thousand_values_texts_are_hashed_by_crc32():
    values = [f"user {i}" for i in range(1001)] * 2
    spec = fitted(pl.DataFrame({"user": values}))
    assert spec.shared == (Hashed("user", 64),)
    encoded = contexts_of(spec, pl.DataFrame({"user": values}))
    assert np.argmax(encoded, axis=1).tolist() == [zlib.crc32(value.encode()) % 64 for value in values]
    assert (encoded.sum(axis=1) == 1).all()
    assert fitted(pl.DataFrame({"user": values[:1000]})).shared[0].values == ()


def test_the_hash_is_crc32_by_its_published_check_value():
    spec = FeatureSpec("csv", {}, ("a", "b"), (Hashed("user", 1 << 16),))
    assert int(spec.encode_record({"user": "123456789"})[0].argmax()) == 0xCBF43926 % (1 << 16)


def test_lists_of_texts_are_several_at_once():
    spec = fitted(pl.DataFrame({"tags": [["red", "big"], ["red"], [], ["big", "red", "red"], ["big"], None, ["odd"]]}))
    assert spec.context_names == ("tags=red", "tags=big", "tags=other", "tags missing")
    assert [spec.encode_record({"tags": tags})[0].tolist() for tags in (["big", "new"], [], None, ["red", "red"])] == [
        [0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0],
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [pl.List(pl.Float64), pl.Array(pl.Float64, 2)])
def test_lists_of_numbers_of_one_length_are_numbers(dtype):
    frame = pl.DataFrame({"v": [[1.0, 5.0], [3.0, None]]}, schema={"v": dtype})
    spec = fitted(frame)
    assert spec.context_names == ("v[0]", "v[1]", "v[1] missing")
    assert contexts_of(spec, frame).tolist() == [[-1, 0, 0], [1, 0, 1]]


def test_lists_of_numbers_of_other_lengths_are_not_features():
    with pytest.warns(SeachangeWarning, match=r"'v' \(lists of numbers of different lengths\)"):
        assert fitted(pl.DataFrame({"v": [[1.0, 5.0], [3.0]]})).shared == ()


def test_nested_columns_have_names_with_dots_and_records_may_nest_or_not():
    frame = pl.DataFrame({"user": [{"age": 1.0, "home": {"town": "Oslo"}}, {"age": 3.0, "home": {"town": "Oslo"}}] * 3})
    spec = fitted(frame)
    assert spec.context_names == ("user.age", "user.home.town=Oslo", "user.home.town=other")
    assert spec.holders == ("user",)
    records = [
        {"user": {"age": 3, "home": {"town": "Oslo"}}},
        {"user.age": 3, "user.home.town": "Oslo"},
        {"user": {"age": 3, "home.town": "Oslo"}},
    ]
    for record in records:
        assert spec.encode_record(record)[0].tolist() == [1, 1, 0]


def test_a_column_of_numbers_here_and_texts_there_is_a_category():
    parts = [rounds_of(pl.DataFrame({"zone": values})) for values in ([1, 2] * 3, ["a", "2"] * 3, [2, 2, 2])]
    spec = fit_features(ListLog(), parts)
    assert spec.context_names == ("zone=2", "zone=a", "zone=other")
    assert contexts_of(spec, pl.DataFrame({"zone": [2.0, 1.0]})).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_a_column_that_only_some_parts_have_is_missing_in_the_others():
    parts = [rounds_of(pl.DataFrame({"age": [1.0, 3.0]})), rounds_of(pl.DataFrame({"hour": [1.0, 2.0]}))]
    spec = fit_features(ListLog(), parts)
    assert spec.context_names == ("age", "age missing", "hour", "hour missing")
    log = log_from_raw(ListLog(parts), spec)
    assert log.contexts[:, [1, 3]].tolist() == [[0, 1], [0, 1], [1, 0], [1, 0]]


def test_features_of_one_name_are_distinguished():
    spec = fitted(pl.DataFrame({"age": [1.0, None, 3.0], "age missing": [5.0, 6.0, 9.0]}))
    assert spec.context_names == ("age", "age missing", "age missing (2)")


def test_a_spec_is_json_and_comes_back():
    spec = fitted(pl.DataFrame({"age": [0.1, None, 3.0], "city": ["a"] * 3, "u": [{"t": ["x"] * 3}] * 3}))
    assert msgspec.json.decode(msgspec.json.encode(spec), type=FeatureSpec) == spec


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"age": "old"}, "'age' must be a number; the record has 'old'"),
        ({"age": math.inf}, "'age' must be finite"),
        ({"age": {}}, "'age' must be a number"),
        ({"age": 1, "tags": "red"}, "'tags' must be a list; the record has 'red'"),
        ({"age": 1, "tags": [], "v": 3}, "'v' must be a list of numbers; the record has 3"),
        ([1, 2], "a record must be a mapping of columns to values; got a list"),
    ],
)
def test_a_record_that_cannot_be_encoded_is_an_error_that_names_the_column(record, message):
    frame = pl.DataFrame({"age": [1.0, 2.0], "tags": [["x"], ["y"]], "v": [[1.0, 2.0], [2.0, 4.0]]})
    with pytest.raises(LogError, match=message):
        fitted(frame).encode_record(record)


def test_a_later_table_of_another_type_is_an_error_that_names_the_column():
    spec = fitted(pl.DataFrame({"age": [1.0, 2.0], "city": ["a", "b"]}))
    with pytest.raises(LogError, match="column 'age' must hold numbers; it holds String"):
        contexts_of(spec, pl.DataFrame({"age": ["1", "2"], "city": ["a", "b"]}))


def test_the_number_of_distinct_values_is_counted_over_all_parts(monkeypatch):
    monkeypatch.setattr(feature_fitting, "MOST_DISTINCT", 5)
    parts = [rounds_of(pl.DataFrame({"city": [f"{name}{i}" for i in (0, 1, 2, 0)] * 10})) for name in "ab"]
    assert fit_features(ListLog(), parts).shared == (Hashed("city", 64),)
    assert isinstance(fit_features(ListLog(), parts[:1]).shared[0], Category)


def test_a_frame_read_with_the_features_of_another_is_encoded_by_them():
    table = {"action": ["a", "b"] * 3, "reward": [0, 1] * 3, "propensity": [0.5] * 6}
    first = sc.BanditLog.from_frame(
        pl.DataFrame(table | {"age": [1.0, 3.0] * 3, "more": [1, 2, 3, 4, 5, 7]}), {"contexts": "age"}
    )
    later = sc.BanditLog.from_frame(pl.DataFrame(table | {"age": [5.0] * 6}), features=first.features)
    assert later.contexts[:, 0].tolist() == [3.0] * 6
    assert later[1:].features is first.features
    assert later.split(0.5)[1].take(np.array([1])).with_rewards(np.ones(1)).features is first.features
    with pytest.raises(LogError, match="no column 'age'"):
        sc.BanditLog.from_frame(pl.DataFrame(table), features=first.features)
    with pytest.raises(LogError, match="the features need the column 'age', which this log does not have"):
        log_from_raw(ListLog([rounds_of(pl.DataFrame({"hour": [1.0, 2.0]}))]), first.features)


def test_the_texts_of_a_csv_are_records_too(tmp_path):
    generator = np.random.default_rng(0)
    words = {"age": ["31", " 7.5", "", "n/a", "1e2"], "back": ["yes", "no", "NA", "Yes"], "city": ["Oslo", "Rome", ""]}
    rows = [{name: str(generator.choice(texts)) for name, texts in words.items()} for _ in range(60)]
    lines = ["action,reward,propensity,age,back,city"]
    lines += [f"{i % 2},1,0.5,{row['age']},{row['back']},{row['city']}" for i, row in enumerate(rows)]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    log = sc.read_log(tmp_path / "log.csv")
    np.testing.assert_array_equal([log.features.encode_record(row)[0] for row in rows], log.contexts)


def test_a_record_of_a_table_with_decimal_commas_is_read_as_its_row(tmp_path):
    rows = [(f"{i % 7},{i % 9 + 1}", f"{i % 2},0") for i in range(60)]
    path = tmp_path / "log.csv"
    path.write_text("action;reward;x;f\n" + "".join(f"{'ab'[i % 2]};1;{x};{f}\n" for i, (x, f) in enumerate(rows)))
    log = sc.read_log(path, {"contexts": ["x", "f"]})
    assert [feature.comma for feature in log.features.shared] == [True, True]
    for (x, f), context in zip(rows, log.contexts, strict=True):
        np.testing.assert_array_equal(log.features.encode_record({"x": x, "f": f})[0], context)
    np.testing.assert_array_equal(log.features.encode_record({"x": 0.1, "f": True})[0], [log.contexts[0][0], 1])
    with pytest.raises(LogError, match=r"'x' must be a number; the record has '1\.5'"):
        log.features.encode_record({"x": "1.5", "f": "1,0"})


def test_flags_have_one_text_in_tables_and_records(tmp_path):
    path = tmp_path / "log.jsonl"
    values = [True, "x", False, 2.0, 1e20, 1e-7] * 5
    path.write_text("".join(f'{{"action":{i % 2},"reward":1,"m":{json.dumps(m)}}}\n' for i, m in enumerate(values)))
    log = sc.read_log(path, {"contexts": ["m"]})
    assert set(log.features.shared[0].values) == {"true", "x", "false", "2", "100000000000000000000", "0.0000001"}
    for value, context in zip(values, log.contexts, strict=True):
        np.testing.assert_array_equal(log.features.encode_record({"m": value})[0], context)
