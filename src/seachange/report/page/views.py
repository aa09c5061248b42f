"""What the page shows of values and policies: said and placed, for a template that only lays them out."""

from __future__ import annotations

from typing import Any

import numpy as np

from seachange.evaluation.value_estimate import ValueEstimate
from seachange.report.findings import Findings
from seachange.report.page.ticks import round_ticks
from seachange.report.page.wording import MINUS, Numbers, numbers_of, refusal_told
from seachange.report.tables import shown_name

MOST_ACTIONS = 12
# Longer names are cut where they stand in a sentence.
LONG_NAME = 48


def values_view(findings: Findings) -> dict[str, Any] | None:
    """The values side by side, on one scale."""
    answer = findings.answer
    if answer is None or answer.logging.estimate is None:
        return None
    say = numbers_of(answer)
    shown = [("logging", "The logging policy", answer.logging)]
    if answer.best_single is not None:
        best = answer.singles[answer.best_single]
        shown.append(("single", "The best single policy", best))
    shown.append(("switching", "Switching" if findings.states.n_states > 1 else "The policy", answer.switching))
    known = [each.estimate for _, _, each in shown if each.estimate is not None]
    ends = [end for each in known for end in (each.low, each.high) if np.isfinite(end)]
    values = [each.value for each in known]
    low, high = min([*ends, *values]), max([*ends, *values])
    room = 0.06 * (high - low) or 0.5 * abs(high) or 0.5
    low, high = low - room, high + room

    def at(value: float) -> float:
        return float(np.clip((value - low) / (high - low), 0, 1))

    rows = [
        {
            "kind": kind,
            "name": name,
            "note": each.name if kind == "single" else "",
            "value": None if each.estimate is None else say.say(each.estimate.value),
            "interval": "" if each.estimate is None else say.interval(each.estimate),
            "at": None if each.estimate is None else [100 * at(v) for v in _places(each.estimate)],
        }
        for kind, name, each in shown
    ]
    ticks = [(100 * at(value), said) for value, said in round_ticks(low, high, 4)]
    table = [(each.name, each.estimate, each.refusal) for each in (answer.logging, *answer.singles, answer.switching)]
    others = [("switching" if findings.states.n_states > 1 else "the policy", each) for each in answer.others[1:]]
    if answer.online is not None and answer.others:
        others.append(("the deployment, led along the log", answer.online))
    others += [(f"in the rounds of state {z}", each) for z, each in enumerate(answer.by_state) if each is not None]
    return {
        "rows": rows,
        "ticks": ticks,
        "table": [_table_row(name, estimate, refusal, say) for name, estimate, refusal in table]
        + [_table_row(name, estimate, None, say) for name, estimate in others],
        "n_singles": len(answer.singles),
        "confidence": f"{answer.logging.estimate.confidence:.0%}",
        "online_notes": [] if answer.online is None else list(answer.online.notes),
    }


def _places(estimate: ValueEstimate) -> tuple[float, float, float]:
    return estimate.low, estimate.value, estimate.high


def _table_row(name: str, estimate: ValueEstimate | None, refusal: str | None, say: Numbers) -> dict[str, Any]:
    if estimate is None:
        return {"name": name, "refusal": refusal_told(refusal)}
    return {
        "name": name,
        "by": "its mean" if estimate.estimator == "mean" else estimate.estimator,
        "value": say.say(estimate.value),
        "interval": say.interval(estimate),
        "effective": f"{estimate.effective_samples:,.0f}",
        "weight": f"{estimate.max_weight:,.1f}",
    }


def policies_view(findings: Findings) -> dict[str, Any]:
    """How often each state's policy takes each action, beside the log; those that move most first."""
    summary, found = findings.policies, findings.states
    moved = np.abs(summary.probs - summary.logging).max(axis=0) + summary.probs.max(axis=0)
    order = np.argsort(-moved, kind="stable")
    rows = [
        {
            "name": summary.action_names[action],
            "logging": _percent(summary.logging[action]),
            "logging_width": 100 * float(summary.logging[action]),
            "cells": [
                {
                    "state": state,
                    "told": _percent(prob),
                    "width": 100 * float(prob),
                    "top": bool(prob >= summary.probs[state].max()),
                }
                for state, prob in enumerate(summary.probs[:, action])
            ],
        }
        for action in order.tolist()
    ]
    largest = max((abs(effect.effect) for effect in summary.effects), default=1.0)
    effects = [
        {
            "state": state,
            "rows": [
                {
                    "action": effect.action,
                    "feature": effect.feature,
                    "told": f"{100 * effect.effect:+.0f}".replace("-", MINUS),
                    "width": 50 * abs(effect.effect) / largest,
                    "more": effect.effect > 0,
                }
                for effect in summary.effects
                if effect.state == state
            ],
        }
        for state in range(len(summary.probs))
    ]
    favourites = [
        (state, shown_name(summary.action_names[int(row.argmax())], LONG_NAME), _percent(float(row.max())))
        for state, row in enumerate(summary.probs)
    ]
    return {
        "rows": rows[:MOST_ACTIONS],
        "more": rows[MOST_ACTIONS:],
        "states": list(range(len(summary.probs))),
        "effects": [each for each in effects if each["rows"]],
        "favourites": favourites,
        "n_situations": summary.n_situations,
        "contexts": found.contexts,
        "n_sampled": f"{summary.n_sampled:,}",
        "everything": summary.n_sampled == found.n_rounds,
    }


def _percent(share: float) -> str:
    return "0%" if share == 0 else "< 0.5%" if share < 0.005 else f"{share:.0%}"
