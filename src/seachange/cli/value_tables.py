"""Tables and sentences of values: estimates, deployments, periods, bounds, and replications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from seachange.analysis.formatting import bound_number, bound_probability, count_of
from seachange.cli.tables import table, time_text
from seachange.evaluation.diagnostics import LEAST_EFFECTIVE

if TYPE_CHECKING:
    from seachange.evaluation.diagnostics import Diagnostics
    from seachange.evaluation.future_values import Forecast, FutureEstimate
    from seachange.evaluation.online import OnlineEstimate
    from seachange.evaluation.over_time import ValuesOverTime
    from seachange.evaluation.theorems import Bound, ModelBounds, Quantities
    from seachange.evaluation.value_estimate import ValueEstimate
    from seachange.experiments.obp_synthetic import EstimatorResult
    from seachange.experiments.paper_synthetic import MethodResult
    from seachange.experiments.paper_yahoo import Result as ClicksResult


# The last periods; the JSON document has all of them.
SHOWN = 30


def estimates_table(title: str, estimates: Sequence[tuple[str, ValueEstimate]], confidence: float) -> Table:
    """Values with intervals, one row per policy and estimator."""
    rows = [
        (who, _estimator(e), _value(e.value), f"{_value(e.low)} to {_value(e.high)}", f"{e.effective_samples:,.0f}",
         f"{e.max_weight:.1f}")
        for who, e in estimates
    ]  # fmt: skip
    kinds = {e.interval for _, e in estimates} - {"normal"}
    interval = " ".join((f"{confidence:.0%}", *kinds, "interval"))
    columns = ("policy", "estimator", "value", interval, "eff. sample size", "max weight")
    return table(title, columns, rows, n_text=2)


def answer_text(who: str, estimate: ValueEstimate, logged: ValueEstimate) -> str:
    """The headline."""
    return (
        f"The {who} would earn {_value(estimate.value)} per round ({estimate.confidence:.0%} interval "
        f"{_value(estimate.low)} to {_value(estimate.high)}, estimator {_estimator(estimate)}); the logging policy "
        f"earned {_value(logged.value)}."
    )


def support_text(found: Diagnostics) -> str:
    """How well the log supports the estimates."""
    row, weight = found.largest_weights[0]
    parts = [
        f"effective sample size {found.effective_samples:,.0f} of {found.n_rounds:,} rounds "
        f"({found.effective_share:.1%})",
        f"overlap {found.overlap:.1%}",
        f"largest weight {weight:.4g} (row {row})",
        f"mean weight {found.mean_weight:.3f} ({found.mean_weight_z:+.1f} standard errors from 1)",
    ]
    if found.clipped_mass > 0:
        parts.append(f"{found.clipped_mass:.1%} of the weight clipped")
    if found.unseen_mass > 0:
        parts.append(f"{found.unseen_mass:.1%} of the policy's choices not in the log")
    return f"Support: {'; '.join(parts)}."


def replication_table(results: Sequence[MethodResult], n_runs: int, n_states: int) -> Table:
    """The paper's mean rewards and ours."""
    rows = [
        (r.method, "-" if r.paper is None else f"{r.paper:.3f}", f"{r.paper_like_mean:.3f} ± {r.paper_like_std:.3f}",
         f"{r.mean:.3f} ± {r.std:.3f}", f"{r.oracle_share:.1%}")
        for r in results
    ]  # fmt: skip
    title = f"Mean reward on the synthetic problem, k = {n_states}, {n_runs} runs (mean ± standard deviation)"
    return table(title, ("method", "paper", "paper-like", "our defaults", "of the oracle"), rows)


def clicks_table(results: Sequence[ClicksResult], n_runs: int, n_states: int, horizon: str) -> Table:
    """The paper's relative click rates and ours, on one horizon."""
    rows = [
        (r.method, "-" if r.paper is None else f"{r.paper:.2f}",
         f"{r.mean:.3f}" + f" ± {r.std:.3f}" * (n_runs > 1), f"{r.oracle_share:.1%}")
        for r in results
        if r.horizon == horizon and r.n_states in (None, n_states)
    ]  # fmt: skip
    title = f"{horizon.capitalize()}, k = {n_states}, {count_of(n_runs, 'run')}"
    return table(title, ("method", "paper", "ours", "of the oracle"), rows)


