"""Sliding-window klUCB."""

from dataclasses import dataclass
from typing import Any

from seachange.deploy.rivals.arms import ArmRival
from seachange.params import require_count


@dataclass(frozen=True, kw_only=True, eq=False)
class SlidingWindowKLUCB(ArmRival):
    """klUCB with the last ``window`` rewards (Garivier and Moulines 2011)."""

    window: int  # τ; 2 √(T log T / Υ) for Υ changes in T rounds

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("window", self.window)

    @property
    def history(self) -> tuple[int, int]:
        """Actions and rewards of the window."""
        return 2, self.window

    def _settings(self) -> dict[str, Any]:
        return {"window": self.window}
