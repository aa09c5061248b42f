"""The base of rivals without contexts."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from seachange.deploy.rivals.rival import Rival, Shapes
from seachange.kernels.arm_rounds import (
    KL_INDEX,
    NO_DETECTOR,
    ArmMemory,
    ArmRules,
    arm_advance,
    arm_learn,
    arm_probs,
    run_arms,
)
from seachange.log.joint_features import JointFeatures
from seachange.params import require, require_count

EVERYTHING = ArmRules(
    score=KL_INDEX, detector=NO_DETECTOR, low=0.0, span=1.0, width=0.0, discount=1.0, window=0, threshold=0.0,
    drift=0.0, warmup=0, exploration=0.0, cyclic=False, growing=False, share_rate=0.0, restarts=np.empty(0, np.int64),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class ArmRival(Rival):
    """An algorithm that knows nothing but actions and rewards."""

    n_actions: int  # K
    reward_range: tuple[float, float] = (0.0, 1.0)
    kernels: ClassVar[tuple[Any, Any, Any, Any]] = (arm_probs, arm_learn, arm_advance, run_arms)
    memory_type: ClassVar[Any] = ArmMemory

    def __post_init__(self) -> None:
        require_count("n_actions", self.n_actions)
        low, high = self.reward_range
        require(high > low, f"reward_range must be (least, most); got {self.reward_range}.")

    @property
    def joint(self) -> JointFeatures:  # type: ignore[override]
        """Indicators of the actions."""
        return JointFeatures("none", self.n_actions, 0)

    @property
    def history(self) -> tuple[int, int]:
        """The shape of the rewards kept."""
        return self.n_actions, 0

    @property
    def shapes(self) -> Shapes:
        """The shapes of the arrays in ``ArmMemory``."""
        k = self.n_actions
        return {"counts": (k,), "sums": (k,), "starts": (k,), "walks": (k, 3), "history": self.history, "clock": (3,)}

    def _settings(self) -> dict[str, Any]:
        """What differs from klUCB."""
        return {}

    @property
    def rules(self) -> ArmRules:
        """The configuration as kernels take it."""
        low, high = map(float, self.reward_range)
        return EVERYTHING._replace(low=low, span=high - low, **self._settings())

    def _begin(self, memory: Any) -> None:
        pass
