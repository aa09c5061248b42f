"""evaluate: what a model would earn on a log."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from seachange.cli.console import Prose, next_steps, note
from seachange.cli.options import (
    Confidence,
    ModelFile,
    Seed,
    WeightedLogInput,
    choice,
    flag,
    known_word,
    learn_again,
    open_model,
    option,
    word_or_count,
)
from seachange.engine import stage
from seachange.errors import ParameterError, RefusedError

if TYPE_CHECKING:
    from seachange.evaluation.future_values import FutureEstimate
    from seachange.evaluation.online import OnlineEstimate
    from seachange.log.bandit_log import BanditLog

METHODS: tuple[Literal["replay", "dr-ns"], ...] = ("replay", "dr-ns")
Interval = Literal["normal", "bootstrap", "bernstein", "sequence"]
ESTIMATORS_HELP = "Use ips, snips, dm, dr, sndr, switch-dr, dr-os, or mrdr; the first is summarized."
Recurs = Literal["hour", "weekday", "hour of the week"]
PERIOD = partial(word_or_count, words=("", "hour", "day", "week"), expected="hour, day, week or a number of rounds")


def _parse_estimators(text: str) -> list[str]:
    """Names separated by commas; ``auto`` gives none."""
    from seachange.evaluation.formulas import ESTIMATORS

    return [] if text.lower() == "auto" else [known_word(name.strip(), [*ESTIMATORS]) for name in text.split(",")]


def _parse_times(text: str) -> Any:
    """Dates, or seconds since 1970, separated by commas; an empty text gives none."""
    import numpy as np

    from seachange.evaluation.over_time import moments_of

    parts = [part.strip() for part in text.split(",")] if text else []
    with suppress(ValueError):
        if np.isfinite(seconds := np.array(parts, dtype=np.float64)).all():
            return seconds
    try:
        return moments_of(parts)
    except ParameterError as error:
        expected = "times such as 2026-02-21T12:00, or seconds since 1970, separated by commas"
        raise typer.BadParameter(f"{text!r} should be {expected}") from error


def _parse_range(text: str) -> tuple[float, float] | None:
    """``LOW,HIGH``; None for an empty text."""
    try:
        low, high = map(float, text.split(",")) if text else (0.0, 0.0)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} should be LOW,HIGH") from error
    return (low, high) if text else None


def evaluate(
    console: Prose,
    given: WeightedLogInput,
    model: ModelFile,
    estimators: Annotated[Any, option("NAME,…", ESTIMATORS_HELP, parser=_parse_estimators)] = "auto",
    clip: Annotated[
        float | None, option("M", "Clip importance weights at M (default: √n if propensities are estimated).")
    ] = None,
    online: Annotated[bool, flag("--online", help="Replay the deployment on matching rounds.")] = False,
    over_time: Annotated[
        Any, option("PERIOD", "Show values per hour, day, week, or N rounds, with a forecast.", parser=PERIOD)
    ] = "",
    at: Annotated[
        Any, option("TIME,…", "Predict the value at future times: 2026-02-21T12:00,…", parser=_parse_times)
    ] = "",
    recurs: Annotated[Recurs, choice(Recurs, "With --at: use past rounds of the same hour or weekday.")] = "weekday",
    interval: Annotated[
        Interval, choice(Interval, "Use normal, bootstrap, bernstein, or sequence intervals.")
    ] = "normal",
    reward_range: Annotated[
        Any, option("LOW,HIGH", "Set the smallest and largest possible reward, as in 0,1.", parser=_parse_range)
    ] = "",
    confidence: Confidence = 0.95,
    seed: Seed = 0,
    force: Annotated[bool, flag("--force", help="Show estimates even if the log cannot support them.")] = False,
) -> None:
    """Estimate what a model would have earned on a log, with confidence intervals."""
    from seachange.analysis.comparison import holdout_of
    from seachange.analysis.formatting import new_regimes_text
    from seachange.analysis.timeline import time_axis
    from seachange.cli.value_tables import (
        answer_text,
        deployment_rows,
        estimates_table,
        held_out_text,
        online_table,
        support_text,
    )
    from seachange.evaluation import diagnose
    from seachange.evaluation.deployment import evaluate_deployment
    from seachange.evaluation.estimators import evaluate as evaluate_policy
    from seachange.evaluation.estimators import evaluate_states

    loaded = open_model(model, given.log)
    names = estimators or ["dr", "snips", "ips", "dm"]
    if not estimators and interval not in ("normal", "bootstrap"):
        names = ["dr", "ips"]
        note(f"snips and dm have no {interval} intervals, so they are left out.")
    log = given.read_weighted(console, seed, loaded.encoding)
    with stage("Looking for new regimes"):
        regimes = loaded.new_regimes(log)
    news = new_regimes_text(regimes, loaded.n_states, time_axis(log, 1))
    following = next_steps(("report", given.log, model, *given.options(), "-o", "report.html"))
    following = learn_again(given, model, loaded, log) if regimes else following
    overlap, holdout = loaded.provenance.overlap(log), holdout_of(log, loaded)
    log, loaded, labels = holdout.log, holdout.model, holdout.labels
    if holdout.kind != "unseen":
        note(held_out_text(holdout, overlap))
    settings: dict[str, Any] = {"interval": interval, "reward_range": reward_range, "seed": seed}
    clipped = {**settings, "clip": clip, "confidence": confidence, "force": force}
    switching = loaded.n_states > 1
    who = "switching policy" if switching else "policy"
    with stage("Evaluating the policies"):
        found = evaluate_deployment(log, loaded, confidence=confidence, unseen=True, force=force, seed=seed)
        whole = evaluate_policy(log, loaded.policies, names, labels=labels, **clipped)
        rows = [("logging policy", found.logging)]
        if switching:
            parts = evaluate_states(log, loaded.policies, labels, names[0], **clipped)
            rows = [*deployment_rows(found), *(("by log rewards", each) for each in whole)]
            rows += [(f"in state {z}", estimate) for z, estimate in enumerate(parts) if estimate is not None]
        else:
            rows += [(who, each) for each in whole]
        support = diagnose(log, loaded.policies, labels, clip)
    deployed = _evaluate_online(log, loaded, confidence, seed, force) if online else []
    title = f"Mean reward per round{', states inferred from earlier rewards' if switching else ''}"
    if news:
        console.say(news, "")
    console.say(answer_text(who, found), "")
    console.print(estimates_table(title, rows, confidence), "")
    console.say(support_text(support))
    estimates = [{"policy": name, **msgspec.to_builtins(estimate)} for name, estimate in rows]
    result: dict[str, Any] = {"deployment": found, "estimates": estimates, "diagnostics": support}
    result["new_regimes"] = regimes
    if online:
        result["online"] = deployed
        if deployed:
            console.print("", online_table(deployed))
        for text in dict.fromkeys(f"{each.estimator}: {text}" for each in deployed for text in each.notes):
            note(text)
    timed: dict[str, Any] = {"labels": labels, "confidence": confidence, "force": force}
    if over_time:
        result |= _evaluate_over_time(console, log, loaded, over_time, {**timed, "clip": clip})
    if len(at):
        result["future"] = _evaluate_future(console, log, loaded, at, {**timed, "recurs": recurs})
    console.finish(result, following)


def _evaluate_online(log: "BanditLog", model: Any, confidence: float, seed: int, force: bool) -> list["OnlineEstimate"]:
    """Evaluate the model's deployer by each method that the log supports."""
    from seachange.evaluation.online import evaluate_online

    settings: dict[str, Any] = {"confidence": confidence, "seed": seed, "force": force}
    found = []
    with stage("Evaluating the deployment"):
        for method in METHODS:
            with _noted_refusal(f"{method}: "):
                found.append(evaluate_online(log, model.deployer(), method, **settings))
    return found


