"""What all commands have in common: help that fits, --quiet, completion, what to do next."""

import re
import shlex
from pathlib import Path

import polars
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import seachange as sc
from cli.shop import COLUMNS, QUICK, N, in_a_shell, late_log, misuse, run, succeed, succeed_in_json
from seachange.cli.commands import app
from seachange.cli.console import BUG, ERROR, NOT_USABLE, WARNINGS, next_steps
from seachange.formats.column_roles import USUAL_NAMES


def commands_of(group, *path):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, *path, name)
        else:
            yield (*path, name)


def all_commands():
    return list(commands_of(get_command(app)))


@pytest.mark.parametrize("command", all_commands(), ids=" ".join)
def test_every_command_can_be_quiet_and_answers_in_json(command):
    stdout, _ = succeed(*command, "--help")
    assert "--quiet" in stdout
    assert "--json" in stdout


def unframed(text):
    """The words of a help page, without its frames."""
    return " ".join(text.translate(str.maketrans("╭╮╰╯│─", "      ")).split())


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("command", [(), ("replicate",), *all_commands()], ids=" ".join)
def test_help_fits_the_terminal_and_names_every_option(command, width):
    result = CliRunner(env={"COLUMNS": str(width), "TERMINAL_WIDTH": ""}).invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert all(len(line) <= width for line in result.stdout.splitlines())
    words = unframed(result.stdout)
    assert words.startswith(f"Usage: root {' '.join(command)}".rstrip())
    assert "<bool>" not in words
    found = get_command(app)
    for name in command:
        found = found.commands[name]
    for parameter in found.params:
        assert parameter.opts[-1] in words or parameter.metavar in words
        # A text that is wrapped has the next option's name between its lines, or none.
        assert width < 200 or " ".join((parameter.help or "").split())[:60] in words


def all_helps():
    for path in all_commands():
        found = get_command(app)
        for name in path:
            found = found.commands[name]
        yield " ".join(path), found.help
        yield from ((f"{' '.join(path)} {each.opts[0]}", each.help) for each in found.params)


def test_every_line_of_help_starts_with_a_verb():
    """Arguments are nouns; everything else says what it does."""
    verbs = {
        "Add", "Average", "Check", "Choose", "Clip", "Compute", "Deploy", "Draw", "Drop", "Estimate", "Evaluate",
        "Find", "Keep", "Learn", "Map", "Match", "Maximize", "Measure", "Model", "Overwrite", "Predict", "Print",
        "Read", "Replay", "Run", "Sample", "Set", "Show", "Simulate", "Start", "Stop", "Use", "Write",
    }  # fmt: skip
    for name, text in all_helps():
        if not name.endswith((" log", " model", " more")):
            assert text.removeprefix("With --at: ").split()[0].capitalize() in verbs, name


def test_the_help_lists_commands_along_the_pipeline_and_exit_codes():
    words = unframed(succeed("--help")[0])
    names = ["demo", "check", "learn", "inspect", "states", "evaluate", "bounds", "report", "arena", "replicate"]
    places = [words.index(f" {name} {name_help(name)}") for name in names]
    assert places == sorted(places)
    for code in ("0 success", "2 error", "3 log usable with warnings", "4 log not usable", "70 bug", "130 interrupted"):
        assert code in words


def name_help(name):
    command = get_command(app).commands[name]
    return (command.help or "").split("\n")[0]


def test_the_help_of_columns_names_all_roles():
    words = unframed(succeed("learn", "--help")[0])
    for role in (*USUAL_NAMES, "contexts"):
        assert role in words.split("--columns")[1].split("--format")[0]


def test_the_version_is_printed():
    assert succeed("--version")[0] == f"seachange {sc.__version__}\n"


def test_a_quiet_command_says_nothing_and_does_its_work(folder, tmp_path):
    arguments = ("learn", folder / "early.csv", "-o", tmp_path / "m", *QUICK, "--objective", "dm")
    assert succeed(*arguments, "--quiet") == ("", "")
    assert sc.load(tmp_path / "m").n_states == 2
    result, stderr = succeed_in_json(*arguments, "--force", "-q")
    assert stderr == ""
    assert result["n_states"] == 2


def test_a_quiet_command_has_no_notes_but_errors(folder, tmp_path):
    arguments = ("states", folder / "late.csv", folder / "shop.seachange", "--columns", COLUMNS, "--oracle", "hmm")
    assert "Note: the states are the model's" in succeed(*arguments, "--states", "3")[1]
    assert succeed(*arguments, "--states", "3", "--quiet") == ("", "")
    assert "auto or a number" in misuse(*arguments, "--states", "many", "--quiet")


def test_the_demo_can_be_quiet_and_answers_in_json(tmp_path):
    result, stderr = succeed_in_json("demo", "--out", tmp_path / "demo", "--quiet")
    assert stderr == ""
    assert result["n_states"] == 3


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_state_of_every_round_can_be_written(folder, tmp_path, suffix):
    target = tmp_path / f"rows{suffix}"
    stdout, _ = succeed("states", folder / "late.csv", folder / "shop.seachange", "--columns", COLUMNS, "-o", target)
    assert f"Wrote {target}" in stdout
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
    steps = [shlex.split(line.removeprefix("Next:")) for line in stdout.splitlines() if " seachange " in line]
    assert [step[1] for step in steps] == ["report", "evaluate", "inspect"]
    assert steps[1] == ["seachange", "evaluate", "LATER_LOG", str(model)]
    words = [str(folder / "late.csv") if word == "LATER_LOG" else word for word in steps[1][1:]]
    assert run(*words, "--columns", COLUMNS).exit_code == 0


def test_next_steps_stand_below_each_other():
    assert next_steps(("check", "a b.csv"), ("learn", "x")) == (
        "Next: seachange check 'a b.csv'\n      seachange learn x"
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
def test_the_shell_completes_commands_options_and_choices(words, completed, monkeypatch):
    """Files are left to the shell, which knows them."""
    line = f"seachange {words}".split(" ")
    monkeypatch.setenv("COMP_WORDS", " ".join(line))
    monkeypatch.setenv("COMP_CWORD", str(len(line) - 1))
    monkeypatch.setenv("_SEACHANGE_COMPLETE", "complete_bash")
    done = in_a_shell()
    assert done.stdout.split() == completed, done.stderr


def test_the_script_for_a_shell_is_given(monkeypatch):
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))  # there may be no shell
    assert "_COMPLETE=complete_bash" in run("--show-completion").stdout


def test_the_page_about_the_command_line_knows_every_command_and_word():
    page = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text(encoding="utf-8")
    for command in {path[0] for path in all_commands()}:
        assert f"`seachange {command}" in page, command
    for word in (*USUAL_NAMES, "contexts"):
        assert f"| `{word}` |" in page
    for code in (0, ERROR, WARNINGS, NOT_USABLE, BUG):
        assert f"| {code} |" in page
    wrong = re.search(r"^\$ seachange (.*)\n(Error: .*)$", page, flags=re.MULTILINE)
    assert misuse(*shlex.split(wrong[1])) == wrong[2].replace("seachange learn", "root learn")
