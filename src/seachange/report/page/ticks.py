"""Round numbers and dates along an axis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

from seachange.report.timeline import AxisKind

SECOND_STEPS = (
    1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 2 * 86400, 7 * 86400, 14 * 86400,
)  # fmt: skip
MONTH_STEPS = (1, 2, 3, 6, 12, 24, 60, 120)
DAY = 86_400
# Years that calendars know.
CALENDAR = (-62_135_596_800, 253_402_300_799)


def round_ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """At most so many round numbers from ``low`` to ``high``, and how they are written."""
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
    """Ticks of an axis of time: dates where it has them, else round numbers."""
    if kind != "date" or low < CALENDAR[0] or high > CALENDAR[1]:
        return round_ticks(low, high, most)
    step = next((step for step in SECOND_STEPS if (high - low) / step <= most), None)
    if step is None:
        return _months(low, high, most)
    # Weeks begin on Mondays; the first of January 1970 was a Thursday.
    shift = 3 * DAY if step % (7 * DAY) == 0 else 0
    first = int(np.ceil((low + shift) / step))
    values = [step * i - shift for i in range(first, int((high + shift) // step) + 1)]
    return [(float(value), _said(value, step)) for value in values]


def _said(value: int, step: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)
    if value % DAY == 0:
        return f"{moment.day} {moment:%b}"
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
