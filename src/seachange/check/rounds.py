"""Raw rounds as numbers, each held to the rules of single rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seachange.log.raw import Pool, RawRounds
from seachange.log.validation import LARGEST, LEAST_PROPENSITY, PROBABILITY_TOLERANCE
from seachange.protocols import Bools, Floats

if TYPE_CHECKING:
    import polars


@dataclass(eq=False)
class Rounds:
    """A part of a log, read as numbers."""

    raw: RawRounds
    names: polars.Series  # (n,) text: the action taken; null where there is none
    rewards: Floats  # (n,) NaN where there is none that can be used
    propensities: Floats | None  # (n,) NaN where there is none that is possible
    stated: Floats | None  # (n,) propensities as they stand there
    times: Floats | None  # (n,) seconds, or the log's own unit; NaN where there is none
    dated: bool  # times are dates, not numbers
    broken: dict[str, Bools] = field(default_factory=dict)  # rule → (n,) the rounds that break it

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def bad(self) -> Bools:
        """(n,) whether a round breaks any rule."""
        return np.asarray(np.logical_or.reduce([*self.broken.values(), np.zeros(len(self), dtype=bool)]))

    @property
    def could_choose(self) -> Floats | None:
        """(n,) how many actions each round had, where the log says."""
        return None if self.raw.pool is None else self.raw.pool.lengths.astype(np.float64)


def rounds_of(raw: RawRounds) -> Rounds:
    """``raw`` as numbers."""
    broken: dict[str, Bools] = {}
    names = _names(raw, broken)
    rewards = _rewards(raw.reward, broken)
    stated = propensities = None
    if raw.propensity is not None:
        stated = numbers_of(raw.propensity)[0]
        propensities = _propensities(stated, broken)
        if raw.pool is not None and raw.pool.probs is not None:
            _compare_distributions(raw, raw.pool, stated, broken)
    times, dated = None, False
    if raw.time is not None:
        times, dated = times_of(raw.time)
        broken["time-missing"] = np.isnan(times)
    if raw.sequence is not None:
        broken["sequence-missing"] = raw.sequence.is_null().to_numpy()
    broken["context-infinite"] = _infinite(raw)
    return Rounds(raw, names, rewards, propensities, stated, times, dated, broken)


def numbers_of(column: polars.Series) -> tuple[Floats, Bools]:
    """(n,) numbers, NaN where there is none, and where something else stands instead."""
    import polars

    if column.dtype == polars.Object:
        column = polars.Series(column.name, [None if value is None else str(value) for value in column], polars.String)
    if column.dtype.is_nested() or column.dtype.is_temporal():
        return np.full(len(column), np.nan), column.is_not_null().to_numpy()
    if column.dtype in (polars.String, polars.Categorical, polars.Enum):
        text = column.cast(polars.String).str.strip_chars()
        text = text.set(text.str.to_lowercase().is_in(["", "nan", "null", "none", "na"]), None)
        column = text.cast(polars.Float64, strict=False)
        strange = (column.is_null() & text.is_not_null()).to_numpy()
    else:
        strange = np.zeros(len(column), dtype=bool)
    values = np.array(column.cast(polars.Float64).fill_null(np.nan).to_numpy(), dtype=np.float64)
    return values, np.asarray(strange)


def times_of(column: polars.Series) -> tuple[Floats, bool]:
    """(n,) times as numbers, NaN where there is none, and whether they are dates (then in seconds since 1970)."""
    import polars

    if column.dtype in (polars.String, polars.Categorical, polars.Enum):
        text = column.cast(polars.String)
        numbers, strange = numbers_of(text)
        if not strange.any():
            return numbers, False
        try:
            column = text.str.to_datetime(strict=False, time_unit="us")
        except polars.exceptions.PolarsError:  # nothing that looks like a date stands first
            return np.full(len(column), np.nan), False
    if column.dtype in (polars.Datetime, polars.Date):
        ticks = column.cast(polars.Datetime("us")).dt.timestamp("us")
        return numbers_of(ticks)[0] / 1e6, True
    values = numbers_of(column)[0]
    values[~np.isfinite(values)] = np.nan
    return values, False


def hashes_of(frame: polars.DataFrame) -> npt.NDArray[np.uint64]:
    """(n,) a hash of every row."""
    import polars

    if frame.width == 0:
        return np.zeros(frame.height, dtype=np.uint64)
    objects = [name for name, kind in frame.schema.items() if kind == polars.Object]
    for name in objects:
        texts = polars.Series(name, [str(value) for value in frame[name]], polars.String)
        frame = frame.with_columns(texts)
    return np.asarray(frame.hash_rows(seed=0).to_numpy(), dtype=np.uint64)


def _names(raw: RawRounds, broken: dict[str, Bools]) -> polars.Series:
    import polars

    column = raw.action
    if raw.pool is None:
        if column.dtype.is_float():
            whole = column.is_not_nan().fill_null(False).all() and (column == column.floor()).fill_null(True).all()
            column = column.cast(polars.Int64, strict=False) if whole else column.fill_nan(None)
        names = column.cast(polars.String).str.strip_chars_end("\r\n")
        names = names.set((names.str.strip_chars() == "").fill_null(False), None)
        broken["action-missing"] = names.is_null().to_numpy()
        return names
    places, strange = numbers_of(column)
    with np.errstate(invalid="ignore"):
        inside = (places >= 0) & (places < raw.pool.lengths) & (places == np.floor(places))
    broken["action-missing"] = np.isnan(places) & ~strange
    broken["action-outside-pool"] = ~inside & ~broken["action-missing"]
    if raw.pool.names is None:
        chosen = polars.Series(np.where(inside, places, 0)).cast(polars.Int64).cast(polars.String)
    else:
        chosen = raw.pool.names.gather(_chosen(raw.pool, places, inside)).cast(polars.String)
    return chosen.set(polars.Series(~inside), None)


def _chosen(pool: Pool, places: Floats, inside: Bools) -> npt.NDArray[np.int64]:
    """(n,) the row of the pool that holds the action taken; any row where there is none."""
    rows = pool.offsets[:-1] + np.where(inside, places, 0).astype(np.int64)
    return np.minimum(rows, max(int(pool.offsets[-1]) - 1, 0))


def _rewards(column: polars.Series, broken: dict[str, Bools]) -> Floats:
    rewards, strange = numbers_of(column)
    with np.errstate(invalid="ignore"):
        endless = np.abs(rewards) > LARGEST
    broken["reward-text"] = strange
    broken["reward-missing"] = np.isnan(rewards) & ~strange
    broken["reward-infinite"] = endless
    rewards[endless] = np.nan
    return rewards


def _propensities(stated: Floats, broken: dict[str, Bools]) -> Floats:
    with np.errstate(invalid="ignore"):
        broken["propensity-missing"] = np.isnan(stated)
        broken["propensity-zero"] = stated == 0
        broken["propensity-negative"] = stated < 0
        broken["propensity-above-one"] = stated > 1
        broken["propensity-tiny"] = (stated > 0) & (stated < LEAST_PROPENSITY)
        possible = (stated >= LEAST_PROPENSITY) & (stated <= 1)
    return np.where(possible, stated, np.nan)


def _compare_distributions(raw: RawRounds, pool: Pool, stated: Floats, broken: dict[str, Bools]) -> None:
    """Where the propensity is not that of the action taken, and where a distribution is none."""
    probs: Any = pool.probs
    places = numbers_of(raw.action)[0]
    inside = ~(broken["action-missing"] | broken["action-outside-pool"])
    lengths = pool.lengths
    members = np.repeat(np.arange(len(raw)), lengths)
    known = np.bincount(members, np.isfinite(probs), len(raw)) == lengths
    sums = np.bincount(members, np.nan_to_num(probs), len(raw))
    least = np.full(len(raw), np.inf)
    np.minimum.at(least, members, np.nan_to_num(probs))
    # Written with a few decimals each, the probabilities of many actions add up to rounding errors.
    allowed = np.maximum(PROBABILITY_TOLERANCE, 1e-4 * np.sqrt(lengths))
    broken["distribution-sum"] = known & (lengths > 0) & ((np.abs(sums - 1) > allowed) | (least < 0))
    taken = probs[_chosen(pool, places, inside)] if len(probs) else np.full(len(raw), np.nan)
    broken["propensity-mismatch"] = inside & known & ~broken["distribution-sum"] & (np.abs(taken - stated) > 1e-4)


def _infinite(raw: RawRounds) -> Bools:
    import polars.selectors as cs

    found = np.zeros(len(raw), dtype=bool)
    for column in raw.features.select(cs.float()).iter_columns():
        found |= column.is_infinite().fill_null(False).to_numpy()
    return found
