"""Threads or processes of this machine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
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
        return
    pool: Executor
    if kind == "threads":
        pool = ThreadPoolExecutor(workers)
    else:
        pool = ProcessPoolExecutor(min(workers, len(items)), mp_context=multiprocessing.get_context("spawn"))
    with pool:
        yield from pool.map(function, items)
