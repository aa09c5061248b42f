"""A shop with two logs, and commands on them."""

import io
import json
import signal
import sys
import warnings
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
import polars
from typer.testing import CliRunner

import seachange as sc
from seachange.cli import main
from seachange.cli.commands import app

N = 800
ITEMS = ("boots", "coats", "lamps")
# Odd names on purpose: spaces, signs, and what a terminal library might take for markup.
NAMES = {"action": "item id", "reward": "clicked?", "propensity": "π[0]", "time": "[/b]when", "context": "[red]hour"}
COLUMNS = ",".join(f"{word}={NAMES[word]}" for word in ("action", "reward", "propensity", "time"))
MAPPING = {word: NAMES[word] for word in ("action", "reward", "propensity", "time")}
QUICK = ("--columns", COLUMNS, "--states", "2")


def table_of_two_worlds(seed, start=0):
    """A table of two worlds in turn, which differ in which item is best and in what all of them earn."""
    rng = np.random.default_rng(seed)
    means = np.array([[0.1, 0.2, 0.3], [0.9, 0.7, 0.5]])[np.repeat([0, 1, 0, 1], N // 4)]
    actions = rng.integers(0, 3, N)
    return polars.DataFrame(
        {
            NAMES["action"]: [ITEMS[action] for action in actions],
            NAMES["reward"]: means[np.arange(N), actions] + rng.normal(0, 0.1, N),
            NAMES["propensity"]: np.full(N, 1 / 3),
            NAMES["time"]: start + np.arange(N),
            NAMES["context"]: rng.normal(size=N),
        }
    )


def new_regime(table):
    """The same table with other rewards in its last quarter, in which coats earn the most."""
    best = (polars.col(NAMES["action"]) == "coats").cast(float)
    late = polars.int_range(polars.len()) >= 3 * N // 4
    return table.with_columns(
        polars.when(late)
        .then(best + 0.01 * polars.col(NAMES["reward"]))
        .otherwise(NAMES["reward"])
        .alias(NAMES["reward"])
    )


def run(*arguments, catch_exceptions=True):
    """The command in this process, on a terminal wide enough for its tables."""
    runner = CliRunner(env={"COLUMNS": "200"})
    return runner.invoke(app, [str(argument) for argument in arguments], catch_exceptions=catch_exceptions)


def succeed(*arguments):
    """What a command that must succeed wrote to (stdout, stderr)."""
    result = run(*arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result.stdout, result.stderr


def succeed_in_json(*arguments):
    """The one JSON document on stdout, and the prose on stderr."""
    stdout, stderr = succeed(*arguments, "--json")
    assert stdout.endswith("\n")
    return json.loads(stdout), stderr


def fail(error, *arguments):
    """The Python text of the error that a command ends with; ``main`` turns it into one line and exit code 2."""
    return str(_failure(error, *arguments))


def fail_in_shell(error, *arguments):
    """The command-line text of the error that a command ends with."""
    return _failure(error, *arguments).shell_text


def _failure(error, *arguments):
    result = run(*arguments)
    assert isinstance(result.exception, error), (result.exception, result.stderr)
    assert result.stdout == ""
    return result.exception


def misuse(*arguments):
    """What a command that was called wrongly wrote to stderr."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.stdout == ""
    return " ".join(result.stderr.replace("│", " ").split())


def early_log(folder):
    return sc.read_log(folder / "early.csv", MAPPING)


def late_log(folder):
    return sc.load(folder / "shop.seachange").read_log(folder / "late.csv")


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def in_a_shell(*arguments, encoding="utf-8"):
    """A command as a shell runs it, from ``main`` to its exit code, but in this process, which is much faster."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    words = ["seachange", *map(str, arguments)]
    code = 0
    with (
        patch.multiple(sys, argv=words, stdout=out, stderr=err), warnings.catch_warnings(),
        patch.object(sys.modules["__main__"], "__package__", ""),  # else the program is called python -m pytest
    ):  # fmt: skip
        try:
            main()
        except SystemExit as end:
            code = end.code
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    out.flush()
    err.flush()
    return Done(code, *(stream.buffer.getvalue().decode(encoding) for stream in (out, err)))
