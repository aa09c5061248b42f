"""The command line: parse, call, print."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer
from rich.console import Console

from seachange.errors import SeachangeError, SeachangeWarning

if TYPE_CHECKING:
    from seachange.log.bandit_log import BanditLog

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
CORES = os.cpu_count() or 1
Workers = Annotated[int, typer.Option(min=1, help="Processes; changes nothing but the time.")]
Confidence = Annotated[float, typer.Option(help="Of the intervals.")]
Online = Annotated[
    bool, typer.Option("--online", help="Also what the switching policy itself, as it learns, would have earned.")
]
OverTime = Annotated[
    str, typer.Option(help="Also by period, with a forecast of the next: hour, day, week, or a number of rounds.")
]

METHODS: tuple[Literal["replay", "dr-ns"], ...] = ("replay", "dr-ns")


def main() -> None:
    """Run a command; our errors end it with one line and exit code 2."""
    warnings.showwarning = _show_warning
    warnings.simplefilter("once", SeachangeWarning)
    try:
        app()
    except SeachangeError as error:
        Console(stderr=True, highlight=False).print(f"[bold red]Error:[/] {_plain(_in_options(error))}", soft_wrap=True)
        sys.exit(2)


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

    console = _console(json)
    result = run_demo(claim_folder(out, force=force), seed, lambda heading, shown: _step(console, heading, shown))
    _finish(console, json, result, f"Written: {result.figure} (look at it) and {result.model} (sc.load it).")


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
    from seachange.report.tables import log_table, states_table

    console, target, count = _console(json), claim_file(out, force=force), _state_count(states)
    table = _read(log, columns, drop_bad_rows)
    if estimate_propensities:
        table = _with_estimates(table, seed, console)
    console.print(log_table(table), "")
    model = learning.learn(table, oracle=oracle, n_states=count, objective=objective, seed=seed)
    console.print(states_table(table, model.labels))
    if model.choice is not None:
        console.print(f"\nObjective: {model.choice.reason}", soft_wrap=True)
    model.save(target)
    result = {
        "model": str(target), "n_states": model.n_states, "changes": len(model.labels.change_points),
        "choice": msgspec.to_builtins(model.choice),
    }  # fmt: skip
    _finish(console, json, result, f"Written: {target}. Next: seachange evaluate LATER_LOG {target}")


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
        _claim_png(figure, force)
    console, loaded = _console(json), None if model is None else load(model)
    finder = _finder(oracle, _state_count(states), rewards, seed) if loaded is None else loaded.oracle
    if loaded is not None and (oracle, states, rewards) != ("hmm", "auto", "auto"):
        _note("these are the model's own states; --oracle, --states and --rewards are for finding them anew.")
    table = _read(log, columns, drop_bad_rows, loaded, missing_rewards)
    with working("Finding the states"):
        if loaded is None:
            finder.fit(table)
        fitted_here = loaded is None or table.fingerprint() == loaded.provenance.fingerprint
        summary = summarise_states(table, finder, fitted_here=fitted_here)
    console.print(states_view(summary, console.width))
    if figure is not None:
        draw_states(figure, summary)
    _finish(console, json, as_document(summary), f"Written: {figure}" if figure else "")


@app.command()
def evaluate(
    log: LogFile,
    model: ModelFile,
    columns: Columns = "",
    estimators: Annotated[
        str, typer.Option(help="By what, the answer first: of ips,snips,dm,dr,sndr,switch-dr,dr-os,mrdr.")
    ] = "auto",
    clip: Annotated[float, typer.Option(help="Largest weight of a round.")] = float("inf"),
    online: Online = False,
    over_time: OverTime = "",
    interval: Annotated[
        Literal["normal", "bootstrap", "bernstein", "sequence"],
        typer.Option(help="How intervals are made; the last two hold for all log sizes and need a reward range."),
    ] = "normal",
    reward_range: Annotated[str, typer.Option(help="Least and most a reward can be: 0,1.")] = "",
    confidence: Confidence = 0.95,
    estimate_propensities: EstimatePropensities = False,
    drop_bad_rows: DropBadRows = False,
    seed: Seed = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Give numbers that the log cannot support, with the reason.")
    ] = False,
    json: Json = False,
) -> None:
    """What the model's policies would have earned on a log, with intervals, or why that cannot be said."""
    from seachange.evaluation import diagnose
    from seachange.evaluation import estimators as judging
    from seachange.model import load
    from seachange.report.tables import answer_told, estimates_table, ground_told

    console, loaded, period = _console(json), load(model), _period(over_time)
    usual = "dr,snips,ips,dm" if interval in ("normal", "bootstrap") else "dr,ips"
    names = (usual if estimators == "auto" else estimators).replace(" ", "").split(",")
    table = _read(log, columns, drop_bad_rows, loaded)
    if estimate_propensities:
        table = _with_estimates(table, seed, console)
    if overlap := loaded.provenance.overlap(table):
        _note(f"{overlap}: where they are the same rounds, the estimates are too good.")
    labels, span = loaded.label_ahead(table), _range(reward_range)
    asked: dict[str, Any] = {
        "clip": clip,
        "confidence": confidence,
        "interval": interval,
        "reward_range": span,
        "seed": seed,
    }
    whole = judging.evaluate(table, loaded.policies, names, labels=labels, force=force, **asked)
    logged = judging.evaluate_logging(table, confidence, interval=interval, reward_range=span, seed=seed)
    who = "switching policy" if loaded.n_states > 1 else "policy"
    rows = [("logging policy", logged), *((who, estimate) for estimate in whole)]
    if loaded.n_states > 1:
        parts = judging.evaluate_states(table, loaded.policies, labels, names[0], **asked)
        rows += [(f"in state {z}", estimate) for z, estimate in enumerate(parts) if estimate is not None]
    found = diagnose(table, loaded.policies, labels, clip)
    known = "found with the help of these" if labels.from_rewards else "known only from earlier"
    states = f", states {known} rewards" if loaded.n_states > 1 else ""
    console.print(answer_told(who, whole[0], logged), "", soft_wrap=True)
    console.print(estimates_table(f"Mean reward a round{states}", rows, confidence), "")
    console.print(ground_told(found), soft_wrap=True, markup=False)
    told = [{"policy": who, **msgspec.to_builtins(estimate)} for who, estimate in rows]
    result: dict[str, Any] = {"estimates": told, "diagnostics": found}
    if online:
        result["online"] = _evaluate_online(console, table, loaded, confidence, seed)
    if period:
        result |= _evaluate_over_time(console, table, loaded, labels, period, clip, confidence)
    _finish(console, json, result)


