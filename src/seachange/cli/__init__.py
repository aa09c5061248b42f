"""The command line: parse, call, print."""

from __future__ import annotations

from seachange.cli import judging, learning, replicating
from seachange.cli.options import app
from seachange.cli.running import main

__all__ = ["app", "judging", "learning", "main", "replicating"]
