"""seachange evaluate: the answer, what it stands on, and what it refuses."""

import shlex
import warnings

import numpy as np
import polars
import pytest

import seachange as sc
from cli.shop import (
    COLUMNS,
    NAMES,
    QUICK,
    N,
    early_log,
    fail,
    in_a_shell,
    late_log,
    misuse,
    succeed,
    succeed_in_json,
    table_of_two_worlds,
)
from seachange.errors import ParameterError
from seachange.evaluation import evaluate
from seachange.learning import relearn


def test_evaluate_gives_the_estimates_of_the_library(folder):
    arguments = ("--columns", COLUMNS, "--clip", "20", "--confidence", "0.9", "--estimators", "dr, ips,sndr")
    result, stderr = succeed_in_json("evaluate", folder / "late.csv", folder / "shop.seachange", *arguments)
    model, log = sc.load(folder / "shop.seachange"), late_log(folder)
    names = ("dr", "ips", "sndr")
    expected = evaluate(log, model.policies, names, clip=20, confidence=0.9, labels=model.label_ahead(log))
    found = [row for row in result["estimates"] if row["policy"] == "by log rewards"]
    assert [row["estimator"] for row in found] == [estimate.estimator for estimate in expected]
    for row, estimate in zip(found, expected, strict=True):
        for name in ("value", "std_error", "low", "high", "effective_samples", "max_weight"):
            assert row[name] == pytest.approx(getattr(estimate, name), rel=1e-12)
    deployment = sc.evaluate_deployment(log, model, confidence=0.9)
    shown = {
        "logging policy": deployment.logging,
        "best single": deployment.single,
        "learning single": deployment.learning_single,
        "frozen states": deployment.frozen,
        "switching policy": deployment,
    }
    assert [row["policy"] for row in result["estimates"][:5]] == list(shown)
    for row, estimate in zip(result["estimates"], shown.values(), strict=False):
        for name in ("value", "std_error", "low", "high"):
            assert row[name] == pytest.approx(getattr(estimate, name), rel=1e-12)
            assert result["deployment"]["gain"][name] == pytest.approx(getattr(deployment.gain, name), rel=1e-12)
    assert shown["logging policy"].value == pytest.approx(log.rewards.mean())
    assert {"in state 0", "in state 1"} <= {row["policy"] for row in result["estimates"]}
    assert "switching policy" in stderr
    assert "Note" not in stderr


def test_evaluate_prints_a_table(folder):
    stdout, stderr = succeed("evaluate", folder / "late.csv", folder / "shop.seachange", "--columns", COLUMNS)
    assert "switching policy" in stdout
    assert "95% interval" in stdout
    assert stderr == ""


