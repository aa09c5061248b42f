"""Tables and sentences of values: estimates, deployments, periods, bounds, and replications."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from seachange.analysis.formatting import count_of
from seachange.cli.tables import spaced, table, time_text
from seachange.evaluation.diagnostics import LEAST_EFFECTIVE

if TYPE_CHECKING:
    from seachange.analysis.comparison import Holdout
    from seachange.evaluation.deployment import DeploymentEstimate, Difference
    from seachange.evaluation.diagnostics import Diagnostics
    from seachange.evaluation.future_values import Forecast, FutureEstimate
    from seachange.evaluation.online import OnlineEstimate
    from seachange.evaluation.over_time import ValuesOverTime
    from seachange.evaluation.theorems import Bound, ModelBounds
    from seachange.evaluation.value_estimate import ValueEstimate
    from seachange.experiments.arena_runs import ArenaResult, WorstCase
    from seachange.experiments.obp_synthetic import EstimatorResult
    from seachange.experiments.paper_synthetic import MethodResult
    from seachange.experiments.paper_yahoo import Result as ClicksResult
    from seachange.experiments.piecewise_regrets import RegretResult
    from seachange.model_file import Trial


# The last periods; the JSON document has all of them.
SHOWN = 30


def estimates_table(title: str, estimates: Sequence[tuple[str, "ValueEstimate"]], confidence: float) -> Group:
    """Values with intervals, one row per policy and estimator."""
    rows = [
        (who.removesuffix(" policy"), _estimator(e), _value(e.value), f"{_value(e.low)} to {_value(e.high)}",
         f"{e.effective_samples:,.0f}", f"{e.max_weight:.1f}")
        for who, e in estimates
    ]  # fmt: skip
    columns = ("policy", "estimator", "value", f"{confidence:.0%} interval", "samples", "max weight")
    kinds = " and ".join(dict.fromkeys(e.interval for _, e in estimates))
    kinds = "" if kinds == "normal" else f"; {kinds} intervals"
    return table(title, columns, rows, n_text=2, note=f"samples: effective sample size{kinds}.")


def deployment_rows(found: "DeploymentEstimate") -> list[tuple[str, "ValueEstimate"]]:
    """The policies that a deployment is compared with, and the deployment."""
    rows = [("logging policy", found.logging), ("best single", found.single)]
    rows += [("learning single", found.learning_single)] if found.learning_single is not None else []
    rows += [("frozen states", found.frozen)] if found.frozen is not None else []
    return [*rows, ("switching policy", found)]


def answer_text(who: str, found: "DeploymentEstimate") -> str:
    """The headline."""
    first = f"The {who} would earn {_value(found.value)} per round ({_interval(found)})"
    frozen, alone = found.frozen, found.learning_single
    first += "" if frozen is None else f", or {_value(frozen.value)} if it learned nothing after the log"
    logged = f"the logging policy earned {_value(found.logging.value)}"
    if found.simulated_error == 0:
        return f"{first}; {logged}."
    single = f"The best single policy would earn {_value(found.single.value)}, so the gain is {_gain(found.gain)}"
    if alone is not None and found.over_learning is not None:
        single += f"; if it went on learning, {_value(alone.value)}, and the gain would be {_gain(found.over_learning)}"
    return (
        f"{first}. {single}; {logged}. Of the value, {_value(found.value - found.simulated)} is estimated from the log "
        f"and {found.simulated:+.4f} is simulated: a deployment sees only the rewards of its own actions"
        f"{'' if frozen is None else ', and learns from them'}."
    )


def _gain(gain: "Difference") -> str:
    return f"{gain.value:+.4f} ({gain.low:+.4f} to {gain.high:+.4f})"


def trial_text(trial: "Trial") -> str:
    """What switching and the single policy would earn on held-out rounds."""

    def shown(interval: tuple[float, float, float], form: str = "") -> str:
        value, low, high = (f"{each:+.4f}" if form else _value(each) for each in interval)
        return f"{value} ({low} to {high})"

    who = f"switching among {trial.n_states} states" if trial.n_states > 1 else "the policy"
    single = f", the best single policy {shown(trial.single)}, a gain of {shown(trial.gain, '+')}"
    learning = ""
    if trial.learning is not None and trial.learning_single is not None:
        learning = f" If both go on learning, switching would earn {shown(trial.learning)}, and the single policy "
        learning += f"{shown(trial.learning_single)}."
    return (
        f"Learned from the first {trial.n_learned:,} rounds, {who} would earn {shown(trial.switching)} per round on "
        f"the last {trial.n_evaluated:,}{single if trial.n_states > 1 else ''}; the logging policy earned "
        f"{shown(trial.logging)}.{learning} Ranges are {trial.confidence:.0%} intervals."
    )


def held_out_text(holdout: "Holdout", overlap: str | None) -> str:
    """Which rounds values are from, and whose policies, if the model has seen some of the log."""
    from seachange.analysis.comparison import IN_SAMPLE_BIAS

    seen, last = overlap or "the log begins with the rounds the model was learned from", f"{len(holdout.log):,} rounds"
    which = f"the last {last}, which the model has not seen"
    if holdout.kind == "held out":
        which = f"the last {last}, with policies learned the same way from the first {holdout.first_round:,}"
    return f"{seen}, and {IN_SAMPLE_BIAS}. All values are therefore for {which}."


def support_text(found: "Diagnostics") -> str:
    """How well the log supports the estimates."""
    row, weight = found.largest_weights[0]
    clipped = f"; {found.clipped_mass:.1%} of the weight clipped" if found.clipped_mass > 0 else ""
    unseen = f"; {found.unseen_mass:.1%} of the policy's choices not in the log" if found.unseen_mass > 0 else ""
    return (
        f"Support: effective sample size {found.effective_samples:,.0f} of {found.n_rounds:,} rounds "
        f"({found.effective_share:.1%}); overlap {found.overlap:.1%}; largest weight {weight:.4g} (round {row:,}); "
        f"mean weight {found.mean_weight:.3f} ({found.mean_weight_z:+.1f} standard errors from 1){clipped}{unseen}."
    )


def replication_table(results: Sequence["MethodResult"], n_runs: int, n_states: int) -> Group:
    """The paper's mean rewards and ours."""
    rows = [
        (r.method, "-" if r.paper is None else f"{r.paper:.3f}", f"{r.paper_like_mean:.3f} ± {r.paper_like_std:.3f}",
         f"{r.mean:.3f} ± {r.std:.3f}", f"{r.oracle_share:.1%}")
        for r in results
    ]  # fmt: skip
    title = f"Mean reward on the synthetic problem, k = {n_states}, {n_runs} runs (mean ± standard deviation)"
    return table(title, ("method", "paper", "paper-like", "our defaults", "of the oracle"), rows)


