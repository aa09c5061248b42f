"""The command line: what it prints, what it learns, and how it fails."""

import json

import msgspec
import numpy as np
import polars
import pytest

import seachange as sc
from cli.shop import (
    COLUMNS,
    ITEMS,
    NAMES,
    QUICK,
    N,
    early_log,
    fail,
    fail_in_shell,
    in_a_shell,
    late_log,
    misuse,
    run,
    succeed,
    succeed_in_json,
    table_of_two_worlds,
)
from seachange.errors import LogError, ModelFileError, SeachangeWarning
from seachange.learning import try_out


def test_help_lists_the_commands():
    stdout, _ = succeed("--help")
    for command in ("demo", "learn", "states", "evaluate", "bounds", "replicate"):
        assert command in stdout
    assert "synthetic" in succeed("replicate", "--help")[0]


COMMANDS = [
    "demo", "learn", "states", "evaluate", "bounds", "replicate synthetic", "replicate obp-synthetic",
    "replicate open-bandit",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_json_and_a_seed(command):
    stdout, _ = succeed(*command.split(), "--help")
    assert "--json" in stdout
    assert "--seed" in stdout


def test_no_command_shows_the_help():
    result = run()
    assert "Usage" in result.stdout + result.stderr


def test_learn_writes_a_model_of_the_log(folder, tmp_path):
    stdout, stderr = succeed("learn", folder / "early.csv", "-o", tmp_path / "m.seachange", *QUICK)
    assert stderr == ""
    assert "800" in stdout
    assert "2 states" in stdout
    assert str(tmp_path / "m.seachange") in stdout.replace("\n", "")
    model = sc.load(tmp_path / "m.seachange")
    assert model.provenance.action_names == ITEMS
    assert model.provenance.context_names == (NAMES["context"],)
    assert model.provenance.fingerprint == early_log(folder).fingerprint()
    assert model.n_states == 2


@pytest.mark.parametrize("item", ["[red]boots", "[/b]boots", "boots [42]"])
def test_names_are_printed_as_they_are(tmp_path, item):
    column = polars.col(NAMES["action"])
    table_of_two_worlds(0).with_columns(column.replace("boots", item)).write_csv(tmp_path / "log.csv")
    stdout, _ = succeed("learn", tmp_path / "log.csv", "-o", tmp_path / "[b]m", *QUICK, "--oracle", "none")
    for name in (item, NAMES["context"], str(tmp_path / "[b]m")):
        assert name in stdout.replace("\n", "")


def test_learn_does_what_the_library_does(folder, tmp_path):
    succeed("learn", folder / "early.csv", "-o", tmp_path / "m.seachange", *QUICK, "--seed", "3", "--objective", "ips")
    ours, theirs = sc.load(tmp_path / "m.seachange"), sc.learn(early_log(folder), n_states=2, objective="ips", seed=3)
    np.testing.assert_array_equal(ours.labels.states, theirs.labels.states)
    for one, other in zip(ours.policies, theirs.policies, strict=True):
        np.testing.assert_array_equal(one.coefs, other.coefs)


@pytest.mark.parametrize("objective", ["ips", "dr", "poem"])
@pytest.mark.parametrize(("oracle", "kind"), [("change-point", "ChangePointOracle"), ("none", "SingleState")])
def test_learn_takes_every_oracle_and_objective(folder, tmp_path, oracle, kind, objective):
    arguments = ("--columns", COLUMNS, "--oracle", oracle, "--objective", objective)
    result, _ = succeed_in_json("learn", folder / "early.csv", "-o", tmp_path / "m.seachange", *arguments)
    model = sc.load(tmp_path / "m.seachange")
    assert type(model.oracle).__name__ == kind
    assert type(model.learner).__name__.lower() == f"{objective}learner"
    assert result["n_states"] == model.n_states == (2 if oracle == "change-point" else 1)


def test_contexts_can_be_chosen(folder, tmp_path):
    table = table_of_two_worlds(0).with_columns(age=polars.lit(30), height=polars.lit(170))
    table.write_csv(tmp_path / "log.csv")
    columns = f"{COLUMNS},contexts=height+age"
    succeed("learn", tmp_path / "log.csv", "-o", tmp_path / "m", "--columns", columns, "--oracle", "none")
    assert sc.load(tmp_path / "m").provenance.context_names == ("height", "age")


def test_learn_in_json_is_one_document_with_the_prose_beside_it(folder, tmp_path):
    result, stderr = succeed_in_json("learn", folder / "early.csv", "-o", tmp_path / "m.seachange", *QUICK)
    model = sc.load(tmp_path / "m.seachange")
    trial = try_out(early_log(folder), model)
    assert result == {
        "model": str(tmp_path / "m.seachange"),
        "n_states": 2,
        "changes": len(model.labels.change_points),
        "clock": None,  # its times are no dates
        "choice": msgspec.json.decode(msgspec.json.encode(model.choice)),
        "trial": msgspec.json.decode(msgspec.json.encode(trial)),
    }
    assert "2 states" in stderr
    assert "held-out blocks of time (doubly robust" in " ".join(stderr.split())
    gain = f"a gain of {trial.gain[0]:+.4f} ({trial.gain[1]:+.4f} to {trial.gain[2]:+.4f})"
    assert f"Learned from the first 480 rounds, switching among 2 states would earn {trial.switching[0]:.4f}" in stderr
    assert gain in stderr


def test_states_that_follow_the_hour_are_reported_wherever_states_are(tmp_path):
    rng, n = np.random.default_rng(0), 5 * 24 * 30
    hours = np.arange(n) / 30
    actions, morning = rng.integers(2, size=n), hours % 24 < 12
    columns = {"action": actions, "reward": (rng.random(n) < np.where(actions == morning, 0.7, 0.2)).astype(int)}
    moments = np.datetime64("2026-03-02T00:00", "ms") + (3_600_000 * hours).astype("timedelta64[ms]")
    polars.DataFrame(columns | {"propensity": np.full(n, 0.5), "time": moments}).write_parquet(tmp_path / "log.parquet")
    sentence = "States follow the hour of the day: "
    arguments = ("learn", tmp_path / "log.parquet", "-o", tmp_path / "m", "--states", 2, "--objective", "dm")
    result, stderr = succeed_in_json(*arguments)
    assert sentence in " ".join(stderr.split())
    assert result["clock"]["period"] == "day"
    assert result["clock"]["accuracy"] > 0.9
    assert sentence in " ".join(succeed("states", tmp_path / "log.parquet", tmp_path / "m")[0].split())
    succeed("report", tmp_path / "log.parquet", tmp_path / "m", "-o", tmp_path / "r.html")
    assert sentence in (tmp_path / "r.html").read_text()


def test_states_are_those_of_the_model(folder):
    result, stderr = succeed_in_json("states", folder / "late.csv", folder / "shop.seachange", "--columns", COLUMNS)
    labels = sc.load(folder / "shop.seachange").oracle.predict(late_log(folder))
    assert result["n_states"] == 2
    assert result["counts"] == labels.counts.tolist()
    assert result["change_points"] == labels.change_points.tolist()
    assert len(result["change_points"]) == 3
    assert "Changes" in stderr


def test_states_are_found_anew_without_a_model(folder):
    arguments = (*QUICK, "--oracle", "change-point")
    result, _ = succeed_in_json("states", folder / "late.csv", *arguments)
    labels = sc.ChangePointOracle(n_states=2).fit(late_log(folder)).predict(late_log(folder))
    assert result["counts"] == labels.counts.tolist()
    assert result["change_points"] == labels.change_points.tolist()
    stdout, stderr = succeed("states", folder / "late.csv", *arguments)
    assert "Changes" in stdout
    assert stderr == ""


def test_a_log_in_another_order_of_first_actions_is_read_with_the_actions_of_the_model(folder, tmp_path):
    # Without coats, lamps are the second item of the log; they are the third of the model.
    table = table_of_two_worlds(1, start=N).filter(polars.col(NAMES["action"]) != "coats")
    table.with_columns(polars.lit(0.5).alias(NAMES["propensity"])).write_csv(tmp_path / "no-coats.csv")
    arguments = ("evaluate", tmp_path / "no-coats.csv", folder / "shop.seachange", "--columns", COLUMNS)
    result, _ = succeed_in_json(*arguments)
    model = sc.load(folder / "shop.seachange")
    log = sc.read_log(tmp_path / "no-coats.csv", features=model.features)
    expected = sc.evaluate_deployment(log, model)
    found = next(row for row in result["estimates"] if row["policy"] == "switching policy")
    assert found["value"] == pytest.approx(expected.value, rel=1e-12)


def test_a_state_whose_propensities_are_wrong_has_no_value_and_that_is_noted(folder, tmp_path):
    """Too small in one state and too large in the other, they look right on the whole log."""
    propensities = np.repeat([0.2, 1.0, 0.2, 1.0], N // 4)
    table = table_of_two_worlds(1, start=N).with_columns(polars.Series(NAMES["propensity"], propensities))
    table.write_csv(tmp_path / "wrong.csv")
    arguments = ("evaluate", tmp_path / "wrong.csv", folder / "shop.seachange", "--columns", COLUMNS)
    with pytest.warns(SeachangeWarning, match=r"state \d: No estimate. .*weights average .*, not 1"):
        result, _ = succeed_in_json(*arguments)
    assert not [row for row in result["estimates"] if row["policy"].startswith("in state")]


def test_an_action_that_the_model_does_not_know_is_named_and_can_be_dropped(folder, tmp_path):
    column = polars.col(NAMES["action"])
    table = table_of_two_worlds(1, start=N).with_columns(column.replace("coats", "rugs"))
    table.write_csv(tmp_path / "rugs.csv")
    arguments = ("evaluate", tmp_path / "rugs.csv", folder / "shop.seachange", "--columns", COLUMNS)
    message = fail(LogError, *arguments)
    assert "'rugs' is not one of boots, coats, lamps" in message
    with pytest.warns(SeachangeWarning, match="the propensities are too small"):
        result, _ = succeed_in_json(*arguments, "--drop-bad-rows", "--force")
    n = table.filter(column != "rugs").height
    assert result["estimates"][0]["effective_samples"] == pytest.approx(n)


def test_a_context_that_the_model_needs_and_the_log_lacks_is_named(folder, tmp_path):
    table_of_two_worlds(1).drop(NAMES["context"]).write_csv(tmp_path / "less.csv")
    message = fail(LogError, "evaluate", tmp_path / "less.csv", folder / "shop.seachange", "--columns", COLUMNS)
    assert repr(NAMES["context"]) in message


def test_bad_rows_are_an_error_unless_they_are_dropped(folder, tmp_path):
    table = table_of_two_worlds(0)
    table[5, NAMES["propensity"]] = 0.0
    table.write_csv(tmp_path / "bad.csv")
    arguments = ("learn", tmp_path / "bad.csv", "-o", tmp_path / "m", *QUICK, "--oracle", "none")
    assert " of bad.csv has 0 (1 of 800 rows)" in fail(LogError, *arguments)
    assert not (tmp_path / "m").exists()
    succeed(*arguments, "--drop-bad-rows")
    assert sc.load(tmp_path / "m").provenance.n_rounds == N - 1


def test_fixes_name_options(tmp_path):
    table = table_of_two_worlds(0)
    arguments = ("learn", tmp_path / "log.csv", "-o", tmp_path / "m", *QUICK, "--oracle", "none")
    table.with_columns(polars.lit(0.0).alias(NAMES["propensity"])).write_csv(tmp_path / "log.csv")
    assert "without --drop-bad-rows to see the first problem" in fail_in_shell(LogError, *arguments, "--drop-bad-rows")
    table.drop(NAMES["propensity"]).write_csv(tmp_path / "log.csv")
    columns = ",".join(f"{word}={NAMES[word]}" for word in ("action", "reward", "time"))
    arguments = ("learn", tmp_path / "log.csv", "-o", tmp_path / "m", "--columns", columns, "--json")
    assert "--objective dm, which needs none" in fail_in_shell(LogError, *arguments)


def test_columns_without_use_are_left_out_with_a_warning(tmp_path):
    table_of_two_worlds(0).with_columns(city=polars.lit("Oslo")).write_csv(tmp_path / "log.csv")
    with pytest.warns(SeachangeWarning, match="not used as features: 'city' .always 'Oslo'."):
        succeed("learn", tmp_path / "log.csv", "-o", tmp_path / "m", *QUICK, "--oracle", "none")


@pytest.mark.parametrize("states", ["lots", "0", "-1", "2.5", "", "²"])
@pytest.mark.parametrize("command", ["learn", "states"])
def test_a_number_of_states_that_is_none_is_refused(folder, tmp_path, command, states):
    output = ("-o", tmp_path / "m") if command == "learn" else ()
    message = misuse(command, folder / "early.csv", *output, "--columns", COLUMNS, f"--states={states}")
    assert "--states" in message
    assert "auto or a number" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("columns", ["action", "action=", "action=item id,reward"])
def test_columns_must_be_pairs(folder, tmp_path, columns):
    message = misuse("learn", folder / "early.csv", "-o", tmp_path / "m", "--columns", columns)
    assert "--columns" in message
    assert "ROLE=COLUMN" in message


def test_columns_must_be_known_words_and_columns_of_the_log(folder, tmp_path):
    target = ("learn", folder / "early.csv", "-o", tmp_path / "m", "--columns")
    assert "'colour' is not a role" in misuse(*target, "colour=red")
    assert "no column 'item'" in fail(LogError, *target, "action=item")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["--oracle", "crystal-ball"], "--oracle"),
        (["--objective", "luck"], "--objective"),
        (["--seed", "today"], "--seed"),
    ],
)
def test_a_choice_that_is_none_is_refused(folder, tmp_path, arguments, option):
    assert option in misuse("learn", folder / "early.csv", "-o", tmp_path / "m", *arguments)


