"""The command line: parse, call, print."""

from __future__ import annotations

import sys
import warnings

from rich.console import Console

# Commands are listed in the order of these.
from seachange.cli import learning, inspecting, judging, replicating  # isort: skip
from seachange.cli.options import app
from seachange.cli.speaking import in_options, plain, show_warning
from seachange.errors import SeachangeError, SeachangeWarning

__all__ = ["app", "inspecting", "judging", "learning", "main", "replicating"]


def main() -> None:
    """Run a command; our errors end it with one line and exit code 2."""
    warnings.showwarning = show_warning
    warnings.simplefilter("once", SeachangeWarning)
    try:
        app()
    except SeachangeError as error:
        Console(stderr=True, highlight=False).print(f"[bold red]Error:[/] {plain(in_options(error))}", soft_wrap=True)
        sys.exit(2)
