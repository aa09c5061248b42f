"""What ``seachange check`` shows: a verdict, tables, findings, and the log over time."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from seachange.analysis.formatting import count_of, shown_name
from seachange.check.log_check import UNORDERED, Drift, Finding, LogCheck, RewardCheck, Severity, learn_command
from seachange.check.repair import Repair
from seachange.cli.console import NOT_USABLE, WARNINGS
from seachange.cli.states_view import HEIGHTS
from seachange.cli.tables import spaced, table
from seachange.figures import color_of

MOST_ACTIONS, MOST_CONTEXTS = 10, 12  # rows of the tables
LABEL, WIDEST = 22, 120
MASS_NOUNS = ("text", "empty")
STYLES: dict[Severity, str] = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
VERDICT_STYLES = {0: "bold green", WARNINGS: "bold yellow", NOT_USABLE: "bold red"}
EXIT_CODES = {None: 0, "note": 0, "warning": WARNINGS, "error": NOT_USABLE}


def exit_code(check: LogCheck) -> int:
    """The exit code for the worst finding."""
    return EXIT_CODES[check.worst]


def check_document(check: LogCheck, repair: Repair | None) -> dict[str, Any]:
    """Everything, as a JSON document."""
    document: dict[str, Any] = {"verdict": check.verdict, "exit_code": exit_code(check)}
    return {**document, **msgspec.to_builtins(check), "repair": msgspec.to_builtins(repair)}


def check_view(check: LogCheck, width: int) -> Group:
    """The verdict, a summary, the findings, support, drift, and how many states can be learned."""
    usable, parts = exit_code(check) != NOT_USABLE, [_verdict(check)]
    if check.n_rounds:
        parts.append(table("Log", ("", ""), _summary(check), n_text=2))
    if check.findings:
        shown = (_finding(each, check, min(width, WIDEST)) for each in check.findings)
        parts.append(Group(Text("Findings", style="bold"), *shown))
    if check.n_rounds and usable:
        parts += [_actions(check), *([_contexts(check)] if check.contexts else [])]
    if check.drift is not None and usable:
        parts.append(_over_time(check.drift))
    elif usable and "time-backwards" in check.rules():
        parts.append(Text.assemble(("Over time", "bold"), "\nNot shown: the log is not in time order."))
    support = _support(check) if usable else "Nothing until the errors above are fixed."
    parts.append(Text.assemble(("What this log can support\n", "bold"), support))
    return spaced(parts)


def _verdict(check: LogCheck) -> RenderableType:
    counts = Counter[str](finding.severity for finding in check.findings)
    findings = ", ".join(count_of(counts[severity], severity) for severity in STYLES if counts[severity])
    verdict = (check.verdict, VERDICT_STYLES[exit_code(check)])
    return Text.assemble((shown_name(check.log, 60), "bold"), ": ", verdict, f" ({findings})" if findings else "")


def _finding(finding: Finding, check: LogCheck, width: int) -> RenderableType:
    body = Text.assemble((finding.title, "bold"), f"\n{finding.evidence}")
    if finding.places:
        body.append(f"\n{_places(finding, check)}", style="dim")
    body.append(f"\n→ {finding.fix}")
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=LABEL)
    grid.add_column(ratio=1)
    grid.width = width
    grid.add_row(Text.assemble((f"{finding.severity} ", STYLES[finding.severity]), f"\n{finding.rule}"), body)
    return grid


def _places(finding: Finding, check: LogCheck) -> str:
    """The first few lines, grouped by file if there are several."""
    word, parts = "row" if check.format in ("parquet", "BanditLog") else "line", []
    for source, places in groupby(finding.places, key=lambda place: place.source):
        file = "" if check.n_files == 1 else f"{shown_name(source, 40)}: "
        lines = [f"{place.line:,}" for place in places]
        parts.append(f"{file}{word}{'s' if len(lines) > 1 else ''} {', '.join(lines)}")
    return "; ".join(parts) + (" …" if finding.count > len(finding.places) else "")


def _summary(check: LogCheck) -> list[tuple[str, str]]:
    """What is in the log, one line each."""
    bad = check.n_rounds - check.n_usable
    usable = f": {check.n_usable:,} usable, {bad:,} bad" if bad else ""
    files = count_of(check.n_files, "file") if check.n_files else "memory"
    rows = [("rounds", f"{check.n_rounds:,} in {files} ({check.format}){usable}")]
    if check.columns:
        rows.append(("columns", ", ".join(f"{role}={shown_name(name, 30)}" for role, name in check.columns.items())))
    taken = [each for each in check.actions if each.n_rounds]
    actions = ", ".join(f"{shown_name(each.action)} {each.share:.1%}" for each in taken[:5])
    if len(taken) > 5 and len(check.actions) == check.n_actions:
        actions += f", … {shown_name(taken[-1].action)} {_share(taken[-1].share)}"
    kinds = Counter(each.kind for each in check.contexts).items()
    counts = ", ".join(f"{count} {kind}{'s' if count > 1 and kind not in MASS_NOUNS else ''}" for kind, count in kinds)
    contexts = f"{count_of(check.n_contexts, 'column')}: {counts}" if check.contexts else "none"
    rows += [("actions", f"{check.n_actions:,}: {actions}"), ("contexts", contexts)]
    if check.pool is not None:
        low, high = check.pool
        rows.append(("choices per round", f"{low:,}" if low == high else f"{low:,} to {high:,}"))
    if check.rewards is not None:
        rows.append(("rewards", _rewards(check.rewards)))
    return [*rows, ("propensities", _propensities(check)), ("time", _times(check))]


def _rewards(rewards: RewardCheck) -> str:
    if rewards.kind == "clicks":
        return f"0 or 1; {rewards.n_rewarded:,} rounds have a reward of 1 ({_share(rewards.mean)})"
    zeros = f", {_share(rewards.share_of_zeros)} zeros" if rewards.share_of_zeros else ""
    return f"numbers from {rewards.lowest:.4g} to {rewards.highest:.4g}, mean {rewards.mean:.4g}{zeros}"


def _propensities(check: LogCheck) -> str:
    found = check.propensities
    if found is None:
        return "none"
    actions = f" ({check.n_actions:,} actions)" if check.pool is None else ""
    return (
        f"{found.lowest:.3g} to {found.highest:.3g}; mean of 1/p {found.inverse_sum:.4g}{actions}; effective sample "
        f"size {found.uniform_samples:,.0f} for a random policy, {found.best_samples:,.0f} for always "
        f"{shown_name(found.best_action)}"
    )


def _times(check: LogCheck) -> str:
    times = check.times
    if times is None:
        return "none"
    first, last = (
        datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M") if times.dated else f"{time:,.6g}"
        for time in (times.first, times.last)
    )
    per_day = "" if times.rounds_a_day is None else f", {times.rounds_a_day:,.0f} rounds per day"
    return f"{first} to {last}{per_day}"


def _actions(check: LogCheck) -> Group:
    """Support of the most frequent actions."""
    rows = []
    for each in check.actions[:MOST_ACTIONS]:
        reward = "" if each.mean_reward is None else f"{each.mean_reward:.4g}"
        least = "" if each.least_propensity is None else f"{each.least_propensity:.3g}"
        weight = "" if each.mean_weight is None else f"{each.mean_weight:.3f} ± {each.mean_weight_error:.3f}"
        effective = f"{each.effective_samples:,.0f}"
        rows.append((shown_name(each.action), f"{each.n_rounds:,}", reward, least, weight, effective))
    columns = ("action", "rounds", "mean reward", "smallest p", "mean weight", "eff. sample size")
    note = "" if check.propensities is None else "If the propensities are right, the mean weights should be close to 1."
    return table("Support by action", columns, [*rows, *_more(check.n_actions - MOST_ACTIONS)], note=note)


def _contexts(check: LogCheck) -> Group:
    """The context columns, those that drift first."""
    rows = []
    for each in sorted(check.contexts, key=lambda each: -(each.moved or 0))[:MOST_CONTEXTS]:
        distinct = f"{'' if each.distinct_exact else '~'}{each.n_distinct:,}"
        missing = _share(each.n_missing / check.n_rounds) if each.n_missing else ""
        values = "" if each.lowest is None else f"{each.lowest:.3g} to {each.highest:.3g}"
        drift = "" if each.moved is None else f"{each.moved:.0%} of its variance"
        rows.append((shown_name(each.name), each.kind, distinct, missing, values, drift))
    columns = ("context", "kind", "distinct", "missing", "range", "drift over time")
    return table("Contexts", columns, [*rows, *_more(len(check.contexts) - MOST_CONTEXTS)], n_text=2)


def _more(n: int) -> list[tuple[str]]:
    return [(f"… {n:,} more",)] if n > 0 else []


def _over_time(drift: Drift) -> Text:
    """Mean reward and shares of actions over time, and whether one state is enough."""
    result = Text.assemble(("Over time", "bold"), f", in slices of {drift.slice_rounds:,} rounds\n")
    known = [mean for mean in drift.mean_rewards if mean is not None]
    low, high = min(known), max(known)
    bars = (_bars(drift.mean_rewards, min(low, 0.0), high), color_of(0))
    result.append_text(Text.assemble("mean reward".ljust(LABEL), bars, f"  {low:.3g} to {high:.3g}\n"))
    for i, (name, shares) in enumerate(zip(drift.actions, drift.shares, strict=True)):
        label = f"share of {shown_name(name, LABEL - 11)}".ljust(LABEL)
        bars = (_bars(shares, 0.0, max(max(each) for each in drift.shares)), color_of(i + 1))
        result.append_text(Text.assemble(label, bars, f"  {min(shares):.1%} to {max(shares):.1%}\n"))
    if not drift.changes:
        return result.append("The rewards of each action show no change beyond chance, so one state may be enough.")
    z = max(drift.reward_z, drift.neighbour_z)
    where = "between slices" if drift.reward_z >= drift.neighbour_z else "between neighboring rounds"
    return result.append(
        f"The rewards of the same action change {where} (z = {z:.1f}), so more than one state is likely."
    )


def _bars(values: Sequence[float | None], low: float, high: float) -> str:
    spread = max(high - low, 1e-300)
    return "".join(" " if value is None else HEIGHTS[1 + round(7 * (value - low) / spread)] for value in values)


def _share(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 or share == 0 else "<0.1%"


def _support(check: LogCheck) -> str:
    """How many states can be learned from the log."""
    found = check.learnability
    rounds, most = "rewarded rounds" if found.n_events != check.n_usable else "rounds", found.most_states
    states = "Not even one state" if most < 1 else "Only one state" if most == 1 else f"Up to {most} states"
    capped = " (the most that are tried)" if most < found.n_events // found.needed else ""
    return (
        f"{states} can be learned{capped}: the log has {found.n_events:,} {rounds}, and a state needs at least "
        f"{found.needed:,} for its {count_of(found.n_coefs, 'coefficient')}."
    )


def repair_text(repair: Repair, check: LogCheck) -> str:
    """What was written and what was rejected."""
    order = ", sorted by time" if repair.sorted else ""
    lines = [f"Wrote {repair.written}: {repair.n_written:,} of {repair.n_read:,} rounds{order}."]
    if repair.rejected:
        reasons = ", ".join(f"{rule} {count:,}" for rule, count in Counter(repair.reasons).most_common())
        lines.append(
            f"Wrote {repair.rejected}: {repair.n_rejected:,} rejected rounds, each with the first rule it breaks "
            f"({reasons})."
        )
    lines += repair.notes
    return "\n".join([*lines, next_text(check, learn_command(check, str(repair.written), drop_bad_rows=False))])


def next_text(check: LogCheck, command: str = "") -> str:
    """What to do next: fix what no command can fix, or run a command."""
    if check.next_command:
        return f"Next: {command or check.next_command}"
    first = next(each for each in check.findings if each.severity == "error" or each.rule in UNORDERED)
    return f"Next: fix the log ({first.title[0].lower()}{first.title[1:]}), then check it again."