def test_a_log_or_a_model_that_is_not_there_is_named(folder, tmp_path):
    assert "nothing.csv" in fail(LogError, "states", folder / "nothing.csv")
    assert "there is no such file" in fail(ModelFileError, "evaluate", folder / "late.csv", tmp_path / "nothing")
    assert "there is no such file" in fail(ModelFileError, "states", folder / "late.csv", tmp_path / "nothing")
    assert "is not a model file. `seachange learn" in fail(
        ModelFileError, "evaluate", folder / "late.csv", folder / "late.csv"
    )


def test_main_ends_an_error_of_ours_with_one_line_and_exit_code_2(folder, tmp_path):
    done = in_a_shell("learn", tmp_path / "[/b]nothing.csv", "-o", tmp_path / "m")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"Error: there is no file {str(tmp_path / '[/b]nothing.csv')!r}.\n"


def test_main_prints_warnings_as_notes_and_keeps_stdout_for_json(folder, tmp_path):
    table_of_two_worlds(0).with_columns(city=polars.lit("Oslo")).write_csv(tmp_path / "log.csv")
    done = in_a_shell("states", tmp_path / "log.csv", *QUICK, "--oracle", "change-point", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["n_states"] == 2
    assert "Note: columns that are not used as features: 'city'" in done.stderr
    assert "Traceback" not in done.stderr
    assert ".py:" not in done.stderr


def test_main_ends_misuse_with_exit_code_2(folder):
    done = in_a_shell("states", folder / "early.csv", "--states", "lots")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--states" in done.stderr
