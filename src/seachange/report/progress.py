"""Progress on a terminal, for what takes longer than a second: one line, gone when the work is done."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Lock, Thread
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from seachange.engine import Stage, listening, stage

Item = TypeVar("Item")

# Seconds: work shorter than this says nothing, the line changes so often, and what it says of the time left is smooth
# over so long.
SILENT, BETWEEN, SMOOTH = 1.0, 0.1, 3.0
# With less than this done nobody knows how long the rest will take.
LEAST_SHARE = 0.02
BAR, WIDEST = 20, 100


def working(what: str) -> AbstractContextManager[Stage]:
    """A stage whose length nobody knows, unless stages within it do."""
    return stage(what)


def tracked(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """``items``, each of which takes a while, as steps of a stage."""
    with stage(what, total) as steps:
        for item in items:
            steps.advance()
            steps.told = f"{steps.done:.0f} of {total}"
            yield item


@contextmanager
def shown(quiet: bool = False) -> Iterator[None]:
    """Show the stages of the block on standard error, if that is a terminal and nobody wants it ``quiet``."""
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


class TimeLeft:
    """Seconds left, by the share done so far."""

    def __init__(self) -> None:
        self._left: float | None = None
        self._now = 0.0

    def at(self, now: float, elapsed: float, share: float) -> float | None:
        """What is left ``now``; None while it is too early to say."""
        if share < LEAST_SHARE:
            return None
        straight = elapsed * (1 - share) / share
        if self._left is None:
            self._left = straight
        else:
            passed = now - self._now
            expected = max(self._left - passed, 0.0)
            self._left = expected + (straight - expected) * (1 - math.exp(-passed / SMOOTH))
        self._now = now
        return self._left


class _Line:
    """The line on the terminal: it is there only while stages are."""

    def __init__(self, console: Console) -> None:
        self._console, self._lock = console, Lock()
        self._live: Live | None = None
        self._spinner = Spinner("dots", style="cyan")
        self._times: tuple[Stage | None, TimeLeft] = (None, TimeLeft())

    def watch(self, root: Stage, over: Event) -> None:
        """Say every now and then what goes on, until it is ``over``."""
        while not over.wait(BETWEEN):
            with self._lock:
                going_on = list(root.parts)
                if not going_on or time.monotonic() - going_on[0].began < SILENT:
                    continue
                if self._live is None:
                    # Notes and warnings are printed above the line; standard output is not ours to touch.
                    self._live = Live(console=self._console, transient=True, auto_refresh=False, redirect_stdout=False)
                    self._live.start()
                self._live.update(self._told(going_on[0]), refresh=True)

    def clear(self) -> None:
        """Leave the terminal as it was."""
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None

    def _told(self, top: Stage) -> RenderableType:
        chain = [top]
        while inner := list(chain[-1].parts):
            chain.append(inner[0])
        # The bar measures the outermost stage whose length is known; what is around and within it goes without saying.
        measured = next((each for each in chain if each.total is not None and each.name), top)
        words = f"{measured.name}: {measured.told}" if measured.told else measured.name
        share, now = measured.share, time.monotonic()
        if self._times[0] is not measured:
            self._times = (measured, TimeLeft())
        left = None if share is None else self._times[1].at(now, now - measured.began, share)
        row = Table.grid(padding=(0, 1), expand=True)
        row.add_column(no_wrap=True)
        row.add_column(no_wrap=True, ratio=1, overflow="ellipsis")
        row.add_column(no_wrap=True, justify="right")
        row.add_column(no_wrap=True, justify="right")
        row.width = min(self._console.width, WIDEST)
        known = measured.total is not None
        bar = ProgressBar(total=1.0, completed=share or 0.0, width=BAR, pulse=not known)
        row.add_row(self._spinner, Text(words), bar, Text(time_told(left), style="cyan"))
        return row


def time_told(left: float | None) -> str:
    """Seconds left, in the units of people."""
    if left is None:
        return " " * len("0:00 left")
    minutes, seconds = divmod(math.ceil(left), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02} left" if hours else f"{minutes}:{seconds:02} left"
