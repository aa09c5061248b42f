"""What each part of the page shows: findings, said and placed, for a template that only lays them out."""

from __future__ import annotations

from typing import Any

import numpy as np

from seachange.evaluation.value_estimate import ValueEstimate
from seachange.report.findings import Findings
from seachange.report.page.drawing import dots
from seachange.report.page.ticks import round_ticks
from seachange.report.page.wording import MINUS, Numbers, numbers_of, refusal_told
from seachange.report.states import StatesSummary
from seachange.report.states_tables import decimals_for, in_words
from seachange.report.tables import count_of

MOST_ACTIONS, MOST_CHANGES = 12, 200
# Probabilities from here on are as good as one.
CERTAIN = 0.999


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


def overview_view(summary: StatesSummary) -> list[dict[str, Any]]:
    """A line for each state: how much of the log, how often, how long, what it earned."""
    rewards, moves = Numbers([], summary.mean_rewards.tolist()), summary.transitions
    found = []
    for state in summary.in_use:
        stay = float(moves.expected_stays[state])
        known = np.isfinite(stay) and stay <= 100 * summary.n_rounds
        leaving = moves.leaving[state]
        likeliest = [z for z in np.argsort(-np.nan_to_num(leaving), kind="stable")[:3].tolist() if leaving[z] > 0.005]
        best = summary.cells.best[state]
        found.append({
            "state": state,
            "rounds": f"{int(summary.counts[state]):,}",
            "share": f"{summary.counts[state] / summary.n_rounds:.1%}",
            "visits": f"{int(summary.visits[state]):,}",
            "reward": rewards.say(float(summary.mean_rewards[state])),
            "best": "" if best is None else summary.action_names[best],
            "stay": count_of(round(stay), "round") if known else "never left" if stay > 0 else "–",
            "lasts": summary.axis.say_duration(stay) if known and summary.axis.timed else "",
            "next": [(z, f"{leaving[z]:.0%}") for z in likeliest],
        })  # fmt: skip
    return found


def changes_view(summary: StatesSummary) -> dict[str, Any]:
    """Where the world changed, and how sure that is."""
    rows = []
    for change in summary.changes[:MOST_CHANGES]:
        sure = "" if change.probability is None else _probability(change.probability)
        if change.p_value is not None:
            sure = "p < 0.0001" if change.p_value < 1e-4 else f"p = {change.p_value:.2g}"
        rows.append({
            "round": f"{change.round:,}",
            "time": summary.axis.say(float(summary.axis.at(change.round))) if summary.axis.timed else "",
            "before": change.before,
            "after": change.after,
            "sure": sure,
            "within": "" if change.low is None else f"{change.low:,} to {change.high:,}",
        })  # fmt: skip
    return {"rows": rows, "left_out": len(summary.changes) - len(rows), "timed": summary.axis.timed}


def _probability(value: float) -> str:
    return "> 99.9%" if value > CERTAIN else f"{value:.1%}"


def contrasts_view(summary: StatesSummary) -> list[dict[str, Any]]:
    """What distinguishes each state, in sentences."""
    if len(summary.in_use) < 2:
        return []
    return [
        {"state": state, "told": [in_words(each) for each in summary.contrasts if each.state == state][:4]}
        for state in summary.in_use
    ]


def rewards_view(summary: StatesSummary) -> dict[str, Any] | None:
    """Mean reward of each action in each state, on one scale; actions that differ most between states first."""
    cells, used = summary.cells, summary.in_use
    means = np.where(cells.rounds >= 1, cells.means, np.nan)[used]
    if not np.isfinite(means).any():
        return None
    with np.errstate(invalid="ignore"):
        filled_low, filled_high = np.where(np.isnan(means), np.inf, means), np.where(np.isnan(means), -np.inf, means)
        steady = np.where(cells.rare[used], np.nan, means)
        spread = np.array([np.ptp(column[np.isfinite(column)]) if np.isfinite(column).sum() > 1 else -1.0 for column in steady.T])
    order = np.argsort(-spread, kind="stable")[:MOST_ACTIONS]
    shown = order[np.isfinite(means[:, order]).any(axis=0)]
    usual = np.isfinite(cells.low) & ~cells.rare & np.isin(np.arange(cells.means.shape[1]), shown)
    low = min([float(filled_low[:, shown].min()), *cells.low[usual].tolist()])
    high = max([float(filled_high[:, shown].max()), *cells.high[usual].tolist()])
    room = 0.04 * (high - low) or 0.5
    low, high = low - room, high + room

    def at(value: float) -> float:
        return float(np.clip((value - low) / (high - low), 0, 1))

    rows, decimals = [], decimals_for(summary)
    for action in shown.tolist():
        places, told = [], []
        for state in used:
            mean = float(cells.means[state, action])
            if cells.rounds[state, action] < 1 or np.isnan(mean):
                continue
            ends = [float(cells.low[state, action]), float(cells.high[state, action])]
            left, right = (mean if np.isnan(end) else end for end in ends)
            places.append((at(left), at(mean), at(right), state, bool(cells.rare[state, action])))
            told.append(f"state {state}: {mean:z,.{decimals}f} ({cells.rounds[state, action]:,.0f} rounds)")
        height = max(9 * len(places), 14)
        rows.append({
            "name": summary.action_names[action], "svg": dots(places, height), "height": height,
            "told": "; ".join(told).replace("-", MINUS),
        })  # fmt: skip
    ticks = [(100 * at(value), said) for value, said in round_ticks(low, high, 4)]
    return {"rows": rows, "ticks": ticks, "left_out": summary.n_actions - len(rows)}


def evidence_view(summary: StatesSummary) -> dict[str, Any] | None:
    """Why so many states."""
    evidence = summary.evidence
    if evidence is None:
        return None
    largest = max((abs(count.gain) + count.gain_error for count in evidence.counts[1:]), default=1.0) or 1.0
    rows = [
        {
            "states": count.n_states,
            "gain": "" if count.n_states == 1 else f"{count.gain:+,.1f} ± {count.gain_error:,.1f}".replace("-", MINUS),
            "width": 0.0 if count.n_states == 1 else 100 * max(count.gain, 0.0) / largest,
            "bic": f"{count.bic:,.0f}",
            "chosen": count.n_states == summary.n_states,
        }
        for count in evidence.counts
    ]
    return {
        "rows": rows,
        "given": not evidence.counts,
        "of_this_log": evidence.of_this_log,
        "bic": f"{evidence.bic:,.0f}",
        "single_bic": f"{evidence.single_state_bic:,.0f}",
        "better": evidence.bic < evidence.single_state_bic,
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
    favourites = [(z, summary.action_names[int(row.argmax())], _percent(float(row.max()))) for z, row in enumerate(summary.probs)]
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
