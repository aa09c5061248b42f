"""What a check says on a terminal."""

import io
import json

import msgspec
import polars as pl
import pytest
from rich.console import Console

from check.broken_logs import BROKEN, broken_log
from check.tables import TableLog, sound_table
from seachange.check import check_log
from seachange.check.repair import fix_log
from seachange.cli.check_view import check_document, check_view, repair_text


def shown(check, width):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(check_view(check, width))
    return console.file.getvalue()


@pytest.mark.parametrize("name", BROKEN)
def test_every_finding_is_reported_within_the_width(name):
    check = check_log(broken_log(name)[1])
    for width in (80, 120):
        told = shown(check, width)
        assert max(map(len, told.splitlines())) <= width
        for finding in check.findings:
            assert finding.rule in told
            assert finding.fix.split()[-1] in told
            assert all(f"{place.line:,}" in told for place in finding.places)


def test_a_sound_log_is_shown_with_support_contexts_and_time():
    told = shown(check_log(TableLog(sound_table()), name="shop.csv"), 100)
    assert told.startswith("shop.csv: sound\n")
    for words in (
        "Log",
        "Support by action",
        "Contexts",
        "Over time",
        "What this log can support",
        "Up to 12 states",
    ):
        assert words in told
    assert "2023-11-14 22:13 to" in told


def test_the_document_holds_all_that_was_found(tmp_path):
    _, log = broken_log("rewards in words")
    check = check_log(log)
    repair = fix_log(log, check, tmp_path / "clean.parquet")
    document = check_document(check, repair)
    assert document["verdict"] == "usable with warnings"
    assert document["findings"][0]["places"][0] == {"source": "shop.csv", "line": 101}
    assert document["repair"]["n_rejected"] == 40
    told = repair_text(repair, check)
    assert "4,960 of 5,000 rounds" in told
    assert "biased" in told


def test_a_context_that_moves_is_reported_and_is_in_the_document():
    table = sound_table()
    table = table.with_columns(age=table["age"] + pl.int_range(len(table), eager=True) / len(table))
    check = check_log(TableLog(table))
    assert check.findings == ()
    assert {each.name for each in check.contexts if each.moved} == {"age"}
    assert "% of its variance" in shown(check, 100)
    assert json.loads(msgspec.json.encode(check_document(check, None)))["contexts"][0]["moved"] > 0.01