@app.command()
def bounds(
    log: LogFile,
    model: ModelFile,
    columns: Columns = "",
    delta: Annotated[
        float, typer.Option(help="Probability that states, and that rewards, are allowed to fail.")
    ] = 0.05,
    max_ratio: Annotated[
        float | None, typer.Option(help="M, the largest π / π_0; else 1 / the least propensity.")
    ] = None,
    min_change: Annotated[
        float | None, typer.Option(help="Δ, the smallest change of mean reward; else the smallest found.")
    ] = None,
    wrong_rounds: Annotated[
        float | None, typer.Option(help="ε, rounds with a wrong state; else what the oracle says of itself.")
    ] = None,
    estimate_propensities: EstimatePropensities = False,
    drop_bad_rows: DropBadRows = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """What the paper's theorems promise for a model, as printed and corrected, and when they say nothing."""
    from seachange.evaluation import model_bounds
    from seachange.model import load
    from seachange.report.bounds import bounds_document, bounds_view

    console, loaded = _console(json), load(model)
    table = _read(log, columns, drop_bad_rows, loaded)
    if estimate_propensities:
        table = _with_estimates(table, seed, console)
    found = model_bounds(
        table, loaded, delta=delta, max_ratio=max_ratio, min_change=min_change, wrong_rounds=wrong_rounds
    )
    console.print(bounds_view(found))
    _finish(console, json, bounds_document(found))


@replicate.command()
def synthetic(
    runs: Annotated[int, typer.Option(min=1, help="Independent worlds; run i has seed SEED + i.")] = 10,
    states: Annotated[int, typer.Option(min=1, help="k: number of states.")] = 5,
    figure: Annotated[
        Path | None, typer.Option(help="Also draw reward against k = 1…10 here, with a CSV beside it.")
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

    console, seeds = _console(json), range(seed, seed + runs)
    if figure is not None:
        _claim_png(figure, force)
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
    _finish(console, json, result, f"Written: {figure} and {figure.with_suffix('.csv')}" if figure else "")


@replicate.command("obp-synthetic")
def obp_synthetic(
    runs: Annotated[int, typer.Option(min=1, help="Worlds; run i has seed SEED + i.")] = 20,
    workers: Workers = CORES,
    seed: Annotated[int, typer.Option(help="0: the published worlds.")] = 0,
    json: Json = False,
) -> None:
    """Open Bandit Pipeline's synthetic table: how wrong seven estimators are."""
    from seachange.experiments import obp_synthetic as experiment
    from seachange.experiments.estimator_errors import summarise
    from seachange.report import progress, tables

    console, seeds = _console(json), range(seed, seed + runs)
    done = list(progress.tracked(experiment.replicate(seeds, workers), runs, "runs"))
    rows = summarise(done, experiment.PUBLISHED, experiment.PUBLISHED_RUNS)
    title = f"A soft policy among 30 actions, {tables.count_of(runs, 'world')}"
    console.print(tables.errors_table(title, rows, runs, experiment.PUBLISHED_RUNS))
    _finish(console, json, {"experiment": "obp-synthetic", "runs": runs, "seed": seed, "rows": rows})


@replicate.command("open-bandit")
def open_bandit(
    data: Annotated[Path, typer.Option(help="Folder of Open Bandit's small sample: random/all, bts/all.")],
    runs: Annotated[int, typer.Option(min=1, help="Bootstraps; number i has seed SEED + i.")] = 30,
    workers: Workers = CORES,
    seed: Annotated[int, typer.Option(help="0: the published bootstraps.")] = 0,
    json: Json = False,
) -> None:
    """Open Bandit Pipeline's table on its sample: Thompson sampling judged from uniform choices."""
    from seachange.experiments import open_bandit as experiment
    from seachange.experiments.estimator_errors import summarise
    from seachange.report import progress, tables

    console, seeds, sample = _console(json), range(seed, seed + runs), experiment.read_sample(data)
    done = list(progress.tracked(experiment.replicate(sample, seeds, workers), runs, "bootstraps"))
    rows = summarise(done, experiment.PUBLISHED, experiment.PUBLISHED_RUNS)
    title = f"Thompson sampling judged from uniform choices, {tables.count_of(runs, 'bootstrap')}"
    console.print(tables.errors_table(title, rows, runs, experiment.PUBLISHED_RUNS))
    _finish(console, json, {"experiment": "open-bandit", "runs": runs, "seed": seed, "rows": rows})


def _evaluate_online(console: Console, log: BanditLog, model: Any, confidence: float, seed: int) -> list[Any]:
    """Replay and DR-ns of the model's deployer."""
    from seachange.evaluation.adaptive import evaluate_online
    from seachange.report.progress import working
    from seachange.report.values_tables import online_table

    with working("Leading the deployment along the log"):
        found = [evaluate_online(log, model.deployer(), m, confidence=confidence, seed=seed) for m in METHODS]
    console.print("", online_table(found))
    for note in dict.fromkeys(f"{each.estimator}: {note}" for each in found for note in each.notes):
        _note(note)
    return [msgspec.to_builtins(each) for each in found]


def _evaluate_over_time(
    console: Console, log: BanditLog, model: Any, labels: Any, period: Any, clip: float, confidence: float
) -> dict[str, Any]:
    """Values by period, and a forecast of the next where there are enough."""
    from seachange.errors import RefusedError
    from seachange.evaluation.forecasting import forecast
    from seachange.evaluation.over_time import evaluate_by_period
    from seachange.report.values_tables import as_document, forecast_told, periods_table

    past = evaluate_by_period(log, model.policies, period, labels=labels, clip=clip, confidence=confidence)
    console.print("", periods_table(past))
    try:
        told = forecast(past, confidence=confidence)
    except RefusedError as refusal:
        _note(str(refusal))
        return {"over_time": as_document(past), "forecast": None}
    console.print(f"\n{forecast_told(told)}", soft_wrap=True, markup=False)
    return {"over_time": as_document(past), "forecast": msgspec.to_builtins(told)}


def _console(json: bool) -> Console:
    """Where prose goes: standard output, or standard error where that is for a program."""
    return Console(stderr=json, highlight=False)


def _claim_png(figure: Path, force: bool) -> None:
    from seachange.outputs import claim_file

    if figure.suffix != ".png":
        raise typer.BadParameter(f"{str(figure)!r} should end in .png", param_hint="--figure")
    claim_file(figure, force=force)


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


def _finish(console: Console, json: bool, result: Any, closing: str = "") -> None:
    if closing:
        console.print(f"\n{closing}", soft_wrap=True, markup=False)
    if json:
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


def _read(path: Path, columns: str, drop_bad_rows: bool, model: Any = None, missing_rewards: bool = False) -> BanditLog:
    """The log at ``path``; with a model, its actions and its contexts."""
    from seachange.log.readers import read_log

    mapping: dict[str, str | Sequence[str]] = {}
    for pair in filter(None, columns.split(",")):
        word, _, place = (part.strip() for part in pair.partition("="))
        if not place or word in mapping:
            raise typer.BadParameter(f"{pair!r} should be WORD=COLUMN, each word once", param_hint="--columns")
        mapping[word] = place.split("+") if word == "contexts" else place
    reader = read_log if model is None else model.read_log
    log: BanditLog = reader(
        path, mapping, missing_rewards=missing_rewards, on_bad_rows="drop" if drop_bad_rows else "raise"
    )
    for rule, count in log.dropped:
        _note(f"{count:,} rows left out: {rule}.")
    return log


def _period(text: str) -> Any:
    if text in ("", "hour", "day", "week"):
        return text
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(
            f"{text!r} should be hour, day, week or a number of rounds from 1 on", param_hint="--over-time"
        )
    return int(text)


def _range(text: str) -> tuple[float, float] | None:
    if not text:
        return None
    try:
        low, high = (float(end) for end in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} should be LEAST,MOST", param_hint="--reward-range") from error
    return low, high


def _with_estimates(log: BanditLog, seed: int, console: Console) -> BanditLog:
    """The log with estimated propensities, which are shown beside what was taken."""
    from seachange.log import estimate_logging_probs, propensity_report
    from seachange.report.progress import working
    from seachange.report.propensities import propensities_view

    if log.propensities_known:
        _note("this log has propensities of its own; --estimate-propensities changes nothing.")
        return log
    with working("Estimating propensities"):
        probs = estimate_logging_probs(log, seed=seed)
    console.print(propensities_view(propensity_report(log, probs)), "")
    return log.with_propensities(probs, estimated=True)


def _state_count(text: str) -> Any:
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r} should be auto or a number from 1 on", param_hint="--states")
    return int(text)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    _note(str(message) if issubclass(category, SeachangeWarning) else f"{filename}:{lineno}: {message}")


def _note(text: str) -> None:
    Console(stderr=True, highlight=False).print(f"[bold yellow]Note:[/] {_plain(text)}", soft_wrap=True)


def _in_options(error: SeachangeError) -> str:
    """An error in the words of the command line."""
    from seachange.log.bandit_log import PROPENSITY_CURE
    from seachange.log.validation import MISSING_HINT

    words = {
        'on_bad_rows="drop"': "--drop-bad-rows",
        "force=True": "--force",
        MISSING_HINT: "",
        PROPENSITY_CURE: "--columns propensity=..., or estimate them: --estimate-propensities",
    }
    message = str(error)
    for ours, option in words.items():
        message = message.replace(ours, option)
    return message


def _plain(message: object) -> str:
    """Text as it is, with nothing taken for markup."""
    from rich.markup import escape

    return escape(str(message))
