"""Memory of this process, as counted by Linux: VmRSS, and VmHWM for the peak, which clear_refs resets."""

from __future__ import annotations

import gc
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident() -> int:
    """Current memory in bytes."""
    return _bytes("VmRSS")


def forget_peak() -> None:
    """Reset ``peak``."""
    gc.collect()
    CLEAR.write_text("5")


def peak() -> int:
    """Peak memory in bytes since ``forget_peak``."""
    return _bytes("VmHWM")


def _bytes(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field + ":"))
    return 1024 * int(line.split()[1])
