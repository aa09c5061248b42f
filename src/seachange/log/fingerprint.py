"""What is kept of a log, to recognize it later even if only part of it comes back."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from seachange.params import Brief
from seachange.protocols import Bools, Floats

if TYPE_CHECKING:
    from seachange.log.bandit_log import BanditLog

Hashes = npt.NDArray[np.uint64]
REMEMBERED = 512  # rounds in the sample: those with the smallest hashes, which amounts to a random choice
MOSTLY_DISTINCT = 0.95  # rounds that mostly equal other rounds do not identify a log
ENOUGH = 5  # rounds below the sample's largest hash that are needed to decide whether they are in the sample
# Constants of the generator SplitMix64 (golden ratio, David Stafford), which mixes bits evenly.
STEP, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, kw_only=True, repr=False)
class LogIdentity(Brief):
    """What a model keeps of a log to recognize it."""

    fingerprint: str
    n_rounds: int
    time_range: tuple[str, str] | None
    remembered: tuple[int, ...] = ()  # hashes of some rounds; none if rounds are too similar

    @classmethod
    def of(cls, log: "BanditLog") -> Self:
        """The identity of ``log``."""
        period = None if log.times is None else (str(log.times.min()), str(log.times.max()))
        return cls(fingerprint=log.fingerprint(), n_rounds=len(log), time_range=period, remembered=remembered(log))

    @property
    def seconds(self) -> tuple[float, float] | None:
        """The time of the first and last round, in seconds; dates since 1970."""
        if self.time_range is None:
            return None
        try:
            first, last = map(float, self.time_range)
        except ValueError:
            first, last = seconds_of(np.array(self.time_range, dtype="datetime64[us]")).tolist()
        return first, last

    def period_holds(self, log: "BanditLog", *, end: bool) -> Bools:
        """(n,) whether each round of ``log`` falls in the period of this one, with or without its last moment."""
        if log.times is None or self.seconds is None:
            return np.zeros(len(log), dtype=bool)
        times, (first, last) = seconds_of(log.times), self.seconds
        return np.asarray((times >= first) & ((times <= last) if end else (times < last)))


def seconds_of(times: npt.NDArray[Any]) -> Floats:
    """Times in seconds; dates since 1970."""
    return times.astype("datetime64[us]").astype(np.int64) / 1e6 if times.dtype.kind == "M" else times.astype(float)


def dates_of(times: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Dates from dates or from seconds since 1970."""
    return times if times.dtype.kind == "M" else np.round(times * 1e6).astype("datetime64[us]")


def remembered(log: "BanditLog") -> tuple[int, ...]:
    """The smallest hashes of the rounds of ``log``; none if its rounds are too similar to identify it."""
    least = np.empty(0, dtype=np.uint64)
    for chunk in log.chunks():
        least = np.sort(np.concatenate([least, round_hashes(chunk)]))[: 2 * REMEMBERED]
    distinct = np.unique(least)
    return tuple(distinct[:REMEMBERED].tolist()) if len(distinct) >= MOSTLY_DISTINCT * len(least) else ()


def share_known(log: "BanditLog", hashes: tuple[int, ...]) -> float | None:
    """The share of the rounds of ``log`` that the log behind ``hashes`` had; None if there are too few to tell."""
    known = np.array(hashes, dtype=np.uint64)
    # A sample that is not full holds all rounds there were.
    limit = known[-1] if len(known) == REMEMBERED else np.iinfo(np.uint64).max if len(known) else np.uint64(0)
    below = [found[found <= limit] for found in (round_hashes(chunk) for chunk in log.chunks())]
    candidates = np.concatenate(below)
    return float(np.isin(candidates, known).mean()) if len(candidates) >= ENOUGH else None


def round_hashes(log: "BanditLog") -> Hashes:
    """(n,) a 64-bit hash of the action, the reward and the features of each round."""
    with np.errstate(over="ignore"):
        hashes = mixed(log.actions.astype(np.uint64)) ^ _bits(log.rewards)
        rows = log.arrays.rows
        for column in rows.reshape(len(rows), -1).T if len(rows) == len(log) else ():
            hashes = mixed(hashes + STEP) ^ _bits(column)
        return mixed(hashes)


def _bits(values: npt.NDArray[np.floating]) -> Hashes:
    return (np.ascontiguousarray(values, dtype=np.float64) + 0.0).view(np.uint64)  # -0 is 0


def mixed(values: Hashes) -> Hashes:
    """Values with evenly mixed bits."""
    values = (values ^ (values >> np.uint64(30))) * FIRST
    values = (values ^ (values >> np.uint64(27))) * SECOND
    return values ^ (values >> np.uint64(31))
