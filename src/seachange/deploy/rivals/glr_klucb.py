"""GLR-klUCB with local restarts: klUCB that restarts an action if a likelihood ratio is high."""

import math
from dataclasses import dataclass
from typing import Any

from seachange.deploy.rivals.arms import ArmRival
from seachange.kernels.arm_rounds import LIKELIHOOD_RATIO
from seachange.params import require_count


@dataclass(frozen=True, kw_only=True, eq=False)
class GLRKLUCB(ArmRival):
    """klUCB with exploration; an action restarts if a change explains its rewards far better than none.

    Besson et al. 2022, with threshold log(n^1.5 / δ), δ = 1 / √T, and exploration α √(restarts + 1) in turn.
    """

    horizon: int  # T
    exploration: float | None = None  # α; None: √(K log T / T) / 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("horizon", self.horizon)

    @property
    def history(self) -> tuple[int, int]:
        """The sums of the rewards of each action since its last restart."""
        return self.n_actions, self.horizon

    def _settings(self) -> dict[str, Any]:
        default = 0.1 * math.sqrt(self.n_actions * math.log(self.horizon) / self.horizon)
        exploration = float(default if self.exploration is None else self.exploration)
        settings = {"threshold": 0.5 * math.log(self.horizon), "exploration": exploration}
        return {"detector": LIKELIHOOD_RATIO, "cyclic": True, "growing": True, **settings}
