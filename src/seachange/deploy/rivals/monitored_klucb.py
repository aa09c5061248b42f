"""M-klUCB: klUCB that restarts if two halves of a window differ."""

import math
from dataclasses import dataclass
from typing import Any

from seachange.deploy.rivals.arms import ArmRival
from seachange.kernels.arm_rounds import HALVES
from seachange.params import require


@dataclass(frozen=True, kw_only=True, eq=False)
class MonitoredKLUCB(ArmRival):
    """klUCB with exploration; all actions restart if |Σ of w / 2 rewards - Σ of the w / 2 before| > b.

    Cao et al. 2019, with b = √(w log(2 K T²) / 2), and exploration √(K Υ log T / T) for Υ changes in T rounds.
    """

    horizon: int  # T
    n_changes: int = 4  # Υ
    window: int = 150  # w

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.window >= 2 and self.window % 2 == 0, f"window must be even; got {self.window}.")

    @property
    def threshold(self) -> float:
        """b."""
        return math.sqrt(self.window / 2 * math.log(2 * self.n_actions * self.horizon**2))

    @property
    def exploration(self) -> float:
        """γ: the share of rounds that take all actions in turn."""
        return min(math.sqrt(self.n_actions * self.n_changes * math.log(self.horizon) / self.horizon), 1.0)

    @property
    def history(self) -> tuple[int, int]:
        """The last rewards of each action."""
        return self.n_actions, self.window

    def _settings(self) -> dict[str, Any]:
        settings = {"threshold": self.threshold, "exploration": self.exploration}
        return {"detector": HALVES, "window": self.window, "cyclic": True, **settings}
