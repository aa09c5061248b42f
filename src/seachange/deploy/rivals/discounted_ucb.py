"""Discounted UCB."""

from dataclasses import dataclass
from typing import Any

from seachange.deploy.rivals.arms import ArmRival
from seachange.kernels.arm_rounds import UCB_INDEX
from seachange.params import require


@dataclass(frozen=True, kw_only=True, eq=False)
class DiscountedUCB(ArmRival):
    """Highest mean + 2 √(ξ log n / N) of discounted rewards and counts (Garivier and Moulines 2011)."""

    discount: float  # γ; 1 - √(Υ / T) / 4 for Υ changes in T rounds
    width: float = 0.6  # ξ

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.discount <= 1, f"discount must be in (0, 1]; got {self.discount}.")

    def _settings(self) -> dict[str, Any]:
        return {"score": UCB_INDEX, "discount": float(self.discount), "width": float(self.width)}
