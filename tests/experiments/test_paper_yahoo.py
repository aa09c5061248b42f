"""The paper's second experiment on days of a simulated front page."""

import csv
import gzip
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from seachange.cli.commands import app
from seachange.errors import LogError, OutputError
from seachange.experiments import paper_yahoo as yahoo
from seachange.experiments.paper_yahoo import MARK, SIMULATED, RunStore, read_days
from seachange.simulate import FrontPage, Visits
from seachange.simulate.front_page import write_days

OPTIONS = ["--days", "1", "--next-days", "1", "--runs", "1", "--states", "2", "--up-to", "0", "--workers", "1"]


@pytest.fixture(scope="module")
def visits():
    """Two days of a simulated front page, with a visit every 40 seconds."""
    return FrontPage(seed=0, n_days=2).visits().where(slice(None, None, 40))


@pytest.fixture(scope="module")
def days(tmp_path_factory, visits):
    """A folder with the files of these days, with 23 broken lines."""
    folder = tmp_path_factory.mktemp("days")
    (folder / MARK).write_text("simulated")
    write_days(visits, folder, broken=0.005)
    return folder


@pytest.fixture
def copied(days, tmp_path):
    shutil.copytree(days, tmp_path / "copied")
    return tmp_path / "copied", sorted((tmp_path / "copied").glob("*.gz"))


def read(folder, tmp_path, n_days=2):
    return read_days(folder, n_days, tmp_path, features="documents", simulated=True)


def never_again(*_, **__):
    raise AssertionError("this was done before")


