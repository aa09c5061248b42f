"""Whether states follow the clock: then the hour, as a context, may do what they do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seachange.protocols import Floats, Ints

HOUR, HOURS, DAYS = 3_600.0, 24, 7
# Days that must have been seen before anything is said of the hour; of the week, as many weeks.
FEWEST = 3


@dataclass(frozen=True)
class Clock:
    """How well the clock tells the state of a round, judged on periods that did not say so."""

    period: str  # "day" or "week"
    told: float  # share of rounds whose state is the most common one of their hour in other periods
    most_common: float  # the same if nothing but the most common state is guessed

    @property
    def followed(self) -> bool:
        """Whether the hour tells most of what the most common state leaves open."""
        return self.told - self.most_common > 0.5 * (1 - self.most_common)

    def __str__(self) -> str:
        """In a sentence."""
        where = "on other days" if self.period == "day" else "in other weeks"
        return (
            f"The states follow the hour of the {self.period}: {self.told:.0%} of rounds are in the state that is most "
            f"common at their hour {where} ({self.most_common:.0%} in the most common one). With the hour as a context "
            "a single policy may do as well."
        )


def clock_of(seconds: Floats, states: Ints) -> Clock | None:
    """The hour of the day, or that of the week where it tells more; None where there are too few days.

    ``seconds`` (n,) since some midnight; the week may begin on any day.
    """
    hours = np.floor(seconds / HOUR).astype(np.int64)
    found = [_clock(hours, states, period, length) for period, length in (("day", HOURS), ("week", DAYS * HOURS))]
    return max((clock for clock in found if clock is not None), key=lambda clock: clock.told, default=None)


def _clock(hours: Ints, states: Ints, period: str, length: int) -> Clock | None:
    periods, which = np.unique(hours // length, return_inverse=True)
    if len(periods) < FEWEST:
        return None
    n_states = int(states.max()) + 1
    cells = (which.reshape(-1) * length + hours % length) * n_states + states
    counts = np.bincount(cells, minlength=len(periods) * length * n_states).reshape(len(periods), length, n_states)
    elsewhere, overall = counts.sum(axis=0) - counts, counts.sum(axis=(0, 1))
    guesses = np.where(elsewhere.any(axis=2), elsewhere.argmax(axis=2), overall.argmax())
    told = np.take_along_axis(counts, guesses[..., None], axis=2).sum() / len(states)
    return Clock(period, float(told), float(overall.max() / len(states)))
