"""Cleaned logs: nothing is dropped silently, and what is written is sound."""

import json

import numpy as np
import polars as pl
import pytest

from check.broken_logs import BROKEN, broken_log, with_values
from check.tables import TableLog, sound_table, unreadable
from full_disk import small_files
from seachange.check import check_log
from seachange.check.repair import fix_log, rejected_path
from seachange.errors import LogError, OutputError
from seachange.reading import open_raw, read_log

# What leaving rounds out, or sorting, repairs.
REPAIRABLE = {
    "action-missing", "context-infinite", "duplicate-rounds", "propensity-above-one", "propensity-missing",
    "propensity-negative", "propensity-zero", "reward-infinite", "reward-missing", "reward-text", "time-backwards",
    "time-missing", "unreadable-lines",
}  # fmt: skip
REPAIRED = [name for name, (rule, _) in BROKEN.items() if rule in REPAIRABLE]


def rejected_rows(out):
    path = rejected_path(out)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("name", REPAIRED)
def test_a_repaired_log_is_sound_and_every_row_is_accounted_for(name, tmp_path):
    rule, log = broken_log(name)
    repair = fix_log(log, check_log(log), tmp_path / "clean.parquet")
    written, rejected = pl.read_parquet(tmp_path / "clean.parquet"), rejected_rows(tmp_path / "clean.parquet")
    assert (len(written), len(rejected)) == (repair.n_written, repair.n_rejected)
    assert len(log.frame) + len(log.rejected) == len(written) + len(rejected) == repair.n_read
    assert check_log(TableLog(written)).worst in (None, "note")
    assert repair.sorted == (rule == "time-backwards")


def test_the_rounds_that_are_left_out_are_written_with_their_line_and_reason(tmp_path):
    table = with_values(sound_table(), "propensity", np.array([9, 19]), [0.0, -1.0])
    table = pl.concat([table[:30], table[29:]])  # row 31 repeats row 30
    table = with_values(table, "reward", np.array([40]), [None])
    more = pl.concat([table, table[50:60]])  # enough repetitions to be no chance
    log = TableLog(more.sort("time"), rejected=unreadable(3))
    repair = fix_log(log, check_log(log), tmp_path / "clean.parquet")
    rows = {row["line"]: row for row in rejected_rows(tmp_path / "clean.parquet") if "round" in row}
    reasons = {line: row["reason"] for line, row in rows.items()}
    assert reasons[10] == "propensity-zero"
    assert reasons[20] == "propensity-negative"
    assert reasons[31] == "duplicate-rounds"
    assert reasons[41] == "reward-missing"
    assert len(reasons) == 14
    assert rows[20]["round"] == {**table.row(19, named=True), "propensity": -1.0}
    assert repair.reasons["unreadable-lines"] == 1
    assert any("biased" in note for note in repair.notes)


def test_the_columns_and_the_order_of_a_sound_log_are_kept(tmp_path):
    log = TableLog(sound_table())
    fix_log(log, check_log(log), tmp_path / "clean.parquet")
    written = pl.read_parquet(tmp_path / "clean.parquet")
    assert written.select(log.frame.columns).equals(log.frame)
    assert [path.name for path in tmp_path.iterdir()] == ["clean.parquet"]


def test_many_parts_are_joined_and_sorted_by_time_that_is_text(tmp_path):
    table = sound_table().with_columns(
        time=pl.from_epoch((pl.col("time") * 1e6).cast(pl.Int64), "us").dt.strftime("%Y-%m-%d %H:%M:%S%.6f")
    )
    mixed = TableLog(pl.concat([table[2500:], table[:2500]]))
    whole = mixed.parts
    mixed.parts = lambda _=None: whole(300)
    repair = fix_log(mixed, check_log(mixed), tmp_path / "clean.parquet")
    assert repair.sorted
    assert pl.read_parquet(tmp_path / "clean.parquet")["time"].to_list() == table["time"].to_list()


def test_times_that_cannot_be_are_not_sorted_by(tmp_path):
    table = sound_table()
    times = table["time"].to_numpy().copy()
    times[[100, 2000]] *= 1000
    log = TableLog(table.with_columns(time=pl.Series(times))[::-1])
    repair = fix_log(log, check_log(log), tmp_path / "clean.parquet")
    assert not repair.sorted
    assert any("not sorted" in note for note in repair.notes)


@pytest.mark.parametrize("name", ["propensities in percent", "nothing"])
def test_what_leaving_rounds_out_cannot_repair_is_refused(name, tmp_path):
    log = broken_log(name)[1]
    with pytest.raises(LogError, match="dropping rounds cannot fix this log"):
        fix_log(log, check_log(log), tmp_path / "clean.parquet")
    assert list(tmp_path.iterdir()) == []