def clicks_table(results: Sequence["ClicksResult"], n_runs: int, n_states: int, horizon: str) -> Group:
    """The paper's relative click rates and ours, on one horizon."""
    rows = [
        (r.method, "-" if r.paper is None else f"{r.paper:.2f}",
         f"{r.mean:.3f}" + f" ± {r.std:.3f}" * (n_runs > 1), f"{r.oracle_share:.1%}")
        for r in results
        if r.horizon == horizon and r.n_states in (None, n_states)
    ]  # fmt: skip
    title = f"{horizon.capitalize()}, k = {n_states}, {count_of(n_runs, 'run')}"
    return table(title, ("method", "paper", "ours", "of the oracle"), rows)


def worst_cases_table(results: Sequence["WorstCase"], n_runs: int) -> Group:
    """The smallest share of each method over environments."""
    rows = [
        (r.method, "reference" if r.is_reference else "ours", r.environment, f"{r.share:.1%}", _range(r.low, r.high),
         f"{r.mean_share:.1%}", str(r.n_environments))
        for r in results
    ]  # fmt: skip
    columns = ("method", "", "where", "worst", "95% interval", "mean", "of")
    title = f"Worst case over environments, {count_of(n_runs, 'run')} each"
    return table(
        title,
        columns,
        rows,
        n_text=3,
        note="worst, mean: share of the best reference's reward; of: the number of environments.",
    )


