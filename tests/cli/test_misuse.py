"""Commands that are called wrongly: one line, the nearest right word, exit code 2, no traceback."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import seachange as sc
from cli.shop import COLUMNS, fail, in_a_shell, misuse, succeed
from seachange.errors import LogError, ModelFileError, did_you_mean

WRONG_WORDS = [
    (["evaluat"], "unknown command 'evaluat'. Did you mean 'evaluate'?"),
    (["replicate", "sythetic"], "unknown command 'sythetic'. Did you mean 'synthetic'?"),
    (["learn", "LOG", "-o", "m", "--colums", "a=b"], "unknown option --colums. Did you mean '--columns'?"),
    (["learn", "LOG", "-o", "m", "--workers", "2"], "unknown option --workers. See"),
    (
        ["learn", "LOG", "-o", "m", "--oracle", "hm"],
        "--oracle: 'hm' is not one of none, change-point or hmm. Did you mean 'hmm'?",
    ),
    (
        ["learn", "LOG", "-o", "m", "--objective", "luck"],
        "'luck' is not one of ips, snips, poem,",
    ),
    (["learn", "LOG", "-o", "m", "--columns", "acton=x"], "sequence or contexts. Did you mean 'action'?"),
    (["learn", "LOG", "-o", "m", "--seed", "today"], "--seed: "),
    (["learn", "LOG"], "--out / -o is missing. See "),
    (["evaluate", "LOG"], "MODEL is missing. See "),
    (["evaluate", "LOG", "MODEL", "--estimators", "dr,ipps"], "or mrdr. Did you mean 'ips'?"),
    (["evaluate", "LOG", "MODEL", "--over-time", "dya"], "Did you mean 'day'?"),
    (["evaluate", "LOG", "MODEL", "--interval", "normle"], "bernstein or sequence. Did you mean 'normal'?"),
    (["states", "LOG", "-o", "rows.xlsx"], "'rows.xlsx' should end in .csv or .parquet"),
]


@pytest.mark.parametrize(("words", "told"), WRONG_WORDS, ids=[" ".join(words) for words, _ in WRONG_WORDS])
def test_the_nearest_valid_word_is_suggested(folder, words, told):
    places = {"LOG": folder / "early.csv", "MODEL": folder / "shop.seachange"}
    message = misuse(*(places.get(word, word) for word in words))
    assert message.startswith("Error: ")
    assert told in message


def test_a_usage_error_is_one_line_or_a_json_document():
    done = in_a_shell("learn", "--colums", "a=b")
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    done = in_a_shell("learn", "--colums", "a=b", "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "UsageError"
    assert f"Error: {error['message']}\n" == done.stderr


def test_an_error_is_a_json_document_if_asked_for(folder):
    done = in_a_shell("states", folder / "nothing.csv", "--json", "--quiet")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "LogError"
    assert f"Error: {error['message']}\n" == done.stderr


def test_words_may_be_in_any_case(folder, tmp_path):
    arguments = ("learn", folder / "early.csv", "-o", tmp_path / "m", "--columns", COLUMNS.replace("action", "Action"))
    succeed(*arguments, "--oracle", "None", "--objective", "DR", "--states", "AUTO")
    assert type(sc.load(tmp_path / "m").learner).__name__ == "DRLearner"
    model = folder / "shop.seachange"
    succeed("evaluate", folder / "late.csv", model, "--columns", COLUMNS, "--estimators", "DR, Snips")


def test_swapped_log_and_model_are_reported(folder):
    log, model = folder / "late.csv", folder / "shop.seachange"
    for command in ("evaluate", "bounds", "states"):
        message = fail(ModelFileError, command, model, log)
        assert f"the log and the model are swapped: {str(log)!r} is a log" in message
        assert f"Use {log} {model}." in message
    assert "is a model, not a log" in fail(LogError, "evaluate", model, model)
    assert "is a model, not a log" in fail(LogError, "learn", model, "-o", "m")
    assert "is not a model file" in fail(ModelFileError, "evaluate", log, log)
    assert "is a folder; a model is one file" in fail(ModelFileError, "evaluate", log, folder)


def test_a_file_of_a_similar_name_is_suggested(folder):
    assert "Did you mean 'early.csv'?" in fail(LogError, "states", folder / "erly.csv")
    assert "Did you mean 'early.csv'?" in fail(LogError, "check", folder / "early.cvs")
    message = fail(ModelFileError, "evaluate", folder / "late.csv", folder / "shp.seachange")
    assert "Did you mean 'shop.seachange'?" in message


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_log_that_may_not_be_read_is_one_line(folder, tmp_path):
    shutil.copy(folder / "early.csv", tmp_path / "secret.csv")
    (tmp_path / "secret.csv").chmod(0)
    done = in_a_shell("states", tmp_path / "secret.csv")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("json", [(), ("--json",)])
def test_a_full_disk_is_one_line(folder, json):
    command = [sys.executable, "-m", "seachange", "states", folder / "late.csv", folder / "shop.seachange", "--quiet"]
    command += ["--columns", COLUMNS, *json] if json else ["--help"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert done.stderr == "Error: No space left on device.\n"


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
@pytest.mark.parametrize("json", [(), ("--json",)])
def test_a_closed_pipe_is_not_an_error_and_the_work_is_done(folder, tmp_path, json):
    """As when piped to ``head``."""
    arguments = ("learn", folder / "early.csv", "-o", tmp_path / "m", "--columns", COLUMNS, "--oracle", "none", *json)
    command = [sys.executable, "-m", "seachange", *map(str, arguments), "--objective", "dm"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        stderr = process.stderr.read()
    assert process.returncode == 0, stderr
    assert "Traceback" not in stderr
    assert "BrokenPipe" not in stderr
    assert sc.load(tmp_path / "m").n_states == 1


@pytest.mark.parametrize(
    ("word", "known", "told"),
    [
        ("acton", ["action", "reward"], " Did you mean 'action'?"),
        ("ACTION", ["action"], " Did you mean 'action'?"),
        ("prop", ["action", "propensity"], " Did you mean 'propensity'?"),
        ("--sed", ["--seed", "--json"], " Did you mean '--seed'?"),
        ("zebra", ["action", "reward"], ""),
        ("", ["action"], ""),
        ("x", [], ""),
    ],
)
def test_only_a_word_that_is_near_is_offered(word, known, told):
    assert did_you_mean(word, known) == told
