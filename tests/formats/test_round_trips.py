"""Tables of any content, written by the usual tools: every row that is accepted is the row that was written."""

import io
import json

import hypothesis.strategies as st
import pandas
import polars
import pyarrow.csv
import pytest
from hypothesis import given, settings

from formats.whole import whole
from seachange.formats.csv import CsvLog
from seachange.formats.json_lines import JsonLinesLog
from seachange.formats.parquet import ParquetLog

texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\0"), min_size=1, max_size=12)
# Pandas and pyarrow each have texts of their own for these; polars writes them as numbers.
finite = st.floats(allow_nan=False, allow_infinity=False)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "action": st.sampled_from(["red", "a,b", 'say "hi"', "new\nline", "é", " x"]),
            "reward": finite,
            "propensity": st.floats(1e-3, 1),
            "count": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            "city": st.one_of(st.none(), texts.map(lambda text: "t" + text)),
            "flag": st.booleans(),
        }
    ),
    min_size=1,
    max_size=30,
)
SCHEMA = {
    "action": polars.String,
    "reward": polars.Float64,
    "propensity": polars.Float64,
    "count": polars.Int64,
    "city": polars.String,
    "flag": polars.Boolean,
}


def pandas_csv(frame):
    table = frame.to_pandas()
    table["count"] = pandas.array(frame["count"].to_list(), dtype="Int64")
    return table.to_csv(index=False).encode()


def pyarrow_csv(frame):
    buffer = io.BytesIO()
    pyarrow.csv.write_csv(frame.to_arrow(), buffer)
    return buffer.getvalue()


CSV_WRITERS = {"polars": lambda frame: frame.write_csv().encode(), "pandas": pandas_csv, "pyarrow": pyarrow_csv}


def assert_same(found, frame):
    assert {*found.columns} == {*frame.columns}
    assert found.select(frame.columns).rows() == frame.rows()


@pytest.mark.parametrize("writer", CSV_WRITERS)
@settings(max_examples=30, deadline=None)
@given(content=rows)
def test_csv_of_any_content_is_read_as_it_was_written(tmp_path_factory, writer, content):
    frame = polars.DataFrame(content, schema=SCHEMA)
    path = tmp_path_factory.mktemp("csv") / "log.csv"
    path.write_bytes(CSV_WRITERS[writer](frame))
    found, _, rejected = whole(CsvLog(path))
    assert rejected == []
    assert_same(found, frame)


@settings(max_examples=30, deadline=None)
@given(content=rows, nested=texts)
def test_json_lines_of_any_content_are_read_as_they_were_written(tmp_path_factory, content, nested):
    path = tmp_path_factory.mktemp("json") / "log.jsonl"
    for ascii_only in (True, False):
        held = [row | {"user": {"name": nested, "of": [row["count"]]}} for row in content]
        lines = "\n".join(json.dumps(row, ensure_ascii=ascii_only) for row in held)
        path.write_text(lines, encoding="utf-8", newline="\n")
        found, _, rejected = whole(JsonLinesLog(path))
        assert rejected == []
        assert [row["user"] for row in found.rows(named=True)] == [row["user"] for row in held]
        assert_same(found.drop("user"), polars.DataFrame(content, schema=SCHEMA))


@settings(max_examples=30, deadline=None)
@given(content=rows)
def test_parquet_of_any_content_is_read_as_it_was_written(tmp_path_factory, content):
    frame = polars.DataFrame(content, schema=SCHEMA)
    path = tmp_path_factory.mktemp("parquet") / "log.parquet"
    frame.write_parquet(path)
    assert_same(whole(ParquetLog(path))[0], frame)
