"""Columns of JSON values keep what the values are."""

import polars as pl
import pytest

from seachange.formats.value_types import Shape, clock_of, frame_of

OBJECT = pl.Struct({"a": pl.Int64, "b": pl.String})


def column(*values):
    shape = Shape()
    for value in values:
        shape = shape.with_value({"x": value})
    return frame_of([{"x": value} for value in values], shape)["x"]


@pytest.mark.parametrize(
    ("values", "dtype", "seen"),
    [
        ((1, None, 2), pl.Int64, [1, None, 2]),
        ((1, 2.5), pl.Float64, [1.0, 2.5]),
        ((1, 2**53 + 1), pl.Int64, [1, 2**53 + 1]),
        ((2**53 + 1, 0.5), pl.String, [str(2**53 + 1), "0.5"]),
        ((0.5, 1, 2**53 + 1), pl.String, ["0.5", "1", str(2**53 + 1)]),
        ((2**63 - 1, -(2**63)), pl.Int64, [2**63 - 1, -(2**63)]),
        ((2**63,), pl.String, [str(2**63)]),
        ((True, None), pl.Boolean, [True, None]),
        ((True, 1), pl.String, ["true", "1"]),
        (("a", 1, 2.0, 0.5), pl.String, ["a", "1", "2", "0.5"]),
        (([1], [2.5, None], []), pl.List(pl.Float64), [[1.0], [2.5, None], []]),
        (([1], ["a"]), pl.List(pl.String), [["1"], ["a"]]),
        (({"a": 1}, {"b": "c"}), OBJECT, [{"a": 1, "b": None}, {"a": None, "b": "c"}]),
        (({}, 1), pl.String, ["{}", "1"]),
        (({}, None), pl.Null, [None, None]),
        ((None,), pl.Null, [None]),
    ],
)  # fmt: skip
def test_a_column_has_one_type_and_loses_nothing(values, dtype, seen):
    read = column(*values)
    assert (read.dtype, read.to_list()) == (dtype, seen)


def test_fields_without_a_name_keep_it():
    assert frame_of([{"": 1, "a": 2}], Shape().with_value({"": 1, "a": 2})).columns == ["", "a"]


def test_a_number_that_is_not_a_time_does_not_decide_the_unit():
    assert clock_of(pl.Series("time", [1e29, 2.0]), "log") == "number"
    assert clock_of(pl.Series("time", [1e29, 1.7e18, 1.7e18]), "log") == "ns"
    assert clock_of(pl.Series("time", [3, 9007199254740993]), "log") == "number"
