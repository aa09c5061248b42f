"""How many threads the numerical libraries may use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS and OpenMP to one thread: for small problems their threads wait for each other more than they work.

    The setting belongs to the process: while any thread is inside, it holds; when the last one leaves, it is undone.
    """
    limit = _limit()
    limit.enter()
    try:
        yield
    finally:
        limit.leave()


class _Limit:
    def __init__(self) -> None:
        # The controller knows only libraries that are loaded, so load those we use before it looks.
        import scipy.optimize
        import sklearn.cluster  # noqa: F401

        self.controller = ThreadpoolController()
        self.lock, self.inside = Lock(), 0
        self.limiter: Any = None

    def enter(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.limiter = self.controller.limit(limits=1)
            self.inside += 1

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.limiter.restore_original_limits()


@cache
def _limit() -> _Limit:
    return _Limit()
