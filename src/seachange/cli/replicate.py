"""replicate: published tables, reproduced."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
from rich.console import Console

from seachange.cli.app import OUTPUT, App, Commands, choice, show_help
from seachange.cli.arguments import claim_output
from seachange.cli.console import console_for, finish, say
from seachange.cli.interrupts import resumable
from seachange.cli.options import CORES, Force, Json, Seed, Workers
from seachange.outputs import claim_file, claim_folder

replicate = App(cls=Commands, help="Reproduce a published table.", invoke_without_command=True)
replicate.callback()(show_help)

OPEN = "Settings the paper does not give"
Features = Literal["documents", "crossed", "identity"]
PublishedSeed = Annotated[
    int, typer.Option(metavar="N", help="Set the random seed; 0 gives the published runs.", rich_help_panel=OUTPUT)
]


@replicate.command()
def synthetic(
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="Simulate N worlds; run i has seed SEED + i.")] = 10,
    states: Annotated[int, typer.Option(min=1, metavar="K", help="Set k, the number of states.")] = 5,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw reward against k = 1…10, with a CSV next to it.")
    ] = None,
    workers: Workers = CORES,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Run the paper's first experiment: IPS, DR, POEM, k-CD, k-HMM and the oracle."""
    from seachange import figures
    from seachange.cli import tables
    from seachange.cli.progress_line import tracked
    from seachange.experiments import paper_synthetic as experiment

    console, seeds = console_for(json), range(seed, seed + runs)
    if figure is not None:
        claim_output(figure, (".png",), "--figure", force)
        claim_file(figure.with_suffix(".csv"), force=force)
    done = list(tracked(experiment.replicate(seeds, states, workers), runs, "Runs"))
    rows = experiment.summarize(done)
    console.print(tables.replication_table(rows, runs, states), f"\n{experiment.PAPER_LIKE}", soft_wrap=True)
    result: dict[str, Any] = {"experiment": "synthetic", "runs": runs, "states": states, "seed": seed, "rows": rows}
    if figure is not None:
        counts = range(1, 11)
        swept = list(tracked(experiment.replicate_states(seeds, counts, workers), runs, "Reward against k"))
        result["figure"] = experiment.summarize_states(swept, counts)
        figures.draw_reward_by_states(figure, result["figure"], runs)
        figures.write_csv(figure.with_suffix(".csv"), result["figure"])
    finish(console, json, result, f"Wrote {figure} and {figure.with_suffix('.csv')}." if figure else "")


@replicate.command("obp-synthetic")
def obp_synthetic(
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="Simulate N worlds; run i has seed SEED + i.")] = 20,
    workers: Workers = CORES,
    seed: PublishedSeed = 0,
    json: Json = False,
) -> None:
    """Measure the errors of seven estimators on Open Bandit Pipeline's synthetic data."""
    from seachange.analysis.formatting import count_of
    from seachange.cli.progress_line import tracked
    from seachange.experiments import obp_synthetic as experiment

    done = list(tracked(experiment.replicate(range(seed, seed + runs), workers), runs, "Runs"))
    title = f"A soft policy over 30 actions, {count_of(runs, 'world')}"
    _show_errors(console_for(json), json, "obp-synthetic", title, done, experiment, seed)


@replicate.command("open-bandit")
def open_bandit(
    data: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Read Open Bandit's small sample (random/all, bts/all) from here.")
    ],
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="Draw N bootstraps; number i has seed SEED + i.")] = 30,
    workers: Workers = CORES,
    seed: PublishedSeed = 0,
    json: Json = False,
) -> None:
    """Measure the errors of seven estimators on Open Bandit's sample."""
    from seachange.analysis.formatting import count_of
    from seachange.cli.progress_line import tracked
    from seachange.experiments import obp_open_bandit as experiment

    console, sample = console_for(json), experiment.read_sample(data)
    done = list(tracked(experiment.replicate(sample, range(seed, seed + runs), workers), runs, "Bootstraps"))
    title = f"Thompson sampling, evaluated on uniform random actions, {count_of(runs, 'bootstrap')}"
    _show_errors(console, json, "open-bandit", title, done, experiment, seed)


def _show_errors(
    console: Console, json: bool, name: str, title: str, done: list[dict[str, float]], experiment: Any, seed: int
) -> None:
    """Print the published errors of estimators and ours."""
    from seachange.cli.tables import errors_table
    from seachange.experiments.obp_synthetic import summarize_errors

    rows = summarize_errors(done, experiment.PUBLISHED, experiment.PUBLISHED_RUNS)
    console.print(errors_table(title, rows, len(done), experiment.PUBLISHED_RUNS))
    finish(console, json, {"experiment": name, "runs": len(done), "seed": seed, "rows": rows})


