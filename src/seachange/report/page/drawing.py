"""Figures as SVG in a box 1,000 wide that a page stretches to its own width; all text is beside it, in HTML."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup

from seachange.protocols import Floats
from seachange.report.states import StatesSummary

WIDTH = 1000.0
# Heights of a strip of segments, of what is written above a lane, of the lane and of the gap below it.
STRIP, LABEL, LANE, GAP = 22, 20, 30, 8
REWARD_LANE = 64
# Segments that are drawn one by one; more are drawn as far as a column can tell them apart.
MOST_SEGMENTS = 1500
MOST_CHANGES = 80


def number(value: float) -> str:
    """A coordinate, short."""
    return f"{value:.1f}".removesuffix(".0")


def across(values: Floats, low: float, high: float) -> Floats:
    """Positions in the box of values on an axis."""
    return np.asarray(WIDTH * (values - low) / (high - low) if high > low else np.zeros_like(values))


def steps(edges: Floats, heights: Floats, bottom: float) -> str:
    """The outline of an area of stretches with these heights above ``bottom``; equal neighbours are one stretch."""
    drawn = np.round(heights, 1)
    starts = np.flatnonzero(np.diff(drawn, prepend=np.nan) != 0)
    parts = [f"M{number(edges[0])} {number(bottom)}"]
    parts += [f"V{number(bottom - drawn[start])}H{number(edges[end])}" for start, end in _runs(starts, len(drawn))]
    return "".join(parts) + f"V{number(bottom)}Z"


def line(xs: Floats, ys: Floats) -> str:
    """A line through points, broken where one is missing."""
    parts, pen = [], "M"
    for x, y in zip(xs, ys, strict=True):
        if np.isnan(y):
            pen = "M"
            continue
        parts.append(f"{pen}{number(x)} {number(y)}")
        pen = "L"
    return "".join(parts)


def level_lines(edges: Floats, ys: Floats, joined: bool = True) -> str:
    """A level for each stretch, with risers between neighbours."""
    parts, before = [], False
    for low, high, y in zip(edges[:-1], edges[1:], ys, strict=True):
        if not np.isnan(y):
            parts.append(f"{'V' + number(y) if before and joined else f'M{number(low)} {number(y)}'}H{number(high)}")
        before = not np.isnan(y)
    return "".join(parts)


def states_drawing(summary: StatesSummary, mean_rewards: Floats | None) -> dict[str, Any]:
    """The states along time: a strip of segments, a lane for each state, the mean reward below."""
    bands, used = summary.bands, summary.in_use
    low, high = float(bands.edges[0]), float(bands.edges[-1])
    edges, shares = across(bands.edges, low, high), np.nan_to_num(bands.shares)
    known = mean_rewards is not None and np.isfinite(mean_rewards).any()
    alone = summary.n_states == 1 and known  # then the rewards are all that changes
    strip = [] if summary.segments is None or alone else _strip(summary, low, high)
    y, lanes, shapes = (STRIP + GAP if strip else 0), [], []
    shapes += [
        f'<rect class="s{state}" x="{number(x)}" y="0" width="{number(max(end - x, 0.4))}" height="{STRIP}"/>'
        for x, end, state in strip
    ]
    first_lane = y
    for state in [] if alone else used:
        bottom = y + LABEL + LANE
        lanes.append({"state": state, "top": y})
        shapes.append(f'<path class="floor" d="M0 {bottom}H1000"/>')
        shapes.append(f'<path class="s{state}" d="{steps(edges, LANE * shares[:, state], bottom)}"/>')
        y = bottom + GAP
    rewards = None
    if mean_rewards is not None and known:
        least, most = float(np.nanmin(mean_rewards)), float(np.nanmax(mean_rewards))
        room, bottom = (most - least) or 1.0, y + LABEL + REWARD_LANE
        heights = bottom - 2 - (REWARD_LANE - 4) * (mean_rewards - least) / room
        middles = (edges[:-1] + edges[1:]) / 2
        shapes.append(f'<path class="floor" d="M0 {bottom}H1000"/>')
        shapes.append(f'<path class="line" d="{line(middles, heights)}"/>')
        rewards, y = {"top": y, "least": least, "most": most}, bottom + GAP
    changes = _changes(summary, low, high, first_lane, y - GAP)
    return {
        "height": y - GAP,
        "svg": Markup("".join([*changes, *shapes])),
        "lanes": lanes,
        "rewards": rewards,
        "numbers": [
            {"state": state, "x": (x + end) / 20, "width": (end - x) / 10} for x, end, state in strip if end - x > 12
        ],
        "low": low,
        "high": high,
    }


def _strip(summary: StatesSummary, low: float, high: float) -> list[tuple[float, float, int]]:
    """Start, end and state of every segment in the box; of too many, as the columns have them."""
    segments = summary.segments
    assert segments is not None, "asked of one chain"
    if len(segments.starts) <= MOST_SEGMENTS:
        starts, ends = (across(summary.axis.at(each), low, high) for each in (segments.starts, segments.ends))
        return list(zip(starts.tolist(), ends.tolist(), segments.states.tolist(), strict=True))
    likeliest = np.argmax(np.nan_to_num(summary.bands.shares), axis=1)
    edges = across(summary.bands.edges, low, high)
    firsts = np.flatnonzero(np.diff(likeliest, prepend=-1))
    return [(float(edges[a]), float(edges[b]), int(likeliest[a])) for a, b in _runs(firsts, len(likeliest))]


def _changes(summary: StatesSummary, low: float, high: float, top: float, bottom: float) -> list[str]:
    """Where each change lies with confidence, as a faint column behind the lanes."""
    if len(summary.changes) > MOST_CHANGES:
        return []
    found = []
    for change in summary.changes:
        ends = (change.round, change.round) if change.low is None or change.high is None else (change.low, change.high)
        x, end = across(summary.axis.at(ends), low, high)
        found.append(
            f'<rect class="change" x="{number(x)}" y="{top}" width="{number(max(end - x, 0.6))}" '
            f'height="{number(bottom - top)}"/>'
        )
    return found


def _runs(starts: Any, end: int) -> list[tuple[int, int]]:
    return list(pairwise([*np.asarray(starts).tolist(), end]))


def dots(places: Sequence[tuple[float, float, float, int, bool]], height: float) -> Markup:
    """Means with whiskers, one below the other: (low, mean, high, state, hollow) in shares of the width."""
    found = []
    for i, (low, mean, high, state, hollow) in enumerate(places):
        y = height * (i + 0.5) / len(places)
        found.append(f'<path class="w{state} whisker" d="M{number(1000 * low)} {number(y)}H{number(1000 * high)}"/>')
        found.append(f'<path class="w{state} dot{" few" if hollow else ""}" d="M{number(1000 * mean)} {number(y)}h0"/>')
    return Markup("".join(found))