def arena_table(results: Sequence["ArenaResult"]) -> Group:
    """All methods in one environment."""
    rows = [
        (r.method, "reference" if r.is_reference else "ours", f"{r.reward:.4f}", f"{r.share:.1%}",
         _range(r.low, r.high))
        for r in results
    ]  # fmt: skip
    title = f"{results[0].environment} (best reference: {results[0].best_reference})"
    return table(title, ("method", "", "reward", "share", "95% interval"), rows, n_text=2)


def _range(low: float | None, high: float | None) -> str:
    return "-" if low is None else f"{100 * low:.1f} to {high:.1%}"


def regrets_table(results: Sequence["RegretResult"], n_runs: int, published_runs: int) -> Group:
    """Published regrets and ours, mean ± standard deviation."""
    rows = [
        (r.problem, r.method, f"{r.published:,.0f} ± {r.published_std:.0f}", f"{r.mean:,.0f} ± {r.std:.0f}")
        for r in results
    ]  # fmt: skip
    title = f"Regret, {count_of(n_runs, 'run')} (published: {published_runs:,}), mean ± standard deviation"
    return table(title, ("problem", "method", "published", "ours"), rows, n_text=2)


def errors_table(title: str, results: Sequence["EstimatorResult"], n_runs: int, published_runs: int) -> Group:
    """Published relative errors of estimators and ours, mean ± standard error."""
    rows = [
        (r.estimator, f"{r.published:.4f} ± {r.published_std / published_runs**0.5:.4f}",
         f"{r.mean:.4f} ± {r.std / n_runs**0.5:.4f}", "yes" if r.within else "no")
        for r in results
    ]  # fmt: skip
    columns = ("estimator", "published", "ours", "within 3 standard errors")
    return table(f"{title}: relative error, mean ± standard error", columns, rows)


def _estimator(estimate: "ValueEstimate") -> str:
    """The name of the estimator, with its setting; ``latent`` if states are known to it."""
    setting = "" if estimate.setting is None else f" ({estimate.setting:.3g})"
    return f"{'latent ' if estimate.latent else ''}{estimate.estimator}{setting}"


def _value(value: float) -> str:
    """Four decimals, or none for large values."""
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.0f}"


def online_table(estimates: Sequence["OnlineEstimate"]) -> Group:
    """What a deployment would have earned, and on how many accepted rounds."""
    rows = [
        (e.estimator, f"{e.value:.4f}", f"{e.low:.4f} to {e.high:.4f}", f"{e.acceptance_rate:.1%}",
         f"{e.n_accepted:,}")
        for e in estimates
    ]  # fmt: skip
    interval = f"{estimates[0].confidence:.0%} interval"
    columns = ("estimator", "value", interval, "accepted", "rounds")
    return table("Mean reward per round of the deployment, replayed on the log", columns, rows)


def periods_table(past: "ValuesOverTime") -> Group:
    """Values by period, one row for each of the last ones."""
    rows, periods = [], periods_document(past)
    for each in periods[-SHOWN:]:
        known = np.isfinite(each["std_error"]) and each["effective_samples"] >= LEAST_EFFECTIVE
        value = f"{each['value']:.4f}" if known else "-"
        interval = f"{each['low']:.4f} to {each['high']:.4f}" if known else "too few rounds"
        rows.append((each["period"], each["until"] or "", value, interval, f"{each['effective_samples']:,.0f}"))
    shown = f", the last {len(rows)} of {len(periods):,}" if len(rows) < len(periods) else ""
    title = f"Mean reward per round ({past.estimator}), {past.reason}{shown}"
    return table(title, ("", "until", "value", f"{past.confidence:.0%} interval", "eff. sample size"), rows, n_text=2)


