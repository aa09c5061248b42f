"""Tables of values over time, of deployments, and of bounds."""

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
from seachange.cli.tables import table
from seachange.evaluation.diagnostics import LEAST_EFFECTIVE

if TYPE_CHECKING:
    from seachange.evaluation.future_values import Forecast, FutureEstimate
    from seachange.evaluation.online import OnlineEstimate
    from seachange.evaluation.over_time import ValuesOverTime
    from seachange.evaluation.theorems import Bound, ModelBounds, Quantities


# The last periods; the JSON document has all of them.
SHOWN = 30


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
            f"{periods[i]}", "" if past.times is None else _moment(past.times[i]),
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
    when = _moment(at[0]) if len(at) == 1 else f"{len(at)} times from {_moment(at[0])} to {_moment(at[-1])}"
    return (
        f"At {when}: {found.value:.4f}, {_interval(found)}, from {count_of(found.n_alike, 'round')} with the same "
        f"{recurs} (effective sample size {found.effective_samples:,.0f})."
    )


def _interval(found: Forecast | FutureEstimate) -> str:
    return f"{found.confidence:.0%} interval {found.low:.4f} to {found.high:.4f}"


def periods_document(past: ValuesOverTime) -> list[dict[str, Any]]:
    """One record per period."""
    assert past.periods is not None, "values by period"
    return [
        {
            "period": int(past.periods[i]),
            "last_round": int(past.rounds[i]),
            "until": None if past.times is None else _moment(past.times[i]),
            "value": float(past.values[i]),
            "std_error": float(past.std_errors[i]),
            "low": float(past.low[i]),
            "high": float(past.high[i]),
            "effective_samples": float(past.effective_samples[i]),
        }
        for i in range(len(past.periods))
    ]


def _moment(time: Any) -> str:
    return (
        str(np.datetime_as_string(time, unit="m")).replace("T", " ") if isinstance(time, np.datetime64) else str(time)
    )


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
