"""The command line: parse, call, print."""

from __future__ import annotations

from seachange.cli import inspecting, judging, learning, replicating
from seachange.cli.options import app
from seachange.cli.running import main

__all__ = ["app", "inspecting", "judging", "learning", "main", "replicating"]
