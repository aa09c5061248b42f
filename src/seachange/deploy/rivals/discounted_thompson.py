"""Discounted Thompson sampling."""

from dataclasses import dataclass
from typing import Any

from seachange.deploy.rivals.arms import ArmRival
from seachange.kernels.arm_rounds import SAMPLING
from seachange.params import require


@dataclass(frozen=True, kw_only=True, eq=False)
class DiscountedThompson(ArmRival):
    """Thompson sampling from discounted rewards (Raj and Kalyani 2017).

    Means are drawn from normal distributions with the moments of the Beta posteriors, so that propensities are exact.
    """

    discount: float = 0.99  # γ

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.discount <= 1, f"discount must be in (0, 1]; got {self.discount}.")

    def _settings(self) -> dict[str, Any]:
        return {"score": SAMPLING, "discount": float(self.discount)}
