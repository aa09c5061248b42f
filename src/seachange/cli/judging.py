"""evaluate, bounds: what a model would earn, and what theorems promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer
from rich.console import Console

from seachange.cli.options import (
    At,
    Columns,
    Confidence,
    DropBadRows,
    EstimatePropensities,
    Format,
    Json,
    LogFile,
    ModelFile,
    Online,
    OverTime,
    Recurs,
    Seed,
    app,
)
from seachange.cli.reading import (
    as_said,
    open_model,
    period_of,
    range_of,
    read,
    times_to_come,
    with_estimates,
    words_among,
)
from seachange.cli.speaking import console_for, finish, in_options, next_steps, note, say

if TYPE_CHECKING:
    from seachange.evaluation.adaptive import OnlineEstimate
    from seachange.log.bandit_log import BanditLog

METHODS: tuple[Literal["replay", "dr-ns"], ...] = ("replay", "dr-ns")


@app.command()
def evaluate(
    log: LogFile,
    model: ModelFile,
    columns: Columns = "",
    format: Format = None,
    estimators: Annotated[
        str,
        typer.Option(
            metavar="WORD,…",
            help="By what, the answer first: ips, snips, dm, dr, sndr, switch-dr, dr-os, mrdr, with commas between.",
        ),
    ] = "auto",
    clip: Annotated[float, typer.Option(metavar="M", help="Largest weight of a round.")] = float("inf"),
    online: Online = False,
    over_time: OverTime = "",
    at: At = "",
    recurs: Recurs = "weekday",
    interval: Annotated[
        Literal["normal", "bootstrap", "bernstein", "sequence"],
        typer.Option(
            case_sensitive=False,
            help="How intervals are made: normal, bootstrap, or bernstein and sequence, which hold for all sizes of "
            "logs and need a reward range.",
        ),
    ] = "normal",
    reward_range: Annotated[
        str, typer.Option(metavar="LOW,HIGH", help="Least and most a reward can be, such as 0,1.")
    ] = "",
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
    from seachange.evaluation.formulas import ESTIMATORS
    from seachange.report.ground import LOOKS_BETTER
    from seachange.report.progress import working
    from seachange.report.tables import answer_told, estimates_table, ground_told

    console, loaded, period, times = console_for(json), open_model(model, log), period_of(over_time), times_to_come(at)
    usual = "dr,snips,ips,dm" if interval in ("normal", "bootstrap") else "dr,ips"
    names = words_among(usual if estimators.lower() == "auto" else estimators, [*ESTIMATORS], "--estimators")
    span = range_of(reward_range)
    table = read(log, columns, format, drop_bad_rows, loaded)
    if estimate_propensities:
        table = with_estimates(table, seed, console)
    if overlap := loaded.provenance.overlap(table):
        note(
            f"{overlap}, and {LOOKS_BETTER}. These values are of all rounds and may be too good: `seachange report` "
            "gives those of held-out rounds, with policies learned again where the model has seen them all."
        )
    asked: dict[str, Any] = {
        "clip": clip,
        "confidence": confidence,
        "interval": interval,
        "reward_range": span,
        "seed": seed,
    }
    with working("Judging the policies"):
        labels = loaded.label_ahead(table)
        whole = judging.evaluate(table, loaded.policies, names, labels=labels, force=force, **asked)
        logged = judging.evaluate_logging(table, confidence, interval=interval, reward_range=span, seed=seed)
        who = "switching policy" if loaded.n_states > 1 else "policy"
        rows = [("logging policy", logged), *((who, estimate) for estimate in whole)]
        if loaded.n_states > 1:
            parts = judging.evaluate_states(table, loaded.policies, labels, names[0], force=force, **asked)
            rows += [(f"in state {z}", estimate) for z, estimate in enumerate(parts) if estimate is not None]
        found = diagnose(table, loaded.policies, labels, clip)
    # Values by states that rewards helped to find are none that a deployment could earn: it is led along the log then.
    told_states = loaded.n_states > 1 and labels.from_rewards
    lived = _evaluate_online(table, loaded, confidence, seed, force) if online or told_states else []
    known = "found with the help of these" if labels.from_rewards else "known only from earlier"
    states = f", states {known} rewards" if loaded.n_states > 1 else ""
    say(console, answer_told(who, lived[-1] if told_states and lived else whole[0], logged), "")
    console.print(estimates_table(f"Mean reward a round{states}", rows, confidence), "")
    say(console, ground_told(found))
    told = [{"policy": who, **msgspec.to_builtins(estimate)} for who, estimate in rows]
    result: dict[str, Any] = {"estimates": told, "diagnostics": found}
    if online or told_states:
        result["online"] = _show_online(console, lived)
    if period:
        result |= _evaluate_over_time(console, table, loaded, labels, period, clip, confidence, force)
    if len(times):
        result["future"] = _evaluate_future(console, table, loaded, labels, times, recurs, confidence, force)
    said = as_said(columns, format, estimate_propensities, drop_bad_rows)
    finish(console, json, result, next_steps(("report", log, model, *said, "-o", "report.html", "to look at")))


@app.command()
def bounds(
    log: LogFile,
    model: ModelFile,
    columns: Columns = "",
    format: Format = None,
    delta: Annotated[
        float, typer.Option(metavar="SHARE", help="Probability that states, and that rewards, are allowed to fail.")
    ] = 0.05,
    max_ratio: Annotated[
        float | None, typer.Option(metavar="M", help="M, the largest π / π_0; else 1 / the least propensity.")
    ] = None,
    min_change: Annotated[
        float | None,
        typer.Option(metavar="GAP", help="Δ, the smallest change of mean reward; else the smallest found."),
    ] = None,
    wrong_rounds: Annotated[
        float | None,
        typer.Option(metavar="N", help="ε, rounds with a wrong state; else what the oracle says of itself."),
    ] = None,
    estimate_propensities: EstimatePropensities = False,
    drop_bad_rows: DropBadRows = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """What the paper's theorems promise for a model, as printed and corrected, and when they say nothing."""
    from seachange.evaluation import model_bounds
    from seachange.report.bounds import bounds_document, bounds_view

    console, loaded = console_for(json), open_model(model, log)
    table = read(log, columns, format, drop_bad_rows, loaded)
    if estimate_propensities:
        table = with_estimates(table, seed, console)
    found = model_bounds(
        table, loaded, delta=delta, max_ratio=max_ratio, min_change=min_change, wrong_rounds=wrong_rounds
    )
    console.print(bounds_view(found))
    finish(console, json, bounds_document(found))