def test_no_cell_of_the_estimates_wraps_at_80_columns(folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ("--columns", COLUMNS, "--estimators", "switch-dr,dr-os,dr", "--interval", "bootstrap")
    stdout, _ = succeed("evaluate", folder / "late.csv", folder / "shop.seachange", *arguments)
    table = stdout.split("\n\n")[1].splitlines()
    # title and headings; logging, single and frozen states or learning; three estimators, two states; note
    assert len(table) == 2 + 5 + 3 + 2 + 1
    assert [line for line in table if len(line) > 80] == []
    assert table[-1] == "samples: effective sample size; bootstrap intervals."


def test_evaluate_online_judges_the_deployment_and_says_that_rewards_were_missed(folder):
    arguments = ("evaluate", folder / "late.csv", folder / "shop.seachange", "--columns", COLUMNS, "--online")
    result, stderr = succeed_in_json(*arguments, "--seed", "3", "--confidence", "0.9")
    model, log = sc.load(folder / "shop.seachange"), late_log(folder)
    for found, method in zip(result["online"], ("replay", "dr-ns"), strict=True):
        expected = sc.evaluate_online(log, model.deployer(), method, confidence=0.9, seed=3)
        assert found["estimator"] == method
        for name in ("value", "std_error", "low", "high", "acceptance_rate"):
            assert found[name] == pytest.approx(getattr(expected, name), abs=1e-12)
        assert 0 < found["n_accepted"] < len(log)
        assert found["notes"] == list(expected.notes)
        assert f"{method}: {expected.notes[0][:30]}" in stderr
    assert "saw the rewards of only" in stderr
    assert "the deployment, replayed on the log" in stderr


def test_evaluate_online_says_where_the_deployment_lived_through_too_little(folder, tmp_path):
    polars.read_csv(folder / "late.csv").head(60).write_csv(tmp_path / "short.csv")
    arguments = ("evaluate", tmp_path / "short.csv", folder / "shop.seachange", "--columns", COLUMNS, "--online")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result, _ = succeed_in_json(*arguments, "--force")
    told = [str(each.message) for each in caught]
    assert sum("Forced estimate, not reliable. Only" in each for each in told) == 2
    assert [each["estimator"] for each in result["online"]] == ["replay", "dr-ns"]


def test_evaluate_over_time_gives_periods_and_a_forecast(folder):
    arguments = ("evaluate", folder / "late.csv", folder / "shop.seachange", "--columns", COLUMNS)
    result, stderr = succeed_in_json(*arguments, "--over-time", "50")
    assert [each["last_round"] for each in result["over_time"]] == list(range(49, 800, 50))
    model, log = sc.load(folder / "shop.seachange"), late_log(folder)
    expected = sc.evaluate_by_period(log, model.policies, 50, labels=model.label_ahead(log))
    assert [each["value"] for each in result["over_time"]] == pytest.approx(expected.values.tolist())
    assert result["forecast"]["value"] == pytest.approx(sc.forecast(expected).value)
    assert "Forecast for the next period:" in stderr
    few, stderr = succeed_in_json(*arguments, "--over-time", "400")
    assert few["forecast"] is None
    assert "No forecast. A forecast needs 8 past periods" in stderr
    assert "should be hour, day, week or a number of rounds" in misuse(*arguments, "--over-time", "month")


def test_evaluate_at_a_time_to_come(folder):
    """Times are rounds in this shop: the seconds of a quarter of an hour."""
    arguments = ("evaluate", folder / "late.csv", folder / "shop.seachange", "--columns", COLUMNS)
    result, stderr = succeed_in_json(*arguments, "--at", "1970-01-08T00:10, 1970-01-15", "--confidence", "0.9")
    model, log = sc.load(folder / "shop.seachange"), late_log(folder)
    labels, days = model.label_ahead(log), np.array([7, 14]) * 86_400
    expected = sc.evaluate_future(log, model.policies, days, labels=labels, confidence=0.9)
    for name in ("value", "std_error", "low", "high", "effective_samples", "share", "n_alike"):
        assert result["future"][name] == pytest.approx(getattr(expected, name), rel=1e-12)
    assert f"At 2 times from 1970-01-08 00:10 to 1970-01-15 00:00: {expected.value:.4f}, 90% interval" in stderr
    assert "Note: 1 of 2 times is not after the log." not in stderr
    stdout, stderr = succeed(*arguments, "--at", "600", "--recurs", "hour")
    assert "Note: The time is not after the log. The value is that of all similar times" in stderr
    assert "from 800 rounds with the same hour (effective sample size" in stdout
    refused, stderr = succeed_in_json(*arguments, "--at", "1970-01-02")
    assert refused["future"] is None
    assert "No estimate. The log has no rounds with the weekday 4" in stderr
    assert "'hour of the week'" in misuse(*arguments, "--at", "600", "--recurs", "month")
    assert "should be times such as 2026-02-21T12:00" in misuse(*arguments, "--at", "tomorrow")


def test_evaluate_begins_with_the_answer_and_ends_with_what_it_stands_on(folder):
    stdout, _ = succeed("evaluate", folder / "late.csv", folder / "shop.seachange", "--columns", COLUMNS)
    lines = stdout.strip().splitlines()
    assert lines[0].startswith("The switching policy would earn 0.")
    assert "The best single policy would earn 0." in lines[0]
    assert "; the logging policy earned 0." in lines[0]
    assert "is estimated from the log and " in lines[0]
    assert "is simulated" in lines[0]
    assert lines[-3].startswith("Support: effective sample size ")
    assert "of 800 rounds" in lines[-3]
    assert lines[-1].startswith("Next: seachange report ")


@pytest.mark.parametrize("command", ["states", "evaluate", "report"])
def test_after_a_new_regime_the_next_command_learns_it(folder, command):
    files = (folder / "new.csv", folder / "shop.seachange", "--columns", COLUMNS)
    out = ("-o", folder / "new.html") if command == "report" else ()
    document, text = succeed_in_json(command, *files, *out)
    regimes = (document["states"] if command == "report" else document)["new_regimes"]
    (expected,) = sc.load(folder / "shop.seachange").new_regimes(
        sc.load(folder / "shop.seachange").read_log(folder / "new.csv")
    )
    assert regimes == [vars(expected)]
    assert abs(expected.first - 3 * N // 4) < 10
    assert expected.ongoing
    sentence = f"New regime since round {expected.first}: none of the 2 known states explains these rewards."
    assert sentence in " ".join(text.split())
    *_, advice, step = text.strip().splitlines()
    assert advice.startswith("Do not deploy the model frozen: ")
    words = shlex.split(step.removeprefix("Next: seachange "))
    assert words[:5] == ["learn", "OLD_LOG", str(folder / "new.csv"), "--start-from", str(folder / "shop.seachange")]
    words[words.index("OLD_LOG")] = str(folder / "early.csv")
    words[-1] = str(folder / f"{command}-{words[-1].rsplit('/', 1)[-1]}")
    succeed(*words, "--states", "3", "--objective", "dm")
    assert sc.load(words[-1]).new_regimes(late_log(folder)) == ()


def test_evaluate_with_bounds_needs_the_range_of_rewards_that_are_not_clicks(folder):
    arguments = ("evaluate", folder / "late.csv", folder / "shop.seachange", "--columns", COLUMNS)
    assert "reward_range" in fail(ParameterError, *arguments, "--interval", "bernstein")
    for interval in ("bernstein", "sequence"):
        _, stderr = succeed(*arguments, "--interval", interval, "--reward-range", "-1,2")
        assert f"snips and dm have no {interval} intervals, so they are left out." in stderr
        result, _ = succeed_in_json(*arguments, "--interval", interval, "--reward-range", "-1,2")
        found = next(row for row in result["estimates"] if row["policy"] == "by log rewards")
        assert (found["estimator"], found["interval"]) == ("dr", interval)
        assert found["low"] < found["value"] < found["high"]
    assert "LOW,HIGH" in misuse(*arguments, "--reward-range", "much")


def test_evaluate_refuses_what_the_log_cannot_support_with_exit_code_2(folder, tmp_path):
    table_of_two_worlds(1, start=N).head(20).write_csv(tmp_path / "short.csv")
    done = in_a_shell("evaluate", tmp_path / "short.csv", folder / "shop.seachange", "--columns", COLUMNS)
    assert done.returncode == 2
    assert "of 20 rounds; at least 30" in done.stderr
    assert "Pass --force to get the numbers anyway." in done.stderr
    assert done.stdout == ""


def test_a_later_log_that_shares_time_with_the_one_that_was_learned_from_is_noted(folder, tmp_path):
    table = table_of_two_worlds(1)
    table.with_columns(polars.col(NAMES["time"]) + 600).write_csv(tmp_path / "shifted.csv")
    arguments = ("evaluate", tmp_path / "shifted.csv", folder / "shop.seachange", "--columns", COLUMNS)
    assert (
        "24.9% of these rounds fall in the period of the log that the model was learned from (0"
        in succeed(*arguments)[1]
    )
    table.with_columns(polars.col(NAMES["time"]) + 799).write_csv(tmp_path / "later.csv")
    arguments = ("evaluate", tmp_path / "later.csv", folder / "shop.seachange", "--columns", COLUMNS)
    assert succeed(*arguments)[1] == ""


@pytest.mark.parametrize("oracle", ["hmm", "change-point"])
def test_the_answer_is_that_of_the_deployment_whatever_found_the_states(folder, tmp_path, oracle):
    succeed("learn", folder / "early.csv", "-o", tmp_path / "m", *QUICK, "--oracle", oracle)
    told, stderr = succeed("evaluate", folder / "late.csv", tmp_path / "m", "--columns", COLUMNS)
    assert stderr == ""
    assert "states inferred from earlier rewards" in told
    assert "latent" not in told
    expected = sc.evaluate_deployment(late_log(folder), sc.load(tmp_path / "m"))
    answer = f"would earn {expected.value:.4f} per round (95% interval {expected.low:.4f} to {expected.high:.4f})"
    assert answer in told.splitlines()[0]
    for words, gain in (("the gain is", expected.gain), ("the gain would be", expected.over_learning)):
        if gain is not None:
            assert f"{words} {gain.value:+.4f} ({gain.low:+.4f} to {gain.high:+.4f})" in told.splitlines()[0]


def test_a_single_policy_has_no_simulated_part(folder, tmp_path):
    succeed("learn", folder / "early.csv", "-o", tmp_path / "m", *QUICK, "--oracle", "none")
    result, stderr = succeed_in_json("evaluate", folder / "late.csv", tmp_path / "m", "--columns", COLUMNS)
    assert "simulated" not in stderr
    assert (result["deployment"]["simulated"], result["deployment"]["simulated_error"]) == (0, 0)
    assert "best single" not in {row["policy"] for row in result["estimates"]}


def test_the_log_that_was_learned_from_is_evaluated_on_held_out_rounds(folder):
    result, stderr = succeed_in_json("evaluate", folder / "early.csv", folder / "shop.seachange", "--columns", COLUMNS)
    assert "Note: the model was learned from this log" in stderr
    assert "for the last 320 rounds, with policies learned the same way from the first 480." in stderr
    assert result["diagnostics"]["n_rounds"] == 320
    # The same by hand: learn alike from the first part, judge on the rest.
    log, model = early_log(folder), sc.load(folder / "shop.seachange")
    alike = relearn(log, model, 480)
    expected = sc.evaluate_deployment(log[480:], alike)
    assert result["deployment"]["value"] == pytest.approx(expected.value, rel=1e-9)


@pytest.mark.parametrize("option", [("--confidence", "2"), ("--clip", "0")])
def test_evaluate_refuses_settings_that_cannot_work(folder, option):
    arguments = ("evaluate", folder / "late.csv", folder / "shop.seachange", "--columns", COLUMNS)
    assert option[0].strip("-") in fail(ParameterError, *arguments, *option)
