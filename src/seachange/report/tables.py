"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from seachange.evaluation.diagnostics import Diagnostics
    from seachange.evaluation.value_estimate import ValueEstimate
    from seachange.experiments.estimator_errors import EstimatorResult
    from seachange.experiments.synthetic import MethodResult
    from seachange.experiments.yahoo import Result as ClicksResult
    from seachange.log.bandit_log import BanditLog
    from seachange.log.joint import JointFeatures
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
    """What is in a log."""
    rewards = log.rewards
    rows = [
        ("rounds", f"{len(log):,}"),
        ("actions", f"{log.n_actions}: {', '.join(_some(log.action_names))}"),
        ("contexts", contexts_told(log.joint, log.context_names)),
        ("rewards", f"mean {np.nanmean(rewards):.4f}, from {np.nanmin(rewards):g} to {np.nanmax(rewards):g}"),
        ("propensities", _propensities(log)),
    ]
    if log.times is not None:
        rows.append(("time", f"{_time(log.times.min())} to {_time(log.times.max())}"))
    return table("The log", ("", ""), rows, n_text=2)


def _propensities(log: BanditLog) -> str:
    if not log.propensities_known:
        return "none"
    told = f"from {log.propensities.min():.4g} to {log.propensities.max():.4g}"
    return f"{told}, estimated" if log.propensities_estimated else told


def contexts_told(joint: JointFeatures, names: Sequence[str]) -> str:
    """Which features the contexts have."""
    told = joint.description
    return told if joint.kind == "none" else f"{told}: {', '.join(shown_name(name) for name in _some(names))}"


def states_table(log: BanditLog, labels: StateLabels) -> Table:
    """What the states are: how much of the log, what it earned there, which action earned most."""
    rows, doubtful = [], False
    for state, count in enumerate(labels.counts):
        row = [f"state {state}", f"{count:,}", f"{count / len(log):.1%}"]
        members = (labels.states == state) & ~np.isnan(log.rewards)
        if not members.any():
            rows.append([*row, "-", "-"])
            continue
        best, mean, sure = _best_action(log.actions[members], log.rewards[members], log.n_actions)
        doubtful |= not sure
        name = shown_name(log.action_names[best])
        rows.append([*row, f"{log.rewards[members].mean():.4f}", f"{name} ({mean:.4f}){' ' if sure else '*'}"])
    title = f"{count_of(labels.n_states, 'state')}, {count_of(len(labels.change_points), 'change')}"
    result = table(title, ("", "rounds", "share", "mean reward", "best action (its mean reward)"), rows)
    if doubtful:
        result.caption, result.caption_justify = "* Within two standard errors of the next best action.", "left"
    return result


def _best_action(actions: Ints, rewards: Floats, n_actions: int) -> tuple[int, float, bool]:
    """Which earned most, how much, and whether it is surely more than the next by two standard errors."""
    taken = np.bincount(actions, minlength=n_actions)
    means = np.bincount(actions, rewards, n_actions) / np.maximum(taken, 1)
    means[taken == 0] = -np.inf
    squares = np.bincount(actions, np.square(rewards - means[actions]), n_actions)
    best, *others = np.argsort(-means, kind="stable")[: min(2, np.count_nonzero(taken))]
    if not others:
        return int(best), float(means[best]), True
    # Where an action was taken once or twice its own rewards do not tell how they spread.
    variances = np.where(taken > 2, squares / np.maximum(taken - 1, 1), squares.sum() / len(rewards))
    variances = np.maximum(variances, squares.sum() / len(rewards) / 2)
    error = float(np.sqrt(variances[best] / taken[best] + variances[others[0]] / taken[others[0]]))
    return int(best), float(means[best]), bool(means[best] - means[others[0]] > 2 * error)


def estimates_table(title: str, estimates: Sequence[tuple[str, ValueEstimate]], confidence: float) -> Table:
    """Values with intervals, a row for each policy and estimator."""
    rows = [
        (who, _estimator(e), _value(e.value), f"{_value(e.low)} to {_value(e.high)}", f"{e.effective_samples:,.0f}",
         f"{e.max_weight:.1f}")
        for who, e in estimates
    ]  # fmt: skip
    kinds = {e.interval for _, e in estimates} - {"normal"}
    interval = " ".join((f"{confidence:.0%}", *kinds, "interval"))
    columns = ("policy", "by", "value", interval, "eff. rounds", "max weight")
    return table(title, columns, rows, n_text=2)


