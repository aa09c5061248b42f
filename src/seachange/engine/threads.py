"""How many threads the numerical libraries may use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock

from threadpoolctl import ThreadpoolController

LOCK = RLock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS and OpenMP to one thread: for small problems their threads wait for each other more than they work.

    The setting belongs to the process, so only one thread of ours at a time may be inside.
    """
    with LOCK, _controller().limit(limits=1):
        yield


@cache
def _controller() -> ThreadpoolController:
    # The controller knows only libraries that are loaded, so load those we use before it looks.
    import scipy.optimize  # noqa: F401
    import sklearn.cluster  # noqa: F401

    return ThreadpoolController()
