"""CUSUM-klUCB: klUCB that restarts an action if its CUSUM is high."""

import math
from dataclasses import dataclass
from typing import Any

from seachange.deploy.rivals.arms import ArmRival
from seachange.kernels.arm_rounds import CUSUM
from seachange.params import require_count


@dataclass(frozen=True, kw_only=True, eq=False)
class CUSUMKLUCB(ArmRival):
    """klUCB with random exploration; an action restarts if its rewards leave the mean of its first ones.

    Liu et al. 2018, with threshold h = log(T / Υ) and exploration √(Υ log(T / Υ) / T) for Υ changes in T rounds.
    """

    horizon: int  # T
    n_changes: int = 4  # Υ
    warmup: int = 150  # M: rewards that give the reference mean
    drift: float = 0.1  # ε: changes by less are ignored

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("warmup", self.warmup)

    def _settings(self) -> dict[str, Any]:
        threshold = math.log(self.horizon / self.n_changes)
        exploration = min(math.sqrt(self.n_changes * threshold / self.horizon), 1.0)
        settings = {"warmup": self.warmup, "drift": float(self.drift), "exploration": exploration}
        return {"detector": CUSUM, "threshold": threshold, **settings}