def errors_table(title: str, results: Sequence[EstimatorResult], n_runs: int, published_runs: int) -> Table:
    """Published relative errors of estimators and ours, mean ± standard error."""
    rows = [
        (r.estimator, f"{r.published:.4f} ± {r.published_std / published_runs**0.5:.4f}",
         f"{r.mean:.4f} ± {r.std / n_runs**0.5:.4f}", "yes" if r.within else "no")
        for r in results
    ]  # fmt: skip
    columns = ("estimator", "published", "ours", "within 3 standard errors")
    return table(f"{title}: relative error, mean ± standard error", columns, rows)


def _estimator(estimate: ValueEstimate) -> str:
    """The name of the estimator, with its setting; ``latent`` if states are known to it."""
    setting = "" if estimate.setting is None else f" ({estimate.setting:.3g})"
    return f"{'latent ' if estimate.latent else ''}{estimate.estimator}{setting}"


def _value(value: float) -> str:
    """Four decimals, or none for large values."""
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.0f}"


def online_table(estimates: Sequence[OnlineEstimate]) -> Table:
    """What a deployment would have earned, and on how many accepted rounds."""
    rows = [
        (e.estimator, f"{e.value:.4f}", f"{e.low:.4f} to {e.high:.4f}", f"{e.acceptance_rate:.1%}",
         f"{e.n_accepted:,}", f"{1 / e.acceptance_rate:.3g}x faster")
        for e in estimates
    ]  # fmt: skip
    interval = f"{estimates[0].confidence:.0%} interval"
    columns = ("estimator", "value", interval, "accepted", "rounds", "changes come")
    return table("Mean reward per round of the deployment as it learns", columns, rows)


def periods_table(past: ValuesOverTime) -> Table:
    """Values by period, one row for each of the last ones."""
    periods, rows = past.periods, []
    assert periods is not None, "values by period"
    for i in range(max(len(periods) - SHOWN, 0), len(periods)):
        known = np.isfinite(past.std_errors[i]) and past.effective_samples[i] >= LEAST_EFFECTIVE
        rows.append((
            f"{periods[i]}", "" if past.times is None else time_text(past.times[i], "m"),
            f"{past.values[i]:.4f}" if known else "-",
            f"{past.low[i]:.4f} to {past.high[i]:.4f}" if known else "too few rounds",
            f"{past.effective_samples[i]:,.0f}",
        ))  # fmt: skip
    shown = f", the last {len(rows)} of {len(periods):,}" if len(rows) < len(periods) else ""
    title = f"Mean reward per round ({past.estimator}), {past.reason}{shown}"
    return table(title, ("", "until", "value", f"{past.confidence:.0%} interval", "eff. sample size"), rows, n_text=2)


def forecast_text(found: Forecast) -> str:
    """A forecast in one sentence."""
    shape = "a constant" if found.degree == 0 else "a line"
    weights = "equal weights" if found.fade == 1 else f"weights falling by {found.fade:g} per period"
    return (
        f"Forecast for the next period: {found.value:.4f}, {_interval(found)}, from {shape} fitted to "
        f"{count_of(found.n_periods, 'period')} with {weights}. Past forecasts were off by {found.past_error:.4f}."
    )


def future_text(found: FutureEstimate, at: Sequence[Any], recurs: str) -> str:
    """The value at future times in one sentence."""
    first, last = time_text(at[0], "m"), time_text(at[-1], "m")
    when = first if len(at) == 1 else f"{len(at)} times from {first} to {last}"
    return (
        f"At {when}: {found.value:.4f}, {_interval(found)}, from {count_of(found.n_alike, 'round')} with the same "
        f"{recurs} (effective sample size {found.effective_samples:,.0f})."
    )


