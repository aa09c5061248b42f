"""A progress line on the terminal for work that takes longer than a second; it disappears when the work is done."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from seachange.engine import Stage, listening, stage

Item = TypeVar("Item")

# Seconds: before the line appears, and between two updates.
DELAY, REFRESH = 1.0, 0.1
BAR = 20


def tracked(items: Iterable[Item], total: int, name: str) -> Iterator[Item]:
    """Yield ``items`` as steps of a stage."""
    with stage(name, total) as steps:
        for item in items:
            steps.advance()
            steps.detail = f"{steps.done:.0f} of {total}"
            yield item


@contextmanager
def progress_line(quiet: bool = False) -> Iterator[None]:
    """Show the stages of the block on standard error if that is a terminal, unless ``quiet``."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal or console.is_dumb_terminal:
        yield
        return
    line = _Line(console)
    with listening(line.clear) as root:
        over = Event()
        watcher = Thread(target=line.watch, args=(root, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            line.clear()


class _Line:
    """The line on the terminal, visible only while a stage is running."""

    def __init__(self, console: Console) -> None:
        self._console, self._lock = console, Lock()
        self._bar: tuple[Stage, Progress] | None = None  # the stage it shows

    def watch(self, root: Stage, over: Event) -> None:
        """Update the line until the work is ``over``."""
        while not over.wait(REFRESH):
            with self._lock:
                running = list(root.parts)
                if running and time.monotonic() - running[0].began >= DELAY:
                    self._update(_measured(running[0]))

    def clear(self) -> None:
        """Remove the line."""
        with self._lock:
            self._stop()

    def _update(self, current: Stage) -> None:
        if self._bar is None or self._bar[0] is not current:
            self._stop()
            self._bar = (current, self._started())
        bar, words = self._bar[1], f"{current.name}: {current.detail}" if current.detail else current.name
        total = None if current.total is None else 1.0
        bar.update(bar.task_ids[0], description=words, completed=current.share or 0.0, total=total, refresh=True)

    def _started(self) -> Progress:
        words = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True))
        columns = (SpinnerColumn(), words, BarColumn(BAR), TimeRemainingColumn(elapsed_when_finished=False))
        # Notes are printed above the line; standard output is left alone.
        bar = Progress(
            *columns, console=self._console, transient=True, auto_refresh=False, redirect_stdout=False, expand=True
        )
        bar.add_task("", total=None)
        bar.start()
        return bar

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar[1].stop()
            self._bar = None


def _measured(top: Stage) -> Stage:
    """The outermost stage whose length is known."""
    chain = [top]
    while inner := list(chain[-1].parts):
        chain.append(inner[0])
    return next((each for each in chain if each.total is not None and each.name), top)
