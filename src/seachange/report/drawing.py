"""Ticks and SVG shapes of the report's figures."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from seachange.analysis.states_summary import StatesSummary
from seachange.analysis.timeline import AxisKind, round_ticks, time_ticks
from seachange.analysis.value_series import ValueSeries
from seachange.evaluation.future_values import Forecast
from seachange.protocols import Floats

TICKS = 5  # ticks that fit on a phone


def axis_ticks(kind: AxisKind, drawing: dict[str, Any]) -> list[tuple[float, str]]:
    """Ticks of a drawing in percent of its width; the script draws more if there is room."""
    low, high = drawing["low"], drawing["high"]
    return [(100 * (value - low) / (high - low), text) for value, text in time_ticks(kind, low, high, TICKS)]


class Scale:
    """Positions of ``values`` and their neighbors on an axis, in percent of its width."""

    def __init__(self, values: Sequence[float] | Floats, margin: float) -> None:
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        space = margin * (high - low) or 0.5 * abs(high) or 0.5
        self.low, self.high = low - space, high + space

    def at(self, value: float) -> float:
        """The position of a value."""
        return 100 * float(np.clip((value - self.low) / (self.high - self.low), 0, 1))

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Positions and labels of round numbers."""
        return [(self.at(value), text) for value, text in round_ticks(self.low, self.high, most)]


WIDTH = 1000.0
# Heights of the strip of segments, of a lane's label, of the lane, and of the gap below it.
STRIP, LABEL, LANE, GAP = 22, 20, 30, 8
REWARD_LANE = 64
MOST_SEGMENTS = 1500  # up to this many segments are drawn one by one; more are drawn by column
MOST_CHANGES = 80


def number(value: float) -> str:
    """A coordinate as short text."""
    return f"{value:.1f}".removesuffix(".0")


def across(values: Floats, low: float, high: float) -> Floats:
    """Horizontal positions of values in the box."""
    return np.asarray(WIDTH * (values - low) / (high - low) if high > low else np.zeros_like(values))


def _rect(kind: str, x: float, end: float, top: float, bottom: float) -> str:
    size = f'width="{number(end - x)}" height="{number(bottom - top)}"'
    return f'<rect class="{kind}" x="{number(x)}" y="{number(top)}" {size}/>'


def _path(kind: str, points: str) -> str:
    return f'<path class="{kind}" d="{points}"/>'


def _level(kind: str, y: float) -> str:
    return _path(kind, f"M0 {number(y)}H{number(WIDTH)}")


def _bars(edges: Floats, heights: Floats, bottom: float) -> str:
    """The outline of bars with these heights above ``bottom``; equal neighbors are merged."""
    drawn = np.round(heights, 1)
    starts = np.flatnonzero(np.diff(drawn, prepend=np.nan) != 0)
    runs = pairwise([*starts, len(drawn)])
    parts = [f"V{number(bottom - drawn[start])}H{number(edges[end])}" for start, end in runs]
    return f"M{number(edges[0])} {number(bottom)}{''.join(parts)}V{number(bottom)}Z"


def _line(xs: Floats, ys: Floats) -> str:
    """A line through points, interrupted at missing ones."""
    known = ~np.isnan(ys)
    pens = np.where(np.append(False, known[:-1]), "L", "M")
    return "".join(f"{pen}{number(x)} {number(y)}" for pen, x, y in zip(pens[known], xs[known], ys[known], strict=True))


def _levels(edges: Floats, ys: Floats) -> str:
    """A level for each interval, with risers between neighbors; none for missing ones."""
    known = ~np.isnan(ys)
    joined = np.append(False, known[:-1])
    return "".join(
        f"{f'V{number(y)}' if after else f'M{number(low)} {number(y)}'}H{number(high)}"
        for low, high, y, after in zip(edges[:-1][known], edges[1:][known], ys[known], joined[known], strict=True)
    )