def test_the_log_through_files_is_the_log_of_the_page_itself(days, visits, tmp_path):
    found = Visits.load(read(days, tmp_path).visits)
    settings = yahoo.Settings(days=1, next_days=1)
    through, direct = (yahoo.worlds(each, settings) for each in (found, visits))
    for day, (ours, theirs) in enumerate(zip(through, direct, strict=True)):
        for world in (ours, theirs):
            assert set(world.visits.days) == {day}
        for one, other in zip(ours.rounds(7, 700), theirs.rounds(7, 700), strict=True):
            np.testing.assert_array_equal(one.mean_rewards, other.mean_rewards)
            np.testing.assert_array_equal(one.rewards, other.rewards)
        ids = [world.visits.document_ids[world.visits.shown] for world in (ours, theirs)]
        np.testing.assert_array_equal(*ids)
        one, other = ours.log(7), theirs.log(7)
        np.testing.assert_array_equal(one.arrays.rows, other.arrays.rows)
        for name in ("actions", "rewards", "propensities", "times"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_days_are_read_once_and_what_was_read_is_reported(days, tmp_path, monkeypatch):
    first = read(days, tmp_path)
    assert first.summary.startswith("4,320 visits on 2 days (2009-05-01 to 2009-05-02)")
    assert "; 23 lines rejected (most often: " in first.summary
    assert first.data == SIMULATED
    monkeypatch.setattr("seachange.experiments.paper_yahoo.visits_of", never_again)
    assert read(days, tmp_path) == first


def test_a_missing_day_is_named(copied, tmp_path):
    folder, (first, second) = copied
    second.rename(folder / second.name.replace("0502", "0503"))
    with pytest.raises(LogError, match=r"has 2 days, 2009-05-01 to 2009-05-03, but 2009-05-02 is missing"):
        read(folder, tmp_path)
    with pytest.raises(LogError, match=r"needs 10 days; .* has 2 days.*--days and --next-days"):
        read(folder, tmp_path, 10)
    first.rename(folder / first.name.replace("20090501", "20091301"))
    with pytest.raises(LogError, match="has no valid date"):
        read(folder, tmp_path)


def test_a_day_without_visits_is_reported(copied, tmp_path):
    folder, (_, second) = copied
    with gzip.open(second, "wt") as file:
        file.write("nothing\n")
    with pytest.raises(LogError, match="only 1 of the 2 files"):
        read(folder, tmp_path)


def test_simulated_days_are_never_mistaken_for_yahoo_s(days, tmp_path):
    assert read_days(days, 2, tmp_path, features="documents", simulated=False).data == SIMULATED


def test_other_files_of_the_same_names_are_read_again(copied, tmp_path):
    folder, (first, _) = copied
    before = read(folder, tmp_path)
    lines = gzip.decompress(first.read_bytes()).decode().splitlines()
    flipped = [f"{time} {shown} {1 - int(click)} {rest}" for time, shown, click, rest in
               (line.split(" ", 3) for line in lines[:500])]  # fmt: skip
    first.write_bytes(gzip.compress("\n".join(flipped).encode()))
    assert read(folder, tmp_path).summary != before.summary


def test_a_day_that_breaks_off_is_named_with_what_was_read(copied, tmp_path):
    folder, (_, second) = copied
    second.write_bytes(second.read_bytes()[:-10_000])
    with pytest.raises(LogError, match=rf"{second.name}.*rounds were read before"):
        read(folder, tmp_path)
    assert not (tmp_path / "visits.npz").exists()


def test_days_of_the_other_release_are_reported(copied, tmp_path):
    folder, (_, second) = copied
    with gzip.open(second, "wt") as file:
        file.write("1317999999 id-900002 0 |user 1 12 |id-900001 |id-900002\n" * 30)
    with pytest.raises(LogError, match="is a file of yahoo-r6b"):
        read(folder, tmp_path)
    second.rename(folder / "ydata-fp-td-clicks-v2_0.20111002.gz")
    with pytest.raises(LogError, match="days of R6A and of R6B"):
        read(folder, tmp_path)


def test_days_that_are_named_wrongly_are_reported(copied, tmp_path):
    folder, (first, second) = copied
    first.rename(folder / "other")
    second.rename(first)
    (folder / "other").rename(second)
    with pytest.raises(LogError, match="must be named after their day"):
        read(folder, tmp_path)


def test_a_folder_without_days_says_which_names_are_expected(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(LogError, match=r"no files named ydata-fp-td-clicks-v1_0\.200905DD\(\.gz\).*notes\.txt"):
        read(tmp_path, tmp_path)
    with pytest.raises(LogError, match="is not a folder"):
        read(tmp_path / "absent", tmp_path)


def test_documents_without_features_need_an_identity(tmp_path):
    for day in (2, 3):
        lines = [
            f"{1_317_500_000 + 86_400 * day + t} id-{900_001 + t % 12} {t % 9 // 8} |user 1 {2 + t % 50} "
            + " ".join(f"|id-{900_001 + i}" for i in range(12))
            for t in range(500)
        ]
        (tmp_path / f"ydata-fp-td-clicks-v2_0.201110{day:02}").write_text("\n".join(lines) + "\n")
    with pytest.raises(LogError, match=r'R6B, whose documents have no features\. Use features="identity"'):
        read(tmp_path, tmp_path)
    assert not (tmp_path / "visits.npz").exists()
    found = read_days(tmp_path, 2, tmp_path, features="identity", simulated=False)
    assert found.data == "Yahoo! R6B"
    with pytest.raises(ValueError, match='Use features="identity"'):
        yahoo.worlds(Visits.load(found.visits), yahoo.Settings(days=1, next_days=1))
    world, _ = yahoo.worlds(Visits.load(found.visits), yahoo.Settings(days=1, next_days=1, features="identity"))
    assert len(world.log(0)) == 500


def test_runs_go_on_where_they_stopped(tmp_path):
    store = RunStore(tmp_path, {"days": 6})
    store.add("seed 0, k 1", {"k-HMM": [1.2, 1.1]})
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write('{"run": "seed 1, k 1", "resu')  # the work stopped here
    again = RunStore(tmp_path, {"days": 6})
    assert again.done() == {"seed 0, k 1": {"k-HMM": [1.2, 1.1]}}
    again.add("seed 1, k 1", {"k-HMM": [1.3, 1.0]})
    assert list(again.done()) == ["seed 0, k 1", "seed 1, k 1"]
    with pytest.raises(OutputError, match="another experiment \\(days is 6 there and 5 here\\)"):
        RunStore(tmp_path, {"days": 5})


def test_the_command_goes_from_files_to_the_table_and_runs_nothing_twice(tmp_path, monkeypatch):
    all_visits = FrontPage.visits
    monkeypatch.setattr(FrontPage, "visits", lambda page: all_visits(page).where(slice(None, None, 8)))
    command = ["replicate", "yahoo", "--standin", *OPTIONS, "-o", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["data"] == SIMULATED
    assert "not Yahoo!'s data" in done.stderr
    rows = {(row["method"], row["horizon"]): row for row in document["rows"]}
    assert {method for method, _ in rows} == set(yahoo.METHODS)
    for horizon in yahoo.HORIZONS:
        assert rows["oracle", horizon]["oracle_share"] == 1
        for method in yahoo.METHODS:
            mean, most = rows[method, horizon]["mean"], rows["oracle", horizon]["mean"]
            assert 0.8 < mean <= most
            assert rows[method, horizon]["oracle_share"] == pytest.approx(mean / most)
    assert rows["k-HMM", "same days"]["mean"] > rows["IPS", "same days"]["mean"] > 1
    assert rows["k-CD", "same days"]["mean"] != rows["IPS", "same days"]["mean"]
    assert rows["oracle", "same days"]["mean"] != rows["oracle", "next days"]["mean"]
    with (tmp_path / "out" / "relative-click-rates.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [float(row["mean"]) for row in written] == [row["mean"] for row in document["rows"]]
    assert {row["data"] for row in written} == {SIMULATED}
    assert (tmp_path / "out" / "states-by-hour.png").stat().st_size > 20_000
    monkeypatch.setattr("seachange.experiments.paper_yahoo.run_methods", never_again)
    monkeypatch.setattr("seachange.experiments.paper_yahoo.visits_of", never_again)
    again = CliRunner().invoke(app, command, catch_exceptions=False)
    assert json.loads(again.stdout)["rows"] == document["rows"]


def test_settings_without_runs_may_change(tmp_path):
    RunStore(tmp_path, {"days": 6})
    RunStore(tmp_path, {"days": 5}).add("seed 0, k 1", {})
    with pytest.raises(OutputError, match="5 there and 6 here"):
        RunStore(tmp_path, {"days": 6})


@pytest.mark.parametrize("field", ["window", "smoothing"])
@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_settings_are_held_to_their_rules_before_anything_is_read(field, value):
    with pytest.raises(ValueError, match=f"{field} must be"):
        yahoo.Settings(**{field: value})


def test_visits_at_midnight_may_be_in_the_file_of_the_day_before(copied, tmp_path):
    folder, (first, second) = copied
    with gzip.open(second, "rt") as file:
        lines = file.readlines()
    with gzip.open(second, "wt") as file:
        file.writelines(lines[100:])
    with gzip.open(first, "at") as file:
        file.writelines(lines[:100])
    with gzip.open(second, "at") as file:
        file.write(lines[50])
    assert read(folder, tmp_path).summary.startswith("4,321 visits on 2 days")


def test_documents_that_pools_lack_are_reported(days, tmp_path):
    visits = read(days, tmp_path).visits
    settings = yahoo.Settings(days=1, next_days=1)
    assert yahoo.excluded_visits(visits, settings) == ""
    assert "excluded: fewer than 20 documents in the pool" in yahoo.excluded_visits(
        visits, replace(settings, n_documents=20)
    )


@pytest.mark.long
def test_the_order_of_methods_is_that_of_the_paper_on_another_page(tmp_path):
    """Single policies < k-CD <= k-HMM on both horizons, ten states, six days and the next four."""
    FrontPage(seed=11, n_days=10).visits().save(tmp_path / "visits.npz")
    settings = yahoo.Settings()
    single = yahoo.run_methods((0, 0), tmp_path / "visits.npz", settings, 10)
    switching = yahoo.run_methods((0, 10), tmp_path / "visits.npz", settings, 10)
    for horizon in range(2):
        best = max(single[method][horizon] for method in ("IPS", "DR", "POEM"))
        assert best < switching["k-CD"][horizon] < switching["k-HMM"][horizon] < single["oracle"][horizon]


@pytest.mark.parametrize("options", [[], ["--standin", "--data", "somewhere"]])
def test_the_command_reads_days_or_simulates_them(options):
    done = CliRunner().invoke(app, ["replicate", "yahoo", *options])
    assert done.exit_code == 2
    assert "--standin" in done.output
