"""Runs a command: every failure ends in one line and an exit code, and leaves no half-written file."""

from __future__ import annotations

import sys
import traceback
import warnings

from seachange.cli.commands import app
from seachange.cli.console import accept_any_character, say_error, show_warning
from seachange.cli.exit_codes import BUG, ERROR
from seachange.cli.interrupts import Interrupted, interrupt_in, raise_on_signals, report_interrupt
from seachange.errors import SeachangeError, SeachangeWarning
from seachange.outputs import recorded_outputs


def run() -> None:
    """Run the command in ``sys.argv`` and exit."""
    raise_on_signals()
    accept_any_character()
    warnings.showwarning = show_warning
    warnings.simplefilter("once", SeachangeWarning)
    with recorded_outputs() as written:
        try:
            app()
        except (Interrupted, KeyboardInterrupt) as interrupt:
            sys.exit(report_interrupt(interrupt, written))
        except SeachangeError as error:
            say_error(error.shell_text, kind=type(error).__name__)
        except OSError as error:
            place = f"{str(error.filename)!r}: " if error.filename else ""
            say_error(f"{place}{error.strerror or error}.", kind=type(error).__name__)
        except MemoryError as error:
            say_error(f"not enough memory{f': {error}' if str(error) else ''}.", kind="MemoryError")
        except Exception as error:
            if (cause := interrupt_in(error)) is not None:
                sys.exit(report_interrupt(cause, written))
            traceback.print_exc()
            say_error(f"this is a bug in Seachange ({type(error).__name__}). Report the lines above.", kind="Bug")
            sys.exit(BUG)
        else:
            return
    sys.exit(ERROR)
