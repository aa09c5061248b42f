"""demo, learn, states: from a log to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.console import Console

from seachange.cli.options import Columns, DropBadRows, EstimatePropensities, Force, Json, LogFile, Seed, app
from seachange.cli.reading import claim_png, read, state_count, with_estimates
from seachange.cli.speaking import console_for, finish, note


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure and the model.")] = Path("demo-output"),
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """The whole loop on built-in data, in seconds."""
    from seachange.experiments.demo import run_demo
    from seachange.outputs import claim_folder

    console = console_for(json)
    result = run_demo(claim_folder(out, force=force), seed, lambda heading, shown: _step(console, heading, shown))
    finish(console, json, result, f"Written: {result.figure} (look at it) and {result.model} (sc.load it).")


@app.command()
def learn(
    log: LogFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="The model file to write.")],
    columns: Columns = "",
    oracle: Annotated[Literal["hmm", "change-point", "none"], typer.Option(help="What finds the states.")] = "hmm",
    states: Annotated[str, typer.Option(help="How many states: auto, or a number.")] = "auto",
    objective: Annotated[
        Literal["auto", "ips", "snips", "dm", "dr", "mrdr", "poem", "cross-entropy"],
        typer.Option(help="What a policy maximises; auto: what earns most on held-out time."),
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
    from seachange.report.tables import log_table, states_table

    console, target, count = console_for(json), claim_file(out, force=force), state_count(states)
    table = read(log, columns, drop_bad_rows)
    if estimate_propensities:
        table = with_estimates(table, seed, console)
    console.print(log_table(table), "")
    with working("Learning"):
        model = learning.learn(table, oracle=oracle, n_states=count, objective=objective, seed=seed)
    console.print(states_table(table, model.labels))
    if model.choice is not None:
        console.print(f"\nObjective: {model.choice.reason}", soft_wrap=True)
    model.save(target)
    result = {
        "model": str(target), "n_states": model.n_states, "changes": len(model.labels.change_points),
        "choice": msgspec.to_builtins(model.choice),
    }  # fmt: skip
    finish(console, json, result, f"Written: {target}. Next: seachange evaluate LATER_LOG {target}")


@app.command()
def states(
    log: LogFile,
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="Whose states; found anew without it.")
    ] = None,
    columns: Columns = "",
    oracle: Annotated[Literal["hmm", "change-point"], typer.Option(help="What finds the states.")] = "hmm",
    states: Annotated[str, typer.Option(help="How many states: auto, or a number.")] = "auto",
    rewards: Annotated[
        Literal["auto", "gaussian", "bernoulli"], typer.Option(help="How the HMM takes rewards to be distributed.")
    ] = "auto",
    figure: Annotated[Path | None, typer.Option(help="Also draw all of it here, as a PNG file.")] = None,
    missing_rewards: Annotated[
        bool, typer.Option("--missing-rewards", help="Rounds without a reward were not observed; they are no bad rows.")
    ] = False,
    drop_bad_rows: DropBadRows = False,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Where the world changed, how sure that is, and what the states are."""
    from seachange.model import load
    from seachange.report.progress import working
    from seachange.report.states import as_document, summarise_states
    from seachange.report.states_figure import draw_states
    from seachange.report.states_tables import states_view

    if figure is not None:
        claim_png(figure, force)
    console, loaded = console_for(json), None if model is None else load(model)
    finder = _finder(oracle, state_count(states), rewards, seed) if loaded is None else loaded.oracle
    if loaded is not None and (oracle, states, rewards) != ("hmm", "auto", "auto"):
        note("these are the model's own states; --oracle, --states and --rewards are for finding them anew.")
    table = read(log, columns, drop_bad_rows, loaded, missing_rewards)
    with working("Finding the states"):
        if loaded is None:
            finder.fit(table)
        fitted_here = loaded is None or table.fingerprint() == loaded.provenance.fingerprint
        summary = summarise_states(table, finder, fitted_here=fitted_here)
    console.print(states_view(summary, console.width))
    if figure is not None:
        draw_states(figure, summary)
    finish(console, json, as_document(summary), f"Written: {figure}" if figure else "")


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
