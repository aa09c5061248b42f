"""demo, learn, states: from a log to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.console import Console

from seachange.cli.options import (
    Columns,
    DropBadRows,
    EstimatePropensities,
    Force,
    Format,
    Json,
    LogFile,
    MissingRewards,
    Seed,
    States,
    app,
)
from seachange.cli.reading import as_said, claim_ending, claim_png, open_model, read, state_count, with_estimates
from seachange.cli.speaking import console_for, finish, next_steps, note, say


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the figure and the model.")
    ] = Path("demo-output"),
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """The whole loop on built-in data, in seconds."""
    from seachange.experiments.demo import run_demo
    from seachange.outputs import claim_folder

    console = console_for(json)
    result = run_demo(claim_folder(out, force=force), seed, lambda heading, shown: _step(console, heading, shown))
    steps = (("inspect", result.model, "what is in it"), ("check", "YOUR_LOG", "what yours can tell"))
    finish(console, json, result, f"Written: {result.figure} (look at it) and {result.model}.\n{next_steps(*steps)}")


@app.command()
def learn(
    log: LogFile,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="The model file to write.")],
    columns: Columns = "",
    format: Format = None,
    oracle: Annotated[
        Literal["hmm", "change-point", "none"], typer.Option(case_sensitive=False, help="What finds the states.")
    ] = "hmm",
    states: States = "auto",
    objective: Annotated[
        Literal["auto", "ips", "snips", "dm", "dr", "mrdr", "poem", "cross-entropy"],
        typer.Option(
            case_sensitive=False,
            help="What a policy maximises: ips, snips, dm, dr, mrdr, poem, cross-entropy, or auto, which is what earns "
            "most on held-out time.",
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
    from seachange.outputs import claim_file
    from seachange.report.progress import working
    from seachange.report.states import clock_in
    from seachange.report.tables import log_table, states_table

    console, target, count = console_for(json), claim_file(out, force=force, read=[log]), state_count(states)
    table = read(log, columns, format, drop_bad_rows)
    if estimate_propensities:
        table = with_estimates(table, seed, console)
    console.print(log_table(table), "")
    with working("Learning"):
        model = learning.learn(table, oracle=oracle, n_states=count, objective=objective, seed=seed)
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
    said = as_said(format=format, estimate_propensities=estimate_propensities, drop_bad_rows=drop_bad_rows)
    steps = (
        ("report", log, target, *said, "-o", target.with_suffix(".html"), "to look at"),
        ("evaluate", "LATER_LOG", target, "on later rounds"),
        ("inspect", target, "what is in it"),
    )
    finish(console, json, result, f"Written: {target}\n{next_steps(*steps)}")


@app.command()
def states(
    log: LogFile,
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help="Whose states; found anew without it.")] = None,
    columns: Columns = "",
    format: Format = None,
    oracle: Annotated[
        Literal["hmm", "change-point"], typer.Option(case_sensitive=False, help="What finds the states.")
    ] = "hmm",
    states: States = "auto",
    rewards: Annotated[
        Literal["auto", "gaussian", "bernoulli"],
        typer.Option(case_sensitive=False, help="How the HMM takes rewards to be distributed."),
    ] = "auto",
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Also draw all of it here, as a PNG file.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Also write the state of every round here: .csv or .parquet."),
    ] = None,
    missing_rewards: MissingRewards = False,
    drop_bad_rows: DropBadRows = False,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Where the world changed, how sure that is, and what the states are."""
    from seachange.report.progress import working
    from seachange.report.states import as_document, summarise_states
    from seachange.report.states_figure import draw_states
    from seachange.report.states_rows import write_states
    from seachange.report.states_tables import states_view

    if figure is not None:
        claim_png(figure, force)
    if out is not None:
        claim_ending(out, (".csv", ".parquet"), "--out", force, read=[log])
    console, count, loaded = console_for(json), state_count(states), None if model is None else open_model(model, log)
    finder = _finder(oracle, count, rewards, seed) if loaded is None else loaded.oracle
    if loaded is not None and (oracle, states, rewards) != ("hmm", "auto", "auto"):
        note("these are the model's own states; --oracle, --states and --rewards are for finding them anew.")
    table = read(log, columns, format, drop_bad_rows, loaded, missing_rewards)
    with working("Finding the states"):
        if loaded is None:
            finder.fit(table)
        fitted_here = loaded is None or table.fingerprint() == loaded.provenance.fingerprint
        labels = finder.predict(table)
        summary = summarise_states(table, finder, labels, fitted_here=fitted_here)
    console.print(states_view(summary, console.width))
    if figure is not None:
        draw_states(figure, summary)
    if out is not None:
        write_states(out, table, labels)
    written = " and ".join(str(path) for path in (figure, out) if path is not None)
    finish(console, json, as_document(summary), f"Written: {written}" if written else "")


def _finder(oracle: str, count: Any, rewards: Any, seed: int) -> Any:
    """An oracle that is still to be fitted."""
    from seachange import learning
    from seachange.states import HMMOracle

    if oracle == "hmm":
        return HMMOracle(n_states=count, rewards=rewards, seed=seed)
    if rewards != "auto":
        raise typer.BadParameter("only --oracle hmm asks how rewards are distributed", param_hint="--rewards")
    return learning.oracle_named(oracle, count, seed)


def _step(console: Console, heading: str, shown: Any) -> None:
    console.print(f"\n[bold cyan]{heading}[/]\n")
    console.print(shown)
