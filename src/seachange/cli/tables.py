"""Tables of logs, states, estimates and replications."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from seachange.analysis.formatting import count_of, describe_contexts, first_names, shown_name

if TYPE_CHECKING:
    from seachange.evaluation.diagnostics import Diagnostics
    from seachange.evaluation.value_estimate import ValueEstimate
    from seachange.experiments.obp_synthetic import EstimatorResult
    from seachange.experiments.paper_synthetic import MethodResult
    from seachange.experiments.paper_yahoo import Result as ClicksResult
    from seachange.log.bandit_log import BanditLog
    from seachange.propensities.calibration import PropensityReport
    from seachange.protocols import Floats, Ints
    from seachange.states.labels import StateLabels


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], n_text: int = 1) -> Table:
    """A plain table; the first ``n_text`` columns are text, the others are numbers."""
    result = Table(title=title, box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(columns))
    result.title_justify, result.title_style = "left", "bold"
    for i, column in enumerate(columns):
        result.add_column(column, justify="left" if i < n_text else "right", header_style="dim")
    for row in rows:
        result.add_row(*(cell if isinstance(cell, Text) else escape(str(cell)) for cell in row))
    return result


def log_table(log: BanditLog) -> Table:
    """A summary of a log."""
    rewards = log.rewards
    rows = [
        ("rounds", f"{len(log):,}"),
        ("actions", f"{log.n_actions}: {', '.join(first_names(log.action_names))}"),
        ("contexts", describe_contexts(log.joint, log.context_names)),
        ("rewards", f"mean {np.nanmean(rewards):.4f}, range {np.nanmin(rewards):g} to {np.nanmax(rewards):g}"),
        ("propensities", _propensities(log)),
    ]
    if log.times is not None:
        rows.append(("time", f"{_time(log.times.min())} to {_time(log.times.max())}"))
    return table("Log", ("", ""), rows, n_text=2)


def _propensities(log: BanditLog) -> str:
    if not log.propensities_known:
        return "none"
    text = f"{log.propensities.min():.4g} to {log.propensities.max():.4g}"
    return f"{text}, estimated" if log.propensities_estimated else text


def states_table(log: BanditLog, labels: StateLabels) -> Table:
    """The share of each state, its mean reward, and its best action."""
    rows, any_close = [], False
    for state, count in enumerate(labels.counts):
        row = [f"state {state}", f"{count:,}", f"{count / len(log):.1%}"]
        members = (labels.states == state) & ~np.isnan(log.rewards)
        if not members.any():
            rows.append([*row, "-", "-"])
            continue
        best, mean, clear = _best_action(log.actions[members], log.rewards[members], log.n_actions)
        any_close |= not clear
        name = shown_name(log.action_names[best])
        rows.append([*row, f"{log.rewards[members].mean():.4f}", f"{name} ({mean:.4f}){' ' if clear else '*'}"])
    title = f"{count_of(labels.n_states, 'state')}, {count_of(len(labels.change_points), 'change')}"
    result = table(title, ("", "rounds", "share", "mean reward", "best action (mean reward)"), rows)
    if any_close:
        result.caption, result.caption_justify = "* Within two standard errors of the next best action.", "left"
    return result


def _best_action(actions: Ints, rewards: Floats, n_actions: int) -> tuple[int, float, bool]:
    """The action with the highest mean reward, that mean, and whether it leads by two standard errors."""
    taken = np.bincount(actions, minlength=n_actions)
    means = np.bincount(actions, rewards, n_actions) / np.maximum(taken, 1)
    means[taken == 0] = -np.inf
    squares = np.bincount(actions, np.square(rewards - means[actions]), n_actions)
    best, *others = np.argsort(-means, kind="stable")[: min(2, np.count_nonzero(taken))]
    if not others:
        return int(best), float(means[best]), True
    # The variance of one or two rewards is not reliable; use the overall one.
    variances = np.where(taken > 2, squares / np.maximum(taken - 1, 1), squares.sum() / len(rewards))
    variances = np.maximum(variances, squares.sum() / len(rewards) / 2)
    error = float(np.sqrt(variances[best] / taken[best] + variances[others[0]] / taken[others[0]]))
    return int(best), float(means[best]), bool(means[best] - means[others[0]] > 2 * error)


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


def _time(moment: Any) -> str:
    """A time to the second."""
    return str(np.datetime_as_string(moment, unit="s")) if isinstance(moment, np.datetime64) else str(moment)


MOST_ACTIONS = 20
# Standard errors that are very unlikely by chance.
SURPRISING = 4.5


def propensities_text(report: PropensityReport) -> str:
    """The calibration of estimated propensities in a few sentences."""
    wrong = [a for a in report.actions if abs(a.inverse_mean - 1) > SURPRISING * max(a.inverse_error, 1e-12)]
    names = ", ".join(shown_name(a.action) for a in wrong[:3])
    misfit = f" They do not match how often {names} was taken." if wrong else ""
    return (
        f"Estimated the propensities of {report.n_rounds:,} rounds (smallest: {report.least:.3g}); calibration error "
        f"{report.calibration_error:.4f}, {report.error_by_chance:.4f} by chance alone.{misfit}"
    )


def propensities_view(report: PropensityReport) -> Group:
    """Calibration in three tables: overall, by propensity, by action."""
    return Group(_summary(report), "", _by_propensity(report), "", _by_action(report))


def _summary(report: PropensityReport) -> Table:
    gain = report.marginal_log_loss - report.log_loss
    rows = [
        ("calibration error", f"{report.calibration_error:.4f} ({report.error_by_chance:.4f} by chance alone)"),
        ("log-loss", f"{report.log_loss:.4f}, {abs(gain):.4f} {'below' if gain >= 0 else 'above'} action frequencies"),
        ("smallest propensity", f"{report.least:.3g}"),
    ]
    return table(f"Propensities of {report.n_rounds:,} rounds", ("", ""), rows, n_text=2)


def _by_propensity(report: PropensityReport) -> Table:
    rows = [
        (f"{b.low:.4f} to {b.high:.4f}", f"{b.n_choices:,}", f"{b.predicted:.4f}", f"{b.observed:.4f}",
         f"{b.observed_low:.4f} to {b.observed_high:.4f}")
        for b in report.bins
    ]  # fmt: skip
    return table("By propensity", ("propensity", "choices", "predicted", "taken", "95% interval"), rows)


def _by_action(report: PropensityReport) -> Table:
    rows = [
        (shown_name(a.action), f"{a.n_taken:,}", f"{a.predicted_taken:,.0f}",
         f"{a.inverse_mean:.3f} ± {a.inverse_error:.3f}")
        for a in report.actions[:MOST_ACTIONS]
    ]  # fmt: skip
    if len(report.actions) > MOST_ACTIONS:
        rows.append((f"… {len(report.actions) - MOST_ACTIONS} more", "", "", ""))
    return table("By action", ("action", "taken", "predicted", "inverse mean (1 expected)"), rows)
