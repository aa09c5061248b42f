"""The command line. ``commands`` lists the commands, each of which is a module here."""

import sys
import traceback
import warnings


def main() -> None:
    """Run the command in ``sys.argv``. Every failure ends in one line and an exit code, and no half-written file."""
    try:
        # Importing takes longer than some people wait before they press Ctrl-C.
        from seachange.cli.app import Interrupted, interrupt_in, raise_on_signals, report_interrupt
        from seachange.cli.commands import app
        from seachange.cli.console import BUG, ERROR, accept_any_character, flush_or_discard, say_error, show_warning
        from seachange.errors import SeachangeError, SeachangeWarning
        from seachange.outputs import recorded_outputs
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted; nothing was written.\n")
        sys.exit(130)
    raise_on_signals()
    accept_any_character()
    warnings.showwarning = show_warning
    warnings.simplefilter("once", SeachangeWarning)
    with recorded_outputs() as written:
        try:
            app()
            return
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
    flush_or_discard()
    sys.exit(ERROR)
