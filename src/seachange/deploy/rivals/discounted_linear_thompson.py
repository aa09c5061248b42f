"""Discounted linear Thompson sampling."""

from dataclasses import dataclass
from typing import Any

from seachange.deploy.rivals.d_linucb import DLinUCB


@dataclass(frozen=True, kw_only=True, eq=False)
class DiscountedLinearThompson(DLinUCB):
    """Thompson sampling with θ ~ N(V⁻¹ Σ γ^age r f, σ² V⁻¹ Ṽ V⁻¹) (Kim and Tewari 2020); see ``LinearThompson``."""

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "samples": True}
