"""What the command line says, and where: prose, notes, one JSON document, errors in its own words."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.console import Console

from seachange.errors import SeachangeError, SeachangeWarning


def console_for(json: bool) -> Console:
    """Where prose goes: standard output, or standard error where that is for a program."""
    return Console(stderr=json, highlight=False)


def finish(console: Console, json: bool, result: Any, closing: str = "") -> None:
    """The last words, and the document where one was asked for."""
    if closing:
        console.print(f"\n{closing}", soft_wrap=True, markup=False)
    if json:
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


def note(text: str) -> None:
    """Something to know, on standard error."""
    Console(stderr=True, highlight=False).print(f"[bold yellow]Note:[/] {plain(text)}", soft_wrap=True)


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
        "force=True": "--force",
        'interval="bootstrap"': "--interval bootstrap",
        "evaluate_online(log, model.deployer())": "--online",
        MISSING_HINT: "",
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
