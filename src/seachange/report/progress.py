"""Progress on a terminal, for what takes longer than a second."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")


def tracked(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """``items``, with a bar on standard error if that is a terminal and the first second has passed."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield from items
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total, visible=False)
        began = time.monotonic()
        for done, item in enumerate(items, 1):
            progress.update(task, completed=done, visible=time.monotonic() - began > 1)
            yield item
