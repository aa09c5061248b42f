"""Prepare the next items on other threads while the current one is used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from seachange.engine.local import cores

Item = TypeVar("Item")
Result = TypeVar("Result")
# More threads would hold more blocks in memory than they save time.
MOST_THREADS = 8


def made_ahead(items: Iterator[Item], make: Callable[[Item], Result]) -> Iterator[Result]:
    """Yield ``make(item)`` for every item, in order, with one call running ahead on each core."""
    threads = min(cores(), MOST_THREADS)
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(make, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
