"""Tables for the terminal: the plain table itself, logs, states, models and propensities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from seachange.analysis.formatting import count_of, describe_contexts, first_names, shown_name
from seachange.params import Params

if TYPE_CHECKING:
    from seachange.log.bandit_log import BanditLog
    from seachange.model import SwitchingModel
    from seachange.model_file import Written
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
        rows.append(("time", f"{time_text(log.times.min())} to {time_text(log.times.max())}"))
    return table("Log", ("", ""), rows, n_text=2)


def _propensities(log: BanditLog) -> str:
    if not log.propensities_known:
        return "none"
    text = f"{log.propensities.min():.4g} to {log.propensities.max():.4g}"
    return f"{text}, estimated" if log.propensities_estimated else text


def time_text(time: Any, unit: Literal["m", "s"] = "s") -> str:
    """A date to the minute or second; a number as it is."""
    if not isinstance(time, np.datetime64):
        return str(time)
    return str(np.datetime_as_string(time, unit=unit)).replace("T", " ")


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


def model_view(model: SwitchingModel, written: Written) -> RenderableType:
    """The model, its log, its states and its features."""
    return Group(
        table("Model", ("", ""), _model_rows(model, written), n_text=2), "",
        table("Training log", ("", ""), _log_rows(model), n_text=2), "",
        _states(model), "",
        _features(model),
    )  # fmt: skip


def model_document(model: SwitchingModel, written: Written) -> dict[str, Any]:
    """The same as a JSON document."""
    return {
        "schema": written.schema,
        "versions": written.versions,
        "n_states": model.n_states,
        "state_rounds": model.labels.counts.tolist(),
        "expected_stay": model.policies.expected_stay,
        "oracle": {"kind": type(model.oracle).__name__, "settings": _settings(model.oracle)},
        "learner": {"kind": type(model.learner).__name__, "settings": _settings(model.learner)},
        "choice": msgspec.to_builtins(model.choice),
        "deployer": type(model.deployer()).__name__,
        "log": msgspec.to_builtins(model.provenance),
        "features": msgspec.to_builtins(model.features),
    }


def _model_rows(model: SwitchingModel, written: Written) -> list[tuple[str, str]]:
    stay = model.policies.expected_stay
    lasting = "" if stay is None or model.n_states == 1 else f", lasting {stay:,.0f} rounds on average"
    rows = [
        ("states", f"{model.n_states}{lasting}"),
        ("oracle", _signature(model.oracle)),
        ("learner", _signature(model.learner)),
        ("deployer", type(model.deployer()).__name__),
        ("written by", ", ".join(f"{name} {version}" for name, version in written.versions.items())),
        ("schema", str(written.schema)),
    ]
    if model.choice is not None:
        rows.insert(3, ("why this learner", model.choice.reason))
    return rows


def _log_rows(model: SwitchingModel) -> list[tuple[str, str]]:
    log = model.provenance
    low, high = log.reward_range
    rows = [
        ("rounds", f"{log.n_rounds:,}"),
        ("time", "unknown" if log.time_range is None else " to ".join(log.time_range)),
        ("rewards", f"mean {log.mean_reward:.4g}, range {low:g} to {high:g}"),
        ("propensities", {"unknown": "none"}.get(log.propensity_source, log.propensity_source)),
        ("actions", f"{len(log.action_names)}: {', '.join(shown_name(name) for name in log.action_names[:20])}"),
        (
            "contexts",
            describe_contexts(log.joint, log.context_names) if model.features is None else log.joint.description,
        ),
        ("fingerprint", log.fingerprint),
    ]
    if len(log.action_names) > 20:
        rows[4] = (rows[4][0], f"{rows[4][1]}, … {len(log.action_names) - 20} more")
    if model.features is not None:
        words = ", ".join(f"{word}={place}" for word, place in model.features.columns.items())
        rows.insert(0, ("format", model.features.format))
        rows.insert(1, ("columns", words or "set by the format"))
    return rows


def _states(model: SwitchingModel) -> RenderableType:
    counts, changes = model.labels.counts, len(model.labels.change_points)
    rows = [(f"state {z}", f"{count:,}", f"{count / max(counts.sum(), 1):.1%}") for z, count in enumerate(counts)]
    title = f"{count_of(model.n_states, 'state')}, {count_of(changes, 'change')} in the training log"
    body = table("", ("", "rounds", "share"), rows)
    body.title = None  # the title may be wider than the table
    return Group(Text(title, style="bold"), body)


def _features(model: SwitchingModel) -> RenderableType:
    features = model.features
    if features is None:
        return Text("Features: given as arrays and used as they are.")
    if not features.context_names:
        return Text("Features: none. The policies depend on the action alone.")
    rows = [(shown_name(column, 40), told, names) for column, told, names in features.described()]
    body = table("Features", ("column", "encoding", "features"), rows, n_text=3)
    notes = [f"{len(features.context_names)} features in {features.precision}."]
    if any(feature.marked for feature in (*features.shared, *features.pool)):
        notes.append("Missing values have an indicator feature.")
    if features.crossed:
        notes.append("Round features are multiplied with the features of each action.")
    notes += [f"Not used: {column.column} ({column.reason})." for column in features.left_out]
    return Group(body, Text(" ".join(notes), style="dim"))


def _signature(part: Any) -> str:
    """``HMMOracle(n_states=2, …)``."""
    settings = ", ".join(f"{name}={value}" for name, value in _settings(part).items())
    return f"{type(part).__name__}({settings})"


def _settings(part: Any) -> dict[str, Any]:
    if not isinstance(part, Params):
        return {}
    given = {name: value for name, value in part.saved_params().items() if name != "align_to"}
    return {name: "inf" if value == np.inf else value for name, value in given.items()}


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
