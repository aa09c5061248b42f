"""Signals that end a command, such as Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seachange.cli.console import say_error
from seachange.cli.exit_codes import SIGNAL

WORDS = {"SIGINT": "Interrupted", "SIGTERM": "Terminated", "SIGHUP": "Hung up"}


class Interrupted(BaseException):
    """A signal to stop; not a KeyboardInterrupt, which typer would turn into a silent exit."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def raise_on_signals() -> None:
    """Turn signals into exceptions, so that files being written are cleaned up; ignored signals stay ignored."""
    for name in WORDS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise)


def _raise(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not interrupt the cleanup
    raise Interrupted(number)


@contextmanager
def resumable() -> Iterator[None]:
    """Mark work that the same command resumes after an interrupt."""
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as interrupt:
        interrupt.add_note("Run the same command again to resume.")
        raise


def interrupt_in(error: BaseException) -> BaseException | None:
    """The interrupt that caused ``error``, for example one that came while compiled code was loading."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, Interrupted | KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    return cause


def report_interrupt(interrupt: BaseException, written: Sequence[Path]) -> int:
    """Say what was interrupted and what had been written by then; the exit code."""
    number = interrupt.number if isinstance(interrupt, Interrupted) else int(signal.SIGINT)
    word = next(word for name, word in WORDS.items() if getattr(signal, name, None) == number)
    files = f"already written: {', '.join(map(str, written))}" if written else "nothing was written"
    notes = "".join(f" {note}" for note in getattr(interrupt, "__notes__", ())) if written else ""
    # Threads that manage worker processes may fail while the workers end. Don't report that.
    threading.excepthook = lambda args: None
    say_error(f"{word}; {files}.{notes}", kind="Interrupted", heading="")
    return SIGNAL + number
