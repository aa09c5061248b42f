"""Check a log: what is in it, what is wrong with it, and whether it can support learning."""

from pathlib import Path

from seachange.check.log_check import Finding, LogCheck
from seachange.check.numeric_rounds import MemoryLog
from seachange.check.tally import assessed
from seachange.errors import LogError, require
from seachange.formats.column_roles import Columns
from seachange.log.bandit_log import BanditLog
from seachange.log.raw import RawLog
from seachange.reading import open_raw

__all__ = ["Finding", "LogCheck", "check_log"]


def check_log(
    log: str | Path | BanditLog | RawLog,
    columns: Columns | None = None,
    *,
    format: str | None = None,
    name: str | None = None,
) -> LogCheck:
    """Check a log in one pass and bounded memory: what is in it, what is wrong, and what can be learned.

    ``log`` is a file, a folder or a pattern of files (``columns`` and ``format`` as in ``read_log``), a BanditLog, or a
    raw log; ``name`` is its name in commands. Nothing is changed: ``findings`` lists the problems, ``verdict`` sums
    them up, and ``next_command`` is the command to run next.

    Up to a million different rounds are compared for duplicates; in longer logs, a random share of them is
    (``duplicates_seen``). Only the first 100,000 actions are counted individually.
    """
    if isinstance(log, str | Path):
        return assessed(open_raw(log, columns, format=format), name or str(log))
    known = isinstance(log, BanditLog) or hasattr(log, "parts")
    wrong = f"check_log needs a path or a BanditLog; got a {type(log).__name__}. Make one with BanditLog.from_frame."
    require(known, wrong, LogError)
    return assessed(MemoryLog(log) if isinstance(log, BanditLog) else log, name or "LOG")
