"""replicate: published tables, reproduced."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from seachange.cli.app import App, Commands, resumable, show_help
from seachange.cli.console import Prose, tracked
from seachange.cli.options import CORES, OUTPUT, Force, Seed, Workers, choice, claim_output, flag, option
from seachange.engine import map_in_order
from seachange.outputs import claim_file, claim_folder

replicate = App(cls=Commands, help="Reproduce a published table.", invoke_without_command=True)
replicate.callback()(show_help)

OPEN = "Settings the paper does not give"
Features = Literal["documents", "crossed", "identity"]
Worlds = Annotated[int, option("N", "Simulate N worlds; run i has seed SEED + i.", min=1)]
PublishedSeed = Annotated[int, option("N", "Set the random seed; 0 gives the published runs.", panel=OUTPUT)]


@replicate.command()
def synthetic(
    console: Prose,
    runs: Worlds = 10,
    states: Annotated[int, option("K", "Set k, the number of states.", min=1)] = 5,
    figure: Annotated[Path | None, option("FILE.png", "Draw reward against k = 1…10, with a CSV next to it.")] = None,
    workers: Workers = CORES,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Run the paper's first experiment: IPS, DR, POEM, k-CD, k-HMM and the oracle."""
    from seachange import figures
    from seachange.cli.value_tables import replication_table
    from seachange.experiments import paper_synthetic as experiment

    if figure is not None:
        claim_output(figure, (".png",), "--figure", force)
        claim_file(figure.with_suffix(".csv"), force=force)
    rows = experiment.summarize(_done(partial(experiment.run_methods, n_states=states), seed, runs, workers))
    console.print(replication_table(rows, runs, states), f"\n{experiment.PAPER_LIKE}", soft_wrap=True)
    result: dict[str, Any] = {"experiment": "synthetic", "runs": runs, "states": states, "seed": seed, "rows": rows}
    if figure is not None:
        counts = range(1, 11)
        swept = _done(partial(experiment.run_states, counts=counts), seed, runs, workers, "Reward against k")
        result["figure"] = experiment.summarize_states(swept, counts)
        figures.draw_reward_by_states(figure, result["figure"], runs)
        figures.write_csv(figure.with_suffix(".csv"), result["figure"])
    console.finish(result, f"Wrote {figure} and {figure.with_suffix('.csv')}." if figure else "")


@replicate.command("obp-synthetic")
def obp_synthetic(console: Prose, runs: Worlds = 20, workers: Workers = CORES, seed: PublishedSeed = 0) -> None:
    """Measure the errors of seven estimators on Open Bandit Pipeline's synthetic data."""
    from seachange.experiments import obp_synthetic as experiment

    done = _done(experiment.run, seed, runs, workers)
    _show_errors(console, "obp-synthetic", "A soft policy over 30 actions", "world", done, experiment, seed)


@replicate.command("open-bandit")
def open_bandit(
    console: Prose,
    data: Annotated[Path, option("FOLDER", "Read Open Bandit's small sample (random/all, bts/all) from here.")],
    runs: Annotated[int, option("N", "Draw N bootstraps; number i has seed SEED + i.", min=1)] = 30,
    workers: Workers = CORES,
    seed: PublishedSeed = 0,
) -> None:
    """Measure the errors of seven estimators on Open Bandit's sample."""
    from seachange.experiments import obp_open_bandit as experiment

    run = partial(experiment.run, sample=experiment.read_sample(data))
    done = _done(run, seed, runs, workers, "Bootstraps")
    policy = "Thompson sampling, evaluated on uniform random actions"
    _show_errors(console, "open-bandit", policy, "bootstrap", done, experiment, seed)


