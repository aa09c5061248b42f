"""evaluate: what a model would earn on a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec
import typer
from rich.console import Console

from seachange.cli.app import choice
from seachange.cli.arguments import log_options, open_model, read, with_estimates
from seachange.cli.console import console_for, finish, next_steps, note, say
from seachange.cli.options import (
    Columns,
    Confidence,
    DropBadRows,
    EstimatePropensities,
    Format,
    Json,
    LogFile,
    ModelFile,
    Seed,
    parse_period,
    parse_range,
    parse_times,
    parsed,
    words_of,
)
from seachange.errors import RefusedError

if TYPE_CHECKING:
    from seachange.evaluation.online import OnlineEstimate
    from seachange.log.bandit_log import BanditLog

METHODS: tuple[Literal["replay", "dr-ns"], ...] = ("replay", "dr-ns")
Interval = Literal["normal", "bootstrap", "bernstein", "sequence"]
Recurs = Literal["hour", "weekday", "hour of the week"]


def _estimators() -> Sequence[str]:
    from seachange.evaluation.formulas import ESTIMATORS

    return [*ESTIMATORS]


def evaluate(
    log: LogFile,
    model: ModelFile,
    columns: Columns = "",
    format: Format = None,
    estimators: Annotated[
        Any,
        parsed(
            words_of(_estimators),
            "NAME,…",
            "Use ips, snips, dm, dr, sndr, switch-dr, dr-os or mrdr; the first is the headline.",
        ),
    ] = "auto",
    clip: Annotated[float, typer.Option(metavar="M", help="Clip importance weights at M.")] = float("inf"),
    online: Annotated[bool, typer.Option("--online", help="Evaluate the deployment as it learns.")] = False,
    over_time: Annotated[
        Any, parsed(parse_period, "PERIOD", "Show values per hour, day, week or N rounds, with a forecast.")
    ] = "",
    at: Annotated[Any, parsed(parse_times, "TIME,…", "Predict the value at future times: 2026-02-21T12:00,…")] = "",
    recurs: Annotated[
        Recurs, choice(get_args(Recurs), help="Match --at by hour, weekday or 'hour of the week'.")
    ] = "weekday",
    interval: Annotated[
        Interval, choice(get_args(Interval), help="Use normal, bootstrap, bernstein or sequence intervals.")
    ] = "normal",
    reward_range: Annotated[
        Any, parsed(parse_range, "LOW,HIGH", "Set the smallest and largest possible reward, as in 0,1.")
    ] = "",
    confidence: Confidence = 0.95,
    estimate_propensities: EstimatePropensities = False,
    drop_bad_rows: DropBadRows = False,
    seed: Seed = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Show numbers that the log cannot support, with the reason.")
    ] = False,
    json: Json = False,
) -> None:
    """Estimate what a model would have earned on a log, with confidence intervals."""
    from seachange.analysis.comparison import IN_SAMPLE_BIAS
    from seachange.cli.tables import answer_text, estimates_table, support_text
    from seachange.engine import stage
    from seachange.evaluation import diagnose
    from seachange.evaluation.estimators import evaluate as evaluate_policy
    from seachange.evaluation.estimators import evaluate_logging, evaluate_states

    console, loaded = console_for(json), open_model(model, log)
    names = estimators or (["dr", "snips", "ips", "dm"] if interval in ("normal", "bootstrap") else ["dr", "ips"])
    table = read(log, columns, format, drop_bad_rows, loaded)
    if estimate_propensities:
        table = with_estimates(table, seed, console)
    if overlap := loaded.provenance.overlap(table):
        note(
            f"{overlap}, and {IN_SAMPLE_BIAS}. These values use all rounds and may be too high; `seachange report` "
            "uses held-out rounds."
        )
    settings: dict[str, Any] = {"interval": interval, "reward_range": reward_range, "seed": seed}
    clipped = {**settings, "clip": clip, "confidence": confidence, "force": force}
    switching = loaded.n_states > 1
    who = "switching policy" if switching else "policy"
    with stage("Evaluating the policies"):
        labels = loaded.label_ahead(table)
        whole = evaluate_policy(table, loaded.policies, names, labels=labels, **clipped)
        logged = evaluate_logging(table, confidence, **settings)
        rows = [("logging policy", logged), *((who, estimate) for estimate in whole)]
        if switching:
            parts = evaluate_states(table, loaded.policies, labels, names[0], **clipped)
            rows += [(f"in state {z}", estimate) for z, estimate in enumerate(parts) if estimate is not None]
        found = diagnose(table, loaded.policies, labels, clip)
    # No deployment could know states that these rewards helped to find, so evaluate the deployment itself.
    by_rewards = switching and labels.from_rewards
    online = online or by_rewards
    deployed = _evaluate_online(table, loaded, confidence, seed, force) if online else []
    known = "with the help of these" if labels.from_rewards else "from earlier"
    title = f"Mean reward per round{f', states inferred {known} rewards' if switching else ''}"
    say(console, answer_text(who, deployed[-1] if by_rewards and deployed else whole[0], logged), "")
    console.print(estimates_table(title, rows, confidence), "")
    say(console, support_text(found))
    result: dict[str, Any] = {
        "estimates": [{"policy": name, **msgspec.to_builtins(estimate)} for name, estimate in rows],
        "diagnostics": found,
    }
    if online:
        result["online"] = _show_online(console, deployed)
    if over_time:
        result |= _evaluate_over_time(console, table, loaded, labels, over_time, clip, confidence, force)
    if len(at):
        result["future"] = _evaluate_future(console, table, loaded, labels, at, recurs, confidence, force)
    options = log_options(columns, format, estimate_propensities, drop_bad_rows)
    finish(console, json, result, next_steps(("report", log, model, *options, "-o", "report.html")))


def _evaluate_online(log: BanditLog, model: Any, confidence: float, seed: int, force: bool) -> list[OnlineEstimate]:
    """Evaluate the model's deployer by each method that the log supports."""
    from seachange.engine import stage
    from seachange.evaluation.online import evaluate_online

    found = []
    with stage("Evaluating the deployment"):
        for method in METHODS:
            try:
                estimate = evaluate_online(log, model.deployer(), method, confidence=confidence, seed=seed, force=force)
            except RefusedError as refusal:
                note(f"{method}: {refusal.shell_text}")
            else:
                found.append(estimate)
    return found