def states_drawing(summary: StatesSummary, mean_rewards: Floats | None) -> dict[str, Any]:
    """The states over time: a strip of segments, a lane for each state, and the mean reward below."""
    bands, used = summary.bands, summary.in_use
    low, high = float(bands.edges[0]), float(bands.edges[-1])
    edges, shares = across(bands.edges, low, high), np.nan_to_num(bands.shares)
    known = mean_rewards is not None and np.isfinite(mean_rewards).any()
    alone = summary.n_states == 1 and known  # then only the rewards change
    strip = [] if summary.segments is None or alone else _strip(summary, low, high)
    shapes = [_rect(f"s{state}", x, max(end, x + 0.4), 0, STRIP) for x, end, state in strip]
    first_lane = y = STRIP + GAP if strip else 0
    lanes = []
    for state in [] if alone else used:
        bottom = y + LABEL + LANE
        lanes.append({"state": state, "top": y})
        shapes += [_level("floor", bottom), _path(f"s{state}", _bars(edges, LANE * shares[:, state], bottom))]
        y = bottom + GAP
    rewards = None
    if mean_rewards is not None and known:
        least, most = float(np.nanmin(mean_rewards)), float(np.nanmax(mean_rewards))
        span, bottom = (most - least) or 1.0, y + LABEL + REWARD_LANE
        heights = bottom - 2 - (REWARD_LANE - 4) * (mean_rewards - least) / span
        middles = (edges[:-1] + edges[1:]) / 2
        shapes += [_level("floor", bottom), _path("line", _line(middles, heights))]
        rewards, y = {"top": y, "least": least, "most": most}, bottom + GAP
    # The interval of each change, as a faint column behind the lanes.
    shown = summary.changes if len(summary.changes) <= MOST_CHANGES else ()
    rounds: Any = [(each.round, each.round) if each.low is None else (each.low, each.high) for each in shown]
    ends = across(summary.axis.at(np.reshape(rounds, (-1, 2))), low, high)
    changes = [_rect("change", x, max(end, x + 0.6), first_lane, y - GAP) for x, end in ends]
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
    assert summary.segments is not None, "there is one chain"
    starts, ends, states = summary.segments.values()
    if len(starts) <= MOST_SEGMENTS:
        places = (across(summary.axis.at(each), low, high).tolist() for each in (starts, ends))
        return list(zip(*places, states.tolist(), strict=True))
    likeliest = np.argmax(np.nan_to_num(summary.bands.shares), axis=1)
    edges = across(summary.bands.edges, low, high)
    runs = pairwise([*np.flatnonzero(np.diff(likeliest, prepend=-1)), len(likeliest)])
    return [(float(edges[first]), float(edges[end]), int(likeliest[first])) for first, end in runs]


def dots(marks: Sequence[tuple[float, float, float, int, bool]], height: float) -> Markup:
    """Means with whiskers, one below the other: (low, mean, high, state, faint) in percent of the width."""
    shapes = []
    for i, (low, mean, high, state, faint) in enumerate(marks):
        left, x, right = (number(10 * each) for each in (low, mean, high))
        y = number(height * (i + 0.5) / len(marks))
        shapes.append(_path(f"w{state} whisker", f"M{left} {y}H{right}"))
        shapes.append(_path(f"w{state} dot{' few' if faint else ''}", f"M{x} {y}h0"))
    return Markup("".join(shapes))


HEIGHT, MARGIN = 240.0, 10.0
FURTHEST = 1.5  # intervals that reach further than this many times the spread of all values are cut off
# Space for the numbers beside the figure: per character, and between them and the figure, in rem.
CHARACTER, BESIDE = 0.46, 0.6


def values_drawing(series: ValueSeries) -> dict[str, Any]:
    """The level of each policy by period, with intervals as bands."""
    low, end = float(series.edges[0]), float(series.edges[-1])
    width = (end - low) / len(series.logging.values)
    high = end + (width if series.forecast is not None else 0.0)
    edges = across(series.edges, low, high)
    least, most = _range(series)

    def up(values: npt.ArrayLike) -> Floats:
        inside = np.clip(np.asarray(values, dtype=np.float64), least, most)
        return np.asarray(HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (inside - least) / (most - least))

    ticks = [(float(up(value)), text) for value, text in round_ticks(least, most, 5)]
    shapes = [_level("grid", y) for y, _ in ticks]
    main, coming = series.switching or series.single, series.forecast
    if main is not None:
        corners = zip(edges[:-1], edges[1:], up(main.high), up(main.low), strict=True)
        shapes += [_rect("interval", *each) for each in corners if not np.isnan(each).any()]
    named = (("logging", series.logging), ("single", series.single), ("switching", series.switching))
    shapes += [_path(kind, _levels(edges, up(each.values))) for kind, each in named if each is not None]
    if coming is not None:
        x, (top, bottom, y) = edges[-1], up([coming.high, coming.low, coming.value])
        shapes += [_rect("coming", x, WIDTH, top, bottom), _path("forecast", f"M{number(x)} {number(y)}H1000")]
    return {
        "height": HEIGHT,
        "svg": Markup("".join(shapes)),
        "ticks": ticks,
        "axis": round(CHARACTER * max((len(text) for _, text in ticks), default=0) + BESIDE, 2),
        "gaps": main is not None and bool(np.isnan(main.values).any()),
        "low": low,
        "high": high,
    }


def _range(series: ValueSeries) -> tuple[float, float]:
    """The vertical range: all values, and intervals unless they reach too far beyond them."""
    shown = [each for each in (series.switching, series.single, series.logging, series.forecast) if each is not None]
    values = np.hstack([each.value if isinstance(each, Forecast) else each.values for each in shown])
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    spread = (high - low) or abs(high) or 1.0
    ends = np.hstack([end for each in shown for end in (each.low, each.high)])
    near = ends[(ends > low - FURTHEST * spread) & (ends < high + FURTHEST * spread)]
    reach = np.append(values, near)
    margin = 0.04 * float(np.ptp(reach)) or 0.5 * spread
    return float(reach.min()) - margin, float(reach.max()) + margin
