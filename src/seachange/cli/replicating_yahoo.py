"""replicate yahoo: the paper's second experiment, on anybody's copy of the data or on an invented one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from seachange.cli.options import CORES, Json, Seed, Workers, replicate
from seachange.cli.running import resumable
from seachange.cli.speaking import console_for, finish

OPEN = "What the paper leaves open"


@replicate.command()
def yahoo(
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of Yahoo!'s R6A or R6B, a file a day, as delivered.")
    ] = None,
    standin: Annotated[
        bool, typer.Option("--standin", help="Invent a front page, write its days in R6A's format, and read those.")
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Results; what was interrupted goes on there.")
    ] = Path("yahoo-replication"),
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="Samples of the visits; run i has seed SEED + i.")] = 10,
    states: Annotated[int, typer.Option(min=1, metavar="K", help="k of the table.")] = 10,
    up_to: Annotated[int, typer.Option(min=0, metavar="K", help="Largest k of the figure; 0: no figure.")] = 15,
    days: Annotated[int, typer.Option(min=1, metavar="N", help="Days to learn from.")] = 6,
    next_days: Annotated[int, typer.Option(min=1, metavar="N", help="Days after them to deploy on.")] = 4,
    documents: Annotated[
        int, typer.Option(min=2, metavar="N", help="Documents of each pool to choose from.", rich_help_panel=OPEN)
    ] = 10,
    features: Annotated[
        Literal["documents", "crossed", "identity"],
        typer.Option(help="The documents' own, crossed with the visitors', or their identity.", rich_help_panel=OPEN),
    ] = "documents",
    window: Annotated[
        float, typer.Option(metavar="HOURS", help="Hours around a round that its rates are of.", rich_help_panel=OPEN)
    ] = 12.0,
    smoothing: Annotated[
        float, typer.Option(min=0, metavar="N", help="Shows at the average rate added there.", rich_help_panel=OPEN)
    ] = 100.0,
    restarts: Annotated[int, typer.Option(min=1, metavar="N", help="Starts of EM.", rich_help_panel=OPEN)] = 1,
    tolerance: Annotated[
        float, typer.Option(min=0, help="EM stops at less log-likelihood gained a round.", rich_help_panel=OPEN)
    ] = 1e-6,
    workers: Workers = CORES,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """The paper's second experiment: clicks of a front page, on the same days and on the next."""
    from seachange.experiments import yahoo as experiment
    from seachange.experiments import yahoo_days
    from seachange.experiments.run_store import RunStore
    from seachange.outputs import claim_folder
    from seachange.report import click_figures, figures, progress, tables

    if (data is None) == (not standin):
        raise typer.BadParameter(
            "name the folder of the days, or ask for --standin, one of the two", param_hint="--data"
        )
    console, seeds = console_for(json), range(seed, seed + runs)
    settings = experiment.Settings(
        days=days, next_days=next_days, n_documents=documents, features=features, window=3600 * window,
        smoothing=smoothing, restarts=restarts, tolerance=tolerance,
    )  # fmt: skip
    n_days, counts = days + next_days, sorted({*range(1, up_to + 1), states})
    if data is not None:
        yahoo_days.files_of(data, n_days)  # before anything is written
    folder = claim_folder(out, force=True)
    with resumable():
        source = data if data is not None else yahoo_days.invented_days(folder, n_days, seed)
        store = RunStore(folder, experiment.in_common(settings, yahoo_days.files_of(source, n_days), states))
        read = yahoo_days.read_days(source, n_days, folder, features=features, invented=standin)
        console.print(f"Read from {source}, {read.data}: {read.told}", soft_wrap=True)
        if small := experiment.left_out(read.visits, settings):
            console.print(small)
        tasks = [(one, k) for one in seeds for k in (0, *counts)]
        running = experiment.replicate(store, read.visits, settings, tasks, states, workers)
        list(progress.tracked(running, len(tasks), "runs"))
    rows = experiment.summarise(store, seeds, counts, read.data)
    console.print(*(tables.clicks_table(rows, runs, states, horizon) for horizon in experiment.HORIZONS), sep="\n")
    console.print(
        "Click rates relative to those of documents shown at random, mean ± standard deviation over runs; the paper's "
        f"are at k = {experiment.PAPER_STATES}. Data: {read.data}.",
        soft_wrap=True,
    )
    result: dict[str, Any] = {"experiment": "yahoo", "data": read.data, "read": read.told, "runs": runs, "seed": seed}
    written = [folder / "relative-click-rates.csv", folder / "states-by-hour.png"]
    figures.write_csv(written[0], rows)
    found = experiment.states_of(read.visits, settings, seed, states)
    click_figures.draw_states_by_hour(written[1], found, f"Data: {read.data}.")
    if up_to:
        written.append(folder / "relative-click-rates.png")
        click_figures.draw_relative_rates(written[2], rows, runs, f"Data: {read.data}.")
    result |= {"states": states, "rows": rows, "states_found": found, "written": [str(path) for path in written]}
    finish(console, json, result, f"Written: {', '.join(map(str, written))}")
