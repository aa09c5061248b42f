"""Threads and processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import cache
from threading import Lock
from typing import Literal, TypeVar

from threadpoolctl import ThreadpoolController

LOCK = Lock()
# The limit belongs to the process: the first block to enter sets it, the last to leave resets it.
LIMIT = ExitStack()
INSIDE: list[None] = []
# More readers would hold more blocks in memory than they save time.
MAX_READERS = 8


def cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS and OpenMP to one thread; on small problems more threads are slower."""
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
    # The controller sees only libraries that are loaded, so load the ones we use first.
    import scipy.optimize  # noqa: F401
    import sklearn.cluster  # noqa: F401

    return ThreadpoolController()


Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_order(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    workers: int = 1,
    kind: Literal["threads", "processes"] = "threads",
) -> Iterator[Result]:
    """Apply ``function`` to every item; results come in the order of the items.

    Use threads for kernels, which release the interpreter, and processes for whole experiments. Threads start all items
    of a sequence at once, and read an iterator only ``workers`` items ahead of the results.
    """
    if workers <= 1 or (isinstance(items, Sequence) and len(items) <= 1):
        yield from map(function, items)
    elif kind == "threads":
        yield from _by_threads(function, items, workers)
    else:
        yield from _by_processes(function, items, workers)


def made_ahead(items: Iterator[Item], make: Callable[[Item], Result]) -> Iterator[Result]:
    """Yield ``make(item)`` for every item, in order, with one call running ahead on each core."""
    return map_in_order(make, items, workers=min(cores(), MAX_READERS))


def _by_threads(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    most = len(items) if isinstance(items, Sequence) else workers
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                # Each call runs in a copy of this context, so that its stages belong to the stage around it.
                waiting.append(pool.submit(copy_context().run, function, item))
                if len(waiting) > most:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _by_processes(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    others = {process.pid for process in multiprocessing.active_children()}
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _ignore_interrupts)
    try:
        yield from pool.map(function, items)
    except BaseException:
        # After an interrupt, do not wait for running items.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            if process.pid not in others:
                process.terminate()
        raise
    pool.shutdown()


def _ignore_interrupts() -> None:
    """Ctrl-C reaches the parent, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
