"""Work on what comes next while what came before is used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from seachange.engine.threads import cores

Thing = TypeVar("Thing")
Made = TypeVar("Made")


def made_ahead(things: Iterator[Thing], make: Callable[[Thing], Made]) -> Iterator[Made]:
    """What ``make`` makes of each, in order; a thread on each core is a thing ahead of whoever asks."""
    threads = cores()
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for thing in things:
                waiting.append(pool.submit(make, thing))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
