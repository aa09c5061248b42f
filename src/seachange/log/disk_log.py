"""Logs larger than memory: their columns are in temporary files, mapped into memory when read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from weakref import finalize

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError
from seachange.log.joint_features import LogArrays
from seachange.log.validation import ProblemError, time_problem
from seachange.protocols import Floats

if TYPE_CHECKING:
    from seachange.log.bandit_log import BanditLog


@dataclass(eq=False)
class DiskFolder:
    """A temporary folder that is deleted when no log uses it anymore."""

    path: Path = field(default_factory=lambda: Path(mkdtemp(prefix="seachange-")))
    numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        finalize(self, rmtree, self.path, ignore_errors=True)

    def new_array(self, shape: tuple[int, ...]) -> Floats:
        """A writable array on disk."""
        path = self.path / f"array-{next(self.numbers)}"
        return np.asarray(np.memmap(path, dtype=np.float64, mode="w+", shape=shape))


def log_on_disk(parts: Iterable[BanditLog]) -> BanditLog:
    """One log from consecutive parts, of which only one needs to be in memory at a time."""
    folder = DiskFolder()
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
            _require_same_columns(first, part)
            if part.times is not None and part.sequences is None:
                if last_time is not None and part.times[0] < last_time:
                    raise ProblemError(time_problem(f"row {rounds}", f"{part.times[0]} after {last_time}", 0, 0))
                last_time = part.times[-1]
            for name, array in _columns(part):
                if name not in opened:
                    opened[name] = files.enter_context((folder.path / name).open("wb"))
                    shapes[name] = (array.dtype, array.shape[1:])
                # datetime64 arrays have no buffer interface, but tofile works.
                np.ascontiguousarray(array, dtype=shapes[name][0]).tofile(opened[name])
            rounds += len(part)
    if first is None:
        reasons = "; ".join(f"{rows:,} rows were dropped: {rule}" for rule, rows in dropped.items())
        raise LogError(f"the log is empty: it needs at least one good round{f' ({reasons})' if reasons else ''}.")
    columns = {
        name: np.asarray(np.memmap(folder.path / name, dtype=dtype, mode="r", shape=(rounds, *rest)))
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
        disk=folder,
    )


def _columns(part: BanditLog) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The columns of a part that have one row per round."""
    arrays = part.arrays
    if part.joint.kind != "none":
        yield "rows", arrays.rows
    yield from (("actions", arrays.actions), ("rewards", arrays.rewards), ("propensities", arrays.propensities))
    for name in ("logging_probs", "times", "sequences"):
        column = getattr(part, name)
        if column is not None:
            yield name, column


def _require_same_columns(first: BanditLog, part: BanditLog) -> None:
    if part.joint != first.joint:
        raise LogError(f"all parts of a log must have the same features; one has {part.joint}, another {first.joint}.")
    if part.masked:
        raise LogError("a log on disk cannot have an action mask. Read it without on_disk=True.")
    if part.sequences is not None and part.sequences.dtype.kind not in "iuf":
        raise LogError("a log on disk needs numeric sequences; these are not numbers. Read it without on_disk=True.")
