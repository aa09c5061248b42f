"""Linear Thompson sampling with a change detector."""

import math
from dataclasses import dataclass
from typing import Any

from seachange.deploy.rivals.linear import LinearRival
from seachange.params import require_count


@dataclass(frozen=True, kw_only=True, eq=False)
class RestartedLinearThompson(LinearRival):
    """Linear Thompson sampling that starts again if a likelihood ratio finds a change in its errors.

    A stationary bandit with a change detector and a little exploration, as in DAL (2025); the detector tests the errors
    of the predicted rewards, with δ = 1 / √T.
    """

    horizon: int  # T
    exploration: float = 0.01  # share of random choices

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("horizon", self.horizon)

    @property
    def history(self) -> tuple[int, int]:
        """Sums of errors since the last restart."""
        return 1, self.horizon

    def _settings(self) -> dict[str, Any]:
        return {"samples": True, "threshold": 0.5 * math.log(self.horizon), "exploration": float(self.exploration)}