def answer_told(who: str, estimate: ValueEstimate, logged: ValueEstimate) -> str:
    """The one sentence that was asked for."""
    return (
        f"The {who} would earn {_value(estimate.value)} a round, {estimate.confidence:.0%} interval "
        f"{_value(estimate.low)} to {_value(estimate.high)} (by {_estimator(estimate)}); the log earned "
        f"{_value(logged.value)}."
    )


def ground_told(found: Diagnostics) -> str:
    """What the estimates stand on, in one line."""
    parts = [
        f"{found.effective_samples:,.0f} effective rounds of {found.n_rounds:,} ({found.effective_share:.1%})",
        f"overlap {found.overlap:.1%}",
        f"largest weight {found.largest_weights[0][1]:.4g} (row {found.largest_weights[0][0]})",
        f"mean weight {found.mean_weight:.3f} ({found.mean_weight_z:+.1f} standard errors from 1)",
    ]
    if found.clipped_mass > 0:
        parts.append(f"{found.clipped_mass:.1%} of the weight cut off")
    if found.unseen_mass > 0:
        parts.append(f"{found.unseen_mass:.1%} of its choices never in the log")
    return f"Ground: {'; '.join(parts)}."


def replication_table(results: Sequence[MethodResult], n_runs: int, n_states: int) -> Table:
    """The paper's figures beside ours."""
    rows = [
        (r.method, "-" if r.paper is None else f"{r.paper:.3f}", f"{r.paper_like_mean:.3f} ± {r.paper_like_std:.3f}",
         f"{r.mean:.3f} ± {r.std:.3f}", f"{r.oracle_share:.1%}")
        for r in results
    ]  # fmt: skip
    title = f"Mean reward on the synthetic problem, k = {n_states}, {n_runs} runs (mean ± standard deviation)"
    return table(title, ("method", "paper", "paper-like", "our defaults", "of the oracle"), rows)


def clicks_table(results: Sequence[ClicksResult], n_runs: int, n_states: int, horizon: str) -> Table:
    """The paper's relative click rates beside ours, on one horizon."""
    rows = [
        (r.method, "-" if r.paper is None else f"{r.paper:.2f}",
         f"{r.mean:.3f}" + f" ± {r.std:.3f}" * (n_runs > 1), f"{r.oracle_share:.1%}")
        for r in results
        if r.horizon == horizon and r.n_states in (None, n_states)
    ]  # fmt: skip
    title = f"{horizon.capitalize()}, k = {n_states}, {count_of(n_runs, 'run')}"
    return table(title, ("method", "paper", "ours", "of the oracle"), rows)


def errors_table(title: str, results: Sequence[EstimatorResult], n_runs: int, published_runs: int) -> Table:
    """Published relative errors of estimators beside ours, mean ± standard error."""
    rows = [
        (r.estimator, f"{r.published:.4f} ± {r.published_std / published_runs**0.5:.4f}",
         f"{r.mean:.4f} ± {r.std / n_runs**0.5:.4f}", "yes" if r.within else "no")
        for r in results
    ]  # fmt: skip
    columns = ("estimator", "published", "ours", "within 3 standard errors")
    return table(f"{title}: relative error, mean ± standard error", columns, rows)


def count_of(n: int, thing: str) -> str:
    """So many of a thing."""
    return f"{n:,} {thing}" if n == 1 else f"{n:,} {thing}s"


def shown_name(name: str, longest: int = 20) -> str:
    """A name from a log, cut where it is long, with nothing in it that a terminal would obey."""
    plain = "".join(sign if sign.isprintable() else "�" for sign in name)
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def _estimator(estimate: ValueEstimate) -> str:
    """The estimator's name, with what was set in it and whether it is the paper's."""
    setting = "" if estimate.setting is None else f" ({estimate.setting:.3g})"
    return f"{'latent ' if estimate.latent else ''}{estimate.estimator}{setting}"


def _value(value: float) -> str:
    """Four decimals, or as many figures as that leaves room for."""
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.0f}"


def _time(moment: Any) -> str:
    """A time to the second."""
    return str(np.datetime_as_string(moment, unit="s")) if isinstance(moment, np.datetime64) else str(moment)


def _some(names: Sequence[str], most: int = 8) -> list[str]:
    return [*names[:most], f"… {len(names) - most} more"] if len(names) > most else [*names]
