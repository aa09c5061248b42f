"""states: when the world changed, how certain that is, and how the states differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from seachange.cli.app import choice
from seachange.cli.arguments import claim_output, open_model, read
from seachange.cli.console import console_for, finish, note
from seachange.cli.options import Columns, DropBadRows, Force, Format, Json, LogFile, MissingRewards, Seed, States

Oracle = Literal["hmm", "change-point"]
Rewards = Literal["auto", "gaussian", "bernoulli"]


def states(
    log: LogFile,
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", help="A model whose states to show; without it, find them.")
    ] = None,
    columns: Columns = "",
    format: Format = None,
    oracle: Annotated[Oracle, choice(get_args(Oracle), help="Find states with hmm or change-point.")] = "hmm",
    states: States = "auto",
    rewards: Annotated[
        Rewards, choice(get_args(Rewards), help="Model rewards as gaussian or bernoulli; auto decides (hmm only).")
    ] = "auto",
    figure: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the states into a PNG file.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the state of every round to a .csv or .parquet file."),
    ] = None,
    missing_rewards: MissingRewards = False,
    drop_bad_rows: DropBadRows = False,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show when the world changed, how certain that is, and how the states differ."""
    from seachange.analysis.states_summary import as_document, summarize_states
    from seachange.cli.states_view import states_view, write_states
    from seachange.engine import stage
    from seachange.figures import draw_states

    if figure is not None:
        claim_output(figure, (".png",), "--figure", force)
    if out is not None:
        claim_output(out, (".csv", ".parquet"), "--out", force, inputs=[log])
    console, loaded = console_for(json), None if model is None else open_model(model, log)
    finder = _new_oracle(oracle, states, rewards, seed) if loaded is None else loaded.oracle
    if loaded is not None and (oracle, states, rewards) != ("hmm", "auto", "auto"):
        note("the states are the model's; --oracle, --states and --rewards have no effect.")
    table = read(log, columns, format, drop_bad_rows, loaded, missing_rewards)
    with stage("Finding the states"):
        if loaded is None:
            finder.fit(table)
        fitted_here = loaded is None or table.fingerprint() == loaded.provenance.fingerprint
        labels = finder.predict(table)
        summary = summarize_states(table, finder, labels, fitted_here=fitted_here)
    console.print(states_view(summary, console.width))
    if figure is not None:
        draw_states(figure, summary)
    if out is not None:
        write_states(out, table, labels)
    written = " and ".join(str(path) for path in (figure, out) if path is not None)
    finish(console, json, as_document(summary), f"Wrote {written}." if written else "")


def _new_oracle(oracle: str, count: Any, rewards: Any, seed: int) -> Any:
    from seachange import learning
    from seachange.states import HMMOracle

    if oracle == "hmm":
        return HMMOracle(n_states=count, rewards=rewards, seed=seed)
    if rewards != "auto":
        raise typer.BadParameter("only --oracle hmm models the distribution of rewards", param_hint="--rewards")
    return learning.oracle_named(oracle, count, seed)
