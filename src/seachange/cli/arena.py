"""arena: deployers and rivals side by side."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from seachange.cli.console import Prose, tracked
from seachange.cli.options import CORES, OUTPUT, Force, Seed, Workers, listed, option
from seachange.engine import map_in_order
from seachange.outputs import claim_folder


def arena(
    console: Prose,
    environments: Annotated[
        str, option("NAMES", "Run these environments: names with commas between them, or Parquet files of streams.")
    ] = "",
    methods: Annotated[str, option("NAMES", "Run only these methods, with commas between them.")] = "",
    data: Annotated[Path | None, option("FOLDER", "Add all streams in FOLDER (X.parquet, X_truth.parquet).")] = None,
    runs: Annotated[int, option("N", "Simulate N runs of each environment; run i has seed SEED + i.", min=1)] = 5,
    rounds: Annotated[int, option("N", "Set the rounds of the paper's world; others follow.", min=1000)] = 10_000,
    out: Annotated[
        Path | None, option("FOLDER", "Write regret curves (PNG, CSV) and tables here.", panel=OUTPUT)
    ] = None,
    workers: Workers = CORES,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Simulate deployers and rivals side by side in changing worlds."""
    from seachange import figures
    from seachange.cli.value_tables import arena_table, worst_cases_table
    from seachange.experiments import arena_runs as experiment
    from seachange.experiments.arena_worlds import WORLDS

    names = _words(environments) or [*WORLDS]
    streams = sorted(data.glob("*_truth.parquet")) if data is not None else []
    names += [str(path.with_name(path.name.replace("_truth", ""))) for path in streams]
    for name in names:
        if name not in WORLDS and not Path(name).is_file():
            known = f"an environment is {listed(WORLDS)}, or a file"
            raise typer.BadParameter(f"{known}; got {name!r}", param_hint="--environments")
    folder = None if out is None else claim_folder(out, force=force)
    tasks = [(name, seed + run) for name in names for run in range(runs)]
    chosen = tuple(_words(methods))
    play = partial(experiment.play, n_rounds=rounds, chosen=chosen)
    done = list(tracked(map_in_order(play, tasks, workers=workers, kind="processes"), len(tasks), "Runs"))
    if not any(done):
        raise typer.BadParameter(f"no method is called {listed(chosen)} in these environments", param_hint="--methods")
    results, points = [], []
    for i, name in enumerate(names):
        of_name, title = done[i * runs : (i + 1) * runs], Path(name).stem
        if of_name[0]:
            results += experiment.summarize(title, of_name)
            points += experiment.curves(title, of_name)
    worst = experiment.worst_cases(results)
    console.print(worst_cases_table(worst, runs))
    for title in dict.fromkeys(each.environment for each in results):
        console.print("", arena_table([each for each in results if each.environment == title]))
    if folder is not None:
        for title in dict.fromkeys(each.environment for each in results):
            own = [each for each in points if each.environment == title]
            figures.draw_regrets(folder / f"{title}.png", own, runs)
            figures.write_csv(folder / f"{title}.csv", own)
        figures.write_csv(folder / "results.csv", results)
    document = {"runs": runs, "rounds": rounds, "seed": seed, "worst_cases": worst, "results": results}
    console.finish(document, f"Wrote curves and results to {folder}." if folder else "")


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]
