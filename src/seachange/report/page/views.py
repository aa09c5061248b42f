"""What the page shows of values and policies: said and placed, for a template that only lays them out."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from seachange.evaluation.value_estimate import ValueEstimate
from seachange.report.findings import Findings
from seachange.report.page.ticks import round_ticks
from seachange.report.page.wording import MINUS, Numbers, numbers_of, refusal_of, refused_as_well
from seachange.report.policy_summary import Effect, PolicySummary
from seachange.report.tables import count_of, shown_name

MOST_ACTIONS = 12
# Longer names are cut where they stand in a sentence.
LONG_NAME = 48
# Policies whose habits are told in a sentence; the others are in the table.
MOST_HABITS = 4
# Actions that a habit names: those that are taken so often, and at most so many.
OFTEN, MOST_NAMED = 0.1, 3
# From these shares on, an action is always taken, and almost always.
ALWAYS, ALMOST = 1 - 1e-6, 0.995
# Two effects of a feature are one, an action instead of another, where they differ by less.
MIRRORED = 0.015


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
    main = refusal_of(findings)
    return {
        "rows": rows,
        "ticks": ticks,
        "table": [_table_row(name, estimate, refused_as_well(refusal, main), say) for name, estimate, refusal in table]
        + [_table_row(name, estimate, None, say) for name, estimate in others],
        "n_singles": sum(each.estimate is not None for each in answer.singles),
        "more_than_shown": len(known) > 1 or any(each.estimate is not None for each in answer.singles),
        "confidence": f"{answer.logging.estimate.confidence:.0%}",
        "online_notes": [] if answer.online is None else list(answer.online.notes),
    }


def _places(estimate: ValueEstimate) -> tuple[float, float, float]:
    return estimate.low, estimate.value, estimate.high


def _table_row(name: str, estimate: ValueEstimate | None, refusal: str | None, say: Numbers) -> dict[str, Any]:
    if estimate is None:
        return {"name": name, "refusal": refusal or "Can’t be said either, for the same reason as above."}
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
    effects: list[dict[str, Any]] = [
        {
            "state": state,
            "learned_from": count_of(summary.learned_from[state], "round"),
            "rows": _effect_rows([effect for effect in summary.effects if effect.state == state], largest),
        }
        for state in range(len(summary.probs))
    ]
    return {
        "rows": rows[:MOST_ACTIONS],
        "more": rows[MOST_ACTIONS:],
        "states": list(range(len(summary.probs))),
        "effects": [each for each in effects if each["rows"]],
        "habits": [_habit(summary, state) for state in range(min(len(summary.probs), MOST_HABITS))],
        "mirrored": any(row["instead"] for each in effects for row in each["rows"]),
        "n_moved": f"{summary.n_moved:,}",
        "n_situations": summary.n_situations,
        "contexts": found.contexts,
        "n_sampled": f"{summary.n_sampled:,}",
        "everything": summary.n_sampled == found.n_rounds,
    }


def _effect_rows(effects: list[Effect], largest: float) -> list[dict[str, Any]]:
    """What moves a policy; where a feature moves one action as much as it moves another back, both are one row."""
    by_feature: dict[str, list[Effect]] = {}
    for effect in effects:
        by_feature.setdefault(effect.feature, []).append(effect)
    rows = []
    for effect in effects:
        alike = by_feature[effect.feature]
        instead = None
        if len(alike) == 2 and abs(alike[0].effect + alike[1].effect) < MIRRORED:
            if effect.effect < 0:
                continue
            instead = next(each.action for each in alike if each is not effect)
        rows.append({
            "action": effect.action,
            "instead": instead,
            "feature": effect.feature,
            "told": f"{100 * effect.effect:+.0f}".replace("-", MINUS),
            "width": 50 * abs(effect.effect) / largest,
            "more": effect.effect > 0,
        })  # fmt: skip
    return rows


def _habit(summary: PolicySummary, state: int) -> Markup:
    """What a policy does most, as the end of a sentence."""
    row = summary.probs[state]
    order = np.argsort(-row, kind="stable")[:MOST_NAMED].tolist()
    names = [_name(summary.action_names[action]) for action in order]
    if row[order[0]] >= ALMOST:
        return Markup("{} takes {}").format("always" if row[order[0]] >= ALWAYS else "almost always", names[0])
    often = [
        Markup("{} ({})").format(name, _percent(row[a]))
        for name, a in zip(names, order, strict=True)
        if row[a] >= OFTEN
    ]
    if not often:
        return Markup("takes no action often, {} most ({})").format(names[0], _percent(row[order[0]]))
    if len(often) == 1:
        return Markup("{} takes {}").format("mostly" if row[order[0]] > 0.5 else "most often", often[0])
    return Markup("takes {} or {}").format(Markup(", ").join(often[:-1]), often[-1])


def _name(name: str) -> Markup:
    return Markup('<span class="name">{}</span>').format(shown_name(name, LONG_NAME))


def _percent(share: float) -> str:
    return "0%" if share == 0 else "< 0.5%" if share < 0.005 else "> 99%" if 0.995 <= share < ALWAYS else f"{share:.0%}"
