"""The ``typer`` application: global options, --quiet for every command, and usage errors in one line."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from seachange.cli.console import say_error, silenced
from seachange.cli.exit_codes import ERROR, INTERRUPTED, SUMMARY
from seachange.cli.progress_line import progress_line
from seachange.errors import did_you_mean

OUTPUT = "Output"
# The base class of the parser's errors, which typer does not export.
UsageError: type[Exception] = typer.BadParameter.__base__  # type: ignore[assignment]

Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print only errors, and the document of --json.", rich_help_panel=OUTPUT),
]


class _PlainFlags:
    """Show flags in --help without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the command."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in parameters:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return parameters


class Command(_PlainFlags, TyperCommand):
    """One command."""


class Commands(_PlainFlags, TyperGroup):
    """A group of commands that reports usage errors in one line and suggests the nearest word."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that ``args`` start with."""
        if args and self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            suggestion = did_you_mean(args[0], self.list_commands(ctx))
            raise UsageError(f"unknown command {args[0]!r}.{suggestion}", ctx)
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, standalone_mode: bool = True, **rest: Any) -> Any:
        """Run a command and exit."""
        run: Any = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **rest)
        try:
            code = run(*args, standalone_mode=False, **rest)
        except typer.Abort as error:  # Ctrl-C in older versions of typer
            raise KeyboardInterrupt from error
        except UsageError as error:
            say_error(usage_message(error), kind="UsageError")
            sys.exit(ERROR)
        if code == INTERRUPTED:  # Ctrl-C in newer ones
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)


def usage_message(error: Any) -> str:
    """What is wrong with the arguments, the nearest correct option, and where to read more."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    message, where = error.message, "" if context is None else f" See {context.command_path} --help."
    # typer exports none of the following classes, but each has a field of its own.
    if hasattr(error, "possibilities"):  # NoSuchOption
        options = [name for each in context.command.params for name in each.opts] if context else []
        message = f"unknown option {error.option_name}.{did_you_mean(error.option_name, options)}"
    elif hasattr(error, "param_type") and parameter is not None:  # MissingParameter
        name = parameter.metavar if parameter.param_type_name == "argument" else parameter.opts[0]
        message = f"{name} is missing."
    elif parameter is not None:  # BadParameter
        message = f"{parameter.opts[0]}: {message}"
    elif getattr(error, "param_hint", None):
        message = f"{error.param_hint}: {message}"
    message = " ".join(message.split())
    return f"{message}{'' if message.endswith(('.', '?')) else '.'}{where}"


class App(typer.Typer):
    """Commands that have --quiet and show their progress on a terminal."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Register a function as a command."""
        register = super().command(name, cls=Command, **settings)

        def registered(function: Callable[..., None]) -> Callable[..., None]:
            register(_with_quiet(function))
            return function

        return registered


def _with_quiet(function: Callable[..., None]) -> Callable[..., None]:
    """Add the option --quiet to a command."""

    @wraps(function)
    def command(*, quiet: bool, **options: Any) -> None:
        with silenced(quiet), progress_line(quiet):
            function(**options)

    signature = inspect.signature(function, eval_str=True)
    option = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet)
    parameters = [*signature.parameters.values(), option]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def choice(words: Iterable[str], **settings: Any) -> Any:
    """An option that takes one of ``words``, in any case."""
    known = [*words]

    def parse(text: str) -> str:
        if text.lower() not in known:
            raise typer.BadParameter(f"{text!r} is not one of {listed(known)}.{did_you_mean(text, known)}")
        return text.lower()

    def complete(incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    return typer.Option(parser=parse, autocompletion=complete, metavar="NAME", **settings)


def listed(words: Iterable[str]) -> str:
    """``a, b or 'c d'``."""
    return " or ".join(", ".join(repr(word) if " " in word else word for word in words).rsplit(", ", 1))


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"seachange {version('seachange')}")
        raise typer.Exit


def show_help(context: typer.Context) -> None:
    """Print the help of a group that was called without a command."""
    if context.invoked_subcommand is None:
        if text := context.get_help():  # empty if rich has printed it
            typer.echo(text)
        raise typer.Exit(ERROR)


app = App(
    cls=Commands,
    help="Learn policies that switch with the state of the world, from logs of past decisions.",
    epilog=SUMMARY,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback()
def _seachange(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    show_help(context)
