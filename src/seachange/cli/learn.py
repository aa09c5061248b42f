"""learn: from a log to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec
import typer

from seachange.cli.app import choice
from seachange.cli.arguments import log_options, read, with_estimates
from seachange.cli.console import console_for, finish, next_steps, say
from seachange.cli.options import Columns, DropBadRows, EstimatePropensities, Force, Format, Json, LogFile, Seed, States
from seachange.outputs import claim_file

Oracle = Literal["hmm", "change-point", "none"]
Objective = Literal["auto", "ips", "snips", "dm", "dr", "mrdr", "poem", "cross-entropy"]


def learn(
    log: LogFile,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Write the model to this file.")],
    columns: Columns = "",
    format: Format = None,
    oracle: Annotated[
        Oracle, choice(get_args(Oracle), help="Find states with hmm, change-point, or none (one state).")
    ] = "hmm",
    states: States = "auto",
    objective: Annotated[
        Objective,
        choice(
            get_args(Objective),
            help="Maximize ips, snips, dm, dr, mrdr, poem or cross-entropy; auto picks the best.",
        ),
    ] = "auto",
    estimate_propensities: EstimatePropensities = False,
    drop_bad_rows: DropBadRows = False,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Learn a switching policy from a log."""
    from seachange import learning
    from seachange.analysis.states_summary import clock_in
    from seachange.cli.tables import log_table, states_table
    from seachange.engine import stage

    console, target = console_for(json), claim_file(out, force=force, inputs=[log])
    table = read(log, columns, format, drop_bad_rows)
    if estimate_propensities:
        table = with_estimates(table, seed, console)
    console.print(log_table(table), "")
    with stage("Learning"):
        model = learning.learn(table, oracle=oracle, n_states=states, objective=objective, seed=seed)
    console.print(states_table(table, model.labels))
    clock = clock_in(table, model.labels)
    if clock is not None and clock.followed:
        say(console, f"\n{clock}")
    if model.choice is not None:
        say(console, f"\nObjective: {model.choice.reason}")
    model.save(target)
    result = {
        "model": str(target), "n_states": model.n_states, "changes": len(model.labels.change_points),
        "clock": msgspec.to_builtins(clock), "choice": msgspec.to_builtins(model.choice),
    }  # fmt: skip
    options = log_options("", format, estimate_propensities, drop_bad_rows)
    steps = next_steps(
        ("report", log, target, *options, "-o", target.with_suffix(".html")),
        ("evaluate", "LATER_LOG", target),
        ("inspect", target),
    )
    finish(console, json, result, f"Wrote {target}.\n{steps}")
