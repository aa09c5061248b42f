"""Whether states follow the hour of the day or week; if so, the hour as a context may replace them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seachange.protocols import Floats, Ints

HOUR, HOURS, DAYS = 3_600.0, 24, 7
# Days, or weeks, needed for the analysis.
MIN_PERIODS = 3


@dataclass(frozen=True)
class Clock:
    """How well the hour predicts the state of a round, measured on other days or weeks."""

    period: str  # "day" or "week"
    accuracy: float  # share of rounds in the most common state of their hour in other periods
    baseline: float  # share of rounds in the most common state overall

    @property
    def followed(self) -> bool:
        """Whether the hour removes more than half of the baseline's errors."""
        return self.accuracy - self.baseline > 0.5 * (1 - self.baseline)

    def __str__(self) -> str:
        """Two sentences for people."""
        where = "on other days" if self.period == "day" else "in other weeks"
        return (
            f"States follow the hour of the {self.period}: {self.accuracy:.0%} of rounds are in the most common state "
            f"of their hour {where} ({self.baseline:.0%} are in the most common state overall). With the hour as a "
            "context, a single policy may do as well."
        )


def clock_of(seconds: Floats, states: Ints) -> Clock | None:
    """How well the hour of the day predicts states, or that of the week if it is better; None with too few days.

    ``seconds`` (n,) count from some midnight; the week may begin on any day.
    """
    hours = np.floor(seconds / HOUR).astype(np.int64)
    found = [_clock(hours, states, period, length) for period, length in (("day", HOURS), ("week", DAYS * HOURS))]
    return max((clock for clock in found if clock is not None), key=lambda clock: clock.accuracy, default=None)


def _clock(hours: Ints, states: Ints, period: str, length: int) -> Clock | None:
    periods, which = np.unique(hours // length, return_inverse=True)
    if len(periods) < MIN_PERIODS:
        return None
    n_states = int(states.max()) + 1
    cells = (which.reshape(-1) * length + hours % length) * n_states + states
    counts = np.bincount(cells, minlength=len(periods) * length * n_states).reshape(len(periods), length, n_states)
    elsewhere, overall = counts.sum(axis=0) - counts, counts.sum(axis=(0, 1))
    guesses = np.where(elsewhere.any(axis=2), elsewhere.argmax(axis=2), overall.argmax())
    accuracy = np.take_along_axis(counts, guesses[..., None], axis=2).sum() / len(states)
    return Clock(period, float(accuracy), float(overall.max() / len(states)))
