"""Threads and processes of this machine."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import cache
from threading import Lock, current_thread, main_thread
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
        with _interrupts_deferred():
            futures = [pool.submit(function, item) for item in items][::-1]
        while futures:
            yield futures.pop().result()
    except BaseException:
        # Running items are not waited for. Futures are not cancelled: the pool's thread fails on cancelled ones.
        for process in multiprocessing.active_children():
            if process.pid not in others:
                process.terminate()
        raise
    finally:
        pool.shutdown()


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Block Ctrl-C in the processes that the block starts, and deliver signals to this one after the block.

    A process that is interrupted while it starts, or whose parent stops in the middle of that, prints a traceback.
    """
    if current_thread() is not main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    received: list[int] = []
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    handlers = {each: handler for each, handler in handlers.items() if callable(handler)}
    for each in handlers:
        signal.signal(each, lambda number, frame: received.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number in received:
            signal.raise_signal(number)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches the parent, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
