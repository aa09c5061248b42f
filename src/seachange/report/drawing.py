"""Ticks and SVG shapes of the report's figures."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup

from seachange.analysis.states_summary import StatesSummary
from seachange.analysis.timeline import AxisKind
from seachange.analysis.value_series import Series, ValueSeries
from seachange.protocols import Floats

# Ticks that fit on a phone.
TICKS = 5
SECOND_STEPS = (
    1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 2 * 86400, 7 * 86400, 14 * 86400,
)  # fmt: skip
MONTH_STEPS = (1, 2, 3, 6, 12, 24, 60, 120)
DAY = 86_400
# The range of Python dates.
CALENDAR = (-62_135_596_800, 253_402_300_799)


def round_ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """At most ``most`` round numbers from ``low`` to ``high``, with their labels."""
    if not high > low:
        return [(low, f"{low:,g}")]
    rough = (high - low) / most
    size = 10 ** np.floor(np.log10(rough))
    step = float(next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * (1 - 1e-9)))
    decimals = int(max(-np.floor(np.log10(step) + 1e-9), 0))
    first = int(np.ceil(low / step - 1e-9))
    found = [step * i for i in range(first, int(np.floor(high / step + 1e-9)) + 1)]
    return [(value, f"{value:z,.{decimals}f}".replace("-", "−")) for value in found]


def time_ticks(kind: AxisKind, low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Ticks of a time axis: dates if it has them, else round numbers."""
    if kind != "date" or low < CALENDAR[0] or high > CALENDAR[1]:
        return round_ticks(low, high, most)
    step = next((step for step in SECOND_STEPS if (high - low) / step <= most), None)
    if step is None:
        return _months(low, high, most)
    # Weeks begin on Mondays; the first of January 1970 was a Thursday.
    shift = 3 * DAY if step % (7 * DAY) == 0 else 0
    first = int(np.ceil((low + shift) / step))
    values = [step * i - shift for i in range(first, int((high + shift) // step) + 1)]
    return [(float(value), _label(value, step)) for value in values]


def axis_ticks(kind: AxisKind, drawing: dict[str, Any]) -> list[tuple[float, str]]:
    """Ticks of a drawing in percent of its width; the script draws more if there is room."""
    low, high = drawing["low"], drawing["high"]
    return [(100 * (value - low) / (high - low), text) for value, text in time_ticks(kind, low, high, TICKS)]


def _label(value: int, step: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)
    if value % DAY == 0:
        return f"{moment:%b} {moment.day}"
    return f"{moment:%H:%M}" if step % 60 == 0 else f"{moment:%H:%M:%S}"


def _months(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """The first days of months."""
    start, end = (datetime.fromtimestamp(each, tz=UTC) for each in (low, high))
    first, last = 12 * start.year + start.month - 1, 12 * end.year + end.month - 1
    step = next((step for step in MONTH_STEPS if (last - first) / step <= most), MONTH_STEPS[-1])
    found = []
    for count in range(-(-first // step) * step, last + 1, step):
        moment = datetime(count // 12, count % 12 + 1, 1, tzinfo=UTC)
        if low <= moment.timestamp() <= high:
            found.append((moment.timestamp(), f"{moment:%Y}" if step >= 12 else f"{moment:%b %Y}"))
    return found


WIDTH = 1000.0
# Heights of the strip of segments, of a lane's label, of the lane, and of the gap below it.
STRIP, LABEL, LANE, GAP = 22, 20, 30, 8
REWARD_LANE = 64
# Up to this many segments are drawn one by one; more are drawn by column.
MOST_SEGMENTS = 1500
MOST_CHANGES = 80


def number(value: float) -> str:
    """A coordinate as short text."""
    return f"{value:.1f}".removesuffix(".0")


def across(values: Floats, low: float, high: float) -> Floats:
    """Horizontal positions of values in the box."""
    return np.asarray(WIDTH * (values - low) / (high - low) if high > low else np.zeros_like(values))


def steps(edges: Floats, heights: Floats, bottom: float) -> str:
    """The outline of bars with these heights above ``bottom``; equal neighbors are merged."""
    drawn = np.round(heights, 1)
    starts = np.flatnonzero(np.diff(drawn, prepend=np.nan) != 0)
    parts = [f"M{number(edges[0])} {number(bottom)}"]
    parts += [f"V{number(bottom - drawn[start])}H{number(edges[end])}" for start, end in _runs(starts, len(drawn))]
    return "".join(parts) + f"V{number(bottom)}Z"


def line(xs: Floats, ys: Floats) -> str:
    """A line through points, interrupted at missing ones."""
    parts, pen = [], "M"
    for x, y in zip(xs, ys, strict=True):
        if np.isnan(y):
            pen = "M"
            continue
        parts.append(f"{pen}{number(x)} {number(y)}")
        pen = "L"
    return "".join(parts)


def level_lines(edges: Floats, ys: Floats, joined: bool = True) -> str:
    """A level for each interval, with risers between neighbors."""
    parts, before = [], False
    for low, high, y in zip(edges[:-1], edges[1:], ys, strict=True):
        if not np.isnan(y):
            parts.append(f"{'V' + number(y) if before and joined else f'M{number(low)} {number(y)}'}H{number(high)}")
        before = not np.isnan(y)
    return "".join(parts)


def states_drawing(summary: StatesSummary, mean_rewards: Floats | None) -> dict[str, Any]:
    """The states over time: a strip of segments, a lane for each state, and the mean reward below."""
    bands, used = summary.bands, summary.in_use
    low, high = float(bands.edges[0]), float(bands.edges[-1])
    edges, shares = across(bands.edges, low, high), np.nan_to_num(bands.shares)
    known = mean_rewards is not None and np.isfinite(mean_rewards).any()
    alone = summary.n_states == 1 and known  # then only the rewards change
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
        span, bottom = (most - least) or 1.0, y + LABEL + REWARD_LANE
        heights = bottom - 2 - (REWARD_LANE - 4) * (mean_rewards - least) / span
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
    """Start, end and state of every segment in the box, by column if there are too many."""
    segments = summary.segments
    assert segments is not None, "there is one chain"
    if len(segments.starts) <= MOST_SEGMENTS:
        starts, ends = (across(summary.axis.at(each), low, high) for each in (segments.starts, segments.ends))
        return list(zip(starts.tolist(), ends.tolist(), segments.states.tolist(), strict=True))
    likeliest = np.argmax(np.nan_to_num(summary.bands.shares), axis=1)
    edges = across(summary.bands.edges, low, high)
    firsts = np.flatnonzero(np.diff(likeliest, prepend=-1))
    return [(float(edges[a]), float(edges[b]), int(likeliest[a])) for a, b in _runs(firsts, len(likeliest))]


def _changes(summary: StatesSummary, low: float, high: float, top: float, bottom: float) -> list[str]:
    """The interval of each change, as a faint column behind the lanes."""
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


def dots(marks: Sequence[tuple[float, float, float, int, bool]], height: float) -> Markup:
    """Means with whiskers, one below the other: (low, mean, high, state, faint) in shares of the width."""
    found = []
    for i, (low, mean, high, state, faint) in enumerate(marks):
        y = height * (i + 0.5) / len(marks)
        found.append(f'<path class="w{state} whisker" d="M{number(1000 * low)} {number(y)}H{number(1000 * high)}"/>')
        found.append(f'<path class="w{state} dot{" few" if faint else ""}" d="M{number(1000 * mean)} {number(y)}h0"/>')
    return Markup("".join(found))


HEIGHT, MARGIN = 240.0, 10.0
# Intervals that reach further than this many times the spread of all values are cut off.
FURTHEST = 1.5
# Space for the numbers beside the figure: per character, and between them and the figure, in rem.
CHARACTER, BESIDE = 0.46, 0.6


def values_drawing(series: ValueSeries) -> dict[str, Any]:
    """The level of each policy by period, with intervals as bands."""
    low, end = float(series.edges[0]), float(series.edges[-1])
    width = (end - low) / len(series.logging.values)
    high = end + (width if series.forecast is not None else 0.0)
    edges = across(series.edges, low, high)
    least, most = _range(series)

    def up(values: Floats | float) -> Floats:
        inside = np.clip(np.asarray(values, dtype=np.float64), least, most)
        return np.asarray(HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (inside - least) / (most - least))

    ticks = [(float(up(value)), text) for value, text in round_ticks(least, most, 5)]
    shapes = [f'<path class="grid" d="M0 {number(y)}H1000"/>' for y, _ in ticks]
    main = series.switching if series.switching is not None else series.single
    if main is not None:
        shapes += [
            f'<rect class="interval" x="{number(x)}" y="{number(top)}" width="{number(right - x)}" '
            f'height="{number(bottom - top)}"/>'
            for x, right, top, bottom in zip(edges[:-1], edges[1:], up(main.high), up(main.low), strict=True)
            if not np.isnan(top)
        ]
    shapes.append(f'<path class="logging" d="{level_lines(edges, up(series.logging.values))}"/>')
    if series.single is not None:
        shapes.append(f'<path class="single" d="{level_lines(edges, up(series.single.values))}"/>')
    if series.switching is not None:
        shapes.append(f'<path class="switching" d="{level_lines(edges, up(series.switching.values))}"/>')
    if series.forecast is not None:
        found = series.forecast
        x, top, bottom, y = float(edges[-1]), float(up(found.high)), float(up(found.low)), float(up(found.value))
        shapes.append(
            f'<rect class="coming" x="{number(x)}" y="{number(top)}" width="{number(1000 - x)}" '
            f'height="{number(bottom - top)}"/>'
        )
        shapes.append(f'<path class="forecast" d="M{number(x)} {number(y)}H1000"/>')
    return {
        "height": HEIGHT,
        "svg": Markup("".join(shapes)),
        "ticks": ticks,
        "axis": round(CHARACTER * max((len(text) for _, text in ticks), default=0) + BESIDE, 2),
        "gaps": main is not None and bool(np.isnan(main.values).any()),
        "low": low,
        "high": high,
        "end": end,
    }


def _range(series: ValueSeries) -> tuple[float, float]:
    """The vertical range: all values, and intervals unless they reach too far beyond them."""
    shown = [each for each in (series.switching, series.single, series.logging) if each is not None]
    values = np.concatenate([each.values for each in shown])
    values = values[np.isfinite(values)]
    if series.forecast is not None:
        values = np.append(values, series.forecast.value)
    if len(values) == 0:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    spread = (high - low) or abs(high) or 1.0
    forecast = [] if series.forecast is None else [series.forecast.low, series.forecast.high]
    ends = np.concatenate([*(_ends(each) for each in shown), np.array(forecast)])
    near = ends[(ends > low - FURTHEST * spread) & (ends < high + FURTHEST * spread)]
    reach = np.concatenate([values, near])
    margin = 0.04 * float(np.ptp(reach)) or 0.5 * spread
    return float(reach.min()) - margin, float(reach.max()) + margin


def _ends(series: Series) -> Floats:
    ends = np.concatenate([series.low, series.high])
    return np.asarray(ends[np.isfinite(ends)])
