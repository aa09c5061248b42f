"""The time axis, and the share of each state in every interval of it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from seachange.log.bandit_log import BanditLog
from seachange.log.fingerprint import seconds_of
from seachange.protocols import Floats, Ints
from seachange.states.labels import StateLabels, chains, places_in_chains

AxisKind = Literal["date", "seconds", "round", "round of its sequence"]
MOST_COLUMNS = 2000  # more columns than this cannot be seen in a figure
# Numbers in this range are read as Unix time in seconds (1985 to 2128), and similarly in smaller units.
UNIX_SECONDS = (5e8, 5e9)
UNIX_UNITS = (1.0, 1e3, 1e6, 1e9)
LONG_SECONDS = 1e8  # larger numbers of seconds are printed in scientific notation
UNITS = ((86400 * 365.25, "years"), (86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
DAY = 86_400
CALENDAR = (-62_135_596_800, 253_402_300_799)  # the range of Python dates
# Formats of dates by the number of days between ticks.
DATE_FORMATS = {365: "%Y", 28: "%b %Y", 1: "%b %d", 1 / 1440: "%H:%M", 0: "%H:%M:%S"}


@dataclass(frozen=True, eq=False)
class TimeAxis:
    """Positions of rounds on the axis: their time, or their number if the log has no times.

    Dates are seconds since 1970. Rounds that share a time are spread evenly up to the next time.
    """

    kind: AxisKind
    rounds: Floats  # knots: round numbers …
    values: Floats  # … and their positions
    seconds_per_round: float | None  # mean, within sequences

    @property
    def timed(self) -> bool:
        """Whether the log has times."""
        return self.kind in ("date", "seconds")

    @property
    def ends(self) -> tuple[float, float]:
        """The times of the first and the last round, if the log has times; the axis extends a little further."""
        return float(self.values[0]), float(self.values[-2])

    def at(self, rounds: npt.ArrayLike) -> Floats:
        """Positions of rounds; a round ends where the next one begins."""
        return np.asarray(np.interp(np.asarray(rounds, dtype=np.float64), self.rounds, self.values))

    def format(self, value: float) -> str:
        """A position as text."""
        if self.kind == "date":
            return str(np.datetime64(round(value), "s")).replace("T", " ")
        return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.4g}"

    def format_duration(self, rounds: float) -> str:
        """The duration of this many rounds as text."""
        if self.seconds_per_round is None:
            return ""
        seconds = rounds * self.seconds_per_round
        if self.kind == "seconds":
            return f"{seconds:,.0f} s" if 100 <= seconds < LONG_SECONDS else f"{seconds:.3g} s"
        size, unit = next((each for each in UNITS if seconds >= 1.5 * each[0]), UNITS[-1])
        return f"{seconds / size:,.3g} {unit}" if seconds / size < 1000 else f"{seconds / size:,.0f} {unit}"


@dataclass(frozen=True, eq=False)
class Bands:
    """Mean probability of each state over intervals of the axis."""

    edges: Floats  # (C + 1,) positions on the axis
    shares: Floats  # (C, L); NaN for an interval without rounds
    rounds: Ints  # (C,) rounds in each interval

    def coarser(self, n_columns: int) -> Self:
        """The same in ``n_columns`` intervals of equal length; one without rounds takes the shares around it."""
        edges = np.linspace(self.edges[0], self.edges[-1], n_columns + 1)
        middles = (self.edges[:-1] + self.edges[1:]) / 2
        cell = np.clip(np.searchsorted(edges, middles, side="right") - 1, 0, n_columns - 1)
        rounds = np.bincount(cell, self.rounds, n_columns).astype(np.int64)
        weighted = np.where(self.rounds[:, None] > 0, self.shares, 0.0) * self.rounds[:, None]
        sums = np.stack([np.bincount(cell, column, n_columns) for column in weighted.T], axis=1)
        around = np.searchsorted(self.edges, (edges[:-1] + edges[1:]) / 2, side="right") - 1
        nearest = self.shares[np.clip(around, 0, len(self.rounds) - 1)]
        shares = np.where(rounds[:, None] > 0, sums / np.maximum(rounds, 1)[:, None], nearest)
        return type(self)(edges, shares, rounds)


def dates_or_seconds(times: npt.NDArray[Any]) -> tuple[Literal["date", "seconds"], Floats]:
    """Times in seconds, and whether they are dates: datetimes, or numbers that look like Unix time in some unit."""
    seconds = seconds_of(times)
    if times.dtype.kind == "M":
        return "date", seconds
    low, high = seconds.min() / UNIX_SECONDS[0], seconds.max() / UNIX_SECONDS[1]
    unit = next((unit for unit in UNIX_UNITS if low >= unit >= high), None)
    return ("seconds", seconds) if unit is None else ("date", seconds / unit)


def time_axis(log: BanditLog, n_chains: int) -> TimeAxis:
    """The axis of a log; with several sequences and no times, rounds are counted within each sequence."""
    if log.times is None:
        knots = np.array([0.0, _ages(log).max() + 1])
        return TimeAxis("round" if n_chains == 1 else "round of its sequence", knots, knots, None)
    kind, seconds = dates_or_seconds(log.times)
    order, starts = chains(log)
    steps = np.diff(seconds[order])[~starts[1:]]
    pace = float(steps.mean()) if len(steps) else 0.0
    distinct, first = np.unique(seconds if n_chains == 1 else np.sort(seconds), return_index=True)
    last = pace if n_chains == 1 else float(np.ptp(distinct)) / len(log)  # assumed length of the last round
    end = distinct[-1] + (last if last > 0 else 1.0)
    return TimeAxis(kind, np.append(first, len(log)).astype(np.float64), np.append(distinct, end), pace)


def bands(log: BanditLog, labels: StateLabels, axis: TimeAxis, most: int = MOST_COLUMNS) -> Bands:
    """State shares over time: intervals of equal rounds for one chain, of equal length for several sequences."""
    n = len(log)
    if labels.n_chains == 1:
        firsts = np.unique(np.linspace(0, n, min(n, most) + 1).astype(np.int64))
        edges, columns = axis.at(firsts), np.repeat(np.arange(len(firsts) - 1), np.diff(firsts))
    else:
        positions = _ages(log).astype(np.float64) if log.times is None else dates_or_seconds(log.times)[1]
        low, high = axis.values[0], axis.values[-1]
        widest = most // 5 if log.times is not None else min(most // 5, int(high - low))
        edges = np.linspace(low, high, max(1, min(widest, n // 20)) + 1)
        columns = np.clip(np.searchsorted(edges, positions, side="right") - 1, 0, len(edges) - 2)
    n_columns = len(edges) - 1
    counts, probs = np.bincount(columns, minlength=n_columns), labels.state_probs
    parts = (labels.states == z if probs is None else probs[:, z] for z in range(labels.n_states))
    sums = np.stack([np.bincount(columns, part, n_columns) for part in parts], axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return Bands(edges, sums / counts[:, None], counts)


def _ages(log: BanditLog) -> Ints:
    """(n,) how many rounds of the same sequence came before each round."""
    order, starts = chains(log)
    return places_in_chains(np.flatnonzero(starts), len(log))[np.argsort(order)]


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
    from matplotlib.dates import AutoDateLocator

    start, end = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=each) for each in (low, high))
    days = AutoDateLocator(UTC, minticks=2, maxticks=most).tick_values(start, end)
    shown = [day for day in np.asarray(days).tolist() if low <= DAY * day <= high]
    apart = min(np.diff(shown), default=1)
    style = next(style for least, style in DATE_FORMATS.items() if apart >= least)
    return [(DAY * day, f"{datetime.fromtimestamp(round(DAY * day), tz=UTC):{style}}") for day in shown]
