"""Is this log sound, and can it support learning? One pass, in memory that does not grow with the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from seachange.check.record import Finding, LogCheck
from seachange.log.bandit_log import BanditLog
from seachange.log.raw import RawLog

__all__ = ["Finding", "LogCheck", "check_log"]


def check_log(
    log: str | Path | BanditLog | RawLog,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    *,
    format: str | None = None,
    name: str | None = None,
) -> LogCheck:
    """Say what is in a log, what is wrong with it and where, and what it can support.

    ``log`` is a file, a folder or a pattern of files (``columns`` and ``format`` as ``read_log`` takes them), a
    BanditLog, or a raw log; ``name`` is what it is called in what is said. Nothing is left out and nothing is changed:
    ``findings`` name the rules that are broken, ``verdict`` says how bad that is, ``next_command`` what to type next.

    Duplicates are found at any distance among up to a million different rounds; of longer logs among a share of them
    that is chosen by chance, ``duplicates_seen``. Actions past the first 100,000 are not told apart.
    """
    from seachange.check.judging import judged
    from seachange.check.tally import tally_of

    raw = open_log(log, columns, format=format)
    told = name or (str(log) if isinstance(log, str | Path) else "LOG")
    return judged(tally_of(raw), told, raw.format, raw.columns)


def open_log(
    log: str | Path | BanditLog | RawLog,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    *,
    format: str | None = None,
) -> RawLog:
    """``log`` as a raw log."""
    if isinstance(log, BanditLog):
        from seachange.check.sources import LogInMemory

        return LogInMemory(log)
    if isinstance(log, str | Path):
        from seachange.log.readers import open_raw

        opened: RawLog = open_raw(log, columns, format=format)
        return opened
    return log
