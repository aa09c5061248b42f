"""Benchmarks run on one core."""

from __future__ import annotations

import os


def pin_to_one_core() -> int | None:
    """Bind this process and those it starts to one core, where the system can: the last, which is least interrupted."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core
