"""Tables for the terminal: the plain table itself, logs, states, models and propensities."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from seachange.analysis.formatting import count_of, describe_contexts, first_names, shown_name, stored_time_text
from seachange.analysis.state_contrasts import reward_cells
from seachange.log.bandit_log import BanditLog
from seachange.model import SwitchingModel
from seachange.model_file import Manifest
from seachange.params import Params
from seachange.propensities.calibration import propensity_report
from seachange.propensities.estimation import fit_logging_policy
from seachange.protocols import Floats
from seachange.states.labels import StateLabels

# The most actions that are listed.
MOST_ACTIONS = 20
CONFIDENCE = 0.95
# Standard errors that are very unlikely by chance.
SURPRISING = 4.5
MODELS = {
    "frequencies": "by how often each action was taken",
    "linear": "with a linear model",
    "boosted": "with boosted trees, which predict held-out actions better than a linear model",
}


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], n_text: int = 1, note: str = "") -> Group:
    """A plain table between a title and a note; the first ``n_text`` columns are text, the others are numbers."""
    body = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(columns))
    for i, column in enumerate(columns):
        body.add_column(column, justify="left" if i < n_text else "right", header_style="dim")
    for row in rows:
        body.add_row(*(cell if isinstance(cell, Text) else escape(str(cell)) for cell in row))
    return Group(Text(title, style="bold"), body, *([Text(note, style="dim")] if note else []))


def spaced(parts: Iterable[RenderableType]) -> Group:
    """The parts, with a blank line between them."""
    return Group(*[each for part in parts for each in (part, "")][:-1])


def time_text(time: Any, unit: Literal["m", "s"] = "s") -> str:
    """A date to the minute or second; a number as it is."""
    if not isinstance(time, np.datetime64):
        return str(time)
    return str(np.datetime_as_string(time, unit=unit)).replace("T", " ")


def log_table(log: BanditLog) -> Group:
    """A summary of a log."""
    rewards, propensities = log.rewards, "none"
    if log.propensities_known:
        propensities = f"{log.propensities.min():.4g} to {log.propensities.max():.4g}"
        propensities += ", estimated" if log.propensities_estimated else ""
    rows = [
        ("rounds", f"{len(log):,}"),
        ("actions", f"{log.n_actions}: {', '.join(first_names(log.action_names))}"),
        ("contexts", describe_contexts(log.joint, log.context_names)),
        ("rewards", f"mean {np.nanmean(rewards):.4f}, range {np.nanmin(rewards):g} to {np.nanmax(rewards):g}"),
        ("propensities", propensities),
    ]
    if log.times is not None:
        rows.append(("time", f"{time_text(log.times.min())} to {time_text(log.times.max())}"))
    return table("Log", ("", ""), rows, n_text=2)


def states_table(log: BanditLog, labels: StateLabels) -> Group:
    """The share of each state, its mean reward, and its best action."""
    cells, rows = reward_cells(log, labels, CONFIDENCE), []
    for state, count in enumerate(labels.counts):
        row, means = [f"state {state}", f"{count:,}", f"{count / len(log):.1%}"], cells.means[state]
        if np.isnan(means).all():
            rows.append([*row, "-", "-"])
            continue
        enough = ~np.isnan(means) & (~cells.rare[state] | cells.rare[state].all())
        best, *others = np.argsort(-np.where(enough, means, -np.inf), kind="stable")[: np.count_nonzero(enough)]
        errors = 2 * np.hypot(cells.std_errors[state, best], cells.std_errors[state, others])
        clear = bool((means[best] - means[others] > errors).all())
        mean = np.average(np.nan_to_num(means), weights=cells.rounds[state])
        name = f"{shown_name(log.action_names[best])} ({means[best]:.4f}){' ' if clear else '*'}"
        rows.append([*row, f"{mean:.4f}", name])
    title = f"{count_of(labels.n_states, 'state')}, {count_of(len(labels.change_points), 'change')}"
    note = "* Too close to another action to tell." if any(row[-1].endswith("*") for row in rows) else ""
    return table(title, ("", "rounds", "share", "mean reward", "best action (mean reward)"), rows, note=note)


def model_view(model: SwitchingModel, written: Manifest) -> RenderableType:
    """The model, its log, its states and its features."""
    software = table("Model", ("", ""), _model_rows(model, written), n_text=2)
    log = table("Training log", ("", ""), _log_rows(model), n_text=2)
    return spaced([software, log, _states(model), _features(model)])


def model_document(model: SwitchingModel, written: Manifest) -> dict[str, Any]:
    """The same as a JSON document."""
    return {
        "schema": written.schema,
        "versions": written.versions,
        "n_states": model.n_states,
        "state_rounds": model.labels.counts.tolist(),
        "expected_stay": model.policies.expected_stay,
        "oracle": {"kind": type(model.oracle).__name__, "settings": _settings(model.oracle)},
        "learner": {"kind": type(model.learner).__name__, "settings": _settings(model.learner)},
        "choice": model.choice,
        "deployer": type(model.deployer()).__name__,
        "log": model.provenance,
        "features": model.features,
    }


def _model_rows(model: SwitchingModel, written: Manifest) -> list[tuple[str, str]]:
    stay = model.policies.expected_stay
    lasting = "" if stay is None or model.n_states == 1 else f", lasting {stay:,.0f} rounds on average"
    return [
        ("states", f"{model.n_states}{lasting}"),
        ("oracle", _signature(model.oracle)),
        ("learner", _signature(model.learner)),
        *([] if model.choice is None else [("why this learner", model.choice.reason)]),
        ("deployer", type(model.deployer()).__name__),
        ("written by", ", ".join(f"{name} {version}" for name, version in written.versions.items())),
        ("schema", str(written.schema)),
    ]


def _log_rows(model: SwitchingModel) -> list[tuple[str, str]]:
    log, features, rows = model.provenance, model.features, list[tuple[str, str]]()
    low, high = log.reward_range
    contexts = describe_contexts(log.joint, log.context_names)
    if features is not None:
        columns = ", ".join(f"{role}={column}" for role, column in features.columns.items())
        rows += [("format", features.format), ("columns", columns or "set by the format")]
        contexts = log.joint.description
    names = [shown_name(name) for name in first_names(log.action_names, MOST_ACTIONS)]
    return [
        *rows,
        ("rounds", f"{log.n_rounds:,}"),
        *([("logs", " + ".join(f"{part.n_rounds:,} rounds" for part in log.parts))] if log.parts else []),
        ("time", "unknown" if log.time_range is None else " to ".join(map(stored_time_text, log.time_range))),
        ("rewards", f"mean {log.mean_reward:.4g}, range {low:g} to {high:g}"),
        ("propensities", {"unknown": "none"}.get(log.propensity_source, log.propensity_source)),
        ("actions", f"{len(log.action_names)}: {', '.join(names)}"),
        ("contexts", contexts),
        ("fingerprint", log.fingerprint),
    ]


def _states(model: SwitchingModel) -> RenderableType:
    counts, changes = model.labels.counts, len(model.labels.change_points)
    rows = [(f"state {z}", f"{count:,}", f"{count / max(counts.sum(), 1):.1%}") for z, count in enumerate(counts)]
    title = f"{count_of(model.n_states, 'state')}, {count_of(changes, 'change')} in the training log"
    return table(title, ("", "rounds", "share"), rows)


def _features(model: SwitchingModel) -> RenderableType:
    features = model.features
    if features is None:
        return Text("Features: given as arrays and used as they are.")
    if not features.context_names:
        return Text("Features: none. The policies depend on the action alone.")
    rows = [(shown_name(column, 40), encoding, names) for column, encoding, names in features.described()]
    notes = [f"{len(features.context_names)} features in {features.precision}."]
    if any(feature.marked for feature in (*features.shared, *features.pool)):
        notes.append("Missing values have an indicator feature.")
    if features.crossed:
        notes.append("Round features are multiplied with the features of each action.")
    notes += [f"Not used: {column.column} ({column.reason})." for column in features.left_out]
    return table("Features", ("column", "encoding", "features"), rows, n_text=3, note=" ".join(notes))


def _signature(part: Any) -> str:
    """``HMMOracle(n_states=2, …)``."""
    settings = ", ".join(f"{name}={value}" for name, value in _settings(part).items())
    return f"{type(part).__name__}({settings})"


def _settings(part: Any) -> dict[str, Any]:
    if not isinstance(part, Params):
        return {}
    given = {name: value for name, value in part.saved_params().items() if name != "align_to"}
    return {name: "inf" if value == np.inf else value for name, value in given.items()}


def estimated_propensities(log: BanditLog, seed: int = 0) -> tuple[Floats, dict[str, Any], str]:
    """(n, K) estimates, how they were made and how good they are, as data and as a sentence."""
    fit = fit_logging_policy(log, seed=seed)
    report = propensity_report(log, probs := fit.logging_probs(log))
    wrong = [a for a in report.actions if abs(a.mean_weight - 1) > SURPRISING * max(a.mean_weight_error, 1e-12)]
    names = ", ".join(shown_name(a.action) for a in wrong[:3])
    misfit = f" The estimates are off for {names}." if wrong else ""
    text = (
        f"Estimated the propensities of {report.n_rounds:,} rounds {MODELS[fit.kind]} (smallest: {report.least:.3g}); "
        f"calibration error {report.calibration_error:.4f} ({report.error_by_chance:.4f} expected by chance).{misfit}"
    )
    numbers = {"calibration_error": report.calibration_error, "error_by_chance": report.error_by_chance}
    return probs, {"model": fit.kind, **numbers, "smallest": report.least}, text
