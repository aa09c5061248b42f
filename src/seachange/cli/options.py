"""The command line's words: what commands share of arguments and options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from seachange.engine import cores

app = typer.Typer(
    help="Learn, from logs of past decisions, policies that know how to change their mind.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
replicate = typer.Typer(help="A published table beside ours.", no_args_is_help=True)
app.add_typer(replicate, name="replicate")

LogFile = Annotated[Path, typer.Argument(metavar="LOG", help="A Parquet, CSV, TSV or JSON-lines file, in time order.")]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file that `seachange learn` wrote.")]
Columns = Annotated[
    str,
    typer.Option(help="Where things are: action=item_id,reward=click,propensity=p,time=ts,contexts=age+hour."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, prose on standard error.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.")]
Force = Annotated[bool, typer.Option("--force", help="Write over what exists.")]
DropBadRows = Annotated[bool, typer.Option("--drop-bad-rows", help="Leave out rows that break a rule of logs.")]
EstimatePropensities = Annotated[
    bool, typer.Option("--estimate-propensities", help="For logs whose propensities nobody wrote down.")
]
CORES = cores()
Workers = Annotated[int, typer.Option(min=1, help="Processes; changes nothing but the time.")]
Confidence = Annotated[float, typer.Option(help="Of the intervals.")]
Online = Annotated[
    bool, typer.Option("--online", help="Also what the switching policy itself, as it learns, would have earned.")
]
OverTime = Annotated[
    str, typer.Option(help="Also by period, with a forecast of the next: hour, day, week, or a number of rounds.")
]
At = Annotated[
    str,
    typer.Option(help="Also the value at a time to come: 2026-02-21T12:00, or seconds since 1970; several by comma."),
]
Recurs = Annotated[
    Literal["hour", "weekday", "hour of the week"], typer.Option(help="What makes times of the log like those of --at.")
]
