"""The ``typer`` application: options that every command has, usage errors in one line, and interrupts."""

import inspect
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from seachange.cli.console import ERROR, EXIT_CODES, INTERRUPTED, SIGNAL, prose, say_error
from seachange.cli.options import Json, Quiet
from seachange.errors import did_you_mean

# The base class of the parser's errors, which typer does not export.
UsageError: type[Exception] = typer.BadParameter.__base__  # type: ignore[assignment]
SIGNALS = {"SIGINT": "Interrupted", "SIGTERM": "Terminated", "SIGHUP": "Hung up"}


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
            say_error(_usage_message(error), kind="UsageError")
            sys.exit(ERROR)
        if code == INTERRUPTED:  # Ctrl-C in newer ones
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)


def _usage_message(error: Any) -> str:
    """What is wrong with the arguments, the nearest correct option, and where to read more."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    message, where = error.message, "" if context is None else f" See {context.command_path} --help."
    # typer exports none of the following classes, but each has a field of its own.
    if hasattr(error, "possibilities"):  # NoSuchOption
        options = [name for each in context.command.params for name in each.opts] if context else []
        message = f"unknown option {error.option_name}.{did_you_mean(error.option_name, options)}"
    elif hasattr(error, "param_type") and parameter is not None:  # MissingParameter
        name = parameter.metavar if parameter.param_type_name == "argument" else " / ".join(parameter.opts)
        message = f"{name} is missing."
    elif parameter is not None:  # BadParameter
        message = f"{parameter.opts[0]}: {message}"
    elif getattr(error, "param_hint", None):
        message = f"{error.param_hint}: {message}"
    message = " ".join(message.split())
    return f"{message}{'' if message.endswith(('.', '?')) else '.'}{where}"


class App(typer.Typer):
    """Commands that have --json and --quiet and show their progress on a terminal.

    The first parameter of a command is its console. A parameter whose type is a dataclass stands for one option per
    field.
    """

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Register a function as a command."""
        register = super().command(name, cls=Command, **settings)

        def registered(function: Callable[..., None]) -> Callable[..., None]:
            register(_with_options(function))
            return function

        return registered


def _parameters(made: Any) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(made, eval_str=True).parameters


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    """The command without its console, with --json and --quiet, and with one parameter per field of a dataclass."""
    _, *own = _parameters(function).values()
    groups: dict[str, Any] = {each.name: each.annotation for each in own if is_dataclass(each.annotation)}
    fields = {name: _parameters(made) for name, made in groups.items()}
    given = [each for group in own for each in (fields[group.name].values() if group.name in fields else [group])]

    @wraps(function)
    def command(*, json: bool, quiet: bool, **options: Any) -> None:
        for name, made in groups.items():
            options[name] = made(**{field: options.pop(field) for field in fields[name]})
        with prose(json, quiet) as console:
            function(console, **options)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [each.replace(kind=keyword) for each in given]
    for name, option in {"json": Json, "quiet": Quiet}.items():
        parameters.append(inspect.Parameter(name, keyword, default=False, annotation=option))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def show_help(context: typer.Context) -> None:
    """Print the help of a group that was called without a command."""
    if context.invoked_subcommand is None:
        if text := context.get_help():  # empty if rich has printed it
            typer.echo(text)
        raise typer.Exit(ERROR)


app = App(
    cls=Commands,
    help="Learn policies from logs of past decisions, and switch between them as the world changes.",
    epilog=EXIT_CODES,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"seachange {version('seachange')}")
        raise typer.Exit


@app.callback()
def _seachange(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    show_help(context)


class Interrupted(BaseException):
    """A signal to stop; not a KeyboardInterrupt, which typer would turn into a silent exit."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def raise_on_signals() -> None:
    """Turn signals into exceptions, so that files being written are cleaned up; ignored signals stay ignored."""
    for name in SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise)


def _raise(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not interrupt the cleanup
    raise Interrupted(number)


@contextmanager
def resumable() -> Iterator[None]:
    """Mark work that the same command resumes after an interrupt."""
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as interrupt:
        interrupt.add_note("Run the same command again to resume.")
        raise


def interrupt_in(error: BaseException) -> BaseException | None:
    """The interrupt that caused ``error``, for example one that came while compiled code was loading."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, Interrupted | KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    return cause


def report_interrupt(interrupt: BaseException, written: Sequence[Path]) -> int:
    """Say what was interrupted and what had been written by then; the exit code."""
    number = interrupt.number if isinstance(interrupt, Interrupted) else int(signal.SIGINT)
    word = next(word for name, word in SIGNALS.items() if getattr(signal, name, None) == number)
    files = f"already written: {', '.join(map(str, written))}" if written else "nothing was written"
    notes = "".join(f" {note}" for note in getattr(interrupt, "__notes__", ())) if written else ""
    say_error(f"{word}; {files}.{notes}", kind="Interrupted", heading="")
    return SIGNAL + number
