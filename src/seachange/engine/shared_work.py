"""A function applied to items by several threads, with results in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class SharedWork(Generic[Item, Result]):
    """Applies ``function`` to items in this thread and ``workers - 1`` others.

    Results come in the order of the items. While this thread waits for one, it works on later items itself.
    """

    def __init__(self, function: Callable[[Item], Result], workers: int) -> None:
        self._function = function
        self._pool = ThreadPoolExecutor(workers - 1) if workers > 1 else None
        self._items: list[Item] = []
        self._futures: list[Future[Result]] = []
        self._own: dict[int, Result] = {}

    def give(self, item: Item) -> None:
        """Add an item."""
        self._items.append(item)
        # Without other threads, only this one works.
        self._futures.append(Future() if self._pool is None else self._pool.submit(self._function, item))

    def results(self) -> Iterator[Result]:
        """The results of all items."""
        for place, future in enumerate(self._futures):
            while not future.done() and self._helped_from(place):
                pass
            yield self._own.pop(place) if place in self._own else future.result()

    def _helped_from(self, place: int) -> bool:
        """Process one item from ``place`` on that no thread has started; False if there is none."""
        for later in range(place, len(self._items)):
            # An item that can be cancelled has not been started; items of this thread are cancelled already.
            if later not in self._own and self._futures[later].cancel():
                self._own[later] = self._function(self._items[later])
                return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
