"""Where a model comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from seachange.log.bandit_log import BanditLog, PropensitySource
from seachange.log.joint import JointFeatures
from seachange.log.recognition import remembered, share_known
from seachange.protocols import Floats

# Rounds of another log that happen to be like those remembered are fewer than this share.
BY_CHANCE = 0.1


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
    propensity_source: PropensitySource
    remembered: tuple[int, ...] = ()  # hashes of some of its rounds; none where they cannot be told apart

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
            propensity_source=log.propensity_source,
            remembered=remembered(log),
        )

    def overlap(self, log: BanditLog) -> str | None:
        """What of ``log`` the model may have learned from; None where nothing speaks for it."""
        if log.fingerprint() == self.fingerprint:
            return "the model was learned from this very log"
        share = share_known(log, self.remembered) or 0.0
        if share > BY_CHANCE:
            return f"about {share:.0%} of these rounds are among those that the model was learned from"
        span = self.seconds
        if log.times is None or span is None:
            return None
        times = seconds_of(log.times)
        # Not the last moment itself: a log is often cut between rounds of the same time.
        share = float(np.mean((times >= span[0]) & (times < span[1])))
        if share == 0 or self.time_range is None:
            return None
        told = f"{self.time_range[0]} to {self.time_range[1]}"
        return f"{share:.1%} of these rounds are from the time that the model was learned from ({told})"

    def knows(self, log: BanditLog) -> bool:
        """Whether it can be told if the model was learned from rounds of ``log``."""
        return share_known(log, self.remembered) is not None or not (log.times is None or self.time_range is None)

    @property
    def seconds(self) -> tuple[float, float] | None:
        """The time of its first and last round, in seconds; dates since 1970."""
        if self.time_range is None:
            return None
        try:
            first, last = map(float, self.time_range)
        except ValueError:
            first, last = seconds_of(np.array(self.time_range, dtype="datetime64[us]")).tolist()
        return first, last


def seconds_of(times: npt.NDArray[Any]) -> Floats:
    """Times in seconds; dates since 1970."""
    return times.astype("datetime64[us]").astype(np.int64) / 1e6 if times.dtype.kind == "M" else times.astype(float)
