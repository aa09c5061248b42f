"""Where a model comes from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seachange.log.bandit_log import BanditLog
from seachange.log.joint import JointFeatures


@dataclass(frozen=True)
class Provenance:
    """The log a model was learned from."""

    fingerprint: str
    n_rounds: int
    joint: JointFeatures
    action_names: tuple[str, ...]
    context_names: tuple[str, ...]
    mean_reward: float
    reward_range: tuple[float, float]  # (0, 1), or least to largest where rewards leave it
    time_range: tuple[str, str] | None

    @classmethod
    def of(cls, log: BanditLog) -> Provenance:
        """Provenance from ``log``."""
        rewards = log.arrays.rewards
        low, high = float(np.nanmin(rewards)), float(np.nanmax(rewards))
        if low >= 0 and high <= 1:
            low, high = 0.0, 1.0
        return cls(
            fingerprint=log.fingerprint(),
            n_rounds=len(log),
            joint=log.joint,
            action_names=log.action_names,
            context_names=log.context_names,
            mean_reward=float(np.nanmean(rewards)),
            reward_range=(low, high if high > low else low + 1.0),
            time_range=None if log.times is None else (str(log.times.min()), str(log.times.max())),
        )

    def overlap(self, log: BanditLog) -> str | None:
        """What of ``log`` the model may have learned from; None where nothing speaks for it."""
        if log.fingerprint() == self.fingerprint:
            return "the model was learned from this very log"
        if log.times is None or self.time_range is None:
            return None
        try:
            first, last = (np.array(moment, dtype=log.times.dtype) for moment in self.time_range)
        except ValueError:
            return None
        # Not the last moment itself: a log is often cut between rounds of the same time.
        share = float(np.mean((log.times >= first) & (log.times < last)))
        if share == 0:
            return None
        times = f"{self.time_range[0]} to {self.time_range[1]}"
        return f"{share:.1%} of these rounds are from the time that the model was learned from ({times})"
