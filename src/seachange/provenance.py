"""Provenance: the log that a model was learned from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from seachange.errors import ModelFileError
from seachange.log.bandit_log import BanditLog, PropensitySource
from seachange.log.fingerprint import REMEMBERED, remembered, share_known
from seachange.log.joint_features import JointFeatures
from seachange.log.validation import LARGEST
from seachange.protocols import Floats

# A share of known rounds up to this can be a coincidence.
BY_CHANCE = 0.1
# Most rounds of a log that a model file may name.
MOST_ROUNDS = 1 << 48


@dataclass(frozen=True)
class Provenance:
    """The log a model was learned from."""

    fingerprint: str
    n_rounds: int
    joint: JointFeatures
    action_names: tuple[str, ...]
    context_names: tuple[str, ...]
    mean_reward: float
    reward_range: tuple[float, float]  # (0, 1), or least to largest if rewards leave it
    time_range: tuple[str, str] | None
    propensity_source: PropensitySource
    remembered: tuple[int, ...] = ()  # hashes of some rounds; none if rounds are too similar

    @classmethod
    def of(cls, log: BanditLog) -> Provenance:
        """The provenance of a model learned from ``log``."""
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

    def require_valid(self) -> None:
        """Raise a ``ModelFileError`` unless this can be the provenance of a model."""
        joint, (low, high) = self.joint, self.reward_range
        try:
            dated = self.seconds is None or bool(np.isfinite(self.seconds).all())
        except (ValueError, OverflowError):
            dated = False
        for rule, holds in {
            f"n_rounds must be from 1 to {MOST_ROUNDS}": 1 <= self.n_rounds <= MOST_ROUNDS,
            "action_names must name every action": len(self.action_names) == joint.n_actions >= 1,
            "context_names must name every feature": len(self.context_names) == joint.n_features
            and (joint.n_features == 0) == (joint.kind == "none"),
            "reward_range must rise and contain mean_reward": -LARGEST <= low <= self.mean_reward <= high <= LARGEST
            and low < high,
            "time_range must hold two moments": dated,
            "remembered must hold hashes of 64 bits": len(self.remembered) <= REMEMBERED
            and all(0 <= each < 1 << 64 for each in self.remembered),
        }.items():
            if not holds:
                raise ModelFileError(f"{rule}.")

    def overlap(self, log: BanditLog) -> str | None:
        """Which part of ``log`` the model may have learned from; None if there is no sign of any."""
        if log.fingerprint() == self.fingerprint:
            return "the model was learned from this very log"
        share = share_known(log, self.remembered) or 0.0
        if share > BY_CHANCE:
            return f"about {share:.0%} of these rounds are among those that the model was learned from"
        span = self.seconds
        if log.times is None or span is None:
            return None
        times = seconds_of(log.times)
        # The last moment does not count: logs are often split between rounds of the same time.
        share = float(np.mean((times >= span[0]) & (times < span[1])))
        if share == 0 or self.time_range is None:
            return None
        period = f"{self.time_range[0]} to {self.time_range[1]}"
        return f"{share:.1%} of these rounds are from the time that the model was learned from ({period})"

    def knows(self, log: BanditLog) -> bool:
        """Whether ``overlap`` can detect that the model was learned from rounds of ``log``."""
        return share_known(log, self.remembered) is not None or not (log.times is None or self.time_range is None)

    @property
    def seconds(self) -> tuple[float, float] | None:
        """The time of the first and last round, in seconds; dates since 1970."""
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
