"""Values by period as a figure: levels with their intervals, and what comes next."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from seachange.protocols import Floats
from seachange.report.over_time import Course, Series
from seachange.report.page.drawing import across, level_lines, number
from seachange.report.page.ticks import round_ticks

HEIGHT, MARGIN = 240.0, 10.0
# Intervals that reach further than so many times the spread of all values are cut off by the figure.
FURTHEST = 1.5
# Room for the numbers beside the figure: of a sign, and between them and the figure, in the size of the page's type.
SIGN, BESIDE = 0.46, 0.6


def course_drawing(course: Course) -> dict[str, Any]:
    """Levels of each policy by period; a band is an interval."""
    low, end = float(course.edges[0]), float(course.edges[-1])
    width = (end - low) / len(course.logging.values)
    high = end + (width if course.forecast is not None else 0.0)
    edges = across(course.edges, low, high)
    least, most = _range(course)

    def up(values: Floats | float) -> Floats:
        inside = np.clip(np.asarray(values, dtype=np.float64), least, most)
        return np.asarray(HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (inside - least) / (most - least))

    ticks = [(float(up(value)), said) for value, said in round_ticks(least, most, 5)]
    shapes = [f'<path class="grid" d="M0 {number(y)}H1000"/>' for y, _ in ticks]
    main = course.switching if course.switching is not None else course.single
    if main is not None:
        shapes += [
            f'<rect class="interval" x="{number(x)}" y="{number(top)}" width="{number(right - x)}" '
            f'height="{number(bottom - top)}"/>'
            for x, right, top, bottom in zip(edges[:-1], edges[1:], up(main.high), up(main.low), strict=True)
            if not np.isnan(top)
        ]
    shapes.append(f'<path class="logging" d="{level_lines(edges, up(course.logging.values))}"/>')
    if course.single is not None:
        shapes.append(f'<path class="single" d="{level_lines(edges, up(course.single.values))}"/>')
    if course.switching is not None:
        shapes.append(f'<path class="switching" d="{level_lines(edges, up(course.switching.values))}"/>')
    if course.forecast is not None:
        told = course.forecast
        x, top, bottom, y = float(edges[-1]), float(up(told.high)), float(up(told.low)), float(up(told.value))
        shapes.append(
            f'<rect class="coming" x="{number(x)}" y="{number(top)}" width="{number(1000 - x)}" '
            f'height="{number(bottom - top)}"/>'
        )
        shapes.append(f'<path class="foretold" d="M{number(x)} {number(y)}H1000"/>')
    return {
        "height": HEIGHT,
        "svg": Markup("".join(shapes)),
        "ticks": ticks,
        "axis": round(SIGN * max((len(said) for _, said in ticks), default=0) + BESIDE, 2),
        "gaps": main is not None and bool(np.isnan(main.values).any()),
        "low": low,
        "high": high,
        "end": end,
    }


def _range(course: Course) -> tuple[float, float]:
    """From the least to the most that is shown: all values, and intervals as far as they are no wilder than those."""
    series = [each for each in (course.switching, course.single, course.logging) if each is not None]
    values = np.concatenate([each.values for each in series])
    values = values[np.isfinite(values)]
    if course.forecast is not None:
        values = np.append(values, course.forecast.value)
    if len(values) == 0:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    spread = (high - low) or abs(high) or 1.0
    ends = np.concatenate([_ends(each) for each in series] + [_forecast_ends(course)])
    near = ends[(ends > low - FURTHEST * spread) & (ends < high + FURTHEST * spread)]
    reach = np.concatenate([values, near])
    room = 0.04 * float(np.ptp(reach)) or 0.5 * spread
    return float(reach.min()) - room, float(reach.max()) + room


def _ends(series: Series) -> Floats:
    ends = np.concatenate([series.low, series.high])
    return np.asarray(ends[np.isfinite(ends)])


def _forecast_ends(course: Course) -> Floats:
    told = course.forecast
    return np.array([] if told is None else [told.low, told.high])
