"""Tables of values that move: of a policy as it learns, and along time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from seachange.evaluation.diagnostics import LEAST_EFFECTIVE
from seachange.report.tables import count_of, table

if TYPE_CHECKING:
    from seachange.evaluation.adaptive import OnlineEstimate
    from seachange.evaluation.forecasting import Forecast
    from seachange.evaluation.future import FutureEstimate
    from seachange.evaluation.over_time import ValuesOverTime

# Periods that are shown, the last ones; a document holds all.
SHOWN = 30


def online_table(estimates: Sequence[OnlineEstimate]) -> Table:
    """What a deployment would have earned, and how much of the log it lived through."""
    rows = [
        (e.estimator, f"{e.value:.4f}", f"{e.low:.4f} to {e.high:.4f}", f"{e.acceptance_rate:.1%}",
         f"{e.n_accepted:,}", f"{1 / e.acceptance_rate:.3g} × as fast")
        for e in estimates
    ]  # fmt: skip
    interval = f"{estimates[0].confidence:.0%} interval"
    columns = ("by", "value", interval, "accepted", "rounds lived through", "changes come")
    return table("Mean reward a round of the switching policy, as it learns", columns, rows)


def periods_table(past: ValuesOverTime) -> Table:
    """Values by period, a row for each of the last ones."""
    periods, rows = past.periods, []
    assert periods is not None, "these are values of periods"
    for i in range(max(len(periods) - SHOWN, 0), len(periods)):
        known = np.isfinite(past.std_errors[i]) and past.effective_samples[i] >= LEAST_EFFECTIVE
        rows.append((
            f"{periods[i]}", "" if past.times is None else _moment(past.times[i]),
            f"{past.values[i]:.4f}" if known else "-",
            f"{past.low[i]:.4f} to {past.high[i]:.4f}" if known else "too few rounds",
            f"{past.effective_samples[i]:,.0f}",
        ))  # fmt: skip
    shown = f", the last {len(rows)} of {len(periods):,}" if len(rows) < len(periods) else ""
    title = f"Mean reward a round by {past.estimator}, {past.reason}{shown}"
    return table(title, ("", "until", "value", f"{past.confidence:.0%} interval", "eff. rounds"), rows, n_text=2)


def forecast_told(told: Forecast) -> str:
    """A forecast in a sentence."""
    shape = "a level" if told.degree == 0 else "a line"
    memory = "all alike" if told.fade == 1 else f"each counting {told.fade:g} times the one after it"
    interval = f"{told.confidence:.0%} interval {told.low:.4f} to {told.high:.4f}"
    return (
        f"The next period: {told.value:.4f}, {interval}, by {shape} "
        f"through {count_of(told.n_periods, 'period')}, {memory}; such forecasts missed past estimates by "
        f"{told.past_error:.4f}."
    )


def future_told(told: FutureEstimate, at: Sequence[Any], recurs: str) -> str:
    """A value at a time to come, in a sentence."""
    when = _moment(at[0]) if len(at) == 1 else f"{len(at)} times from {_moment(at[0])} to {_moment(at[-1])}"
    return (
        f"At {when}: {told.value:.4f}, {told.confidence:.0%} interval {told.low:.4f} to {told.high:.4f}, from "
        f"{count_of(told.n_alike, 'round')} at such times by {recurs}, {told.effective_samples:,.0f} of them effective."
    )


def as_document(past: ValuesOverTime) -> list[dict[str, Any]]:
    """A record for each period."""
    assert past.periods is not None, "these are values of periods"
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
