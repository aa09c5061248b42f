"""How much memory a process has at most, as the Linux kernel counts it: VmHWM, set back through clear_refs."""

from __future__ import annotations

import gc
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident() -> int:
    """Bytes in memory now."""
    return _bytes("VmRSS")


def forget_peak() -> None:
    """From now on ``peak`` counts anew."""
    gc.collect()
    CLEAR.write_text("5")


def peak() -> int:
    """Most bytes in memory at any time since ``forget_peak``."""
    return _bytes("VmHWM")


def _bytes(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field + ":"))
    return 1024 * int(line.split()[1])
