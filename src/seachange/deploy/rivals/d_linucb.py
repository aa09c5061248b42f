"""D-LinUCB."""

from dataclasses import dataclass
from typing import Any

from seachange.deploy.rivals.linear import LinearRival
from seachange.params import require


@dataclass(frozen=True, kw_only=True, eq=False)
class DLinUCB(LinearRival):
    """LinUCB with discounted rounds (Russac, Vernade and Cappé 2019)."""

    discount: float  # γ; 1 - (B / (d T))^(2 / 3) for a path of length B in d dimensions

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.discount < 1, f"discount must be between 0 and 1; got {self.discount}.")

    def _settings(self) -> dict[str, Any]:
        return {"discount": float(self.discount)}
