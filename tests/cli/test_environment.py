"""Commands in hostile surroundings: terminals that are not UTF-8, no home, one core, a full disk."""

import json
import os
import subprocess
import sys

import numpy as np
import polars
import pytest

import seachange as sc
from cli.shop import in_a_shell
from full_disk import small_files
from seachange.cli.console import ASCII

ENCODINGS = ("cp1252", "latin-1", "ascii")
COMMANDS = [
    ("--help",), ("learn", "--help"), ("check", "log.csv"), ("states", "log.csv", "m.seachange"),
    ("bounds", "log.csv", "m.seachange"), ("evaluate", "log.csv", "m.seachange"), ("inspect", "m.seachange"),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A log whose actions have names that no 8-bit encoding has, and a model of it."""
    path, n, rng = tmp_path_factory.mktemp("shop"), 4000, np.random.default_rng(0)
    actions, columns = rng.integers(0, 3, n), {"propensity": np.full(n, 1 / 3), "time": np.arange(n)}
    clicks = rng.random(n) < np.array([0.2, 0.5, 0.7])[(actions + np.arange(n) // 1000) % 3]
    columns |= {"action": [f"π{action}→" for action in actions], "reward": clicks.astype(float), "age": rng.random(n)}
    polars.DataFrame(columns).write_csv(path / "log.csv")
    sc.learn(sc.read_log(path / "log.csv"), n_states=2, objective="dm").save(path / "m.seachange")
    return path


def run(folder, *arguments, command=("-m", "seachange"), **environment):
    variables = {name: value for name, value in (os.environ | environment).items() if value is not None}
    words = [sys.executable, *command, *map(str, arguments)]
    return subprocess.run(words, cwd=folder, env=variables, capture_output=True, timeout=300, check=False)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_terminal_that_is_not_utf_8_fails_no_command(folder, encoding, monkeypatch):
    monkeypatch.chdir(folder)
    ended = {words: in_a_shell(*words, encoding=encoding) for words in COMMANDS}
    assert {words: done.returncode for words, done in ended.items()} == dict.fromkeys(COMMANDS, 0)
    assert not [words for words, done in ended.items() if "Traceback" in done.stderr]
    assert "What this log can support" in ended["check", "log.csv"].stdout


def test_characters_missing_from_the_terminal_encoding_are_replaced(folder):
    text = run(folder, "states", "log.csv", "m.seachange", **absolute(), PYTHONIOENCODING="ascii").stdout.decode(
        "ascii"
    )
    assert "?0->" in text  # an action named π0→
    assert "+-0.0" in text
    assert all(sign.isascii() for sign in "".join(ASCII.values()))


def absolute():
    """Modules are found from any folder."""
    return {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}


def test_the_json_document_is_utf_8_in_any_terminal(folder):
    done = run(folder, "states", "log.csv", "m.seachange", "--json", "--quiet", **absolute(), PYTHONIOENCODING="ascii")
    assert set(json.loads(done.stdout.decode())["actions"]) == {"π0→", "π1→", "π2→"}


def test_an_error_shows_in_any_terminal(folder, monkeypatch):
    monkeypatch.chdir(folder)
    done = in_a_shell("states", "no→log.csv", encoding="ascii")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: there is no file 'no->log.csv'.")


def test_the_plain_locale_without_a_home_fails_no_command(folder):
    plain = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "HOME": None}
    done = run(folder, "check", "log.csv", **absolute(), **plain)
    assert done.returncode == 0, done.stderr
    assert b"sound" in done.stdout


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a system that can bind a process to a core")
def test_one_core_is_enough(folder):
    bound = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from seachange.cli import main; main()"
    done = run(folder, "states", "log.csv", "m.seachange", command=("-c", bound), **absolute())
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.name != "posix", reason="limits of POSIX")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "log.csv", "--fix", "OUT/clean.parquet"),
        ("states", "log.csv", "m.seachange", "-o", "OUT/states.parquet"),
        ("states", "log.csv", "m.seachange", "--figure", "OUT/states.png"),
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_a_full_disk_is_one_line_and_leaves_no_file(folder, tmp_path, arguments, monkeypatch):
    monkeypatch.chdir(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    words = [word.replace("OUT", str(tmp_path)) for word in arguments]
    assert in_a_shell(*words).returncode == 0  # kernels are compiled, and cached, the first time
    (written,) = tmp_path.iterdir()
    whole = written.read_bytes()
    assert len(whole) > 16_384
    with small_files(16_384):
        done = in_a_shell(*words, "--force", "--quiet")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: cannot write '{words[-1]}")
    assert line.endswith(": File too large.")
    assert [path.name for path in tmp_path.iterdir()] == [written.name]
    assert written.read_bytes() == whole
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