@replicate.command()
def yahoo(
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Read Yahoo!'s R6A or R6B, one file per day, from here.")
    ] = None,
    standin: Annotated[
        bool, typer.Option("--standin", help="Simulate a front page, write it in R6A's format, and read that.")
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Write results here; an interrupted run resumes.")
    ] = Path("yahoo-replication"),
    runs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Draw N samples of visits; run i has seed SEED + i.")
    ] = 10,
    states: Annotated[int, typer.Option(min=1, metavar="K", help="Set k in the table.")] = 10,
    up_to: Annotated[int, typer.Option(min=0, metavar="K", help="Draw the figure up to this k; 0 draws none.")] = 15,
    days: Annotated[int, typer.Option(min=1, metavar="N", help="Learn from N days.")] = 6,
    next_days: Annotated[int, typer.Option(min=1, metavar="N", help="Deploy on the N days after them.")] = 4,
    documents: Annotated[
        int, typer.Option(min=2, metavar="N", help="Choose among N documents of each pool.", rich_help_panel=OPEN)
    ] = 10,
    features: Annotated[
        Features,
        choice(
            get_args(Features),
            help="Use document features (documents), times user features (crossed), or identity.",
            rich_help_panel=OPEN,
        ),
    ] = "documents",
    window: Annotated[
        float, typer.Option(metavar="HOURS", help="Average click rates over this window.", rich_help_panel=OPEN)
    ] = 12.0,
    smoothing: Annotated[
        float, typer.Option(min=0, metavar="N", help="Add N impressions at the average rate.", rich_help_panel=OPEN)
    ] = 100.0,
    restarts: Annotated[int, typer.Option(min=1, metavar="N", help="Start EM N times.", rich_help_panel=OPEN)] = 1,
    tolerance: Annotated[
        float,
        typer.Option(min=0, metavar="GAIN", help="Stop EM at this gain per round.", rich_help_panel=OPEN),
    ] = 1e-6,
    workers: Workers = CORES,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Run the paper's second experiment: clicks on a front page, on the same days and the next."""
    from seachange import figures
    from seachange.cli.progress_line import tracked
    from seachange.cli.tables import clicks_table
    from seachange.experiments import paper_yahoo as experiment

    if (data is None) == (not standin):
        raise typer.BadParameter("name the folder of the days, or use --standin", param_hint="--data")
    console, seeds = console_for(json), range(seed, seed + runs)
    settings = experiment.Settings(
        days=days, next_days=next_days, n_documents=documents, features=features, window=3600 * window,
        smoothing=smoothing, restarts=restarts, tolerance=tolerance,
    )  # fmt: skip
    n_days, counts = days + next_days, sorted({*range(1, up_to + 1), states})
    if data is not None:
        experiment.files_of(data, n_days)  # before anything is written
    folder = claim_folder(out, force=True)
    with resumable():
        source = data if data is not None else experiment.simulated_days(folder, n_days, seed)
        store = experiment.RunStore(folder, experiment.identity(settings, experiment.files_of(source, n_days), states))
        read = experiment.read_days(source, n_days, folder, features=features, simulated=standin)
        console.print(f"Read from {source}, {read.data}: {read.summary}", soft_wrap=True)
        if excluded := experiment.excluded_visits(read.visits, settings):
            say(console, excluded)
        tasks = [(one, k) for one in seeds for k in (0, *counts)]
        list(tracked(experiment.replicate(store, read.visits, settings, tasks, states, workers), len(tasks), "Runs"))
    rows = experiment.summarize(store, seeds, counts, read.data)
    console.print(*(clicks_table(rows, runs, states, horizon) for horizon in experiment.HORIZONS), sep="\n")
    console.print(
        "Click rates relative to documents shown at random, mean ± standard deviation over runs; the paper's are at "
        f"k = {experiment.PAPER_STATES}. Data: {read.data}.",
        soft_wrap=True,
    )
    written = [folder / "relative-click-rates.csv", folder / "states-by-hour.png"]
    figures.write_csv(written[0], rows)
    found = experiment.states_of(read.visits, settings, seed, states)
    figures.draw_states_by_hour(written[1], found, f"Data: {read.data}.")
    if up_to:
        written.append(folder / "relative-click-rates.png")
        figures.draw_relative_rates(written[2], rows, runs, f"Data: {read.data}.")
    result = {
        "experiment": "yahoo", "data": read.data, "read": read.summary, "runs": runs, "seed": seed, "states": states,
        "rows": rows, "states_found": found, "written": [str(path) for path in written],
    }  # fmt: skip
    finish(console, json, result, f"Wrote {', '.join(map(str, written))}.")
