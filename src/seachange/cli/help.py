"""What --help prints: a usage line that can be copied, and options in two columns that fit the terminal."""

from __future__ import annotations

from io import StringIO
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

# Columns of a terminal: of the names, and of all at most.
NAMES, WIDEST = 24, 100
# Groups of options, in the order in which they are listed.
OPTIONS, THE_LOG, OUTPUT = "Options", "The log", "Output"


class Command(TyperCommand):
    """A command with our help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Usage, purpose, arguments, options by group."""
        formatter.write(help_of(self, ctx))


class Group(TyperGroup):
    """Commands with our help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Usage, purpose, commands, options, the last words."""
        formatter.write(help_of(self, ctx))


def help_of(command: Any, context: Any) -> str:
    """The text, coloured where the terminal is."""
    console = Console(file=StringIO(), force_terminal=Console().is_terminal, highlight=False)
    console.width = min(Console().width, WIDEST)
    console.print(Text.assemble(("Usage: ", "bold"), usage_of(command, context)))
    _print_text(console, command.help or "")
    if isinstance(command, TyperGroup):
        found = ((name, command.get_command(context, name)) for name in command.list_commands(context))
        rows = [(name, each.short_help or each.help or "") for name, each in found if each is not None]
        _print_rows(console, "Commands", rows)
    groups: dict[str, list[tuple[str, str]]] = {"": [], OPTIONS: [], THE_LOG: [], OUTPUT: []}
    for each in command.get_params(context):
        if not getattr(each, "hidden", False):
            last = OPTIONS if isinstance(command, TyperGroup) else OUTPUT
            panel = getattr(each, "rich_help_panel", None) or (last if each.name == "help" else OPTIONS)
            groups.setdefault("" if is_argument(each) else panel, []).append((_names(each), _purpose(each)))
    for name, rows in groups.items():
        _print_rows(console, name, rows)
    if command.epilog:
        _print_text(console, command.epilog)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def usage_of(command: Any, context: Any) -> str:
    """``seachange learn LOG --out MODEL [OPTIONS]``: what must be said, then what may be."""
    parameters = command.get_params(context)
    arguments = [_value(each) if each.required else f"[{_value(each)}]" for each in parameters if is_argument(each)]
    needed = [f"{each.opts[0]} {_value(each)}" for each in parameters if each.required and not is_argument(each)]
    last = "COMMAND …" if isinstance(command, TyperGroup) else "[OPTIONS]"
    return " ".join([context.command_path, *arguments, *needed, last])


def is_argument(parameter: Any) -> bool:
    """Whether it is said by its place, not by its name."""
    return bool(parameter.param_type_name == "argument")


def choices_of(parameter: Any) -> list[str]:
    """The words it may be, where it is one of a few."""
    # Versions of typer keep them in different places.
    described = getattr(parameter, "type_descriptor", None) or getattr(parameter, "type", None)
    return [str(choice) for choice in getattr(described, "choices", None) or ()]


def listed(words: list[str]) -> str:
    """Words, the last of them after an or."""
    quoted = [repr(word) if " " in word else word for word in words]
    return " or ".join(", ".join(quoted).rsplit(", ", 1))


def _is_flag(parameter: Any) -> bool:
    return bool(getattr(parameter, "is_flag", False))


def _value(parameter: Any) -> str:
    """What stands for its value."""
    if parameter.metavar:
        return str(parameter.metavar).strip("[]")
    return "WORD" if choices_of(parameter) else str(parameter.name).upper().replace("_", "-")


def _names(parameter: Any) -> str:
    if is_argument(parameter):
        return _value(parameter)
    names = ", ".join(sorted(parameter.opts, key=len))
    return names if _is_flag(parameter) else f"{names} {_value(parameter)}"


def _purpose(parameter: Any) -> str:
    """Its help, with the words it may be and what it is when nothing is said."""
    text, choices = getattr(parameter, "help", None) or "", choices_of(parameter)
    if choices and any(choice not in text for choice in choices):
        text = f"{text.rstrip('.')}: {listed(choices)}."
    default = parameter.default
    if not _is_flag(parameter) and not callable(default) and default not in (None, "") and not is_argument(parameter):
        text = f"{text} [{default}]"
    return text


def _print_text(console: Console, text: str) -> None:
    console.print("")
    for line in wrap(text, console.width):
        console.print(Text(line))


def _print_rows(console: Console, title: str, rows: list[tuple[str, str]]) -> None:
    if rows:
        console.print(Text(f"\n{title}", style="bold") if title else "")
    for names, text in rows:
        lines = wrap(text, console.width - NAMES, break_long_words=False, break_on_hyphens=False)
        # Names that are too long have a line of their own.
        if len(names) > NAMES - 4:
            lines = ["", *lines]
        first, *others = lines or [""]
        console.print(Text.assemble((f"  {names}".ljust(NAMES), "cyan"), first), soft_wrap=True)
        for line in others:
            console.print(Text(" " * NAMES + line), soft_wrap=True)