def test_files_are_not_written_over_unasked(tmp_path):
    log = broken_log("propensities of zero")[1]
    found = check_log(log)
    fix_log(log, found, tmp_path / "clean.parquet")
    with pytest.raises(OutputError, match="already exists"):
        fix_log(log, found, tmp_path / "clean.parquet")
    fix_log(log, found, tmp_path / "clean.parquet", force=True)
    assert len(rejected_rows(tmp_path / "clean.parquet")) == 40


def test_events_of_dsjson_that_were_written_twice_are_reported_and_left_out(tmp_path):
    generator, lines = np.random.default_rng(0), []
    for t in range(300):
        first = int(generator.integers(1, 3))
        label = {"_label_cost": -float(generator.random()), "a": [first, 3 - first], "p": [0.5, 0.5]}
        context = {"hour": t % 5, "_multi": [{"id": "x"}, {"id": "y"}]}
        lines.append(json.dumps(label | {"EventId": f"e{t}", "c": context}))
    (tmp_path / "sound.json").write_text("\n".join(lines))
    assert not check_log(tmp_path / "sound.json").rules() & {"duplicate-rounds", "repeated-event-ids"}
    again = [lines[7], lines[8], lines[9].replace('"_label_cost": -', '"_label_cost": ')]
    (tmp_path / "log.json").write_text("\n".join([*lines, *again]))
    raw = open_raw(tmp_path / "log.json")
    found = {each.rule: each for each in check_log(raw).findings}
    assert [place.line for place in found["duplicate-rounds"].places] == [301, 302]
    assert [place.line for place in found["repeated-event-ids"].places] == [303]
    assert "'EventId' of an earlier round" in found["repeated-event-ids"].evidence
    repair = fix_log(raw, check_log(raw), tmp_path / "clean.dsjson")
    assert (repair.n_written, repair.reasons) == (301, {"duplicate-rounds": 2})
    (written,) = open_raw(tmp_path / "clean.dsjson").parts()
    assert written.event.to_list() == [*(f"e{t}" for t in range(300)), "e9"]
    one_name = "\n".join(lines).replace('"EventId": "e', '"EventId": "", "old": "')
    (tmp_path / "log.json").write_text(one_name)
    assert not check_log(tmp_path / "log.json").rules() & {"duplicate-rounds", "repeated-event-ids"}


def test_a_log_with_lists_of_actions_is_written_as_dsjson_that_reads_back(tmp_path):
    generator, lines = np.random.default_rng(0), []
    for t in range(400):
        n, chosen = int(generator.integers(2, 5)), 0
        items = [{"item": {"price": float(generator.random())}} for _ in range(n)]
        label = {"_label_cost": -int(generator.random() < 0.3), "_label_probability": 1 / n}
        when = {"Timestamp": f"2026-01-01T00:{t // 60:02}:{t % 60:02}Z", "a": [chosen + 1, *range(2, n + 1)]}
        lines.append(json.dumps(label | when | {"p": [1 / n] * n, "c": {"user": {"age": t % 7}, "_multi": items}}))
    lines[10], lines[20:30] = "{", lines[20:30][::-1]  # one line is broken, and ten are out of order
    (tmp_path / "log.json").write_text("\n".join(lines))
    raw = open_raw(tmp_path / "log.json")
    with pytest.raises(LogError, match=r"should end in \.dsjson"):
        fix_log(raw, check_log(raw), tmp_path / "clean.parquet")
    repair = fix_log(raw, check_log(raw), tmp_path / "clean.dsjson")
    assert (repair.n_written, repair.n_rejected, repair.sorted) == (399, 1, True)
    log = read_log(tmp_path / "clean.dsjson")
    lines[20:30] = lines[20:30][::-1]
    (tmp_path / "by hand.json").write_text("\n".join(lines[:10] + lines[11:]))
    assert log.fingerprint() == read_log(tmp_path / "by hand.json").fingerprint()


@pytest.mark.parametrize("limit", [1 << 10, 1 << 15, 90_000])
def test_a_full_disk_is_an_error_of_ours_and_leaves_the_log_as_it_was(tmp_path, limit):
    log, out = tmp_path / "shop.csv", tmp_path / "out" / "clean.parquet"
    out.parent.mkdir()
    with_values(sound_table(), "propensity", np.arange(0, 5_000, 3), 0.0).write_csv(log)
    before = log.read_bytes()
    raw = open_raw(log)
    found = check_log(raw)
    with small_files(limit), pytest.raises(OutputError, match="File too large") as error:
        fix_log(raw, found, out)
    assert str(error.value).startswith(f"cannot write '{out}")
    assert log.read_bytes() == before
    assert list(out.parent.iterdir()) == []
