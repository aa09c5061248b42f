"""Linear Thompson sampling."""

from dataclasses import dataclass
from typing import Any

from seachange.deploy.rivals.linear import LinearRival


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearThompson(LinearRival):
    """Thompson sampling with θ ~ N(V⁻¹ Σ r f, σ² V⁻¹) (Agrawal and Goyal 2013).

    If actions share θ, their values are drawn independently of each other, so that propensities are exact.
    """

    def _settings(self) -> dict[str, Any]:
        return {"samples": True}