@replicate.command()
def piecewise(
    console: Prose,
    problems: Annotated[
        str, option("NAMES", "Run these problems: Pb1, Pb2 (5,000 rounds), Pb3 (100,000).")
    ] = "Pb1,Pb2",
    runs: Annotated[int, option("N", "Simulate N runs; run i has seed SEED + i.", min=1)] = 100,
    workers: Workers = CORES,
    seed: Seed = 0,
) -> None:
    """Measure the regrets of seven bandit algorithms on piecewise-stationary arms."""
    from seachange.cli.value_tables import regrets_table
    from seachange.experiments import piecewise_regrets as experiment

    names = [word.strip() for word in problems.split(",")]
    for name in names:
        if name not in experiment.PUBLISHED:
            raise typer.BadParameter(
                f"{name!r} is not one of {', '.join(experiment.PUBLISHED)}", param_hint="--problems"
            )
    rows = experiment.summarize(_done(partial(experiment.run, problems=names), seed, runs, workers))
    console.print(regrets_table(rows, runs, experiment.PUBLISHED_RUNS))
    console.finish({"experiment": "piecewise", "runs": runs, "seed": seed, "rows": rows})


def _done(run: Callable[[int], Any], seed: int, runs: int, workers: int, name: str = "Runs") -> list[Any]:
    """The results of all runs, in the order of their seeds."""
    done = map_in_order(run, range(seed, seed + runs), workers=workers, kind="processes")
    return list(tracked(done, runs, name))


def _show_errors(console: Prose, name: str, policy: str, run: str, done: list[Any], experiment: Any, seed: int) -> None:
    """Print the published errors of estimators and ours."""
    from seachange.analysis.formatting import count_of
    from seachange.cli.value_tables import errors_table
    from seachange.experiments.obp_synthetic import summarize_errors

    rows = summarize_errors(done, experiment.PUBLISHED, experiment.PUBLISHED_RUNS)
    console.print(errors_table(f"{policy}, {count_of(len(done), run)}", rows, len(done), experiment.PUBLISHED_RUNS))
    console.finish({"experiment": name, "runs": len(done), "seed": seed, "rows": rows})


@replicate.command()
def yahoo(
    console: Prose,
    data: Annotated[Path | None, option("FOLDER", "Read Yahoo!'s R6A or R6B, one file per day, from here.")] = None,
    standin: Annotated[
        bool, flag("--standin", help="Simulate a front page, write it in R6A's format, and read that.")
    ] = False,
    out: Annotated[Path, option("FOLDER", "Write results here; an interrupted run resumes.", "--out", "-o")] = Path(
        "yahoo-replication"
    ),
    runs: Annotated[int, option("N", "Draw N samples of visits; run i has seed SEED + i.", min=1)] = 10,
    states: Annotated[int, option("K", "Set k in the table.", min=1)] = 10,
    up_to: Annotated[int, option("K", "Draw the figure up to this k; 0 draws none.", min=0)] = 15,
    days: Annotated[int, option("N", "Learn from N days.", min=1)] = 6,
    next_days: Annotated[int, option("N", "Deploy on the N days after them.", min=1)] = 4,
    documents: Annotated[int, option("N", "Choose among N documents of each pool.", min=2, panel=OPEN)] = 10,
    features: Annotated[
        Features, choice(Features, "Use features of documents, times those of users (crossed), or identity.", OPEN)
    ] = "documents",
    window: Annotated[float, option("HOURS", "Average click rates over this window.", panel=OPEN)] = 12.0,
    smoothing: Annotated[float, option("N", "Add N impressions at the average rate.", min=0, panel=OPEN)] = 100.0,
    restarts: Annotated[int, option("N", "Start EM N times.", min=1, panel=OPEN)] = 1,
    tolerance: Annotated[float, option("GAIN", "Stop EM at this gain per round.", min=0, panel=OPEN)] = 1e-6,
    workers: Workers = CORES,
    seed: Seed = 0,
) -> None:
    """Run the paper's second experiment: clicks on a front page, on the same days and the next."""
    from seachange import figures
    from seachange.cli.value_tables import clicks_table
    from seachange.experiments import paper_yahoo as experiment

    if (data is None) == (not standin):
        raise typer.BadParameter("name the folder of the days, or use --standin", param_hint="--data")
    seeds = range(seed, seed + runs)
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
            console.say(excluded)
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
    console.finish(result, f"Wrote {', '.join(map(str, written))}.")
