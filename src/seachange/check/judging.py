"""From what a pass has counted to what is said."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import PurePath

from seachange.check.drift import drift_of
from seachange.check.ground import USELESS, ground_of, judge_ground
from seachange.check.judging_actions import action_checks, judge_actions
from seachange.check.judging_contexts import context_checks, judge_contexts
from seachange.check.judging_propensities import judge_propensities, propensity_check
from seachange.check.judging_repeats import judge_repeats
from seachange.check.judging_rewards import judge_rewards, reward_check
from seachange.check.judging_rounds import RULES, judge_rounds
from seachange.check.judging_times import judge_times, time_check
from seachange.check.presence import Presence, presence_of
from seachange.check.record import TABLES, Finding, LogCheck
from seachange.check.tally import Tally

ORDER = {"error": 0, "warning": 1, "note": 2}
# Columns that a suggested command may list.
MOST_LISTED = 40
# Findings after which counting rewards has no point.
NOTHING_TO_LEARN = {"no-rounds", "single-action", "many-actions", "reward-constant", "reward-missing", "reward-text"}


def judged(tally: Tally, log: str, format: str, columns: dict[str, str]) -> LogCheck:
    """Everything about a log that was counted."""
    presence = presence_of(tally)
    findings = _findings(tally, presence)
    ground = ground_of(tally, findings)
    if not any(each.severity == "error" and each.rule in NOTHING_TO_LEARN for each in findings):
        findings += judge_ground(tally, ground)
    findings.sort(key=lambda each: ORDER[each.severity])
    contexts = context_checks(tally)
    check = LogCheck(
        log=log,
        format=format,
        columns=dict(columns),
        n_rounds=tally.n_rounds,
        n_usable=tally.n_rounds - tally.n_bad,
        files=tuple(tally.files),
        n_files=tally.n_files,
        n_unreadable=tally.n_unreadable,
        n_actions=tally.actions.count,
        actions=action_checks(tally, presence),
        n_contexts=len(contexts),
        contexts=contexts,
        pool=tally.pool,
        rewards=reward_check(tally),
        times=time_check(tally),
        propensities=propensity_check(tally),
        drift=drift_of(tally),
        ground=ground,
        findings=tuple(findings),
        next_command="",
        duplicates_seen=tally.repeats.share,
    )
    return replace(check, next_command=next_command(check))


def _findings(tally: Tally, presence: Presence) -> list[Finding]:
    if not tally.n_rounds:
        nothing = Finding("no-rounds", "error", "The log holds no round.", "Check that this is the right file.")
        return [*judge_rounds(tally), nothing]
    about_actions = list(judge_actions(tally, presence))
    return [
        *judge_rounds(tally),
        *judge_repeats(tally),
        *judge_times(tally),
        *judge_rewards(tally),
        *about_actions,
        *judge_propensities(tally, presence, about_actions),
        *judge_contexts(tally),
    ]


def next_command(check: LogCheck) -> str:
    """What to type next; nothing where the log must be repaired by hand."""
    if check.exit_code == 2:
        return ""
    if check.rules() & {"time-backwards", "duplicate-rounds"}:
        columns = ["--columns", _places(check)] if _places(check) else []
        ending = "parquet" if check.pool is None else "dsjson"
        return shlex.join(["seachange", "check", check.log, *columns, "--fix", f"{_stem(check.log)}-clean.{ending}"])
    dirty = bool(check.rules() & {*RULES, "rewards-late"}) or check.n_unreadable > 0
    return learn_command(check, check.log, drop_bad_rows=dirty)


def learn_command(check: LogCheck, log: str, *, drop_bad_rows: bool) -> str:
    """What learns from ``log``, of which ``check`` speaks."""
    rules, places = check.rules(), _places(check)
    columns = ["--columns", places] if places else []
    useless = {name for each in check.findings if each.rule in USELESS for name in each.names}
    kept = [each.name for each in check.contexts if each.name not in useless]
    # What is merely useless learn leaves out itself.
    if check.format in TABLES and rules & {"reward-leak", "identifier"} and kept and len(kept) <= MOST_LISTED:
        columns = ["--columns", ",".join(filter(None, (places, f"contexts={'+'.join(kept)}")))]
    options = ["--estimate-propensities"] if "no-propensities" in rules else []
    options += ["--drop-bad-rows"] if drop_bad_rows else []
    options += ["--oracle", "none"] if "few-rewards" in rules else []
    return shlex.join(["seachange", "learn", log, *columns, *options, "-o", f"{_stem(log)}.seachange"])


def _places(check: LogCheck) -> str:
    named = dict(check.columns) if check.format in TABLES else {}
    if named and (found := [each.names[0] for each in check.findings if each.rule == "propensity-unnamed"]):
        named["propensity"] = found[0]
    return ",".join(f"{word}={place}" for word, place in named.items() if word != place)


def _stem(log: str) -> str:
    return PurePath(log).name.split(".")[0].replace("*", "") or "log"
