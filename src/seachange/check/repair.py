"""Write a cleaned copy of a log; rounds that are removed go to a file of their own, with reasons.

rounds and lines read = rounds written + rounds and lines rejected
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars

from seachange.check.counters import SAME, SeenKeys
from seachange.check.log_check import TABLES, UNORDERED, LogCheck
from seachange.check.numeric_rounds import numbers_of, numeric_rounds, times_of
from seachange.check.round_checks import round_hashes
from seachange.errors import LogError, OutputError
from seachange.formats.dsjson import dsjson_frame
from seachange.log.raw import RawLog, RawRounds
from seachange.log.validation import RULES
from seachange.outputs import claim_file, written_whole
from seachange.protocols import Bools

HOPELESS = {*RULES, "mostly-bad", "propensity-percent", "no-rounds"}  # findings that removing rounds does not repair
# Rules whose rounds are removed because of what was chosen or earned.
BIASING = {name for name, rule in RULES.items() if rule.column in ("actions", "rewards", "propensities")}
ORDER = "seachange: time"  # a temporary column of times as numbers


@dataclass(frozen=True)
class Repair:
    """The result of a repair."""

    written: str
    rejected: str  # the file of what was removed; empty if nothing was
    n_read: int  # rounds and unreadable lines
    n_written: int
    n_rejected: int
    reasons: dict[str, int]  # rule → rounds or lines; only the first rule that each breaks counts
    sorted: bool
    notes: tuple[str, ...]  # what to know before you learn from it


def rejected_path(out: Path) -> Path:
    """The file for the rounds that are removed."""
    return out.with_name(f"{out.name}.rejected.jsonl")


def fix_log(raw: RawLog, check: LogCheck, out: str | Path, *, force: bool = False) -> Repair:
    """Write ``raw`` to ``out`` without bad and duplicate rounds, sorted by time if necessary.

    Tables become Parquet files; logs whose rounds list their actions become dsjson. Only sorting needs the cleaned log
    in memory.
    """
    target = claim_file(out, force=force)
    _require_ending(target, check)
    beside = claim_file(rejected_path(target), force=force)
    if hopeless := [each for each in check.findings if each.severity == "error" and each.rule in HOPELESS]:
        raise LogError(f"dropping rounds cannot fix this log: {hopeless[0].evidence}")
    rules = check.rules()
    sorts = "time-backwards" in rules and not rules & UNORDERED
    with (
        _writing(target),
        TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.", ignore_cleanup_errors=True) as temporary,
    ):
        folder = Path(temporary)
        columns = raw.columns if raw.format in TABLES else {}
        sieve = _Sieve(columns, SeenKeys(largest=None) if "duplicate-rounds" in rules else None, sorts)
        with written_whole(beside) as rejected:
            for number, part in enumerate(raw.parts()):
                sieve.pass_on(part, folder / f"{number:09}.parquet", rejected)
            _join(sorted(folder.glob("*.parquet")), sorts, target, lists=check.pool is not None)
        if not sieve.reasons:
            beside.unlink()
    n_rejected = sum(sieve.reasons.values())
    return Repair(
        written=str(target),
        rejected=str(beside) if n_rejected else "",
        n_read=sieve.n_written + n_rejected,
        n_written=sieve.n_written,
        n_rejected=n_rejected,
        reasons=dict(sieve.reasons),
        sorted=sorts,
        notes=tuple(_notes(sieve.reasons, rules, sorts)),
    )


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """A full disk and the like, which Python and polars report each in their own way, as an OutputError."""
    try:
        yield
    except OutputError:
        raise
    except (OSError, polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(f"cannot write {str(target)!r}: {reason}. The log itself was not changed.") from error


class _Sieve:
    """Splits parts of a log into rounds that are kept and rounds that are not."""

    def __init__(self, columns: dict[str, str], seen: SeenKeys | None, sorts: bool) -> None:
        self.columns, self.seen, self.sorts = columns, seen, sorts
        self.n_written = 0
        self.reasons: Counter[str] = Counter()

    def pass_on(self, raw: RawRounds, kept_to: Path, rejected_to: Path) -> None:
        """Write the rounds of a part that are kept, and append the others to the rejected ones."""
        if raw.rejected:
            self.reasons.update(each.rule for each in raw.rejected)
            _append(polars.DataFrame(list(raw.rejected)).drop("rule"), rejected_to)
        if not len(raw):
            return
        bad, whys = self._broken(raw)
        frame = frame_of(raw, self.columns)
        if raw.pool is None:
            kept = _numbered(frame, self.columns).filter(polars.Series(~bad))
        else:
            kept = dsjson_frame(raw.filter(~bad), first=self.n_written)
        if kept.height:
            if self.sorts and raw.time is not None:
                kept = kept.with_columns(polars.Series(ORDER, times_of(raw.time)[0][~bad]))
            kept.write_parquet(kept_to)
            self.n_written += kept.height
        if bad.any():
            places = {"source": [raw.source] * int(bad.sum()), "line": raw.lines[bad], "reason": whys[bad]}
            self.reasons.update(whys[bad].tolist())
            dropped = frame.filter(polars.Series(bad)).to_struct("round")
            _append(polars.DataFrame(places).with_columns(dropped), rejected_to)

    def _broken(self, raw: RawRounds) -> tuple[Bools, np.ndarray]:
        """(n,) the rounds that are removed, and the rule that each breaks."""
        bad, whys = np.zeros(len(raw), dtype=bool), np.full(len(raw), "", dtype=object)
        for rule, rows in numeric_rounds(raw).broken.items():
            whys[rows & ~bad] = rule
            bad |= rows
        if self.seen is not None:
            good = np.flatnonzero(~bad)
            wholes = round_hashes(raw)[1][good]
            again = good[self.seen.repeats(wholes, wholes) == SAME]
            bad[again], whys[again] = True, "duplicate-rounds"
        return bad, whys


def frame_of(raw: RawRounds, columns: dict[str, str]) -> polars.DataFrame:
    """A part as a table with the columns of the file; a pool becomes a list of records."""
    words = ("time", "sequence", "action", "reward", "propensity")
    roles = {columns.get(word, word): getattr(raw, word) for word in words if getattr(raw, word) is not None}
    frame, pool = polars.DataFrame(roles).with_columns(raw.features.get_columns()), raw.pool
    if pool is None or not (pool.features.width or pool.names is not None or pool.probs is not None):
        return frame
    extra = {"name": pool.names, "prob": pool.probs}
    own = [polars.Series(name, values) for name, values in extra.items() if values is not None]
    return frame.hstack([pool.lists(polars.DataFrame([*pool.features.get_columns(), *own]).to_struct("pool"))])


def _numbered(frame: polars.DataFrame, columns: dict[str, str]) -> polars.DataFrame:
    """Rewards and propensities as numbers, even if a few words among them made the column text."""
    names = [columns.get(word, word) for word in ("reward", "propensity")]
    texts = [name for name in names if name in frame.columns and frame[name].dtype == polars.String]
    return frame.with_columns(polars.Series(name, numbers_of(frame[name])[0]) for name in texts)


def _append(frame: polars.DataFrame, path: Path) -> None:
    with path.open("ab") as file:
        frame.write_ndjson(file)


def _require_ending(target: Path, check: LogCheck) -> None:
    """Raise if the name of the output has the wrong ending."""
    endings = (".dsjson", ".json") if check.pool is not None else (".parquet", ".pq")
    if target.suffix.lower() not in endings:
        what = "dsjson, because its rounds list their actions" if check.pool is not None else "Parquet"
        raise LogError(f"the cleaned log is written as {what}; {str(target)!r} should end in {endings[0]}.")


def _join(parts: list[Path], sorts: bool, target: Path, *, lists: bool) -> None:
    """Join the parts into one file, sorted by time if asked."""
    if not parts:
        raise LogError("every round of the log is bad, so nothing was written.")
    whole = polars.concat([polars.scan_parquet(part) for part in parts], how="diagonal_relaxed")
    if sorts:
        whole = whole.sort(ORDER, maintain_order=True).drop(ORDER)
    with written_whole(target) as path:
        (whole.sink_ndjson if lists else whole.sink_parquet)(path)


def _notes(reasons: Counter[str], rules: set[str], sorts: bool) -> Iterator[str]:
    if count := sum(reasons[rule] for rule in BIASING):
        yield (
            f"{count:,} rounds were removed because of their action, reward, or propensity. If "
            "bad values are more common for some actions than for others, the model will be biased."
        )
    if "time-backwards" in rules and not sorts:
        yield "The log was not sorted, because some timestamps are wrong and sorting would misplace their rounds."
