"""The states over time in a few lines of text: a strip of segments, and under it the probability of each state."""

from __future__ import annotations

import numpy as np
from rich.text import Text

from seachange.protocols import Floats
from seachange.report.colours import colour_of, ink_on
from seachange.report.states import StatesSummary

SIGNS = "0123456789abcdefghijklmnopqrstuvwxyz"
HEIGHTS = " ▁▂▃▄▅▆▇█"
# States that get a line of their own.
MOST_LINES = 12
LABEL = 9
# A stretch of time belongs to a state that has this share of it.
MOSTLY = 0.55


def state_strip(summary: StatesSummary, width: int) -> Text:
    """Lines of at most ``width`` characters: what state when (in digits and colours), how sure, and the axis below."""
    n_columns = max(1, min(width - LABEL, len(summary.bands.rounds)))
    shares = summary.bands.coarser(n_columns).shares
    result = Text()
    if summary.n_chains == 1:
        result.append("segments".ljust(LABEL))
        for column in shares:
            result.append_text(_cell(column))
        result.append("\n")
    if (summary.has_probs or summary.n_chains > 1) and summary.n_states > 1:
        for state in _shown_states(summary):
            result.append(f"state {state}".ljust(LABEL))
            result.append("".join(_height(share) for share in shares[:, state]), style=colour_of(state))
            result.append("\n")
    result.append(" " * LABEL + _ticks(summary, n_columns), style="dim")
    return result


def _shown_states(summary: StatesSummary) -> list[int]:
    """The states with most rounds, in order; none without any."""
    return sorted(np.argsort(-summary.counts, kind="stable")[: min(MOST_LINES, len(summary.in_use))].tolist())


def _cell(shares: Floats) -> Text:
    """The state of a stretch of time; a dot where several share it, a blank where there are no rounds."""
    if np.isnan(shares).any():
        return Text(" ")
    state = int(np.argmax(shares))
    if shares[state] < MOSTLY:
        return Text("·", style="dim")
    colour = colour_of(state)
    return Text(SIGNS[state % len(SIGNS)], style=f"{ink_on(colour)} on {colour}")


def _height(share: float) -> str:
    if np.isnan(share):
        return " "
    return HEIGHTS[int(np.ceil(share * 8 - 1e-3)) if share > 0.02 else 0]


def _ticks(summary: StatesSummary, n_columns: int) -> str:
    """Positions of the first, the middle and the last column, under them."""
    axis, edges = summary.axis, summary.bands.edges
    last = edges[-1] - 1 if axis.kind in ("round", "round of its sequence") else edges[-1]
    first, end = axis.say(float(edges[0])), axis.say(float(last))
    middle = axis.say(float((edges[0] + edges[-1]) / 2))
    if axis.kind == "date" and edges[-1] - edges[0] > 5 * 86400:
        first, middle, end = first[:10], middle[:10], end[:10]
    if len(first) + len(middle) + len(end) + 8 > n_columns:
        return first + end.rjust(n_columns - len(first)) if len(first) + len(end) < n_columns else first
    line = first + middle.center(n_columns - len(first) - len(end))
    return line[: n_columns - len(end)] + end
