"""Commands that were called wrongly: which word, and which was meant, in one line."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from seachange.cli.help import choices_of, is_argument, listed, usage_of
from seachange.cli.speaking import say_error
from seachange.errors import did_you_mean

WRONG, INTERRUPTED = 2, 130


def exits_with_one_line(run: Callable[[], Any]) -> None:
    """Run a command and end the process; one that was called wrongly is told so, with exit code 2."""
    try:
        code = run()
    except Exception as error:
        # Which library the words are parsed by, and so the classes of its errors, is typer's affair.
        if type(error).__name__ == "Abort":
            raise KeyboardInterrupt from error
        if not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(f"{error.format_message()}\n")
        else:
            say_error(told(error), kind="UsageError")
        sys.exit(WRONG)
    if code == INTERRUPTED:
        # A library's own handling of Ctrl-C, which typer has made an exit code of; older versions, an Abort.
        raise KeyboardInterrupt
    sys.exit(code if isinstance(code, int) else 0)


def told(error: Any) -> str:
    """What is wrong with the words of a command, the nearest right one, and where the others are listed."""
    context = getattr(error, "ctx", None)
    where = f" See {context.command_path} --help." if context is not None else ""
    message = " ".join(error.format_message().split()).rstrip(".")
    if type(error).__name__ == "NoSuchOption" and context is not None:
        options = [name for each in context.command.params for name in each.opts]
        wrong = error.option_name
        return f"{context.command_path} has no option {wrong}.{_meant(wrong, options)}{where}"
    if command := re.match(r"No such command '(.*?)'", message):
        names = context.command.list_commands(context) if context else []
        return f"there is no command {command[1]!r}.{_meant(command[1], names)}{where}"
    parameter = getattr(error, "param", None)
    if parameter is not None and (other := re.search(r"'([^']*)' is not one of", message)):
        choices = choices_of(parameter)
        return f"{parameter.opts[0]} must be {listed(choices)}; got {other[1]!r}.{_meant(other[1], choices)}"
    if type(error).__name__ == "MissingParameter" and parameter is not None and context is not None:
        name = parameter.metavar if is_argument(parameter) else parameter.opts[0]
        return f"{name} is missing. Usage: {usage_of(context.command, context)}.{where}"
    if option := re.match(r"Invalid value for '?(.*?)'?: (.*)", message):
        message = f"{option[1]}: {option[2]}"
    else:
        message = f"{message[0].lower()}{message[1:]}"
    return f"{message}{'' if message.endswith('?') else '.'}{where}"


def _meant(word: str, known: Iterable[str]) -> str:
    return did_you_mean(word, known).replace("'", "")
