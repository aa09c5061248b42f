"""From the shell and back: one line for whatever goes wrong, an exit code, and no half-written file."""

from __future__ import annotations

import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seachange.cli.options import app
from seachange.cli.speaking import in_options, say_error, show_warning
from seachange.errors import SeachangeError, SeachangeWarning
from seachange.outputs import noting_outputs

ERROR, BUG = 2, 70
# As shells have it: 128 and the number of the signal.
AFTER_SIGNAL = 128
# Signals that end a process where nothing is done about them, and their words.
ENDING = {"SIGINT": "Interrupted", "SIGTERM": "Terminated", "SIGHUP": "Hung up"}


class Interrupted(BaseException):
    """A signal that asks the command to end; no KeyboardInterrupt, which typer would make a silent exit of."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def resumable() -> Iterator[None]:
    """Work that the same command goes on with after it was interrupted, which is said then."""
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as interrupt:
        interrupt.add_note("The same command goes on from there.")
        raise


def main() -> None:
    """Run a command; what goes wrong ends it with one line and an exit code."""
    warnings.showwarning = show_warning
    warnings.simplefilter("once", SeachangeWarning)
    _raise_on_signals()
    with noting_outputs() as written:
        try:
            app()
        except (Interrupted, KeyboardInterrupt) as interrupt:
            sys.exit(_interrupted(interrupt, written))
        except SeachangeError as error:
            say_error(in_options(error), kind=type(error).__name__)
        except OSError as error:
            place = f"{str(error.filename)!r}: " if error.filename else ""
            say_error(f"{place}{error.strerror or error}.", kind=type(error).__name__)
        except MemoryError as error:
            say_error(f"this needs more memory than there is{f': {error}' if str(error) else ''}.", kind="MemoryError")
        except Exception as error:
            if (cause := interrupt_in(error)) is not None:
                sys.exit(_interrupted(cause, written))
            traceback.print_exc()
            say_error(
                f"this is a bug of Seachange ({type(error).__name__}); please report the lines above.", kind="Bug"
            )
            sys.exit(BUG)
        else:
            return
    sys.exit(ERROR)


def _raise_on_signals() -> None:
    """Let signals unwind the command, so that what it was writing is taken back; those that are ignored stay so."""
    for name in ENDING:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise)


def _raise(number: int, frame: Any) -> None:
    # Once is enough: a second one, from an impatient user, must not stop the first from cleaning up.
    signal.signal(number, signal.SIG_IGN)
    raise Interrupted(number)


def interrupt_in(error: BaseException) -> BaseException | None:
    """The interrupt that an error comes of, as where compiled code was being loaded."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, Interrupted | KeyboardInterrupt):
        seen = seen.__cause__ or seen.__context__
    return seen


def _interrupted(interrupt: BaseException, written: Sequence[Path]) -> int:
    number = interrupt.number if isinstance(interrupt, Interrupted) else int(signal.SIGINT)
    word = next(words for name, words in ENDING.items() if getattr(signal, name, None) == number)
    told = f"{', '.join(map(str, written))} had been written" if written else "nothing was written"
    notes = "".join(f" {note}" for note in getattr(interrupt, "__notes__", ())) if written else ""
    say_error(f"{word}; {told}.{notes}", kind="Interrupted", heading="")
    return AFTER_SIGNAL + number
