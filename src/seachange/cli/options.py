"""The command line's words: what commands share of arguments and options, and in which order they stand."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from seachange.cli.help import OUTPUT, THE_LOG, Command, Group
from seachange.cli.misuse import exits_with_one_line
from seachange.cli.speaking import quietly
from seachange.engine import cores

# The order in which a log is worked on, and in which commands are listed; others come after.
PIPELINE = ("demo", "check", "learn", "inspect", "states", "evaluate", "bounds", "report", "replicate", "serve")
EXIT_CODES = (
    "Exit codes: 0 fine, 1 usable with warnings (check), 2 an error, or a log that cannot be used (check), "
    "130 interrupted."
)

Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Errors, and the document of --json, but no prose.", rich_help_panel=OUTPUT),
]


class Commands(Group):
    """Commands in the order of the pipeline; one that is called wrongly says so in one line."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, in order."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: PIPELINE.index(name) if name in PIPELINE else len(PIPELINE))

    def main(self, *args: Any, standalone_mode: bool = True, **rest: Any) -> Any:
        """Run a command."""
        run: Any = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **rest)
        return exits_with_one_line(lambda: run(*args, standalone_mode=False, **rest))


class App(typer.Typer):
    """Commands that all can be hushed, and that show on a terminal how far they are."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Register a function as a command."""
        register = super().command(name, **{"cls": Command, **settings})

        def registered(function: Callable[..., None]) -> Callable[..., None]:
            register(_hushable(function))
            return function

        return registered


def _hushable(function: Callable[..., None]) -> Callable[..., None]:
    """``function`` with one option more, --quiet, of which it need not know."""

    @wraps(function)
    def command(*, quiet: bool, **options: Any) -> None:
        from seachange.report.progress import shown

        with quietly(quiet), shown(quiet):
            function(**options)

    signature = inspect.signature(function, eval_str=True)
    one_more = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet)
    parameters = [*signature.parameters.values(), one_more]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


app = App(
    cls=Commands,
    help="Learn, from logs of past decisions, policies that know how to change their mind.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"seachange {version('seachange')}")
        raise typer.Exit


@app.callback()
def _seachange(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


replicate = App(cls=Commands, help="A published table beside ours.", no_args_is_help=True)
app.add_typer(replicate, name="replicate")

LogFile = Annotated[
    Path,
    typer.Argument(metavar="LOG", help="A log, in time order: a file, a folder, or files by a quoted pattern."),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file that `seachange learn` wrote.")]
Columns = Annotated[
    str,
    typer.Option(
        metavar="WORD=COL,…",
        help="Which columns hold what, such as action=item,reward=click. The words are action, reward, propensity, "
        "time, sequence (user, session) and contexts (age+hour). What is not said is found by its usual names; "
        "contexts are all columns that are left.",
        rich_help_panel=THE_LOG,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        metavar="WORD",
        help="What the log is, where its content does not tell: csv, json-lines, dsjson, vw, …",
        rich_help_panel=THE_LOG,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="One JSON document on standard output, prose on standard error.", rich_help_panel=OUTPUT
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", help="The same seed gives the same result.", rich_help_panel=OUTPUT)]
Force = Annotated[bool, typer.Option("--force", help="Write over what exists.", rich_help_panel=OUTPUT)]
DropBadRows = Annotated[
    bool,
    typer.Option("--drop-bad-rows", help="Leave out rows that break a rule of logs.", rich_help_panel=THE_LOG),
]
MissingRewards = Annotated[
    bool,
    typer.Option(
        "--missing-rewards",
        help="Rounds without a reward were not observed; they are no bad rows.",
        rich_help_panel=THE_LOG,
    ),
]
EstimatePropensities = Annotated[
    bool,
    typer.Option(
        "--estimate-propensities", help="For logs whose propensities nobody wrote down.", rich_help_panel=THE_LOG
    ),
]
States = Annotated[str, typer.Option(metavar="N", help="How many states: auto, or a number.")]
CORES = cores()
Workers = Annotated[int, typer.Option(min=1, metavar="N", help="Processes; changes nothing but the time.")]
Confidence = Annotated[float, typer.Option(metavar="SHARE", help="Of the intervals.")]
Online = Annotated[
    bool, typer.Option("--online", help="Also what the switching policy itself, as it learns, would have earned.")
]
OverTime = Annotated[
    str,
    typer.Option(
        metavar="PERIOD", help="Also by period, with a forecast of the next: hour, day, week, or a number of rounds."
    ),
]
At = Annotated[
    str,
    typer.Option(metavar="TIME,…", help="Also the value at times to come: 2026-02-21T12:00, or seconds since 1970."),
]
Recurs = Annotated[
    Literal["hour", "weekday", "hour of the week"],
    typer.Option(
        case_sensitive=False,
        help="What makes times of the log like those of --at: hour, weekday, or 'hour of the week'.",
    ),
]
