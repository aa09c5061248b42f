"""Writing a log again without what cannot be learned from; what is left out goes to a file of its own, with reasons.

rounds and lines read = rounds written + rounds and lines rejected
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seachange.check.judging_rounds import RULES
from seachange.check.record import TABLES, LogCheck
from seachange.check.repeat_tally import hashes_of_rounds
from seachange.check.rounds import numbers_of, rounds_of, times_of
from seachange.check.seen import SeenBefore
from seachange.check.tally import UNREADABLE
from seachange.errors import LogError
from seachange.kernels.repeats import SAME
from seachange.log.raw import RawLog, RawRounds
from seachange.log.writers.dsjson import dsjson_frame
from seachange.outputs import claim_file, written_whole
from seachange.protocols import Bools

if TYPE_CHECKING:
    import polars

# Findings that leaving rounds out does not repair.
HOPELESS = {*RULES, "mostly-bad", "propensity-percent", "no-rounds"}
# With these an order by time would be no order.
UNORDERED = {"time-mixed-units", "time-impossible", "time-future"}
CHOICES = ("action", "reward", "propensity")
# A column of times that are numbers, which is not written in the end.
ORDER = "seachange: time"


@dataclass(frozen=True)
class Repair:
    """What became of a log."""

    written: str
    rejected: str  # the file of what was left out; empty: nothing was
    n_read: int  # rounds, and lines that hold none
    n_written: int
    n_rejected: int
    reasons: dict[str, int]  # rule → rounds or lines; the first rule that one breaks counts
    sorted: bool
    notes: tuple[str, ...]  # what to know before learning from it


def rejected_path(out: Path) -> Path:
    """Where the rounds that are left out go."""
    return out.with_name(f"{out.name}.rejected.jsonl")


def fix_log(raw: RawLog, check: LogCheck, out: str | Path, *, force: bool = False) -> Repair:
    """Write ``raw`` to ``out``, without rounds that break a rule or repeat an earlier one, in order of time.

    Tables become Parquet files, and logs whose rounds have lists of actions of their own dsjson. Sorting reads what is
    kept into memory; the rest takes a part of the log, and a few tens of bytes for each round that may be repeated.
    """
    target = claim_file(out, force=force)
    _require_ending(target, check)
    beside = claim_file(rejected_path(target), force=force)
    if hopeless := [each for each in check.findings if each.severity == "error" and each.rule in HOPELESS]:
        raise LogError(f"leaving rounds out does not repair this log: {hopeless[0].what} {hopeless[0].cure}")
    rules = check.rules()
    sorts = "time-backwards" in rules and not rules & UNORDERED
    folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        columns = raw.columns if raw.format in TABLES else {}
        sieve = _Sieve(columns, SeenBefore(largest=None) if "duplicate-rounds" in rules else None, sorts)
        with written_whole(beside) as rejected:
            for number, part in enumerate(raw.parts()):
                sieve.pass_on(part, folder / f"{number:09}.parquet", rejected)
            _join(sorted(folder.glob("*.parquet")), sorts, target, lists=check.pool is not None)
        if not sieve.reasons:
            beside.unlink()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
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


class _Sieve:
    """Parts of a log, each split into what is kept and what is not."""

    def __init__(self, columns: dict[str, str], seen: SeenBefore | None, sorts: bool) -> None:
        self.columns, self.seen, self.sorts = columns, seen, sorts
        self.n_written = 0
        self.reasons: Counter[str] = Counter()

    def pass_on(self, raw: RawRounds, kept_to: Path, rejected_to: Path) -> None:
        """Write the rounds of a part that are kept, and append the others to the rejected."""
        import polars

        if raw.rejected:
            self.reasons[UNREADABLE] += len(raw.rejected)
            lines = [
                {"source": each.source, "line": each.line, "reason": each.reason, "text": each.text}
                for each in raw.rejected
            ]
            _append(polars.DataFrame(lines), rejected_to)
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
        """(n,) the rounds that are left out, and the rule that each breaks."""
        rounds = rounds_of(raw)
        bad, whys = np.zeros(len(raw), dtype=bool), np.full(len(raw), "", dtype=object)
        for rule, rows in rounds.broken.items():
            whys[rows & ~bad] = rule
            bad |= rows
        if self.seen is not None:
            good = np.flatnonzero(~bad)
            wholes = hashes_of_rounds(raw)[1][good]
            again = good[self.seen.repeats(wholes, wholes) == SAME]
            bad[again], whys[again] = True, "duplicate-rounds"
        return bad, whys


def frame_of(raw: RawRounds, columns: dict[str, str]) -> polars.DataFrame:
    """A part as a table with the columns that the file had; a pool becomes a list of records."""
    import polars

    words = ("time", "sequence", "action", "reward", "propensity")
    held = {columns.get(word, word): getattr(raw, word) for word in words if getattr(raw, word) is not None}
    frame = polars.DataFrame(held)
    frame = frame.hstack(raw.features.get_columns()) if raw.features.width else frame
    if raw.pool is None:
        return frame
    rows = polars.DataFrame({"round": np.repeat(np.arange(len(raw)), raw.pool.lengths)})
    extra = {"name": raw.pool.names, "prob": raw.pool.probs}
    fields = rows.with_columns(
        *raw.pool.features.get_columns(),
        *(polars.Series(name, held) for name, held in extra.items() if held is not None),
    )
    inside = [name for name in fields.columns if name != "round"]
    lists = fields.group_by("round", maintain_order=True).agg(polars.struct(inside).alias("pool")) if inside else None
    return frame if lists is None else frame.hstack([lists["pool"]])


def _numbered(frame: polars.DataFrame, columns: dict[str, str]) -> polars.DataFrame:
    """Rewards and propensities as numbers, also where a few words among them had made them text."""
    import polars

    names = [columns.get(word, word) for word in ("reward", "propensity")]
    texts = [name for name in names if name in frame.columns and frame[name].dtype == polars.String]
    return frame.with_columns(polars.Series(name, numbers_of(frame[name])[0]) for name in texts)


def _append(frame: polars.DataFrame, path: Path) -> None:
    with path.open("ab") as file:
        frame.write_ndjson(file)


def _require_ending(target: Path, check: LogCheck) -> None:
    """Raise where the name of what is written says it is something else."""
    endings = (".dsjson", ".json") if check.pool is not None else (".parquet", ".pq")
    if target.suffix.lower() not in endings:
        what = "dsjson, as its rounds have lists of actions" if check.pool is not None else "Parquet"
        raise LogError(f"the cleaned log is written as {what}: {str(target)!r} should end in {endings[0]}.")


def _join(parts: list[Path], sorts: bool, target: Path, *, lists: bool) -> None:
    """One file of many, in order of time where that is wanted."""
    import polars

    if not parts:
        raise LogError("no round of the log can be used; nothing was written.")
    whole = polars.concat([polars.scan_parquet(part) for part in parts], how="diagonal_relaxed")
    if sorts:
        whole = whole.sort(ORDER, maintain_order=True).drop(ORDER)
    with written_whole(target) as path:
        if lists:
            whole.sink_ndjson(path)
        else:
            whole.sink_parquet(path)


def _notes(reasons: Counter[str], rules: set[str], sorts: bool) -> list[str]:
    notes = []
    chosen_by = [rule for rule in reasons if rule.split("-")[0] in CHOICES]
    if chosen_by:
        count = sum(reasons[rule] for rule in chosen_by)
        notes.append(
            f"{count:,} rounds were left out for their action, reward or propensity. If these are wrong more often for "
            "some actions or rewards than for others, what is learned is biased, and nothing in the log can show it."
        )
    if "time-backwards" in rules and not sorts:
        notes.append("Not sorted: some times cannot be right, and would move their rounds to where they were not.")
    return notes
