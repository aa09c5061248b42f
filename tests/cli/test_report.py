"""seachange report: the file, the same in JSON, and what is not written."""

import shutil

from cli.shop import COLUMNS, fail, succeed, succeed_in_json
from seachange.errors import OutputError


def test_report_writes_a_page_and_says_the_answer(folder):
    target = folder / "report.html"
    stdout, stderr = succeed(
        "report", folder / "late.csv", folder / "shop.seachange", "-o", target, "--columns", COLUMNS
    )
    assert "would earn" in stdout
    assert f"Wrote {target}" in stdout
    assert "Next: " in stdout
    assert stderr == ""
    page = target.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert f"seachange report {folder / 'late.csv'}" in page
    assert "[red]hour" in page


def test_report_in_json_has_the_figures_of_evaluate(folder):
    files = (folder / "late.csv", folder / "shop.seachange")
    report, stderr = succeed_in_json("report", *files, "-o", folder / "json.html", "--columns", COLUMNS, "--seed", "3")
    evaluation, _ = succeed_in_json("evaluate", *files, "--columns", COLUMNS, "--seed", "3")
    values = {row["policy"]: row["value"] for row in evaluation["estimates"]}
    assert report["comparison"]["switching"]["estimate"]["value"] == values["switching policy"]
    assert report["comparison"]["frozen"]["estimate"]["value"] == values["frozen states"]
    assert report["comparison"]["single"]["estimate"]["value"] == values["best single"]
    assert report["comparison"]["learning_single"]["estimate"]["value"] == values["learning single"]
    assert report["comparison"]["logging"]["estimate"]["value"] == values["logging policy"]
    assert report["comparison"]["over_single"] == evaluation["deployment"]["gain"]
    assert "would earn" in stderr
    assert "--seed 3" in report["origin"]["commands"][0]


def test_report_overwrites_nothing_without_force(folder):
    target = folder / "kept.html"
    target.write_text("mine")
    files = (folder / "late.csv", folder / "shop.seachange", "-o", target, "--columns", COLUMNS)
    assert "already exists" in fail(OutputError, "report", *files)
    assert target.read_text() == "mine"
    succeed("report", *files, "--force")
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_report_goes_beside_the_model_where_no_file_is_named(folder):
    beside = folder / "elsewhere"
    beside.mkdir()
    model = shutil.copy(folder / "shop.seachange", beside / "shop.seachange")
    asked = ("report", folder / "late.csv", model, "--columns", COLUMNS)
    stdout, _ = succeed(*asked)
    target = beside / "report.html"
    assert f"Wrote {target}" in stdout
    page = target.read_text(encoding="utf-8")
    assert f"-o {target}" in page
    assert "already exists" in fail(OutputError, *asked)
    assert target.read_text(encoding="utf-8") == page
    succeed(*asked, "--force")


def test_report_and_evaluate_say_alike_that_a_model_has_seen_its_log(folder):
    files = (folder / "early.csv", folder / "shop.seachange")
    report, _ = succeed("report", *files, "-o", folder / "seen.html", "--columns", COLUMNS)
    _, noted = succeed("evaluate", *files, "--columns", COLUMNS)
    words = "learned from this log, and policies look better than they really are on the rounds they were learned from."
    assert f"Evaluated on held-out rounds with relearned policies. The model was {words}" in report
    assert f"Note: the model was {words}" in noted
    assert words in (folder / "seen.html").read_text(encoding="utf-8")
