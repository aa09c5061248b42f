"""Alerts: what a deployment has noticed since the log it was learned from."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from seachange.kernels.monitors import (
    CLOSED,
    DRIFT,
    DRIFTED,
    OPENED,
    ROUNDS,
    SHORT,
    SHORTFALL,
)
from seachange.protocols import Floats

Kind = Literal["new regime", "known again", "drift", "shortfall"]
PLACES: tuple[tuple[Kind, int], ...] = (("new regime", OPENED), ("known again", CLOSED), ("shortfall", SHORTFALL))


@dataclass(frozen=True)
class Alert:
    """One thing that has changed."""

    kind: Kind
    since: int  # the round from which on it holds
    state: int | None = None  # that has drifted

    def __str__(self) -> str:
        """A sentence for people."""
        return {
            "new regime": f"New regime since round {self.since:,}: no state of the log explains these rewards.",
            "known again": f"Since round {self.since:,}, a state of the log explains the rewards again.",
            "drift": f"State {self.state} has changed since round {self.since:,}: rewards differ from the log.",
            "shortfall": f"Since round {self.since:,}, rewards have been lower than the states of the log predict.",
        }[self.kind]


def monitors_of(n_states: int) -> Floats:
    """What the kernel ``watch`` starts from."""
    monitors = np.full(DRIFTED + n_states, -1.0)
    monitors[[ROUNDS, DRIFT, SHORT]] = 0.0
    return monitors


def alerts_of(monitors: Floats) -> list[Alert]:
    """The alerts that hold, oldest first."""
    found = [Alert("drift", int(since), z) for z, since in enumerate(monitors[DRIFTED:]) if since >= 0]
    found += [Alert(kind, int(monitors[place])) for kind, place in PLACES if monitors[place] >= 0]
    return sorted(found, key=lambda alert: alert.since)
