"""What all commands have in common: help that fits, --quiet, completion, what to do next."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import polars
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import seachange as sc
from cli.shop import COLUMNS, QUICK, N, late_log, misuse, run, succeed, succeed_in_json
from seachange.cli import app
from seachange.cli.options import PIPELINE
from seachange.cli.running import BUG, ERROR
from seachange.cli.speaking import next_steps
from seachange.log.readers.places import USUAL_NAMES


def commands_of(group, *path):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, *path, name)
        else:
            yield (*path, name)


def all_commands():
    return list(commands_of(get_command(app)))


@pytest.mark.parametrize("command", all_commands(), ids=" ".join)
def test_every_command_can_be_hushed_and_answers_in_json(command):
    stdout, _ = succeed(*command, "--help")
    assert "-q, --quiet" in stdout
    assert "--json" in stdout


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("command", [(), ("replicate",), *all_commands()], ids=" ".join)
def test_help_fits_the_terminal_and_cuts_nothing(command, width):
    result = CliRunner(env={"COLUMNS": str(width)}).invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"Usage: root {' '.join(command)}".rstrip())
    assert all(len(line) <= min(width, 100) for line in lines)
    assert "<bool>" not in result.stdout
    found = get_command(app)
    for name in command:
        found = found.commands[name]
    words = " ".join(result.stdout.split())
    for parameter in found.params:
        assert parameter.opts[-1] in words or parameter.metavar in words
        assert " ".join((parameter.help or "").split()).rstrip(".") in words


def test_the_help_lists_commands_along_the_pipeline_and_exit_codes():
    stdout, _ = succeed("--help")
    listed = re.findall(r"^  ([a-z]\S*)", stdout.split("Commands")[1].split("Options")[0], flags=re.MULTILINE)
    assert listed == [name for name in PIPELINE if name in listed]
    assert {"demo", "learn", "states", "evaluate", "bounds", "replicate"} <= {*listed}
    for code in ("0 fine", "1 usable with warnings", "2 an error", "130 interrupted"):
        assert code in " ".join(stdout.split())


def test_the_help_of_columns_names_all_words():
    stdout, _ = succeed("learn", "--help")
    for word in ("action", "reward", "propensity", "time", "sequence", "contexts"):
        assert word in stdout.split("--columns")[1].split("--estimate")[0]


def test_the_version_is_told():
    assert succeed("--version")[0] == f"seachange {sc.__version__}\n"


def test_a_hushed_command_says_nothing_and_does_its_work(folder, tmp_path):
    arguments = ("learn", folder / "early.csv", "-o", tmp_path / "m", *QUICK, "--objective", "dm")
    assert succeed(*arguments, "--quiet") == ("", "")
    assert sc.load(tmp_path / "m").n_states == 2
    result, stderr = succeed_in_json(*arguments, "--force", "-q")
    assert stderr == ""
    assert result["n_states"] == 2


def test_a_hushed_command_has_no_notes_but_errors(folder, tmp_path):
    arguments = ("states", folder / "late.csv", folder / "shop.seachange", "--columns", COLUMNS, "--oracle", "hmm")
    assert "Note: these are the model's own states" in succeed(*arguments, "--states", "3")[1]
    assert succeed(*arguments, "--states", "3", "--quiet") == ("", "")
    assert "auto or a number" in misuse(*arguments, "--states", "many", "--quiet")


def test_the_demo_can_be_hushed_and_answers_in_json(tmp_path):
    result, stderr = succeed_in_json("demo", "--out", tmp_path / "demo", "--quiet")
    assert stderr == ""
    assert result["n_states"] == 3


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_state_of_every_round_can_be_written(folder, tmp_path, suffix):
    target = tmp_path / f"rows{suffix}"
    stdout, _ = succeed("states", folder / "late.csv", folder / "shop.seachange", "--columns", COLUMNS, "-o", target)
    assert f"Written: {target}" in stdout
    table = polars.read_csv(target) if suffix == ".csv" else polars.read_parquet(target)
    labels = sc.load(folder / "shop.seachange").oracle.predict(late_log(folder))
    assert table.columns == ["round", "time", "state", "probability"]
    assert table["round"].to_list() == list(range(N))
    assert table["state"].to_list() == labels.states.tolist()
    assert table["probability"].to_list() == pytest.approx(labels.state_probs.max(axis=1).tolist())


def test_what_may_follow_can_be_copied(folder, tmp_path):
    (tmp_path / "my shop").mkdir()
    model = tmp_path / "my shop" / "m.seachange"
    stdout, _ = succeed("learn", folder / "early.csv", "-o", model, *QUICK, "--objective", "dm")
    steps = [
        shlex.split(line.removeprefix("Next:"), comments=True) for line in stdout.splitlines() if " seachange " in line
    ]
    assert [step[1] for step in steps] == ["report", "evaluate", "inspect"]
    assert steps[1] == ["seachange", "evaluate", "LATER_LOG", str(model)]
    words = [str(folder / "late.csv") if word == "LATER_LOG" else word for word in steps[1][1:]]
    assert run(*words, "--columns", COLUMNS).exit_code == 0


@pytest.mark.small
def test_next_steps_stand_below_each_other():
    assert next_steps(("check", "a b.csv", "look"), ("learn", "x", "go on")) == (
        "Next: seachange check 'a b.csv'  # look\n      seachange learn x          # go on"
    )


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("ev", ["evaluate"]),
        ("replicate s", ["synthetic"]),
        ("learn --or", ["--oracle"]),
        ("learn --oracle ch", ["change-point"]),
        ("evaluate a.csv m --interval b", ["bootstrap", "bernstein"]),
        ("states --qu", ["--quiet"]),
        ("learn ear", []),
    ],
)
def test_the_shell_completes_commands_options_and_choices(words, completed):
    """Files are left to the shell, which knows them."""
    line = f"seachange {words}".split(" ")
    environment = {
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
        "_SEACHANGE_COMPLETE": "complete_bash",
    }
    code = "import sys; from seachange.cli import main; sys.argv = ['seachange']; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == completed, done.stderr


def test_the_script_for_a_shell_is_given():
    assert "_COMPLETE=complete_bash" in run("--show-completion", "bash").stdout


def test_the_page_about_the_command_line_knows_every_command_and_word():
    page = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text(encoding="utf-8")
    for command in {path[0] for path in all_commands()}:
        assert f"`seachange {command}" in page, command
    for word in (*USUAL_NAMES, "contexts"):
        assert f"| `{word}` |" in page
    for code in (0, 1, ERROR, BUG):
        assert f"| {code} |" in page
    wrong = re.search(r"^\$ seachange (.*)\n(Error: .*)$", page, flags=re.MULTILINE)
    assert misuse(*shlex.split(wrong[1])) == wrong[2].replace("seachange learn", "root learn")