def _interval(found: Forecast | FutureEstimate) -> str:
    return f"{found.confidence:.0%} interval {found.low:.4f} to {found.high:.4f}"


def periods_document(past: ValuesOverTime) -> list[dict[str, Any]]:
    """One record per period."""
    assert past.periods is not None, "values by period"
    columns: dict[str, Any] = {
        "period": past.periods.tolist(),
        "last_round": past.rounds.tolist(),
        "until": [None if past.times is None else time_text(past.times[i], "m") for i in range(len(past.periods))],
        "value": past.values.tolist(),
        "std_error": past.std_errors.tolist(),
        "low": past.low.tolist(),
        "high": past.high.tolist(),
        "effective_samples": past.effective_samples.tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


MARKS = {True: "✓", False: "✗", None: "?"}


def bounds_view(found: ModelBounds) -> Group:
    """A summary, the bounds, their quantities, and the conditions of each."""
    parts: list[Any] = [_summary(found.bounds), "", _bounds(found.bounds), "", _quantities(found.quantities)]
    for bound in found.bounds:
        parts += ["", Text(f"{bound.name}: {bound.bounds}", style="bold"), Padding(_sentence(bound), (0, 0, 0, 2))]
        parts.append(_conditions(bound))
    return Group(*parts)


def _summary(bounds: Sequence[Bound]) -> str:
    vacuous = sum(bound.vacuous for bound in bounds)
    if vacuous == 0:
        return "No bound is vacuous for this log, provided its conditions hold."
    which = "All bounds are" if vacuous == len(bounds) else f"{vacuous} of {len(bounds)} bounds are"
    return f"{which} vacuous for this log: at least as large as the quantity they bound can be."


def _quantities(q: Quantities) -> Table:
    low, high = q.reward_range
    rows = [
        ("T", f"{q.n_rounds:,}", "rounds in the training log"),
        ("S", f"{q.n_segments:,}", f"segments, the shortest with {q.shortest_segment:,} rounds"),
        ("L, K", f"{q.n_states}, {q.n_actions}", "states, actions"),
        ("M", f"{q.max_ratio:,.4g}", "largest π / π_0"),
        ("Δ", f"{q.min_change:.4g}", "smallest change of mean reward"),
        ("w", f"{q.window:,.0f}", "window of the paper's detector"),
        ("ε", f"{q.wrong_rounds:,.0f}", "rounds in a wrong state"),
        ("log N", f"{q.log_class_size:,.0f}", q.policy_class),
        ("ℓ", f"{q.expected_stay:,.0f}", "expected stay in a state"),
        ("r", f"{low:g} to {high:g}", "range of rewards"),
        ("δ", f"{q.delta:g}", "failure probability, for states and for rewards"),
    ]
    return table("Quantities", ("", "", ""), rows, n_text=3)


def _bounds(bounds: tuple[Bound, ...]) -> Table:
    rows = [
        (b.name, *map(bound_number, (b.printed, b.corrected, b.total)), bound_probability(b), b.verdict) for b in bounds
    ]
    columns = ("bound", "printed", "corrected", "maximum", "holds", "")
    return table("The paper's bounds", columns, rows)


def _sentence(bound: Bound) -> str:
    """What the bound amounts to."""
    value, most = bound_number(bound.corrected), bound_number(bound.total)
    flaw = f" Printed: {bound_number(bound.printed)} ({bound.printed_flaw})." if bound.printed_flaw else ""
    if bound.vacuous:
        text = f"vacuous: {value} is not less than the maximum of {most}."
    elif bound.broken:
        text = f"{value}, but it does not apply: {len(bound.broken)} of its conditions fail."
    else:
        text = f"at most {value} of {most}."
    return escape(f"{text}{flaw}")


def _conditions(bound: Bound) -> Padding:
    """The conditions, each with a mark."""
    rows = Table.grid(padding=(0, 1, 0, 0))
    for condition in bound.conditions:
        rows.add_row(MARKS[condition.holds], escape(condition.rule))
    return Padding(rows, (0, 0, 0, 2))
