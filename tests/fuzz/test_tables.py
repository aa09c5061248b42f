"""Damaged tables: every round that is read stands in its line, and every line is read or rejected."""

import csv
import io
import json
import random

import polars
import pyarrow.parquet
import pytest

from fuzz.accidents import is_missing, is_number, same, survive
from seachange.errors import SeachangeError
from seachange.formats.csv import CsvLog
from seachange.formats.json_lines import JsonLinesLog
from seachange.formats.parquet import ParquetLog

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
# Flat lines without escapes are checked by polars alone.
JSON = {
    "escapes": TABLE.write_ndjson().encode(),
    "plain": PLAIN.write_ndjson().encode(),
    "nested": NESTED.write_ndjson().encode(),
}


LONG = pytest.mark.long
FEW, MANY = range(50), range(50, 10_000)


def places(log, part, row):
    """What was read of a round beside its features, by column."""
    return {place: getattr(part, word)[row] for word, place in log.columns.items()}


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
    seen, odd = each_line_once(parts), 0
    if b'"' not in damaged:
        assert seen == {i + 1 for i in range(head + 1, len(lines)) if lines[i].removesuffix(b"\r")}
    for part in parts:
        for row, line in enumerate(part.lines.tolist()):
            rest = io.StringIO(b"\n".join(lines[line - 1 :]).decode(errors="replace"), newline="")
            fields = dict(zip(names, next(csv.reader(rest, delimiter=separator)), strict=True))
            fields = {name: text.replace("\r\n", "\n") for name, text in fields.items()}
            for name, value in places(log, part, row).items():
                assert same(fields[name], value), (line, name, fields, value)
            for name, value in part.features.row(row, named=True).items():
                text, where = fields[name], (line, name, fields, value)
                if value is None and part.features[name].dtype == polars.String:
                    assert text == "", where
                elif value is None and not is_missing(text):
                    assert not is_number(text, name in log.commas), where
                    odd += 1
                else:
                    assert same(text, value), where
    return odd


def odd_values(found, value, dtype):
    """How many parts of what a JSON document has are not of their column's kind; all others must have been read."""
    if found is None or found != found:
        assert value is None or (isinstance(value, dict) and not any(value.values())), (found, value)
        return 0
    if dtype == polars.Struct and isinstance(found, dict):
        return sum(odd_values(found.get(field.name), value[field.name], field.dtype) for field in dtype.fields)
    if dtype == polars.List and isinstance(found, list):
        assert len(found) == len(value), (found, value)
        return sum(map(odd_values, found, value, [dtype.inner] * len(value)))
    if dtype in (polars.Struct, polars.List):
        assert value is None or not any(value.values()), (found, value)
        return 1
    if value is None and found == {} and dtype == polars.Null:
        return 0
    if value is None:
        assert dtype.is_numeric() or dtype == polars.Boolean or is_missing(str(found)), (found, value, dtype)
        assert isinstance(found, dict | list) or not is_number(str(found)), (found, value, dtype)
        return 0 if isinstance(found, str) and is_missing(found) else 1
    assert like(found, value), (found, value)
    return 0


def like(found, value):
    """Whether ``value`` is what a JSON document has."""
    if found is None or value is None:
        return value is None and (found is None or found != found or same(str(found), None))
    if isinstance(found, str):
        return same(found, value)
    if isinstance(value, str):
        return value == json.dumps(found, ensure_ascii=False, separators=(",", ":")) or float(value) == found
    if isinstance(value, bool) or isinstance(found, bool):
        return value == found
    return float(found) == value if isinstance(value, float) else found == value or same(repr(found), value)


def check_json(damaged, log, parts):
    lines = damaged.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert each_line_once(parts) == {i for i, line in enumerate(lines, 1) if line.strip()}
    odd = 0
    for part in parts:
        for row, line in enumerate(part.lines.tolist()):
            found = json.loads(lines[line - 1])
            for name, value in places(log, part, row).items():
                assert like(found.get(name), value), (line, name, found, value)
            for name, value in part.features.row(row, named=True).items():
                odd += odd_values(found.get(name), value, part.features[name].dtype)
    return odd


def check_parquet(damaged, log, parts):
    """Only that it can be asked: bytes of Parquet have no lines, and its pages have sums of their own or none."""
    rows = polars.scan_parquet(log.paths[0]).select(polars.len()).collect().item()
    assert sum(len(part) for part in parts) == rows
    return 0


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=LONG)], ids=["few", "many"])
@pytest.mark.parametrize("shape", CSV)
def test_damaged_csv_is_read_as_it_stands_or_not_at_all(shape, seeds, tmp_path):
    assert survive(CSV[shape], seeds, tmp_path / "log.csv", CsvLog, check_csv) > len(seeds) / 2


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=LONG)], ids=["few", "many"])
@pytest.mark.parametrize("shape", JSON)
def test_damaged_json_lines_are_read_as_they_stand_or_not_at_all(shape, seeds, tmp_path):
    assert survive(JSON[shape], seeds, tmp_path / "log.jsonl", JsonLinesLog, check_json) > len(seeds) / 2


# In these a page claims to have fewer than no rows; polars 2.1 asks for 2^61 bytes and ends the process, whoever calls.
ABORTS = {3597}
COLUMN_ABORTS = {201, 1164, 1702, 2082, 2118, 2349, 3700, 4649, 5027, 5424, 5750, 7193, 7765, 7773, 9105, 9178}


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=LONG)], ids=["few", "many"])
def test_damaged_parquet_is_an_error_of_ours_at_worst(seeds, tmp_path):
    buffer = io.BytesIO()
    NESTED.write_parquet(buffer)
    bearable = [seed for seed in seeds if seed not in ABORTS]
    assert survive(buffer.getvalue(), bearable, tmp_path / "log.parquet", ParquetLog, check_parquet) > len(seeds) / 50


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=LONG)], ids=["few", "many"])
def test_damage_to_a_column_of_parquet_stays_in_it(seeds, tmp_path):
    path = tmp_path / "log.parquet"
    NESTED.write_parquet(path, compression="uncompressed")
    content, (undamaged,) = path.read_bytes(), ParquetLog(path).parts()
    group = pyarrow.parquet.read_metadata(path).row_group(0)
    readable = 0
    for seed in sorted({*seeds} - COLUMN_ABORTS):
        chance = random.Random(seed)
        chunk = group.column(chance.randrange(group.num_columns))
        first = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
        damaged = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            damaged[first + chance.randrange(chunk.total_compressed_size)] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            log = ParquetLog(path)
            parts = list(log.parts())
        except SeachangeError:
            continue
        readable += 1
        assert sum(len(part) + len(part.rejected) for part in parts) == len(undamaged), seed
        hit = chunk.path_in_schema.split(".")[0]
        for part in parts:
            rows = part.lines - 1
            for word, place in log.columns.items():
                if place != hit:
                    assert getattr(part, word).to_list() == getattr(undamaged, word)[rows].to_list(), (seed, word)
            for name in set(part.features.columns) - {hit}:
                assert part.features[name].to_list() == undamaged.features[name][rows].to_list(), (seed, name)
    assert readable > len(seeds) / 4


def test_an_undamaged_table_is_read_whole(tmp_path):
    for name, content, read, check in [
        *((name, content, CsvLog, check_csv) for name, content in CSV.items()),
        *((name, content, JsonLinesLog, check_json) for name, content in JSON.items()),
    ]:
        path = tmp_path / name
        path.write_bytes(content)
        log = read(path)
        parts = list(log.parts())
        assert sum(map(len, parts)) == 9, name
        assert not any(part.rejected for part in parts), name
        check(content, log, parts)
