"""Progress of long work, at almost no cost if nobody listens.

    with stage("Choosing the objective", total=len(candidates)) as steps:
        for candidate in candidates:
            ...
            steps.advance()

A stage inside another one is part of a step of the outer stage. A listener, such as a progress bar, opens
``listening()`` and reads the tree of stages whenever it likes.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(eq=False)
class Stage:
    """A piece of work. Any thread may change and read its numbers."""

    name: str
    total: float | None = None  # None: unknown
    step: float = 1.0  # the size of the next advance
    done: float = 0.0
    detail: str = ""  # the current step, in words
    parts: list["Stage"] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    on_end: Callable[[], None] | None = None  # called when one of its parts ends

    def advance(self, amount: float = 1.0) -> None:
        """Add to the work done."""
        self.done += amount

    def reach(self, done: float) -> None:
        """Set the work done, which never decreases."""
        self.done = max(self.done, done)

    def expect(self, total: float, step: float, detail: str) -> None:
        """Set the total, the size of the next step, and its name."""
        self.total, self.step, self.detail = total, step, detail

    @property
    def share(self) -> float | None:
        """The share done, from 0 to 1; None if unknown."""
        within = [share for part in list(self.parts) if (share := part.share) is not None]
        if self.total is None:
            return within[0] if len(within) == 1 else None
        done = self.done + self.step * min(sum(within), 1.0)
        return min(done / self.total, 1.0) if self.total > 0 else 1.0


_CURRENT: ContextVar[Stage | None] = ContextVar("_CURRENT", default=None)


@contextmanager
def stage(name: str, total: float | None = None) -> Iterator[Stage]:
    """Run the block as a stage of the current work."""
    current, outer = Stage(name, total), _CURRENT.get()
    if outer is None:
        yield current
        return
    outer.parts.append(current)
    token = _CURRENT.set(current)
    try:
        yield current
    finally:
        _CURRENT.reset(token)
        outer.parts.remove(current)
        if outer.on_end is not None:
            outer.on_end()


@contextmanager
def listening(on_end: Callable[[], None] | None = None) -> Iterator[Stage]:
    """Yield the root of all stages in the block, including threads started by ``map_in_order``.

    ``on_end`` is called whenever a stage ends, before the work continues.
    """
    root = Stage("", on_end=on_end)
    token = _CURRENT.set(root)
    try:
        yield root
    finally:
        _CURRENT.reset(token)
