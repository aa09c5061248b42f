"""Arguments and options that several commands share, and the parsers of their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from seachange.cli.app import OUTPUT, listed
from seachange.engine import cores
from seachange.errors import ParameterError, did_you_mean

THE_LOG = "The log"


def parse_columns(text: str) -> dict[str, str | Sequence[str]]:
    """Columns by role, from ``ROLE=COLUMN,…``."""
    from seachange.formats.column_roles import USUAL_NAMES

    roles, columns = (*USUAL_NAMES, "contexts"), dict[str, str | Sequence[str]]()
    for pair in filter(None, text.split(",")):
        role, _, column = (part.strip() for part in pair.partition("="))
        role = role.lower()
        if not column or role in columns:
            raise typer.BadParameter(f"{pair!r} should be ROLE=COLUMN, each role once", param_hint="--columns")
        if role not in roles:
            problem = f"{role!r} is not a role; roles are {listed(roles)}.{did_you_mean(role, roles)}"
            raise typer.BadParameter(problem, param_hint="--columns")
        columns[role] = column.split("+") if role == "contexts" else column
    return columns


def parse_states(text: str) -> Any:
    """A number of states, or ``auto``."""
    if text.lower() == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r} should be auto or a number of at least 1")
    return int(text)


def parse_period(text: str) -> Any:
    """A period of time, a number of rounds, or an empty text."""
    periods = ("hour", "day", "week")
    if text.lower() in ("", *periods):
        return text.lower()
    if not text.isdecimal() or int(text) < 1:
        suggestion = did_you_mean(text, periods)
        raise typer.BadParameter(f"{text!r} should be hour, day, week or a number of rounds.{suggestion}")
    return int(text)


def parse_times(text: str) -> Any:
    """Dates, or seconds since 1970, separated by commas; an empty text gives none."""
    import numpy as np

    from seachange.evaluation.over_time import moments_of

    parts = [part.strip() for part in text.split(",")] if text else []
    try:
        seconds = np.array(parts, dtype=np.float64)
        if np.isfinite(seconds).all():
            return seconds
    except ValueError:
        pass
    try:
        return moments_of(parts)
    except ParameterError as error:
        raise typer.BadParameter(
            f"{text!r} should be times such as 2026-02-21T12:00, or seconds since 1970, separated by commas"
        ) from error


def parse_range(text: str) -> tuple[float, float] | None:
    """``LOW,HIGH``; None for an empty text."""
    if not text:
        return None
    try:
        low, high = (float(end) for end in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} should be LOW,HIGH") from error
    return low, high


def words_of(known: Callable[[], Sequence[str]]) -> Callable[[str], list[str]]:
    """A parser of words separated by commas, in any case; ``auto`` gives none."""

    def parse(text: str) -> list[str]:
        words = [word.strip().lower() for word in text.split(",")] if text.lower() != "auto" else []
        for word in words:
            if word not in known():
                raise typer.BadParameter(f"{word!r} is not one of {listed(known())}.{did_you_mean(word, known())}")
        return words

    return parse


def parsed(parser: Callable[[str], Any], metavar: str, help: str) -> Any:
    """An option whose text ``parser`` turns into a value."""
    return typer.Option(parser=parser, metavar=metavar, help=help, show_default=False)


LogFile = Annotated[
    Path, typer.Argument(metavar="LOG", help="A log in time order: a file, a folder, or a quoted pattern.")
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file written by `seachange learn`.")]
Columns = Annotated[
    str,
    typer.Option(
        metavar="ROLE=COL,…",
        help="Map roles to columns, as in action=item,contexts=age+hour. Roles: action, reward, propensity, time, "
        "sequence, contexts. Columns with common names are detected; all others become contexts.",
        rich_help_panel=THE_LOG,
        show_default=False,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Set the format: csv, json-lines, dsjson, vw, … (default: detect).",
        rich_help_panel=THE_LOG,
    ),
]
DropBadRows = Annotated[
    bool, typer.Option("--drop-bad-rows", help="Drop rows that break a rule of logs.", rich_help_panel=THE_LOG)
]
MissingRewards = Annotated[
    bool,
    typer.Option("--missing-rewards", help="Keep rounds whose reward was not observed.", rich_help_panel=THE_LOG),
]
EstimatePropensities = Annotated[
    bool,
    typer.Option("--estimate-propensities", help="Estimate propensities if the log has none.", rich_help_panel=THE_LOG),
]
States = Annotated[
    Any, typer.Option(parser=parse_states, metavar="N", help="Set the number of states, or auto to choose it.")
]
CORES = cores()
Workers = Annotated[int, typer.Option(min=1, metavar="N", help="Run this many processes; results do not change.")]
Confidence = Annotated[float, typer.Option(metavar="SHARE", help="Set the confidence level of intervals.")]
Seed = Annotated[
    int, typer.Option(metavar="N", help="Set the random seed; results are reproducible.", rich_help_panel=OUTPUT)
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.", rich_help_panel=OUTPUT)]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document on stdout; text goes to stderr.", rich_help_panel=OUTPUT),
]
