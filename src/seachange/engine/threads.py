"""How many threads there may be: of ours, and of the numerical libraries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from threading import Lock

from threadpoolctl import ThreadpoolController

LOCK = Lock()
# The limit belongs to the process: the first of ours to come in sets it, the last to go out takes it back.
LIMIT = ExitStack()
INSIDE: list[None] = []


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS and OpenMP to one thread: for small problems their threads wait for each other more than they work."""
    with LOCK:
        if not INSIDE:
            LIMIT.enter_context(_controller().limit(limits=1))
        INSIDE.append(None)
    try:
        yield
    finally:
        with LOCK:
            INSIDE.pop()
            if not INSIDE:
                LIMIT.close()


@cache
def _controller() -> ThreadpoolController:
    # The controller knows only libraries that are loaded, so load those we use before it looks.
    import scipy.optimize  # noqa: F401
    import sklearn.cluster  # noqa: F401

    return ThreadpoolController()
