"""Damaged tables: every round that is read stands in its line, and every line is read or rejected."""

import csv
import io
import json

import polars
import pytest

from fuzz.accidents import same, survive
from seachange.log.readers.csv import CsvLog
from seachange.log.readers.json_lines import JsonLinesLog
from seachange.log.readers.parquet import ParquetLog

ROUNDS = {
    "time": [f"2026-03-0{i}T10:00:0{i}Z" for i in range(1, 10)],
    "action": ["lamps", "boots", 'the "best", really', "boots", "lamps", "é", "coats", "boots", "x"],
    "reward": [0, 1, 0, 0, 1, 1, 0, 1, 0],
    "propensity": [0.25, 0.5, 0.125, 1.0, 0.75, 0.5, 1e-3, 0.5, 0.25],
    "age": [31, 45, None, 27, 19, 64, 33, 28, 50],
    "city": ["Oslo", "Rome", None, "Paris, Texas", "New\nYork", "Bonn", "Oslo", "Rome", ""],
    "member": [True, False, True, True, None, False, True, False, True],
}
TABLE = polars.DataFrame(ROUNDS)
NUMBERED = TABLE.with_columns(action=polars.Series([3, 1, 2, 1, 3, 1, 2, 10, 3]), time=polars.int_range(1, 10))
PLAIN = NUMBERED.with_columns(city=polars.lit("Oslo"))
CSV = {
    "comma": TABLE.write_csv().encode(),
    "semicolon": NUMBERED.write_csv(separator=";", line_terminator="\r\n").encode(),
    "tab": PLAIN.write_csv(separator="\t").encode(),
    "plain": PLAIN.write_csv().encode(),
}
NESTED = NUMBERED.with_columns(
    user=polars.struct(polars.col("age"), polars.col("city"), tags=polars.lit(["a", "b"])), city=polars.lit("é")
)
JSON = {"flat": TABLE.write_ndjson().encode(), "nested": NESTED.write_ndjson().encode()}


LONG = pytest.mark.long


def held(log, part, row):
    """What was read of a round, by column; whether it is a feature and may be missing."""
    for word, place in log.columns.items():
        yield place, getattr(part, word)[row], False
    for name, value in part.features.row(row, named=True).items():
        yield name, value, True


def each_line_once(parts):
    """The lines that were read or rejected, each only once."""
    taken = [line for part in parts for line in part.lines.tolist()]
    refused = [one.line for part in parts for one in part.rejected]
    assert taken == sorted(taken)
    assert len({*taken, *refused}) == len(taken) + len(refused)
    return {*taken, *refused}


def check_csv(damaged, log, parts):
    lines = damaged.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    head = next(i for i, line in enumerate(lines) if line.strip())
    separator = log._headers[log.paths[0]].separator
    names = [name.strip() for name in next(csv.reader([lines[head].decode()], delimiter=separator))]
    seen = each_line_once(parts)
    if b'"' not in damaged:
        assert seen == {i + 1 for i in range(head + 1, len(lines)) if lines[i].removesuffix(b"\r")}
    for part in parts:
        for row, line in enumerate(part.lines.tolist()):
            rest = io.StringIO(b"\n".join(lines[line - 1 :]).decode(errors="replace"), newline="")
            fields = dict(zip(names, next(csv.reader(rest, delimiter=separator)), strict=True))
            for name, value, feature in held(log, part, row):
                assert same(fields[name].replace("\r\n", "\n"), value, feature=feature), (line, name, fields, value)


def like(found, value, feature):
    """Whether ``value`` is what a JSON document has, where the columns of a table may be missing in part."""
    if isinstance(value, dict):
        return isinstance(found, dict) and all(like(found.get(key), inner, True) for key, inner in value.items())
    if isinstance(value, list):
        return len(found) == len(value) and all(map(like, found, value, [True] * len(value)))
    if found is None or value is None:
        return value is None and (found is None or feature or found != found or same(str(found), None))
    if isinstance(found, str):
        return same(found, value, feature=feature)
    if isinstance(value, str):
        return value == json.dumps(found, ensure_ascii=False) or float(value) == found
    if isinstance(value, bool) or isinstance(found, bool):
        return value == found
    return float(found) == value if isinstance(value, float) else found == value or same(repr(found), value)


def check_json(damaged, log, parts):
    lines = damaged.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert each_line_once(parts) == {i for i, line in enumerate(lines, 1) if line.strip()}
    for part in parts:
        for row, line in enumerate(part.lines.tolist()):
            found = json.loads(lines[line - 1])
            for name, value, feature in held(log, part, row):
                assert like(found.get(name), value, feature), (line, name, found, value)


def check_parquet(damaged, log, parts):
    """Only that it can be asked: bytes of Parquet have no lines, and its pages have sums of their own or none."""
    assert sum(len(part) for part in parts) == log.n_rounds


@pytest.mark.parametrize("seeds", [range(200), pytest.param(range(200, 10_000), marks=LONG)], ids=["few", "many"])
@pytest.mark.parametrize("shape", CSV)
def test_damaged_csv_is_read_as_it_stands_or_not_at_all(shape, seeds, tmp_path):
    assert survive(CSV[shape], seeds, tmp_path / "log.csv", CsvLog, check_csv) > len(seeds) / 2


@pytest.mark.parametrize("seeds", [range(200), pytest.param(range(200, 10_000), marks=LONG)], ids=["few", "many"])
@pytest.mark.parametrize("shape", JSON)
def test_damaged_json_lines_are_read_as_they_stand_or_not_at_all(shape, seeds, tmp_path):
    assert survive(JSON[shape], seeds, tmp_path / "log.jsonl", JsonLinesLog, check_json) > len(seeds) / 2


@pytest.mark.parametrize("seeds", [range(200), pytest.param(range(200, 10_000), marks=LONG)], ids=["few", "many"])
def test_damaged_parquet_is_an_error_of_ours_at_worst(seeds, tmp_path):
    buffer = io.BytesIO()
    NESTED.write_parquet(buffer)
    survive(buffer.getvalue(), seeds, tmp_path / "log.parquet", ParquetLog, check_parquet)


def test_an_undamaged_table_is_read_whole(tmp_path):
    for name, content in (CSV | JSON).items():
        path = tmp_path / name
        path.write_bytes(content)
        log = (CsvLog if name in CSV else JsonLinesLog)(path)
        parts = list(log.parts())
        assert sum(map(len, parts)) == 9, name
        assert not any(part.rejected for part in parts), name
        (check_csv if name in CSV else check_json)(content, log, parts)
