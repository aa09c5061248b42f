"""What the parts of the page about states show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from seachange.protocols import Floats
from seachange.report.contrasts import Contrast
from seachange.report.page.drawing import dots
from seachange.report.page.ticks import round_ticks
from seachange.report.page.wording import MINUS, Numbers
from seachange.report.states import StatesSummary
from seachange.report.states_tables import decimals_for, in_words
from seachange.report.tables import count_of, shown_name

MOST_ACTIONS, MOST_CHANGES, MOST_CONTRASTS = 12, 200, 4
# Longer names are cut where they stand in a sentence.
LONG_NAME = 48
# Probabilities from here on are as good as one.
CERTAIN = 0.999
# Means that are fewer standard errors apart are not told apart.
SURE_ERRORS = 2


def overview_view(summary: StatesSummary) -> list[dict[str, Any]]:
    """A line for each state: how much of the log, how often, how long, what it earned."""
    rewards, moves = Numbers([], summary.mean_rewards.tolist()), summary.transitions
    found = []
    for state in summary.in_use:
        stay = float(moves.expected_stays[state])
        known = np.isfinite(stay) and stay <= 100 * summary.n_rounds
        leaving = moves.leaving[state]
        likeliest = [z for z in np.argsort(-np.nan_to_num(leaving), kind="stable")[:3].tolist() if leaving[z] > 0.005]
        found.append({
            "state": state,
            "rounds": f"{int(summary.counts[state]):,}",
            "share": f"{summary.counts[state] / summary.n_rounds:.1%}",
            "visits": f"{int(summary.visits[state]):,}",
            "reward": rewards.say(float(summary.mean_rewards[state])),
            "best": _best(summary, state),
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
            "within": _places(change.low, change.high),
        })  # fmt: skip
    return {
        "rows": rows,
        "left_out": len(summary.changes) - len(rows),
        "timed": summary.axis.timed,
        "sure": any(row["sure"] for row in rows),
        "placed": any(row["within"] for row in rows),
    }


def _places(low: int | None, high: int | None) -> str:
    if low is None or high is None:
        return ""
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _probability(value: float) -> str:
    return "> 99.9%" if value > CERTAIN else f"{value:.1%}"


def _best(summary: StatesSummary, state: int) -> tuple[str, str] | None:
    """The action that earned most in a state, and how sure that is; None where there are no two to choose from."""
    cells = summary.cells
    means = np.where(cells.rare, np.nan, cells.means)[state]
    if np.isfinite(means).sum() < 2:
        return None
    second, first = np.argsort(np.nan_to_num(means, nan=-np.inf), kind="stable")[-2:].tolist()
    doubt = SURE_ERRORS * np.hypot(cells.std_errors[state, first], cells.std_errors[state, second])
    sure = "earns most" if means[first] - means[second] > doubt else "seems to earn most"
    return shown_name(summary.action_names[first], LONG_NAME), sure


def contrasts_view(summary: StatesSummary) -> list[dict[str, Any]]:
    """What distinguishes each state, in sentences; of two states, each difference once, where it is larger."""
    used = summary.in_use
    if len(used) < 2:
        return []
    found = {state: [each for each in summary.contrasts if each.state == state] for state in used}
    if len(used) > 2:
        return [_card(state, mine[:MOST_CONTRASTS], "elsewhere", "") for state, mine in found.items()]
    first, second = used
    larger = [each for each in found[first] if _larger_here(each)]
    others = [_seen_from(second, each) for each in found[first] if not _larger_here(each)]
    if not found[first]:
        return [_card(state, [], "", "") for state in used]
    return [
        _card(first, larger, f"in state {second}", f"All that stands out is told with state {second}."),
        _card(second, others, f"in state {first}", f"All that stands out is told with state {first}."),
    ]


def _card(state: int, contrasts: list[Contrast], elsewhere: str, nothing: str) -> dict[str, Any]:
    return {
        "state": state,
        "told": [_with_minus(in_words(each, elsewhere, LONG_NAME)) for each in contrasts],
        "nothing": nothing or "Nothing stands out beyond what chance would make.",
        "features": any(each.feature is not None for each in contrasts),
    }


def _larger_here(contrast: Contrast) -> bool:
    """Whether the state is the one with the larger reward, or in which the feature matters more."""
    if contrast.feature is None:
        return contrast.here >= contrast.elsewhere
    return abs(contrast.here) >= abs(contrast.elsewhere)


def _seen_from(state: int, contrast: Contrast) -> Contrast:
    """The same difference as the other state has it."""
    here, elsewhere, errors = contrast.elsewhere, contrast.here, -contrast.std_errors
    return replace(contrast, state=state, here=here, elsewhere=elsewhere, std_errors=errors)


def _with_minus(told: str) -> str:
    """A sentence with real minuses in front of its numbers, which come after its names, and units that stay by them."""
    names, quote, numbers = told.rpartition("'")
    return names + quote + numbers.replace(" -", f" {MINUS}").replace(" se)", "\N{NO-BREAK SPACE}se)")


def rewards_view(summary: StatesSummary) -> dict[str, Any] | None:
    """Mean reward of each action in each state, on one scale; actions that differ most between states first."""
    cells, used = summary.cells, summary.in_use
    means = np.where(cells.rounds >= 1, cells.means, np.nan)
    steady = np.where(cells.rare, np.nan, means)[used]
    taken = np.flatnonzero(np.isfinite(means[used]).any(axis=0))
    if len(taken) == 0:
        return None
    shown = np.array(sorted(taken.tolist(), key=lambda action: -_spread(steady[:, action]))[:MOST_ACTIONS])
    # Of cells with few rounds, the scale has room for the mean only.
    reliable = np.isfinite(cells.low) & ~cells.rare
    ends = [np.where(reliable, end, means)[used][:, shown] for end in (cells.low, cells.high)]
    low, high = float(np.nanmin(ends)), float(np.nanmax(ends))
    room = 0.04 * (high - low) or 0.5
    low, high = low - room, high + room

    def at(value: float) -> float:
        return float(np.clip((value - low) / (high - low), 0, 1))

    rows, decimals = [], decimals_for(summary)
    for action in shown.tolist():
        places, told = [], []
        for state in used:
            mean = float(means[state, action])
            if np.isnan(mean):
                continue
            ends_of = (float(cells.low[state, action]), float(cells.high[state, action]))
            left, right = (mean if np.isnan(end) else end for end in ends_of)
            places.append((at(left), at(mean), at(right), state, bool(cells.rare[state, action])))
            told.append(f"state {state}: {mean:z,.{decimals}f} ({cells.rounds[state, action]:,.0f} rounds)")
        rows.append({
            "name": summary.action_names[action],
            "svg": dots(places, height := max(9 * len(places), 14)),
            "height": height,
            "told": "; ".join(told).replace("-", MINUS),
        })  # fmt: skip
    ticks = [(100 * at(value), said) for value, said in round_ticks(low, high, 5)]
    return {
        "rows": rows,
        "ticks": ticks,
        "left_out": len(taken) - len(rows),
        "n_taken": len(taken),
        "never_taken": summary.n_actions - len(taken),
        "n_columns": len(used),
    }


def _spread(means: Floats) -> float:
    known = means[np.isfinite(means)]
    return float(np.ptp(known)) if len(known) > 1 else -1.0


def evidence_view(summary: StatesSummary) -> dict[str, Any] | None:
    """Why so many states."""
    evidence = summary.evidence
    if evidence is None or (not evidence.counts and summary.n_states == 1):
        return None
    largest = max((abs(count.gain) + count.gain_error for count in evidence.counts[1:]), default=1.0) or 1.0
    rows = [
        {
            "states": count.n_states,
            "gain": "" if count.n_states == 1 else f"{count.gain:+,.1f} ± {count.gain_error:,.1f}".replace("-", MINUS),
            "width": 0.0 if count.n_states == 1 else 100 * max(count.gain, 0.0) / largest,
            "bic": f"{count.bic:,.0f}".replace("-", MINUS),
            "chosen": count.n_states == summary.n_states,
        }
        for count in evidence.counts
    ]
    return {
        "rows": rows,
        "given": not evidence.counts,
        "of_this_log": evidence.of_this_log,
        "bic": f"{evidence.bic:,.0f}".replace("-", MINUS),
        "single_bic": f"{evidence.single_state_bic:,.0f}".replace("-", MINUS),
        "better": evidence.bic < evidence.single_state_bic,
    }