def forecast_text(found: "Forecast") -> str:
    """A forecast in one sentence."""
    shape = "the mean" if found.degree == 0 else "a linear trend"
    weights = "" if found.fade == 1 else ", recent ones counting more"
    return (
        f"Forecast for the next period: {found.value:.4f}, {_interval(found)}, from {shape} of "
        f"{count_of(found.n_periods, 'period')}{weights}. Past forecasts missed by {found.past_error:.4f} (RMS)."
    )


def future_text(found: "FutureEstimate", at: Sequence[Any], recurs: str) -> str:
    """The value at future times in one sentence."""
    first, last = time_text(at[0], "m"), time_text(at[-1], "m")
    when = first if len(at) == 1 else f"{len(at)} times from {first} to {last}"
    return (
        f"At {when}: {found.value:.4f}, {_interval(found)}, from {count_of(found.n_alike, 'round')} with the same "
        f"{recurs} (effective sample size {found.effective_samples:,.0f})."
    )


def _interval(found: "Forecast | FutureEstimate | ValueEstimate") -> str:
    return f"{found.confidence:.0%} interval {_value(found.low)} to {_value(found.high)}"


def periods_document(past: "ValuesOverTime") -> list[dict[str, Any]]:
    """One record per period."""
    assert past.periods is not None, "values by period"
    columns: dict[str, Any] = {
        "period": past.periods,
        "last_round": past.rounds,
        "until": [None] * len(past.periods) if past.times is None else [time_text(each, "m") for each in past.times],
        "value": past.values,
        "std_error": past.std_errors,
        "low": past.low,
        "high": past.high,
        "effective_samples": past.effective_samples,
    }
    return polars.DataFrame(columns).to_dicts()


MARKS = {True: "✓", False: "✗", None: "?"}


def bounds_document(found: "ModelBounds") -> dict[str, Any]:
    """Bounds as JSON values, with null for infinity."""
    return {
        "quantities": msgspec.to_builtins(found.quantities),
        "bounds": [
            {**msgspec.to_builtins(bound), "vacuous": bound.vacuous, "verdict": bound.verdict} for bound in found.bounds
        ],
    }


def _bound_number(value: float) -> str:
    """A bound as text, with a sensible number of figures."""
    if value == float("inf"):
        return "∞"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"


def bounds_view(found: "ModelBounds") -> Group:
    """One sentence for the vacuous bounds; for the others, what they amount to, and their conditions."""
    telling = [bound for bound in found.bounds if not bound.vacuous]
    silent = [f"{bound.name} ({_from(bound.informative_from)})" for bound in found.bounds if bound.vacuous]
    summary = "No bound is vacuous for this log, provided its conditions hold."
    if silent:
        which = f"{len(silent)} of {len(found.bounds)} bounds are" if telling else "All bounds are"
        summary = f"{which} vacuous for this log, no smaller than the largest possible value: {', '.join(silent)}."
    return spaced([summary, *map(_conditions, telling)])


def _from(n_rounds: float | None) -> str:
    if n_rounds is None:
        return "not informative at any length"
    text = (
        f"{n_rounds:.0e}".replace("e+", "e").replace("e0", "e")
        if n_rounds >= 1e6
        else f"{float(f'{n_rounds:.2g}'):,.0f}"
    )
    return f"informative from about {text} rounds"


def _conditions(bound: "Bound") -> Group:
    """What a bound amounts to, and its conditions, each with a mark."""
    value, most = _bound_number(bound.corrected), _bound_number(bound.total)
    flaw = f" Printed: {_bound_number(bound.printed)} ({bound.printed_flaw})." if bound.printed_flaw else ""
    holds = "on average" if bound.probability is None else f"with probability {bound.probability:.0%}"
    text = f"at most {value} of {most}, {holds}."
    if bound.n_broken:
        text = f"{value}, but the bound does not apply: {bound.n_broken} of its conditions are not met."
    rows = Table.grid(padding=(0, 1, 0, 0))
    for condition in bound.conditions:
        rows.add_row(MARKS[condition.holds], Text(condition.rule))
    title = Text(f"{bound.name}: {bound.bounds}", style="bold")
    return Group(title, Padding(Group(Text(f"{text}{flaw}"), rows), (0, 0, 0, 2)))
