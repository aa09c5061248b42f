"""How far long work is, for whoever wants to know; without a listener it costs nothing worth counting.

    with stage("Choosing the objective", total=len(candidates)) as judging:
        for candidate in candidates:
            ...
            judging.advance()

Stages within stages are parts of a step of the stage around them. A listener, such as a bar on a terminal, opens
``listening()`` and looks at the tree of stages as often as it likes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(eq=False)
class Stage:
    """A piece of work that takes a while. Its numbers may be changed and read by any thread."""

    name: str
    total: float | None = None  # None: nobody knows how much there is to do
    step: float = 1.0  # how much the next advance is going to be
    done: float = 0.0
    told: str = ""  # what is being done right now
    parts: list[Stage] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    on_end: Callable[[], None] | None = None  # called whenever one of its parts has ended

    def advance(self, amount: float = 1.0) -> None:
        """So much more is done."""
        self.done += amount

    def reach(self, done: float) -> None:
        """So much is done in all, if it is more than before."""
        self.done = max(self.done, done)

    def expect(self, total: float, step: float, told: str) -> None:
        """What is known by now of the whole, and what comes next."""
        self.total, self.step, self.told = total, step, told

    @property
    def share(self) -> float | None:
        """How much of it is done, from 0 to 1; None where nobody knows."""
        within = [share for part in list(self.parts) if (share := part.share) is not None]
        if self.total is None:
            return within[0] if len(within) == 1 else None
        done = self.done + self.step * min(sum(within), 1.0)
        return min(done / self.total, 1.0) if self.total > 0 else 1.0


_AROUND: ContextVar[Stage | None] = ContextVar("_AROUND", default=None)


@contextmanager
def stage(name: str, total: float | None = None) -> Iterator[Stage]:
    """A stage of whatever is going on, until the block ends."""
    begun, around = Stage(name, total), _AROUND.get()
    if around is None:
        yield begun
        return
    around.parts.append(begun)
    token = _AROUND.set(begun)
    try:
        yield begun
    finally:
        _AROUND.reset(token)
        around.parts.remove(begun)
        if around.on_end is not None:
            around.on_end()


@contextmanager
def listening(on_end: Callable[[], None] | None = None) -> Iterator[Stage]:
    """A stage that all others of the block, and of threads it starts by ``map_in_order``, are parts of.

    ``on_end`` is called when one of them has ended, before the work goes on.
    """
    root = Stage("", on_end=on_end)
    token = _AROUND.set(root)
    try:
        yield root
    finally:
        _AROUND.reset(token)
