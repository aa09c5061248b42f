"""Exp3.S."""

import math
from dataclasses import dataclass
from typing import Any

from seachange.deploy.rivals.arms import ArmRival
from seachange.kernels.arm_rounds import WEIGHTS


@dataclass(frozen=True, kw_only=True, eq=False)
class Exp3S(ArmRival):
    """Exponential weights on actions that share (Auer et al. 2002, Corollary 8.3)."""

    horizon: int  # T
    n_changes: int = 4  # Υ
    exploration: float | None = None  # γ; None: √(K (Υ log(K T) + e) / ((e - 1) T))

    def _begin(self, memory: Any) -> None:
        memory.sums[:] = 1 / self.n_actions

    def _settings(self) -> dict[str, Any]:
        most = self.n_changes * math.log(self.n_actions * self.horizon) + math.e
        exploration = min(1.0, math.sqrt(self.n_actions * most / ((math.e - 1) * self.horizon)))
        exploration = exploration if self.exploration is None else float(self.exploration)
        return {"score": WEIGHTS, "exploration": exploration, "share_rate": 1 / self.horizon}
