"""The command line. ``commands`` lists the commands, each of which is a module here."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command in ``sys.argv``; the entry point of ``seachange``."""
    try:
        # Importing takes longer than some people wait before they press Ctrl-C.
        from seachange.cli.runner import run
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted; nothing was written.\n")
        sys.exit(130)
    run()
