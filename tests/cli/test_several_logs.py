"""Learning from several logs, and starting from an earlier model."""

import shlex

import numpy as np
import polars
import pytest

import seachange as sc
from cli.shop import COLUMNS, ITEMS, MAPPING, NAMES, QUICK, N, fail, run, succeed, succeed_in_json, table_of_two_worlds
from seachange.errors import LogError, OutputError

DM = (*QUICK, "--objective", "dm")


@pytest.fixture(scope="module")
def both(folder):
    """What was learned from both logs, in a file."""
    succeed("learn", folder / "early.csv", folder / "late.csv", "-o", folder / "both.seachange", *DM)
    return folder / "both.seachange"


def joined(folder):
    early = sc.read_log(folder / "early.csv", MAPPING)
    return sc.BanditLog.joined([early, sc.read_log(folder / "late.csv", MAPPING, features=early.features)])


def steps(stdout):
    return [shlex.split(line.removeprefix("Next:"))[1:] for line in stdout.splitlines() if " seachange " in line]


def test_learn_does_what_the_library_does(folder, both, tmp_path):
    sc.learn(joined(folder), n_states=2, objective="dm").save(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == both.read_bytes()
    model = sc.load(both)
    assert model.provenance.n_rounds == 2 * N
    assert [part.n_rounds for part in model.provenance.parts] == [N, N]
    assert "800 rounds + 800 rounds" in succeed("inspect", both)[0]


def test_the_order_of_the_logs_does_not_matter(folder, both, tmp_path):
    stdout, _ = succeed("learn", folder / "late.csv", folder / "early.csv", "-o", tmp_path / "m", *DM)
    assert (tmp_path / "m").read_bytes() == both.read_bytes()
    assert steps(stdout)[0][:3] == ["report", str(folder / "late.csv"), str(tmp_path / "m")]


def test_two_halves_in_different_formats_are_the_whole_log(folder, tmp_path):
    table = polars.concat([polars.read_csv(folder / f"{name}.csv") for name in ("early", "late")])
    table.write_csv(tmp_path / "all.csv")
    table[:N].write_ndjson(tmp_path / "first.jsonl")
    table[N:].write_parquet(tmp_path / "second.parquet")
    features = sc.read_log(tmp_path / "first.jsonl", MAPPING).features
    whole = sc.learn(sc.read_log(tmp_path / "all.csv", MAPPING, features=features), n_states=2, objective="dm")
    succeed("learn", tmp_path / "second.parquet", tmp_path / "first.jsonl", "-o", tmp_path / "m", *DM)
    model = sc.load(tmp_path / "m")
    assert model.provenance.fingerprint == whole.provenance.fingerprint
    np.testing.assert_array_equal(model.labels.states, whole.labels.states)
    np.testing.assert_array_equal(model.world.reward_coefs, whole.world.reward_coefs)


def test_logs_without_times_are_joined_in_the_order_given(folder, tmp_path):
    for name, n in (("early", N), ("late", 700)):
        polars.read_csv(folder / f"{name}.csv").drop(NAMES["time"])[:n].write_csv(tmp_path / f"{name}.csv")
    columns = ",".join(f"{role}={NAMES[role]}" for role in ("action", "reward", "propensity"))
    found = []
    for names in (("early", "late"), ("late", "early")):
        logs = [tmp_path / f"{name}.csv" for name in names]
        succeed("learn", *logs, "-o", tmp_path / "m", "--columns", columns, "--oracle", "none", "--force")
        found.append([part.n_rounds for part in sc.load(tmp_path / "m").provenance.parts])
    assert found == [[N, 700], [700, N]]


@pytest.mark.parametrize("name", ["early", "late"])
def test_a_log_that_was_learned_from_does_not_pass_as_unseen(folder, both, name):
    log = folder / f"{name}.csv"
    result, stderr = succeed_in_json("evaluate", log, both, "--columns", COLUMNS)
    assert "Note: the model was learned from this log" in stderr
    assert result["diagnostics"]["n_rounds"] == 320
    with pytest.raises(sc.RefusedError, match="learned from this log"):
        sc.evaluate_deployment(sc.load(both).read_log(log), sc.load(both))


def test_a_log_that_continues_the_logs_that_were_learned_from_is_evaluated_on_its_new_rounds(folder, both, tmp_path):
    tables = [polars.read_csv(folder / f"{name}.csv") for name in ("early", "late")]
    later = table_of_two_worlds(2, start=2 * N)
    polars.concat([*tables, later]).write_csv(tmp_path / "all.csv")
    polars.concat([tables[1], later]).write_csv(tmp_path / "new.csv")
    for log in ("all.csv", "new.csv"):
        result, _ = succeed_in_json("evaluate", tmp_path / log, both, "--columns", COLUMNS)
        assert result["diagnostics"]["n_rounds"] == N


def test_states_keep_the_numbers_of_the_model_that_learning_starts_from(folder, tmp_path):
    """A log that begins in the other world would number the states the other way round."""
    old = sc.load(folder / "shop.seachange")
    late = polars.read_csv(folder / "late.csv")[N // 4 :]
    late.write_csv(tmp_path / "late.csv")
    numbers = []
    for name, options in {"anew": DM[:-2], "again": ("--start-from", folder / "shop.seachange")}.items():
        words = (tmp_path / "late.csv", "-o", tmp_path / name, *options, "--states", "2", "--objective", "dm")
        stdout, _ = succeed("learn", *words)
        numbers.append(sc.load(tmp_path / name).labels.states)
    np.testing.assert_array_equal(numbers[1], 1 - numbers[0])
    again = sc.load(tmp_path / "again")
    assert again.features == old.features
    np.testing.assert_allclose(again.world.reward_coefs, old.world.reward_coefs, atol=0.1)
    # The next steps work as they are printed.
    assert [step[0] for step in steps(stdout)] == ["report", "evaluate", "inspect"]
    assert run(*steps(stdout)[0]).exit_code == 0


def test_all_logs_are_read_as_the_model_reads_them(folder, tmp_path):
    model = folder / "shop.seachange"
    words = ("--start-from", model, "--states", "2", "--objective", "dm")
    succeed("learn", folder / "late.csv", folder / "early.csv", "-o", tmp_path / "m", *words)
    found, old = sc.load(tmp_path / "m"), sc.load(model)
    assert found.features == old.features
    np.testing.assert_array_equal(found.labels.states[:N], old.labels.states)


@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
@pytest.mark.parametrize("oracle", ["none", "change-point"])
def test_learning_can_start_from_any_model_and_with_any_number_of_states(folder, tmp_path, oracle):
    succeed("learn", folder / "early.csv", "-o", tmp_path / "old", *DM[:2], "--oracle", oracle, "--objective", "dm")
    start = ("--start-from", tmp_path / "old", "--objective", "dm")
    for states in ("auto", "1", "3"):
        succeed("learn", folder / "late.csv", "-o", tmp_path / "m", *start, "--states", states, "--force")
    _, stderr = succeed("learn", folder / "late.csv", "-o", tmp_path / "m", *start, "--oracle", "none", "--force")
    assert "Note: states keep their numbers only with --oracle hmm." in stderr


def test_an_action_that_the_first_log_does_not_have_is_named_in_any_order(folder, tmp_path):
    column = polars.col(NAMES["action"])
    table_of_two_worlds(1, start=N).with_columns(column.replace("coats", "rugs")).write_csv(tmp_path / "rugs.csv")
    logs = [folder / "early.csv", tmp_path / "rugs.csv"]
    for order in (logs, logs[::-1]):
        message = fail(LogError, "learn", *order, "-o", tmp_path / "m", *QUICK)
        assert message.startswith(f"{str(tmp_path / 'rugs.csv')!r}: action 'rugs' is not one of boots, coats, lamps")
        assert 'on_bad_rows="drop"' in message
    succeed("learn", *logs, "-o", tmp_path / "m", *DM, "--oracle", "none", "--drop-bad-rows")
    assert sc.load(tmp_path / "m").provenance.action_names == ITEMS


def test_what_prevents_joining_names_the_files(folder, tmp_path):
    table_of_two_worlds(3, start=N // 2).write_csv(tmp_path / "between.csv")
    message = fail(LogError, "learn", tmp_path / "between.csv", folder / "early.csv", "-o", tmp_path / "m", *QUICK)
    assert "the logs overlap in time: log 2 starts at 400, before log 1 ends at 799" in message
    assert f"log 1 is {str(folder / 'early.csv')!r}, log 2 is {str(tmp_path / 'between.csv')!r}" in message
    message = fail(LogError, "learn", folder / "early.csv", folder / "shop.seachange", "-o", tmp_path / "m", *QUICK)
    assert f"is a model, not a log. To keep its state numbers, use --start-from {folder / 'shop.seachange'}." in message
    message = fail(LogError, "learn", folder / "early.csv", tmp_path / "nothing.csv", "-o", tmp_path / "m", *QUICK)
    assert "nothing.csv" in message


def test_no_input_is_overwritten(folder):
    early, late, model = (folder / name for name in ("early.csv", "late.csv", "shop.seachange"))
    for out in (late, model):
        words = ("learn", early, late, "--start-from", model, "-o", out, "--force")
        assert "is an input and would be overwritten" in fail(OutputError, *words)


def test_propensities_are_estimated_log_by_log(folder, tmp_path):
    for name in ("early", "late"):
        polars.read_csv(folder / f"{name}.csv").drop(NAMES["propensity"]).write_csv(tmp_path / f"{name}.csv")
    columns = ",".join(f"{role}={NAMES[role]}" for role in ("action", "reward", "time"))
    words = ("--columns", columns, "--estimate-propensities", "--oracle", "none", "--objective", "dm")
    stdout, _ = succeed("learn", tmp_path / "early.csv", tmp_path / "late.csv", "-o", tmp_path / "m", *words)
    assert stdout.count("Estimated the propensities of 800 rounds") == 2
    model = sc.load(tmp_path / "m")
    assert model.provenance.propensity_source == "estimated"
    succeed("learn", tmp_path / "late.csv", "-o", tmp_path / "late", "--start-from", tmp_path / "m", *words)
    assert model.provenance.parts[1].fingerprint == sc.load(tmp_path / "late").provenance.fingerprint
