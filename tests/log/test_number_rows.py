"""Numbers that are laid out while a table is read: the same log as from a table that is held whole."""

import numpy as np
import polars as pl
import pytest

from log.logged import assert_equal_logs
from seachange.errors import LogError
from seachange.log import encoding
from seachange.log.encoding import log_from_raw
from seachange.log.number_rows import NumberRows
from seachange.log.readers import open_raw
from seachange.log.readers.parquet import ParquetLog

pytestmark = pytest.mark.small

N = 600
PART = 100


def table(**columns):
    chance = np.random.default_rng(0)
    return pl.DataFrame({
        "action": chance.integers(3, size=N), "reward": chance.integers(2, size=N),
        "propensity": chance.uniform(0.1, 1, size=N), "age": chance.normal(40, 9, size=N),
        "city": chance.choice(["Paris", "Oslo"], size=N), "visits": chance.integers(90, size=N), **columns,
    })  # fmt: skip


def late(value):
    """Ordinary numbers, and another in the last part alone."""
    return pl.Series([0.5 * t for t in range(N - 1)] + [value], strict=False)


TABLES = {
    "numbers and texts": table(),
    "numbers alone": table().drop("city"),
    "flags": table(member=[t % 3 == 0 for t in range(N)]),
    "missing from the start": table(score=[None if t % 7 == 0 else 0.1 * t for t in range(N)]),
    "nothing but numbers, some missing": table(city=[None if t % 7 == 0 else 0.1 * t for t in range(N)]),
    "missing at the end alone": table(score=late(None)),
    "constant until the end": table(score=[1.0] * (N - 1) + [2.0]),
    "a text that comes late": table(city=["Oslo"] * (N - 3) + ["Rome"] * 3),
    "single precision": table()
    .drop("city")
    .select(pl.all().exclude("age", "visits"), pl.col("age", "visits").cast(pl.Float32)),
    "both precisions": table(score=pl.Series([0.1 * t for t in range(N)], dtype=pl.Float32)),
    "lists and tables": table(
        pair=[[t % 5, t % 2] for t in range(N)], user=[{"age": t % 9, "at": "x"} for t in range(N)]
    ),
    "row numbers": table(place=range(N)),
}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(encoding, "PART_ROWS", PART)


@pytest.mark.filterwarnings("ignore:no features are made")
@pytest.mark.parametrize("which", TABLES)
def test_the_log_is_that_of_the_table_held_whole(tmp_path, which):
    path = tmp_path / "log.parquet"
    TABLES[which].write_parquet(path, row_group_size=70)
    laid_out = log_from_raw(ParquetLog(path))
    held = ParquetLog(path)
    held.likely_rounds = None
    whole = log_from_raw(held)
    assert_equal_logs(laid_out, whole)
    assert laid_out.features == whole.features
    assert laid_out.arrays.rows.dtype == whole.arrays.rows.dtype


@pytest.mark.filterwarnings("ignore:no features are made")
@pytest.mark.parametrize("write", ["write_csv", "write_ndjson"])
@pytest.mark.parametrize("likely", [1, N // 2, N, 10 * N, None])
def test_room_that_was_guessed_changes_nothing(tmp_path, write, likely):
    path = tmp_path / "log"
    getattr(TABLES["numbers and texts"], write)(path)
    guessed, told = (open_raw(path) for _ in range(2))
    guessed.likely_rounds, told.likely_rounds = likely, None
    ours, whole = log_from_raw(guessed), log_from_raw(told)
    assert_equal_logs(ours, whole)
    assert ours.features == whole.features


@pytest.mark.parametrize(("which", "expected"), [
    ("numbers and texts", True), ("nothing but numbers, some missing", True), ("single precision", True),
    ("missing at the end alone", False), ("constant until the end", False), ("a text that comes late", False),
])  # fmt: skip
def test_numbers_stay_where_they_are_if_the_first_part_is_like_the_rest(tmp_path, which, expected, monkeypatch):
    path = tmp_path / "log.parquet"
    TABLES[which].write_parquet(path)
    rooms = []
    monkeypatch.setattr(encoding, "NumberRows", lambda *arguments: rooms.append(NumberRows(*arguments)) or rooms[0])
    log = log_from_raw(ParquetLog(path))
    assert np.shares_memory(log.arrays.rows, rooms[0].rows) == expected


def test_a_log_without_features_has_no_rows_of_its_own(tmp_path):
    path = tmp_path / "log.parquet"
    table().select("action", "reward", "propensity").write_parquet(path)
    assert log_from_raw(ParquetLog(path)).arrays.rows.shape == (1, 1, 1)


def test_a_number_that_is_too_large_is_told_as_it_was(tmp_path):
    path = tmp_path / "log.parquet"
    table(score=late(1e200)).write_parquet(path)
    with pytest.raises(LogError, match=rf"score.*row {N} of log.parquet has 1e\+200"):
        log_from_raw(ParquetLog(path))
    assert len(log_from_raw(ParquetLog(path), on_bad_rows="drop")) == N - 1


def test_files_whose_types_differ_are_held_whole(tmp_path):
    chance = np.random.default_rng(1).normal(size=N)
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    table(score=pl.Series(chance, dtype=pl.Float32)).write_parquet(paths[0])
    table(score=chance).write_parquet(paths[1])
    log = log_from_raw(ParquetLog(paths))
    mean, scale = next((one.mean, one.scale) for one in log.features.shared if one.column == "score")
    place = log.context_names.index("score")
    assert log.contexts[N:, place].tolist() == ((chance - mean) / scale).tolist()
