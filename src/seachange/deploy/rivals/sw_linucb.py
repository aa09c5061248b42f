"""SW-LinUCB."""

from dataclasses import dataclass
from typing import Any

from seachange.deploy.rivals.linear import LinearRival
from seachange.params import require, require_count


@dataclass(frozen=True, kw_only=True, eq=False)
class SWLinUCB(LinearRival):
    """LinUCB with the last ``window`` rounds (Cheung, Simchi-Levi and Zhu 2019)."""

    window: int  # τ

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("window", self.window)
        require(self.grams is None, "a window cannot start from a log.")

    @property
    def history(self) -> tuple[int, int]:
        """Features, block and reward of every round of the window."""
        return self.window, self.joint.shape[1] + 2

    def _settings(self) -> dict[str, Any]:
        return {"window": self.window}
