"""Raw rounds as numbers, with the rules that each breaks; and BanditLogs as raw logs, to be checked like files."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars

from seachange.check.counters import RuleCounts
from seachange.log.bandit_log import BanditLog
from seachange.log.raw import PART_ROWS, Pool, RawRounds, raw_columns, raw_rounds
from seachange.log.validation import RULES, Distribution, RoundValues, broken_rounds, integers_below, too_large
from seachange.protocols import Bools, Floats, Ints


@dataclass(eq=False)
class Rounds:
    """A part of a log, as numbers."""

    raw: RawRounds
    names: polars.Series  # (n,) text: the action taken; null if missing
    rewards: Floats  # (n,) NaN if missing or not usable
    propensities: Floats | None  # (n,) NaN if missing or invalid
    logged: Floats | None  # (n,) propensities as logged
    times: Floats | None  # (n,) seconds, or the log's own unit; NaN if missing
    dated: bool  # times are dates, not numbers
    broken: dict[str, Bools]  # rule → (n,) the rounds that break it
    slices: Ints = field(init=False)  # (n,) the slice of time
    codes: Ints = field(init=False)  # (n,) the action's number; -1: none
    counts: RuleCounts = field(init=False)  # of the whole log

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def bad(self) -> Bools:
        """(n,) whether a round breaks any rule."""
        return np.asarray(np.logical_or.reduce(list(self.broken.values())))

    def report(self, rule: str, rows: Bools | Ints) -> None:
        """Count the rounds that break a rule."""
        self.counts.add(rule, self.raw.source, self.raw.lines[rows])

    @property
    def columns(self) -> dict[str, polars.Series]:
        """The raw features that all actions share, nested ones with dots."""
        return {name: column.values for name, column in raw_columns(self.raw.features).items()}


def numeric_rounds(raw: RawRounds) -> Rounds:
    """``raw`` as numbers."""
    places, n_actions, names = _actions(raw)
    rewards, text_rewards = numbers_of(raw.reward)
    logged = None if raw.propensity is None else numbers_of(raw.propensity)[0]
    times, dated = (None, False) if raw.time is None else times_of(raw.time)
    floats = raw.features.select(polars.selectors.float()).iter_columns()
    infinite = np.logical_or.reduce([np.zeros(len(raw), dtype=bool), *(too_large(each.to_numpy()) for each in floats)])
    broken = broken_rounds(
        RoundValues(
            actions=places,
            n_actions=n_actions,
            rewards=rewards,
            text_rewards=text_rewards,
            propensities=logged,
            distribution=None if raw.pool is None or logged is None else _distribution(raw.pool, places),
            infinite_contexts=infinite,
            times=times,
            no_sequence=None if raw.sequence is None else raw.sequence.is_null().to_numpy(),
        )
    )
    rewards[broken["reward-infinite"]] = np.nan
    invalid = [rows for rule, rows in broken.items() if RULES[rule].column == "propensities"]
    propensities = None if logged is None else np.where(np.logical_or.reduce(invalid), np.nan, logged)
    return Rounds(raw, names, rewards, propensities, logged, times, dated, broken)


def numbers_of(column: polars.Series) -> tuple[Floats, Bools]:
    """(n,) numbers, NaN if there is none, and which entries are something else instead."""
    if column.dtype == polars.Object:
        column = polars.Series(column.name, [None if value is None else str(value) for value in column], polars.String)
    if column.dtype.is_nested() or column.dtype.is_temporal():
        return np.full(len(column), np.nan), column.is_not_null().to_numpy()
    if column.dtype in (polars.String, polars.Categorical, polars.Enum):
        text = column.cast(polars.String).str.strip_chars()
        text = text.set(text.str.to_lowercase().is_in(["", "nan", "null", "none", "na"]), None)
        column = text.cast(polars.Float64, strict=False)
        other = (column.is_null() & text.is_not_null()).to_numpy()
    else:
        other = np.zeros(len(column), dtype=bool)
    values = np.array(column.cast(polars.Float64).fill_null(np.nan).to_numpy(), dtype=np.float64)
    return values, np.asarray(other)


def times_of(column: polars.Series) -> tuple[Floats, bool]:
    """(n,) times as numbers, NaN if missing, and whether they are dates (then in seconds since 1970)."""
    if column.dtype in (polars.String, polars.Categorical, polars.Enum):
        text = column.cast(polars.String)
        numbers, other = numbers_of(text)
        if not other.any():
            return numbers, False
        try:
            column = text.str.to_datetime(strict=False, time_unit="us")
        except polars.exceptions.PolarsError:  # the first value does not look like a date
            return np.full(len(column), np.nan), False
    if column.dtype in (polars.Datetime, polars.Date):
        ticks = column.cast(polars.Datetime("us")).dt.timestamp("us")
        return numbers_of(ticks)[0] / 1e6, True
    values = numbers_of(column)[0]
    values[~np.isfinite(values)] = np.nan
    return values, False


def hashes_of(frame: polars.DataFrame) -> npt.NDArray[np.uint64]:
    """(n,) a hash of each row."""
    if frame.width == 0:
        return np.zeros(frame.height, dtype=np.uint64)
    for name in [name for name, kind in frame.schema.items() if kind == polars.Object]:
        frame = frame.with_columns(polars.Series(name, [str(value) for value in frame[name]], polars.String))
    return np.asarray(frame.hash_rows(seed=0).to_numpy(), dtype=np.uint64)


def _actions(raw: RawRounds) -> tuple[Floats, Any, polars.Series]:
    """(n,) the places of the actions, how many there are, and their names."""
    column, pool = raw.action, raw.pool
    if pool is None:
        if column.dtype.is_float():
            whole = column.is_not_nan().fill_null(False).all() and (column == column.floor()).fill_null(True).all()
            column = column.cast(polars.Int64, strict=False) if whole else column.fill_nan(None)
        names = column.cast(polars.String).str.strip_chars_end("\r\n")
        names = names.set((names.str.strip_chars() == "").fill_null(False), None)
        return np.where(names.is_null().to_numpy(), np.nan, 0.0), 1, names
    places, other = numbers_of(column)
    places = np.where(other, -1.0, places)
    inside = integers_below(places, pool.lengths)
    if pool.names is None:
        chosen = polars.Series(np.where(inside, places, 0)).cast(polars.Int64).cast(polars.String)
    else:
        chosen = pool.names.gather(_chosen(pool, places)).cast(polars.String)
    return places, pool.lengths, chosen.set(polars.Series(~inside), None)


def _chosen(pool: Pool, places: Floats) -> Ints:
    """(n,) the row of the pool that holds the action taken; any row if there is none."""
    rows = pool.offsets[:-1] + np.where(integers_below(places, pool.lengths), places, 0).astype(np.int64)
    return np.minimum(rows, max(int(pool.offsets[-1]) - 1, 0))


def _distribution(pool: Pool, places: Floats) -> Distribution | None:
    """The logging distributions; those of empty lists are fine, as their actions are not."""
    if pool.probs is None or not len(pool.probs):
        return None
    lengths, n = pool.lengths, len(places)
    sums = np.bincount(pool.owners, pool.probs, n).astype(np.float64)
    sums[lengths == 0], lowest = 1.0, np.full(n, np.inf)
    np.minimum.at(lowest, pool.owners, pool.probs)
    return Distribution(sums, lowest, pool.probs[_chosen(pool, places)], np.maximum(lengths, 1))


class MemoryLog:
    """A BanditLog, whose rounds were validated when it was made."""

    format = "BanditLog"

    def __init__(self, log: BanditLog) -> None:
        self.log = log
        self.columns: dict[str, str] = {}

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds, part by part; rows count from 1."""
        lists = self.log.masked or self.log.joint.kind == "per action" or self.log.logging_probs is not None
        for rounds in self.log.chunk_slices(rows):
            yield raw_rounds(self.log[rounds], rounds.start, lists)
