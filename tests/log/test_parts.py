"""A table that is read in parts becomes the same log as one that is read whole."""

import numpy as np
import polars as pl
import pytest

from seachange.errors import LogError
from seachange.formats.parquet import ParquetLog
from seachange.log import encoding
from seachange.log.encoding import log_from_raw
from seachange.reading import open_raw

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


@pytest.mark.filterwarnings("ignore:columns that are not used")
@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("which", TABLES)
def test_a_log_does_not_depend_on_the_parts_it_is_read_in(tmp_path, monkeypatch, which, suffix):
    path = tmp_path / f"log.{suffix}"
    if suffix == "csv" and which == "lists and tables":
        pytest.skip("CSV has no lists")
    frame, writer = TABLES[which], {"parquet": "write_parquet", "csv": "write_csv", "jsonl": "write_ndjson"}[suffix]
    getattr(frame, writer)(path, **({"row_group_size": 70} if suffix == "parquet" else {}))
    whole = log_from_raw(open_raw(path))
    monkeypatch.setattr(encoding, "PART_ROWS", PART)
    parts = log_from_raw(open_raw(path))
    assert parts.context_names == whole.context_names
    np.testing.assert_allclose(parts.arrays.rows, whole.arrays.rows, rtol=1e-6 if which == "single precision" else 1e-9)
    assert parts.arrays.rows.dtype == whole.arrays.rows.dtype
    np.testing.assert_array_equal(parts.actions, whole.actions)
    np.testing.assert_array_equal(parts.rewards, whole.rewards)
    np.testing.assert_array_equal(parts.propensities, whole.propensities)


def test_a_log_without_features_has_no_rows_of_its_own(tmp_path):
    path = tmp_path / "log.parquet"
    table().select("action", "reward", "propensity").write_parquet(path)
    assert log_from_raw(ParquetLog(path)).arrays.rows.shape == (1, 1, 1)


def test_a_number_that_is_too_large_is_shown_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "PART_ROWS", PART)
    path = tmp_path / "log.parquet"
    table(score=late(1e200)).write_parquet(path)
    with pytest.raises(LogError, match=rf"score.*row {N} of log.parquet has 1e\+200 \(1 of {N} rows\)"):
        log_from_raw(ParquetLog(path))
    assert len(log_from_raw(ParquetLog(path), on_bad_rows="drop")) == N - 1


def test_files_whose_types_differ_are_encoded_in_double_precision(tmp_path):
    chance = np.random.default_rng(1).normal(size=N)
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    table(score=pl.Series(chance, dtype=pl.Float32)).write_parquet(paths[0])
    table(score=chance).write_parquet(paths[1])
    log = log_from_raw(ParquetLog(paths))
    mean, scale = next((one.mean, one.scale) for one in log.features.shared if one.column == "score")
    place = log.context_names.index("score")
    assert log.contexts[N:, place].tolist() == ((chance - mean) / scale).tolist()
