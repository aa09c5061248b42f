"""A log that lives on disk: its columns in files, mapped into memory where they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError
from seachange.log.bandit_log import BanditLog
from seachange.log.joint import LogArrays
from seachange.protocols import Floats


@dataclass(eq=False)
class Spool:
    """A folder that is gone when nobody needs it any more."""

    folder: Path = field(default_factory=lambda: Path(mkdtemp(prefix="seachange-")))
    numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        finalize(self, rmtree, self.folder, ignore_errors=True)

    def room(self, shape: tuple[int, ...]) -> Floats:
        """An array on disk, to be written to."""
        path = self.folder / f"room-{next(self.numbers)}"
        return np.asarray(np.memmap(path, dtype=np.float64, mode="w+", shape=shape))


def spooled(parts: Iterable[BanditLog]) -> BanditLog:
    """One log of many parts, which follow each other in time. Only one of them need be in memory at a time."""
    spool = Spool()
    shapes: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
    first: BanditLog | None = None
    last_time: Any = None
    dropped: dict[str, int] = {}
    rounds = 0
    with ExitStack() as files:
        opened: dict[str, Any] = {}
        for part in parts:
            for rule, rows in part.dropped:
                dropped[rule] = dropped.get(rule, 0) + rows
            if len(part) == 0:
                continue
            first = part if first is None else first
            _require_like(first, part)
            if part.times is not None and part.sequences is None:
                if last_time is not None and part.times[0] < last_time:
                    raise LogError(f"times must not fall; row {rounds} is earlier than the one before it.")
                last_time = part.times[-1]
            for name, array in _columns(part):
                if name not in opened:
                    opened[name] = files.enter_context((spool.folder / name).open("wb"))
                    shapes[name] = (array.dtype, array.shape[1:])
                np.ascontiguousarray(array, dtype=shapes[name][0]).tofile(opened[name])  # moments have no buffer
            rounds += len(part)
    if first is None:
        raise LogError(
            "the log is empty: it needs at least one round that keeps the rules"
            + "".join(f" ({rows} rows do not: {rule})" for rule, rows in dropped.items())
            + "."
        )
    columns = {
        name: np.asarray(np.memmap(spool.folder / name, dtype=dtype, mode="r", shape=(rounds, *rest)))
        for name, (dtype, rest) in shapes.items()
    }
    arrays = LogArrays(*(columns.get(name, getattr(first.arrays, name)) for name in LogArrays._fields))
    return replace(
        first,
        arrays=arrays,
        logging_probs=columns.get("logging_probs"),
        times=columns.get("times"),
        sequences=columns.get("sequences"),
        dropped=tuple(dropped.items()),
        spool=spool,
    )


def _columns(part: BanditLog) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The columns of a part that have a row for every round."""
    arrays = part.arrays
    if part.joint.kind != "none":
        yield "rows", arrays.rows
    yield from (("actions", arrays.actions), ("rewards", arrays.rewards), ("propensities", arrays.propensities))
    for name in ("logging_probs", "times", "sequences"):
        column = getattr(part, name)
        if column is not None:
            yield name, column


def _require_like(first: BanditLog, part: BanditLog) -> None:
    if part.joint != first.joint:
        raise LogError(f"all parts of a log must be alike; one has {part.joint}, another {first.joint}.")
    if part.masked:
        raise LogError("a log on disk cannot have an action mask.")
    if part.sequences is not None and part.sequences.dtype.kind not in "iuf":
        raise LogError("sequences of a log on disk must be numbers; these are not.")
