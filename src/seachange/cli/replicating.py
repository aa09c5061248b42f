"""replicate: published tables beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from seachange.cli.help import OUTPUT
from seachange.cli.options import CORES, Force, Json, Seed, Workers, replicate
from seachange.cli.reading import claim_png
from seachange.cli.speaking import console_for, finish


@replicate.command()
def synthetic(
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="Independent worlds; run i has seed SEED + i.")] = 10,
    states: Annotated[int, typer.Option(min=1, metavar="K", help="k: number of states.")] = 5,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Also draw reward against k = 1…10 here, with a CSV beside it."),
    ] = None,
    workers: Workers = CORES,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """The paper's first experiment: IPS, DR, POEM, k-CD, k-HMM and the oracle."""
    from seachange.experiments import synthetic as experiment
    from seachange.outputs import claim_file
    from seachange.report import figures, progress, tables

    console, seeds = console_for(json), range(seed, seed + runs)
    if figure is not None:
        claim_png(figure, force)
        claim_file(figure.with_suffix(".csv"), force=force)
    done = list(progress.tracked(experiment.replicate(seeds, states, workers), runs, "runs"))
    rows = experiment.summarise(done)
    console.print(tables.replication_table(rows, runs, states), f"\n{experiment.PAPER_LIKE}", soft_wrap=True)
    result: dict[str, Any] = {"experiment": "synthetic", "runs": runs, "states": states, "seed": seed, "rows": rows}
    if figure is not None:
        counts = range(1, 11)
        swept = list(progress.tracked(experiment.replicate_states(seeds, counts, workers), runs, "reward against k"))
        result["figure"] = experiment.summarise_states(swept, counts)
        figures.draw_reward_by_states(figure, result["figure"], runs)
        figures.write_csv(figure.with_suffix(".csv"), result["figure"])
    finish(console, json, result, f"Written: {figure} and {figure.with_suffix('.csv')}" if figure else "")


@replicate.command("obp-synthetic")
def obp_synthetic(
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="Worlds; run i has seed SEED + i.")] = 20,
    workers: Workers = CORES,
    seed: Annotated[int, typer.Option(metavar="N", help="0: the published worlds.", rich_help_panel=OUTPUT)] = 0,
    json: Json = False,
) -> None:
    """Open Bandit Pipeline's synthetic table: how wrong seven estimators are."""
    from seachange.experiments import obp_synthetic as experiment
    from seachange.experiments.estimator_errors import summarise
    from seachange.report import progress, tables

    console, seeds = console_for(json), range(seed, seed + runs)
    done = list(progress.tracked(experiment.replicate(seeds, workers), runs, "runs"))
    rows = summarise(done, experiment.PUBLISHED, experiment.PUBLISHED_RUNS)
    title = f"A soft policy among 30 actions, {tables.count_of(runs, 'world')}"
    console.print(tables.errors_table(title, rows, runs, experiment.PUBLISHED_RUNS))
    finish(console, json, {"experiment": "obp-synthetic", "runs": runs, "seed": seed, "rows": rows})


@replicate.command("open-bandit")
def open_bandit(
    data: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder of Open Bandit's small sample: random/all, bts/all.")
    ],
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="Bootstraps; number i has seed SEED + i.")] = 30,
    workers: Workers = CORES,
    seed: Annotated[int, typer.Option(metavar="N", help="0: the published bootstraps.", rich_help_panel=OUTPUT)] = 0,
    json: Json = False,
) -> None:
    """Open Bandit Pipeline's table on its sample: Thompson sampling judged from uniform choices."""
    from seachange.experiments import open_bandit as experiment
    from seachange.experiments.estimator_errors import summarise
    from seachange.report import progress, tables

    console, seeds, sample = console_for(json), range(seed, seed + runs), experiment.read_sample(data)
    done = list(progress.tracked(experiment.replicate(sample, seeds, workers), runs, "bootstraps"))
    rows = summarise(done, experiment.PUBLISHED, experiment.PUBLISHED_RUNS)
    title = f"Thompson sampling judged from uniform choices, {tables.count_of(runs, 'bootstrap')}"
    console.print(tables.errors_table(title, rows, runs, experiment.PUBLISHED_RUNS))
    finish(console, json, {"experiment": "open-bandit", "runs": runs, "seed": seed, "rows": rows})
