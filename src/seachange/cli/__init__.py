"""The command line: parse, call, print."""

from __future__ import annotations

from seachange.cli import checking, inspecting, judging, learning, replicating, replicating_yahoo, reporting
from seachange.cli.options import app
from seachange.cli.running import main

__all__ = [
    "app", "checking", "inspecting", "judging", "learning", "main", "replicating", "replicating_yahoo", "reporting",
]  # fmt: skip
