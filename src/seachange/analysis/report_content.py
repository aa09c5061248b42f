"""Everything that a report shows about a log and a model, as data for the page and for programs."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from seachange.analysis.comparison import (
    Comparison,
    Holdout,
    HoldoutKind,
    Note,
    attempt,
    collect_notes,
    compare_policies,
    holdout_of,
    merge_notes,
    refusals_of,
)
from seachange.analysis.formatting import new_regimes_text
from seachange.analysis.policy_summary import PolicySummary, summarize_policies
from seachange.analysis.states_summary import StatesSummary, json_value, summarize_states
from seachange.analysis.states_summary import as_document as states_document
from seachange.analysis.timeline import dates_or_seconds
from seachange.analysis.value_series import ValueSeries, value_series
from seachange.engine import stage
from seachange.errors import RefusedError
from seachange.evaluation.diagnostics import Reason
from seachange.log.bandit_log import BanditLog
from seachange.model import SwitchingModel
from seachange.model_file import Provenance
from seachange.params import Params
from seachange.protocols import Floats

CLEAR = 0.9  # the state of a round is clear from this probability on
SMOOTHED_OVER = 60  # the mean reward over time is smoothed over one in this many columns of the figure
PACKAGES = ("seachange", "numpy", "scipy", "numba", "scikit-learn", "polars")


@dataclass(frozen=True)
class HoldoutSummary:
    """The rounds that values are estimated on."""

    kind: HoldoutKind | None  # None if there are none
    n_rounds: int
    first_round: int
    overlap: str | None  # which rounds of the log the model may have been learned from
    refusals: tuple[Reason, ...]
    certain: bool = True  # whether it is known which rounds the model was learned from


@dataclass(frozen=True, eq=False)
class ReportContent:
    """The content of a report."""

    origin: dict[str, Any]  # names, commands, settings and versions, as in the JSON document
    learned_from: Provenance
    holdout: HoldoutSummary
    comparison: Comparison | None
    notes: tuple[Note, ...]
    states: StatesSummary
    clear_share: float | None  # share of rounds whose state has a probability of at least CLEAR
    mean_rewards: Floats | None  # (C,) along the bands of the states, smoothed; None if rounds have no position
    policies: PolicySummary
    values: ValueSeries | None
    values_refusals: tuple[Reason, ...]

    @property
    def news(self) -> str:
        """The new regimes, in a sentence; empty if there are none."""
        return new_regimes_text(self.states.new_regimes, self.states.n_states, self.states.axis)


def report_content(
    log: BanditLog,
    model: SwitchingModel,
    *,
    log_name: str = "LOG",
    model_name: str = "MODEL",
    commands: Sequence[str] = (),
    confidence: float = 0.95,
    seed: int = 0,
) -> ReportContent:
    """Compute the content of a report; estimates that the log cannot support come with reasons instead.

    ``commands`` are the one that makes the report, and others to try.
    """
    holdout: Holdout | None = None
    refusals: tuple[Reason, ...] = ()
    notes: list[Note] = []
    try:
        with stage("Preparing held-out rounds"), collect_notes(notes):
            holdout = holdout_of(log, model)
    except RefusedError as error:
        refusals = refusals_of(error, log)
    with stage("Evaluating the policies"):
        comparison = None if holdout is None else compare_policies(holdout, confidence, seed)
    values: ValueSeries | None = None
    values_refusals: tuple[Reason, ...] = ()
    if holdout is not None and comparison is not None:
        with stage("Evaluating the policies over time"), collect_notes([]):  # the comparison already has these notes
            values, values_refusals = attempt(log, partial(value_series, holdout, confidence))
    with stage("Summarizing the states"):
        labels = model.oracle.predict(log)
        fitted_here = log.fingerprint() == model.provenance.fingerprint
        states = summarize_states(log, model.oracle, labels, confidence, fitted_here, model.new_regimes(log))
        probs = labels.state_probs
    return ReportContent(
        origin={"log": log_name, "model": model_name, "commands": tuple(commands)} | _origin(log, model),
        learned_from=model.provenance,
        holdout=HoldoutSummary(
            kind=None if holdout is None else holdout.kind,
            n_rounds=0 if holdout is None else len(holdout.log),
            first_round=0 if holdout is None else holdout.first_round,
            overlap=model.provenance.overlap(log),
            refusals=refusals,
            certain=model.provenance.knows(log),
        ),
        comparison=comparison,
        notes=(*merge_notes(notes), *(comparison.notes if comparison is not None else ())),
        states=states,
        clear_share=None if probs is None else float((probs.max(axis=1) >= CLEAR).mean()),
        mean_rewards=_mean_rewards(log, states),
        policies=summarize_policies(log, model.policies, model.labels.counts),
        values=values,
        values_refusals=values_refusals,
    )


def as_document(content: ReportContent) -> dict[str, Any]:
    """The content as JSON values, with null for NaN."""
    names = ("origin", "learned_from", "holdout", "comparison", "notes", "policies")
    document: dict[str, Any] = json_value(
        {name: getattr(content, name) for name in names}
        | {
            "values_over_time": content.values,
            "values_over_time_refusals": content.values_refusals,
        }
    )
    if content.values:
        document["values_over_time"]["axis"] = content.values.axis.kind
    return document | {"states": states_document(content.states) | {"clear_share": content.clear_share}}


def _mean_rewards(log: BanditLog, states: StatesSummary) -> Floats | None:
    """Smoothed mean reward in each column of the bands."""
    bands, n_columns = states.bands, len(states.bands.rounds)
    if states.n_chains == 1:
        columns = np.repeat(np.arange(n_columns), bands.rounds)
    elif log.times is not None:
        columns = np.searchsorted(bands.edges, dates_or_seconds(log.times)[1], side="right") - 1
    else:
        return None
    seen = ~np.isnan(log.rewards)
    columns = np.clip(columns, 0, n_columns - 1)[seen]
    sums = np.bincount(columns, log.rewards[seen], n_columns), np.bincount(columns, minlength=n_columns)
    reach = max(n_columns // SMOOTHED_OVER // 2, 1) if n_columns > SMOOTHED_OVER else 0
    totals, counts = (np.convolve(each, np.ones(2 * reach + 1), mode="same") for each in sums)
    return np.asarray(np.divide(totals, counts, out=np.full(n_columns, np.nan), where=counts > 0))


def _origin(log: BanditLog, model: SwitchingModel) -> dict[str, Any]:
    """Facts about the log, and how the model was made."""
    return {
        "propensity_source": log.propensity_source,
        "n_rounds": len(log),
        "n_dropped": sum(count for _, count in log.dropped),
        "time_range": None if log.times is None else (str(log.times.min()), str(log.times.max())),
        "reward_range": (float(np.nanmin(log.rewards)), float(np.nanmax(log.rewards))),
        "fingerprint": log.fingerprint(),
        "oracle": type(model.oracle).__name__,
        "oracle_settings": _settings(model.oracle),
        "learner": type(model.learner).__name__,
        "learner_settings": _settings(model.learner),
        "choice": None if model.choice is None else model.choice.reason,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


def _settings(part: Any) -> dict[str, Any]:
    """Hyperparameters that are words or numbers."""
    settings = part.get_params() if isinstance(part, Params) else {}
    return {name: value for name, value in settings.items() if isinstance(value, str | int | float | bool)}
