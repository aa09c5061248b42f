"""Ctrl-C and other signals sent to a real command: one line, an exit code, and no half-written file."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import polars
import pytest

from seachange.cli.app import Interrupted, interrupt_in

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

SIGNALS = [(signal.SIGINT, 130, "Interrupted"), (signal.SIGTERM, 143, "Terminated"), (signal.SIGHUP, 129, "Hung up")]
PATIENCE = 300


def short_and_long(signals, short):
    """``make test`` sends each signal in one of the tests, ``make test-long`` in all of them."""
    return [each if each[0] == short else pytest.param(*each, marks=pytest.mark.long) for each in signals]


@pytest.fixture(scope="module")
def short_log(tmp_path_factory):
    generator, n = np.random.default_rng(0), 500
    columns = {"action": np.arange(n) % 5, "reward": generator.normal(size=n), "propensity": np.full(n, 0.2)}
    path = tmp_path_factory.mktemp("short") / "short.parquet"
    polars.DataFrame(columns).write_parquet(path)
    return path


@pytest.fixture(scope="module")
def long_log(tmp_path_factory):
    """A log that takes many seconds to learn from."""
    generator, n = np.random.default_rng(0), 200_000
    action, mood = generator.integers(5, size=n), np.arange(n) // 10_000 % 3
    clicks = generator.random(n) < (0.2 + 0.5 * (action == mood))
    contexts = {f"x{i}": generator.normal(size=n) for i in range(8)}
    columns = {"action": action, "reward": clicks.astype(float), "propensity": np.full(n, 0.2)}
    path = tmp_path_factory.mktemp("long") / "long.parquet"
    polars.DataFrame(columns | contexts).write_parquet(path)
    return path


# A parent such as nohup may ignore signals, which its children inherit: start them with the defaults.
DEFAULTS = """
import os, signal, sys
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
# The last step of writing a file takes forever, and says when it has begun.
STUCK = """
import pathlib, sys, time
from seachange.cli import main
pathlib.Path.replace = lambda path, target: (print("stuck", flush=True), time.sleep(3600))
main()
"""


def started(*arguments, code=None, group=False):
    """``python -m seachange`` with these arguments, or ``code`` with them; in a process group of its own if asked."""
    command = ["-m", "seachange"] if code is None else ["-c", code]
    command = [sys.executable, "-c", DEFAULTS, *command, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=group
    )


def wait_until(true, process):
    until = time.monotonic() + PATIENCE
    while not true():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.01)


def wait_for_line(stream, words):
    """Read until a line has ``words`` in it."""
    for line in stream:
        if words in line:
            return
    raise AssertionError(f"no line has {words!r}")


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(("number", "code", "word"), short_and_long(SIGNALS, signal.SIGTERM))
def test_a_signal_while_a_file_is_being_written_leaves_no_file(short_log, tmp_path, number, code, word):
    arguments = ("learn", short_log, "-o", tmp_path / "m.seachange", "--states", 1, "--objective", "dm")
    process = started(*arguments, code=STUCK)
    wait_for_line(process.stdout, "stuck")
    assert names_in(tmp_path) != []
    assert not (tmp_path / "m.seachange").exists()
    process.send_signal(number)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert stderr.splitlines()[-1] == f"{word}; nothing was written."
    assert "Traceback" not in stderr
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(("number", "code", "word"), short_and_long(SIGNALS, signal.SIGHUP))
def test_a_signal_while_learning_leaves_the_old_file(long_log, tmp_path, number, code, word):
    (tmp_path / "m.seachange").write_text("precious")
    process = started("learn", long_log, "-o", tmp_path / "m.seachange", "--force")
    wait_for_line(process.stdout, "propensities")  # the log is shown before learning starts
    process.send_signal(number)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert stderr.splitlines()[-1] == f"{word}; nothing was written."
    assert "Traceback" not in stderr
    assert names_in(tmp_path) == ["m.seachange"]
    assert (tmp_path / "m.seachange").read_text() == "precious"


def test_an_interrupt_is_a_json_document_if_asked_for(long_log, tmp_path):
    process = started("learn", long_log, "-o", tmp_path / "m.seachange", "--json")
    wait_for_line(process.stderr, "propensities")
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert json.loads(stdout) == {"error": {"kind": "Interrupted", "message": "Interrupted; nothing was written."}}


def test_an_interrupt_while_modules_are_imported_is_one_line():
    code = """
import sys
from seachange.cli import main
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
main()
"""
    process = started("demo", code=code)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert stderr == "Interrupted; nothing was written.\n"


def test_an_ignored_signal_stays_ignored():
    """As under nohup."""
    code = """
import os, signal
from seachange.cli.app import raise_on_signals
signal.signal(signal.SIGHUP, signal.SIG_IGN)
raise_on_signals()
os.kill(os.getpid(), signal.SIGHUP)
"""
    process = started(code=code)
    assert process.communicate(timeout=PATIENCE) == ("", "")
    assert process.returncode == 0


# Workers that exist already and import modules, then workers that are being started.
@pytest.mark.parametrize("n_children", [3, 1])
@pytest.mark.parametrize("to_group", [False, True], ids=["parent only", "whole group, as a terminal does"])
def test_an_interrupt_ends_the_processes_of_an_experiment_without_a_traceback(n_children, to_group):
    process = started("replicate", "synthetic", "--runs", 4, "--workers", 2, group=True)
    children = f"/proc/{process.pid}/task/{process.pid}/children"
    if not os.path.exists(children):
        process.kill()
        pytest.skip("needs a system that lists the children of a process")

    def own():
        with open(children) as file:
            return file.read().split()

    wait_until(lambda: len(own()) >= n_children, process)  # two workers, and Python's own resource tracker
    if to_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    # Workers write to the same pipe, which ends when the last process that can write to it has ended.
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert stderr == "Interrupted; nothing was written.\n"


def test_an_experiment_that_can_resume_says_so_when_it_is_interrupted(tmp_path):
    process = started("replicate", "yahoo", "--standin", "-o", tmp_path / "out", "--days", 1, "--next-days", 1)
    wait_until(lambda: any(tmp_path.glob("out/*/*20090501.gz")), process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert stderr.splitlines()[-1].startswith("Interrupted; already written: ")
    assert stderr.splitlines()[-1].endswith(" Run the same command again to resume.")


def test_an_interrupt_that_comes_as_another_error_is_one():
    """As where it came while compiled code was being loaded."""
    error = SystemError("returned a result with an exception set")
    error.__cause__ = Interrupted(signal.SIGINT)
    assert interrupt_in(error) is error.__cause__
    assert interrupt_in(ValueError("no interrupt")) is None