def _evaluate_online(log: BanditLog, model: Any, confidence: float, seed: int, force: bool) -> list[OnlineEstimate]:
    """Replay and DR-ns of the model's deployer, where they are not refused."""
    from seachange.errors import RefusedError
    from seachange.evaluation.adaptive import evaluate_online
    from seachange.report.progress import working

    found = []
    with working("Leading the deployment along the log"):
        for method in METHODS:
            try:
                asked: dict[str, Any] = {"confidence": confidence, "seed": seed, "force": force}
                found.append(evaluate_online(log, model.deployer(), method, **asked))
            except RefusedError as refusal:
                note(f"{method}: {in_options(refusal)}")
    return found


def _show_online(console: Console, found: list[OnlineEstimate]) -> list[Any]:
    """A table of them, and what to know before believing it."""
    from seachange.report.values_tables import online_table

    if found:
        console.print("", online_table(found))
    for said in dict.fromkeys(f"{each.estimator}: {words}" for each in found for words in each.notes):
        note(said)
    return [msgspec.to_builtins(each) for each in found]


def _evaluate_over_time(
    console: Console, log: BanditLog, model: Any, labels: Any, period: Any, clip: float, confidence: float, force: bool
) -> dict[str, Any]:
    """Values by period, and a forecast of the next where there are enough."""
    from seachange.errors import RefusedError
    from seachange.evaluation.forecasting import forecast
    from seachange.evaluation.over_time import evaluate_by_period
    from seachange.report.values_tables import as_document, forecast_told, periods_table

    past = evaluate_by_period(log, model.policies, period, labels=labels, clip=clip, confidence=confidence, force=force)
    console.print("", periods_table(past))
    try:
        told = forecast(past, confidence=confidence)
    except RefusedError as refusal:
        note(str(refusal))
        return {"over_time": as_document(past), "forecast": None}
    say(console, f"\n{forecast_told(told)}")
    return {"over_time": as_document(past), "forecast": msgspec.to_builtins(told)}


def _evaluate_future(
    console: Console, log: BanditLog, model: Any, labels: Any, at: Any, recurs: Any, confidence: float, force: bool
) -> Any:
    """The value at a time to come, or nothing where it is refused."""
    from seachange.errors import RefusedError
    from seachange.evaluation.future import evaluate_future
    from seachange.report.values_tables import future_told

    asked: dict[str, Any] = {"recurs": recurs, "labels": labels, "confidence": confidence, "force": force}
    try:
        found = evaluate_future(log, model.policies, at, **asked)
    except RefusedError as refusal:
        note(in_options(refusal))
        return None
    say(console, f"\n{future_told(found, at, recurs)}")
    for words in found.notes:
        note(words)
    return msgspec.to_builtins(found)