def _evaluate_over_time(console: Prose, log: "BanditLog", model: Any, period: Any, settings: Any) -> dict[str, Any]:
    """Show values by period and, if there are enough periods, a forecast."""
    from seachange.cli.value_tables import forecast_text, periods_document, periods_table
    from seachange.evaluation.future_values import forecast
    from seachange.evaluation.over_time import evaluate_by_period

    past = evaluate_by_period(log, model.policies, period, **settings)
    console.print("", periods_table(past))
    result: dict[str, Any] = {"over_time": periods_document(past), "forecast": None}
    with _noted_refusal():
        result["forecast"] = forecast(past, confidence=settings["confidence"])
        console.say(f"\n{forecast_text(result['forecast'])}")
    return result


def _evaluate_future(console: Prose, log: "BanditLog", model: Any, at: Any, settings: Any) -> "FutureEstimate | None":
    """Show the value at future times; None if the log cannot support one."""
    from seachange.cli.value_tables import future_text
    from seachange.evaluation.future_values import evaluate_future

    with _noted_refusal():
        found = evaluate_future(log, model.policies, at, **settings)
        console.say(f"\n{future_text(found, at, settings['recurs'])}")
        for text in found.notes:
            note(text)
        return found
    return None


@contextmanager
def _noted_refusal(subject: str = "") -> Iterator[None]:
    """Turn a refusal into a note."""
    try:
        yield
    except RefusedError as refusal:
        note(f"{subject}{refusal.shell_text}")
