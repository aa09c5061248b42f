"""Threads or processes of this machine."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Literal, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_order(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int = 1,
    kind: Literal["threads", "processes"] = "threads",
) -> Iterator[Result]:
    """``function`` of every item, in the order of the items, whatever the number of workers.

    Threads suit kernels, which let go of the interpreter; processes suit whole experiments.
    """
    if workers <= 1 or len(items) <= 1:
        yield from map(function, items)
    elif kind == "threads":
        yield from _by_threads(function, items, workers)
    else:
        yield from _by_processes(function, items, min(workers, len(items)))


def _by_threads(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    def run(context: Context, item: Item) -> Result:
        return context.run(function, item)

    with ThreadPoolExecutor(workers) as pool:
        # Each in a copy of this context, so that stages of the work are parts of the stage around it.
        yield from pool.map(run, [copy_context() for _ in items], items)


def _by_processes(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    others = {process.pid for process in multiprocessing.active_children()}
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _leave_interrupts_to_the_parent)
    try:
        yield from pool.map(function, items)
    except BaseException:
        # Whoever interrupts does not want to wait for what has been begun.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            if process.pid not in others:
                process.terminate()
        raise
    pool.shutdown()


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
