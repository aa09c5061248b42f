"""What the command line says, and where: prose, notes, one JSON document, errors in its own words."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import IO, Any

import msgspec
from rich.console import Console

from seachange.errors import SeachangeError, SeachangeWarning

_HUSHED: ContextVar[bool] = ContextVar("_HUSHED", default=False)


@contextmanager
def quietly(quiet: bool) -> Iterator[None]:
    """Without prose, where that is wished."""
    token = _HUSHED.set(quiet)
    try:
        yield
    finally:
        _HUSHED.reset(token)


class Prose(Console):
    """A console that falls silent when nobody reads any more, as when piped to ``head``; the work goes on."""

    def on_broken_pipe(self) -> None:
        """Say no more."""
        self.quiet = True
        stop_writing(self.file)


def console_for(json: bool) -> Console:
    """Where prose goes: standard output, or standard error where that is for a program."""
    return Prose(stderr=json, highlight=False, quiet=_HUSHED.get())


def say(console: Console, *paragraphs: str) -> None:
    """Sentences: broken between words where a person reads them, unbroken where a program may."""
    for text in paragraphs:
        console.print(text, soft_wrap=not console.is_terminal, markup=False)


def finish(console: Console, json: bool, result: Any, closing: str = "") -> None:
    """The last words, never broken so that they can be copied, and the document where one was asked for."""
    if closing:
        console.print(f"\n{closing}", soft_wrap=True, markup=False)
    if json:
        write_document(result)


def next_steps(*steps: tuple[object, ...]) -> str:
    """Commands that may follow, ready to be copied, each with what it is for."""
    commands = [shlex.join(["seachange", *map(str, words)]) for *words, _ in steps]
    widest = max(map(len, commands))
    told = [f"{command:{widest}}  # {step[-1]}" for command, step in zip(commands, steps, strict=True)]
    return "Next: " + "\n      ".join(told)


def write_document(result: Any) -> None:
    """The one JSON document of a command."""
    try:
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        stop_writing(sys.stdout)


def stop_writing(stream: IO[str]) -> None:
    """What is still to be written there goes nowhere, also what Python flushes at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def note(text: str) -> None:
    """Something to know, on standard error."""
    if _HUSHED.get():
        return
    console = Prose(stderr=True, highlight=False)
    with console.capture() as said:
        console.print(f"[bold yellow]Note:[/] {plain(text)}", soft_wrap=not console.is_terminal)
    # By way of standard error itself, which a line of progress has taken over to stay below all else.
    sys.stderr.write(said.get())


def say_error(message: str, *, kind: str, heading: str = "Error: ") -> None:
    """An error, in one red line on standard error; where JSON was asked for, also as the document."""
    one_line = " ".join(message.split())
    Prose(stderr=True, highlight=False).print(f"[bold red]{heading}[/]{plain(one_line)}", soft_wrap=True)
    # What was called wrongly may never have been parsed, so the words themselves are looked at.
    if "--json" in sys.argv[1:]:
        # Where standard output itself is what failed, the line above is all there can be.
        with suppress(OSError):
            write_document({"error": {"kind": kind, "message": one_line}})


def show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """A warning as a note."""
    note(in_options(message) if issubclass(category, SeachangeWarning) else f"{filename}:{lineno}: {message}")


def in_options(said: SeachangeError | Warning | str) -> str:
    """An error or a warning in the words of the command line."""
    from seachange.log.bandit_log import PROPENSITY_CURE
    from seachange.log.validation import MISSING_HINT

    words = {
        'on_bad_rows="drop"': "--drop-bad-rows",
        'on_bad_rows="raise"': "the same without --drop-bad-rows",
        'objective="dm"': "--objective dm",
        'features="identity"': "--features identity",
        "force=True": "--force",
        'interval="bootstrap"': "--interval bootstrap",
        "evaluate_online(log, model.deployer())": "--online",
        MISSING_HINT: " (`seachange states --missing-rewards` takes rounds without one as not observed)",
        PROPENSITY_CURE: "--columns propensity=..., or estimate them: --estimate-propensities",
    }
    message = str(said)
    for ours, option in words.items():
        message = message.replace(ours, option)
    return message


def plain(message: object) -> str:
    """Text as it is, with nothing taken for markup."""
    from rich.markup import escape

    return escape(str(message))
