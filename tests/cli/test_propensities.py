"""Logs whose propensities nobody wrote down, on the command line."""

import json
import re

import pytest

import seachange as sc
from cli.shop import COLUMNS, MAPPING, NAMES, in_a_shell, succeed, succeed_in_json, table_of_two_worlds

WITHOUT = ",".join(pair for pair in COLUMNS.split(",") if not pair.startswith("propensity"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A log without propensities."""
    path = tmp_path_factory.mktemp("bare") / "bare.csv"
    table_of_two_worlds(0).drop(NAMES["propensity"]).write_csv(path)
    return path


def test_states_are_found_without_propensities(bare):
    result, _ = succeed_in_json("states", bare, "--columns", WITHOUT, "--oracle", "change-point", "--states", "2")
    assert result["n_states"] == 2


def test_learning_without_propensities_names_the_option(bare, tmp_path):
    done = in_a_shell("learn", bare, "-o", tmp_path / "m", "--columns", WITHOUT, "--oracle", "none")
    assert done.returncode == 2
    assert "--columns propensity=..., or estimate them with --estimate-propensities" in done.stderr
    assert not (tmp_path / "m").exists()


def test_the_direct_method_learns_without_propensities(bare, tmp_path):
    succeed("learn", bare, "-o", tmp_path / "m", "--columns", WITHOUT, "--oracle", "none", "--objective", "dm")
    assert sc.load(tmp_path / "m").provenance.propensity_source == "unknown"


def test_estimates_are_shown_used_and_reported_once(bare, tmp_path):
    arguments = ("--columns", WITHOUT, "--estimate-propensities")
    done = in_a_shell("learn", bare, "-o", tmp_path / "m", *arguments, "--oracle", "none", "--objective", "ips")
    assert done.returncode == 0, done.stderr
    assert re.search(r"Estimated the propensities of [\d,]+ rounds .*calibration error 0\.\d+ \(", done.stdout)
    assert done.stderr.count("Note: learning uses estimated propensities") == 1
    model = sc.load(tmp_path / "m")
    assert model.provenance.propensity_source == "estimated"
    log = sc.read_log(bare, {word: MAPPING[word] for word in ("action", "reward", "time")})
    log = log.with_propensities(sc.estimate_propensities(log), estimated=True)
    assert model.provenance.fingerprint == log.fingerprint()
    done = in_a_shell("evaluate", bare, tmp_path / "m", *arguments, "--json")
    assert done.stderr.count("uses estimated propensities") == 1


@pytest.mark.filterwarnings("ignore:learning uses estimated")
def test_estimates_replace_propensities_that_were_made_up(folder, tmp_path):
    arguments = ("--columns", COLUMNS, "--oracle", "none", "--objective", "dm", "--estimate-propensities")
    _, stderr = succeed("learn", folder / "early.csv", "-o", tmp_path / "m", *arguments)
    assert "replaces the propensities in the log" in stderr
    assert sc.load(tmp_path / "m").provenance.propensity_source == "estimated"


def test_check_says_which_model_estimates_propensities_and_how_well(bare):
    done = in_a_shell("check", bare, "--columns", WITHOUT)
    assert re.search(r"Estimated the propensities of [\d,]+ rounds .*calibration error 0\.\d+ \(", done.stdout)
    result = json.loads(in_a_shell("check", bare, "--columns", WITHOUT, "--json").stdout)
    assert result["estimated_propensities"]["model"] in ("frequencies", "linear", "boosted")
    assert 0 <= result["estimated_propensities"]["calibration_error"] < 0.1
