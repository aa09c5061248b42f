"""seachange report: the file, the same in JSON, and what is not written."""

from cli.shop import COLUMNS, fail, misuse, succeed, succeed_in_json
from seachange.errors import OutputError


def test_report_writes_a_page_and_says_the_answer(folder):
    target = folder / "report.html"
    stdout, stderr = succeed(
        "report", folder / "late.csv", folder / "shop.seachange", "-o", target, "--columns", COLUMNS
    )
    assert "would earn" in stdout
    assert f"Written: {target}" in stdout
    assert "Next: " in stdout
    assert stderr == ""
    page = target.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert f"seachange report {folder / 'late.csv'}" in page
    assert "[red]hour" in page


def test_report_in_json_has_the_figures_of_evaluate(folder):
    files = (folder / "late.csv", folder / "shop.seachange")
    report, stderr = succeed_in_json("report", *files, "-o", folder / "json.html", "--columns", COLUMNS, "--seed", "3")
    evaluation, _ = succeed_in_json("evaluate", *files, "--columns", COLUMNS)
    values = {row["policy"]: row["value"] for row in evaluation["estimates"] if row["estimator"] in ("dr", "mean")}
    assert report["answer"]["switching"]["estimate"]["value"] == values["switching policy"]
    assert report["answer"]["logging"]["estimate"]["value"] == values["logging policy"]
    assert "would earn" in stderr
    assert "--seed 3" in report["origin"]["commands"][0]


def test_report_writes_over_nothing_unless_told(folder):
    target = folder / "kept.html"
    target.write_text("mine")
    files = (folder / "late.csv", folder / "shop.seachange", "-o", target, "--columns", COLUMNS)
    assert "exists already" in fail(OutputError, "report", *files)
    assert target.read_text() == "mine"
    succeed("report", *files, "--force")
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_report_needs_a_file_to_write(folder):
    assert "--out" in misuse("report", folder / "late.csv", folder / "shop.seachange")
