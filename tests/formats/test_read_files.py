"""From files to logs: any supported file, the same log."""

import numpy as np
import polars
import pytest

from formats.six_rounds import MAPPING, STAMPS, assert_table, oddly_named, table
from seachange import BanditLog, read_log
from seachange.errors import LogError

pytestmark = pytest.mark.small

WRITERS = {
    ".csv": polars.DataFrame.write_csv,
    ".tsv": lambda frame, path: frame.write_csv(path, separator="\t"),
    ".parquet": polars.DataFrame.write_parquet,
    ".jsonl": polars.DataFrame.write_ndjson,
    ".ndjson": polars.DataFrame.write_ndjson,
}


@pytest.mark.parametrize("as_type", [str, lambda path: path], ids=["str", "path"])
@pytest.mark.parametrize("suffix", WRITERS)
def test_files_of_every_format_give_the_same_log(tmp_path, suffix, as_type):
    path = tmp_path / f"clicks{suffix}"
    WRITERS[suffix](polars.DataFrame(table()), path)
    log = read_log(as_type(path))
    assert_table(log)
    assert log.fingerprint() == BanditLog.from_frame(polars.DataFrame(table())).fingerprint()


@pytest.mark.parametrize("suffix", WRITERS)
def test_files_of_every_format_hold_times(tmp_path, suffix):
    WRITERS[suffix](polars.DataFrame(table(time=STAMPS)), tmp_path / f"clicks{suffix}")
    log = read_log(tmp_path / f"clicks{suffix}")
    assert log.times.astype("datetime64[s]").tolist() == STAMPS


@pytest.mark.parametrize("suffix", WRITERS)
def test_read_log_takes_the_words_of_from_frame(tmp_path, suffix):
    path = tmp_path / f"clicks{suffix}"
    columns = oddly_named() | {"clicked?": [1, None, 0, None, 1, 0]}
    WRITERS[suffix](polars.DataFrame(columns), path)
    log = read_log(path, MAPPING | {"contexts": "hour"}, missing_rewards=True)
    assert np.isnan(log.rewards).sum() == 2
    assert log.context_names == ("hour",)
    dropped = read_log(path, MAPPING, action_names=["boots", "lamps"], on_bad_rows="drop")
    assert dropped.actions.tolist() == [1, 1, 0]


def test_the_case_of_a_suffix_does_not_matter(tmp_path):
    polars.DataFrame(table()).write_csv(tmp_path / "CLICKS.CSV")
    assert_table(read_log(tmp_path / "CLICKS.CSV"))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(LogError, match=r"there is no file '.*nothing\.csv'"):
        read_log(tmp_path / "nothing.csv")
    with pytest.raises(LogError, match="there is no file"):
        read_log(tmp_path)


@pytest.mark.parametrize("name", ["clicks.xlsx", "clicks", "clicks.csv.bak"])
def test_the_name_of_a_file_does_not_matter_where_its_content_is_plain(tmp_path, name):
    polars.DataFrame(table()).write_csv(tmp_path / name)
    assert_table(read_log(tmp_path / name))


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 20, b"PAR1\x00\x00PAR1"], ids=["empty", "noise", "half"])
def test_garbage_is_an_error_that_names_the_file(tmp_path, suffix, content):
    path = tmp_path / f"clicks{suffix}"
    path.write_bytes(content)
    with pytest.raises(LogError, match=rf"clicks\{suffix}|no column for action"):
        read_log(path)


@pytest.mark.parametrize(
    ("suffix", "message"),
    [
        (".parquet", r"clicks\.parquet' cannot be read as Parquet"),
        (".jsonl", r"not valid JSON.*line 6 of clicks\.jsonl"),
    ],
)
def test_a_file_cut_short_is_an_error_that_says_where(tmp_path, suffix, message):
    path = tmp_path / f"clicks{suffix}"
    WRITERS[suffix](polars.DataFrame(table()), path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(LogError, match=message):
        read_log(path)


def test_a_header_without_rows_is_an_empty_log(tmp_path):
    (tmp_path / "clicks.csv").write_text("action,reward,propensity\n")
    with pytest.raises(LogError, match="the log is empty"):
        read_log(tmp_path / "clicks.csv")
