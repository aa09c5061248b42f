"""What is in a model, as tables and as a document."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from seachange.analysis.formatting import count_of, describe_contexts, shown_name
from seachange.cli.tables import table
from seachange.model import SwitchingModel
from seachange.model_file import Written
from seachange.params import Params


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
