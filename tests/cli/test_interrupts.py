"""Ctrl-C and other signals to a real command: one line, an exit code, and no half-written file."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import polars
import pytest

from seachange.cli.running import Interrupted, interrupt_in

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

SIGNALS = [(signal.SIGINT, 130, "Interrupted"), (signal.SIGTERM, 143, "Terminated"), (signal.SIGHUP, 129, "Hung up")]
PATIENCE = 120


@pytest.fixture(scope="module")
def wide_log(tmp_path_factory):
    """A log of many actions and contexts: its model has arrays that take a while to write."""
    generator, n, k, d = np.random.default_rng(0), 3000, 400, 50
    columns = {"action": np.arange(n) % k, "reward": generator.normal(size=n), "propensity": np.full(n, 1 / k)}
    contexts = {f"x{i}": generator.normal(size=n) for i in range(d)}
    path = tmp_path_factory.mktemp("wide") / "wide.parquet"
    polars.DataFrame(columns | contexts).write_parquet(path)
    return path


@pytest.fixture(scope="module")
def long_log(tmp_path_factory):
    """A log that is learned from for many seconds."""
    generator, n = np.random.default_rng(0), 400_000
    action, mood = generator.integers(5, size=n), np.arange(n) // 20_000 % 3
    clicks = generator.random(n) < (0.2 + 0.5 * (action == mood))
    contexts = {f"x{i}": generator.normal(size=n) for i in range(8)}
    columns = {"action": action, "reward": clicks.astype(float), "propensity": np.full(n, 0.2)}
    path = tmp_path_factory.mktemp("long") / "long.parquet"
    polars.DataFrame(columns | contexts).write_parquet(path)
    return path


def begun(*arguments):
    command = [sys.executable, "-m", "seachange", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8")


def wait_until(true, process):
    """Look again and again, and often, until it is so."""
    until = time.monotonic() + PATIENCE
    while not true():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.0005)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_a_signal_in_the_middle_of_writing_leaves_no_file(wide_log, tmp_path, number, code, word):
    process = begun("learn", wide_log, "-o", tmp_path / "m.seachange", "--states", 1, "--objective", "dm")
    # Whoever asks whether something can be written there writes nothing under this name.
    wait_until(lambda: any(tmp_path.glob(".m.seachange.*")), process)
    process.send_signal(signal.SIGSTOP)
    assert [name for name in names_in(tmp_path) if name.startswith(".m.seachange.")], "it was written too fast to see"
    assert not (tmp_path / "m.seachange").exists()
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert stderr.splitlines()[-1] == f"{word}; nothing was written."
    assert "Traceback" not in stderr
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS[:2])
def test_a_signal_in_the_middle_of_learning_leaves_what_was_there(long_log, tmp_path, number, code, word):
    (tmp_path / "m.seachange").write_text("precious")
    process = begun("learn", long_log, "-o", tmp_path / "m.seachange", "--force")
    # The log is told before it is learned from.
    assert "The log" in process.stdout.readline()
    while "propensities" not in process.stdout.readline():
        pass
    time.sleep(1.0)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert stderr.splitlines()[-1] == f"{word}; nothing was written."
    assert "Traceback" not in stderr
    assert names_in(tmp_path) == ["m.seachange"]
    assert (tmp_path / "m.seachange").read_text() == "precious"


def test_an_interrupt_is_a_document_where_one_was_asked_for(long_log, tmp_path):
    process = begun("learn", long_log, "-o", tmp_path / "m.seachange", "--json")
    while "propensities" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert json.loads(stdout) == {"error": {"kind": "Interrupted", "message": "Interrupted; nothing was written."}}


def test_an_interrupt_ends_the_processes_of_an_experiment(tmp_path):
    process = begun("replicate", "synthetic", "--runs", 4, "--workers", 2)
    children = f"/proc/{process.pid}/task/{process.pid}/children"
    if not os.path.exists(children):
        process.kill()
        pytest.skip("needs a system that lists the children of a process")

    def own():
        with open(children) as file:
            return file.read().split()

    wait_until(lambda: len(own()) >= 3, process)  # two workers, and Python's own tracker of resources
    time.sleep(2.0)
    workers, start = own(), time.monotonic()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert stderr.splitlines() == ["Interrupted; nothing was written."]
    assert time.monotonic() - start < 10
    until = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{number}") for number in workers):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_an_experiment_that_goes_on_says_so_when_it_is_interrupted(tmp_path):
    process = begun("replicate", "yahoo", "--standin", "-o", tmp_path / "out", "--days", 1, "--next-days", 1)
    wait_until(lambda: any(tmp_path.glob("out/*/*20090501.gz")), process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert stderr.splitlines()[-1].startswith("Interrupted; ")
    assert stderr.splitlines()[-1].endswith(" The same command goes on from there.")


def test_an_interrupt_that_comes_as_another_error_is_one():
    """As where it came while compiled code was being loaded."""
    error = SystemError("returned a result with an exception set")
    error.__cause__ = Interrupted(signal.SIGINT)
    assert interrupt_in(error) is error.__cause__
    assert interrupt_in(ValueError("no interrupt")) is None
