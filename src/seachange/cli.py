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
Confidence = Annotated[float, typer.Option(help="Of the intervals.")]


def main() -> None:
    """Run a command; our errors end it with one line and exit code 2."""
    warnings.showwarning = _show_warning
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
    objective: Annotated[Literal["ips", "dm", "dr", "poem"], typer.Option(help="What a policy maximises.")] = "dr",
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
    console.print(log_table(table), "")
    model = learning.learn(table, oracle=oracle, n_states=count, objective=objective, seed=seed)
    console.print(states_table(table, model.labels))
    model.save(target)
    result = {"model": str(target), "n_states": model.n_states, "changes": len(model.labels.change_points)}
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
    interval: Annotated[
        Literal["normal", "bootstrap", "bernstein", "sequence"],
        typer.Option(help="How intervals are made; the last two hold for all log sizes and need a reward range."),
    ] = "normal",
    reward_range: Annotated[str, typer.Option(help="Least and most a reward can be: 0,1.")] = "",
    confidence: Confidence = 0.95,
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

    console, loaded = _console(json), load(model)
    usual = "dr,snips,ips,dm" if interval in ("normal", "bootstrap") else "dr,ips"
    names = (usual if estimators == "auto" else estimators).replace(" ", "").split(",")
    table = _read(log, columns, drop_bad_rows, loaded)
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
    _finish(console, json, {"estimates": told, "diagnostics": found})


@replicate.command()
def synthetic(
    runs: Annotated[int, typer.Option(min=1, help="Independent worlds; run i has seed SEED + i.")] = 10,
    states: Annotated[int, typer.Option(min=1, help="k: number of states.")] = 5,
    figure: Annotated[
        Path | None, typer.Option(help="Also draw reward against k = 1…10 here, with a CSV beside it.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes; changes nothing but the time.")] = os.cpu_count() or 1,
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


def _range(text: str) -> tuple[float, float] | None:
    if not text:
        return None
    try:
        low, high = (float(end) for end in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} should be LEAST,MOST", param_hint="--reward-range") from error
    return low, high


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
    from seachange.log.validation import MISSING_HINT

    words = {'on_bad_rows="drop"': "--drop-bad-rows", "force=True": "--force", MISSING_HINT: ""}
    message = str(error)
    for ours, option in words.items():
        message = message.replace(ours, option)
    return message


def _plain(message: object) -> str:
    """Text as it is, with nothing taken for markup."""
    from rich.markup import escape

    return escape(str(message))
