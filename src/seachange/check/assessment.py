"""From the counts of a pass to the result of the check, and the command to run next."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import PurePath

from seachange.check.context_checks import USELESS
from seachange.check.drift import drift_of
from seachange.check.learnability import learnability_of
from seachange.check.log_check import TABLES, LogCheck
from seachange.check.tally import Tally
from seachange.log.validation import RULES

ORDER = {"error": 0, "warning": 1, "note": 2}
# Columns that a suggested command may list.
MOST_LISTED = 40


def assessed(tally: Tally, log: str, format: str, columns: dict[str, str]) -> LogCheck:
    """The result of the check."""
    contexts = tuple(each.summary(tally) for each in tally.contexts.columns)
    check = LogCheck(
        log=log,
        format=format,
        columns=dict(columns),
        n_rounds=tally.n_rounds,
        n_usable=tally.n_rounds - tally.rounds.n_bad,
        files=tuple(tally.rounds.files),
        n_files=tally.rounds.n_files,
        n_unreadable=tally.rounds.n_unreadable,
        n_actions=tally.actions.count,
        actions=tally.actions.summaries(tally),
        n_contexts=len(contexts),
        contexts=contexts,
        pool=tally.contexts.pool,
        rewards=tally.rewards.summary(),
        times=tally.times.summary(tally.n_rounds),
        propensities=tally.propensities.summary(tally),
        drift=drift_of(tally),
        learnability=learnability_of(tally),
        findings=tuple(sorted(tally.found, key=lambda each: ORDER[each.severity])),
        next_command="",
        duplicates_seen=tally.repeats.share,
    )
    return replace(check, next_command=next_command(check))


def next_command(check: LogCheck) -> str:
    """The command to run next; empty if the log must be repaired by hand."""
    if check.worst == "error":
        return ""
    if check.rules() & {"time-backwards", "duplicate-rounds"}:
        columns = ["--columns", _mapping(check)] if _mapping(check) else []
        ending = "parquet" if check.pool is None else "dsjson"
        return shlex.join(["seachange", "check", check.log, *columns, "--fix", f"{_stem(check.log)}-clean.{ending}"])
    bad_rows = bool(check.rules() & {*RULES, "rewards-late"}) or check.n_unreadable > 0
    return learn_command(check, check.log, drop_bad_rows=bad_rows)


def learn_command(check: LogCheck, log: str, *, drop_bad_rows: bool) -> str:
    """The command that learns from ``log``, whose check this is."""
    rules, mapping = check.rules(), _mapping(check)
    columns = ["--columns", mapping] if mapping else []
    useless = {name for each in check.findings if each.rule in USELESS for name in each.names}
    kept = [each.name for each in check.contexts if each.name not in useless]
    # Columns that are merely useless are ignored by learn anyway.
    if check.format in TABLES and rules & {"reward-leak", "identifier"} and kept and len(kept) <= MOST_LISTED:
        columns = ["--columns", ",".join(filter(None, (mapping, f"contexts={'+'.join(kept)}")))]
    options = ["--estimate-propensities"] if "no-propensities" in rules else []
    options += ["--drop-bad-rows"] if drop_bad_rows else []
    options += ["--oracle", "none"] if "few-rewards" in rules else []
    return shlex.join(["seachange", "learn", log, *columns, *options, "-o", f"{_stem(log)}.seachange"])


def _mapping(check: LogCheck) -> str:
    named = dict(check.columns) if check.format in TABLES else {}
    if named and (found := [each.names[0] for each in check.findings if each.rule == "propensity-unnamed"]):
        named["propensity"] = found[0]
    return ",".join(f"{role}={column}" for role, column in named.items() if role != column)


def _stem(log: str) -> str:
    return PurePath(log).name.split(".")[0].replace("*", "") or "log"
