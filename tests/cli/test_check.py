"""seachange check: exit codes, the document, and cleaned logs."""

import json

import polars
import pytest

from check.broken_logs import broken_log
from check.tables import sound_table
from cli.shop import in_a_shell, run, succeed_in_json
from seachange.errors import LogError, OutputError

ODD = {"action": "item id", "reward": "clicked?", "propensity": "π[0]", "time": "[/b]when"}


@pytest.fixture
def odd_log(tmp_path):
    """A sound log under odd names."""
    path = tmp_path / "my shop.csv"
    sound_table().rename(ODD).write_csv(path)
    return path


def columns():
    return ",".join(f"{word}={name}" for word, name in ODD.items())


def write(path, name):
    """A log with a defect, in the format that the path's ending says."""
    frame = broken_log(name)[1].frame
    frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
    return path


def test_a_sound_log_ends_with_0_and_the_next_command(odd_log):
    found, prose = succeed_in_json("check", odd_log, "--columns", columns())
    assert (found["verdict"], found["exit_code"], found["n_rounds"], found["findings"]) == ("sound", 0, 5_000, [])
    assert found["next_command"].startswith("seachange learn ")
    assert "effective sample size" in prose
    assert "Next: seachange learn" in prose


def test_the_next_command_is_one_that_works(odd_log, tmp_path):
    import shlex

    found, _ = succeed_in_json("check", odd_log, "--columns", columns())
    words = shlex.split(found["next_command"])[1:]
    words[words.index("-o") + 1] = str(tmp_path / "shop.seachange")
    done = in_a_shell(*words, "--oracle", "none", "--objective", "dm")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "shop.seachange").exists()


@pytest.mark.filterwarnings("ignore:propensities must be in")
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("name", "code"),
    [("propensities filled in", 3), ("rewards in words", 3), ("propensities in percent", 4), ("one action", 4)],
)
def test_the_exit_code_says_how_bad_it_is(tmp_path, name, code, ending):
    result = run("check", write(tmp_path / f"log{ending}", name), "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == document["exit_code"] == code
    assert broken_log(name)[0] in {finding["rule"] for finding in document["findings"]}


def test_fix_writes_a_sound_log_and_what_it_left_out(tmp_path):
    log, clean = write(tmp_path / "log.parquet", "rounds written twice"), tmp_path / "clean.parquet"
    result = run("check", log, "--fix", clean, "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 3
    assert document["repair"]["n_written"] == 5_000
    assert len((tmp_path / "clean.parquet.rejected.jsonl").read_text().splitlines()) == 50
    assert f"Next: seachange learn {clean} " in result.stderr
    assert run("check", clean).exit_code == 0
    assert isinstance(run("check", log, "--fix", clean).exception, OutputError)
    assert run("check", log, "--fix", clean, "--force").exit_code == 3


def test_a_column_that_looks_like_propensities_is_in_the_next_command_and_in_the_cleaned_log(tmp_path):
    table = sound_table().rename({"propensity": "p"})
    table.write_csv(tmp_path / "log.csv")
    found = json.loads(run("check", tmp_path / "log.csv", "--json").stdout)
    assert [each["rule"] for each in found["findings"]] == ["propensity-unnamed"]
    assert " --columns propensity=p " in found["next_command"]
    table.reverse().with_columns(p=polars.when(polars.col("p") < 0.1).then(0).otherwise("p")).write_csv(
        tmp_path / "messy.csv"
    )
    found = json.loads(run("check", tmp_path / "messy.csv", "--fix", tmp_path / "clean.parquet", "--json").stdout)
    assert "propensity-unnamed" in {each["rule"] for each in found["findings"]}
    assert "--columns propensity=p --fix" in found["next_command"]
    assert "p" in polars.read_parquet(tmp_path / "clean.parquet").columns


@pytest.mark.parametrize("name", ["propensities filled in", "the same propensity everywhere"])
def test_the_next_command_estimates_propensities_that_were_made_up(tmp_path, name):
    table = sound_table().with_columns(propensity=polars.lit(1.0 if name == "propensities filled in" else 0.3))
    table.write_parquet(tmp_path / "log.parquet")
    assert (
        "--estimate-propensities" in json.loads(run("check", tmp_path / "log.parquet", "--json").stdout)["next_command"]
    )


def test_nothing_is_said_about_states_if_the_log_is_not_in_time_order(tmp_path):
    sound_table().sample(fraction=1, shuffle=True, seed=0).write_csv(tmp_path / "log.csv")
    stdout = run("check", tmp_path / "log.csv").stdout
    assert "state may be enough" not in stdout
    assert "state is not enough" not in stdout
    assert "Not shown: the log is not in time order." in stdout
    assert "--fix log-clean.parquet" in stdout


def test_the_next_step_of_an_unusable_log_is_the_fix(tmp_path):
    stdout = run("check", write(tmp_path / "log.csv", "propensities in percent")).stdout
    assert stdout.rstrip().endswith("Next: fix the log (propensities look like percentages), then check it again.")


def test_check_fix_and_learn_count_the_same_bad_rounds(tmp_path):
    table = sound_table().with_columns(polars.col("reward", "propensity").cast(polars.String))
    rewards, propensities = table["reward"].to_list(), table["propensity"].to_list()
    rewards[10:13], rewards[20:25], propensities[30:37] = ["oops", "what", "eh"], [None] * 5, ["0"] * 7
    table = table.with_columns(polars.Series("reward", rewards), polars.Series("propensity", propensities))
    log = tmp_path / "log.csv"
    log.write_text(table.write_csv() + "cut,short\n")
    found = json.loads(run("check", log, "--fix", tmp_path / "clean.parquet", "--json").stdout)
    counts = {each["rule"]: each["count"] for each in found["findings"]}
    assert counts == {"unreadable-lines": 1, "reward-text": 3, "reward-missing": 5, "propensity-zero": 7}
    assert found["repair"]["reasons"] == counts
    assert (found["n_rounds"], found["n_usable"], found["repair"]["n_written"]) == (5_001, 4_985, 4_985)
    failed = in_a_shell("learn", log, "-o", tmp_path / "m")
    assert "(3 of 5,001 lines)" in failed.stderr
    done = in_a_shell("learn", log, "-o", tmp_path / "m", "--drop-bad-rows", "--oracle", "none", "--objective", "dm")
    assert "dropped 16 of 5,001 rounds: rewards are not numbers (3); the line has" in done.stderr
    assert "rewards are missing (5); propensities are 0 (7)." in done.stderr
    assert "rounds        4,985" in done.stdout


def test_a_file_that_is_not_there_is_an_error_of_ours(tmp_path):
    assert isinstance(run("check", tmp_path / "nothing.csv").exception, LogError)


def test_names_from_a_log_are_not_markup(tmp_path):
    table = sound_table().rename({"device": "[red]device"})
    table = table.with_columns(action=polars.lit("[bold]") + table["action"])
    table.write_parquet(tmp_path / "log.parquet")
    result = run("check", tmp_path / "log.parquet")
    assert "[bold]hats" in result.stdout
    assert "[red]device" in result.stdout