def _show_online(console: Console, found: list[OnlineEstimate]) -> list[Any]:
    from seachange.cli.value_tables import online_table

    if found:
        console.print("", online_table(found))
    for text in dict.fromkeys(f"{each.estimator}: {text}" for each in found for text in each.notes):
        note(text)
    return [msgspec.to_builtins(each) for each in found]


def _evaluate_over_time(
    console: Console, log: BanditLog, model: Any, labels: Any, period: Any, clip: float, confidence: float, force: bool
) -> dict[str, Any]:
    """Show values by period and, if there are enough periods, a forecast."""
    from seachange.cli.value_tables import forecast_text, periods_document, periods_table
    from seachange.evaluation.over_time.forecasting import forecast
    from seachange.evaluation.over_time.moving_values import evaluate_by_period

    past = evaluate_by_period(log, model.policies, period, labels=labels, clip=clip, confidence=confidence, force=force)
    console.print("", periods_table(past))
    result = {"over_time": periods_document(past), "forecast": None}
    try:
        predicted = forecast(past, confidence=confidence)
    except RefusedError as refusal:
        note(refusal.shell_text)
        return result
    say(console, f"\n{forecast_text(predicted)}")
    return result | {"forecast": msgspec.to_builtins(predicted)}


def _evaluate_future(
    console: Console, log: BanditLog, model: Any, labels: Any, at: Any, recurs: Any, confidence: float, force: bool
) -> Any:
    """Show the value at future times; None if the log cannot support one."""
    from seachange.cli.value_tables import future_text
    from seachange.evaluation.over_time.future_values import evaluate_future

    settings: dict[str, Any] = {"recurs": recurs, "labels": labels, "confidence": confidence, "force": force}
    try:
        found = evaluate_future(log, model.policies, at, **settings)
    except RefusedError as refusal:
        note(refusal.shell_text)
        return None
    say(console, f"\n{future_text(found, at, recurs)}")
    for text in found.notes:
        note(text)
    return msgspec.to_builtins(found)
