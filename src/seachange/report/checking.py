"""What a check of a log says, for a terminal and as a document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from seachange.check.judging import learn_command
from seachange.report.checking_tables import actions_table, contexts_table, drift_strip, summary_table
from seachange.report.tables import count_of, shown_name

if TYPE_CHECKING:
    from seachange.check.fixing import Repair
    from seachange.check.record import Finding, LearningGround, LogCheck, Place

STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
VERDICTS = {0: "bold green", 1: "bold yellow", 2: "bold red"}
WIDEST = 120


def check_view(check: LogCheck, width: int) -> Group:
    """The verdict, what is there, what is wrong, support, drift, and what can be learned."""
    width = min(width, WIDEST)
    parts: list[RenderableType] = [_verdict(check), ""]
    if check.n_rounds:
        parts += [summary_table(check), ""]
    if check.findings:
        parts += [Text("What to know" if check.exit_code == 0 else "What is wrong", style="bold")]
        parts += [_finding(finding, check, width) for finding in check.findings]
        parts += [""]
    if check.n_rounds and check.exit_code < 2:
        parts += [actions_table(check), ""]
        if check.contexts:
            parts += [contexts_table(check), ""]
    if check.drift is not None and check.exit_code < 2:
        parts += [drift_strip(check, width), ""]
    parts += [Text("What it can support", style="bold"), Text(ground_told(check))]
    return Group(*parts)


def _verdict(check: LogCheck) -> Text:
    result = Text.assemble((shown_name(check.log, 60), "bold"), ": ", (check.verdict, VERDICTS[check.exit_code]))
    counts = {severity: sum(each.severity == severity for each in check.findings) for severity in STYLES}
    told = ", ".join(count_of(count, severity) for severity, count in counts.items() if count)
    return result.append(f" ({told})" if told else "")


def _finding(finding: Finding, check: LogCheck, width: int) -> RenderableType:
    body = Text(finding.what)
    if finding.places:
        body.append(f"\n{_places_told(finding.places, finding.count, check)}", style="dim")
    body.append(f"\n→ {finding.cure}")
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=22)
    grid.add_column(ratio=1)
    grid.width = width
    grid.add_row(Text.assemble((f"{finding.severity} ", STYLES[finding.severity]), f"\n{finding.rule}"), body)
    return grid


def _places_told(places: Sequence[Place], count: int, check: LogCheck) -> str:
    """The first few lines, by file where there are several."""
    by_file: dict[str, list[int]] = defaultdict(list)
    for place in places:
        by_file[place.source].append(place.line)
    word = "row" if check.format in ("parquet", "BanditLog") else "line"
    parts = []
    for source, lines in by_file.items():
        told = f"{word}{'s' if len(lines) > 1 else ''} {', '.join(f'{line:,}' for line in lines)}"
        parts.append(told if check.n_files == 1 else f"{shown_name(source, 40)}: {told}")
    return "; ".join(parts) + (" …" if count > len(places) else "")


def ground_told(check: LogCheck) -> str:
    """Whether anything can be learned, and how many states."""
    ground: LearningGround = check.ground
    if check.exit_code == 2:
        return "Nothing, as it is."
    rewards = "rewarded rounds" if ground.n_events != check.n_usable else "rounds"
    needs = (
        f"{ground.n_events:,} {rewards}; each state needs {ground.needed:,}, its model having {ground.n_coefs:,} "
        "coefficients"
    )
    if ground.most_states < 1:
        return f"A single policy at most. There are {needs}."
    states = "one state" if ground.most_states == 1 else f"up to {ground.most_states} states"
    return f"{states[0].upper()}{states[1:]}. There are {needs}."


def repair_told(repair: Repair, check: LogCheck) -> str:
    """What was written, and what was not."""
    order = ", sorted by time" if repair.sorted else ""
    told = [f"Written: {repair.written}, {repair.n_written:,} of {repair.n_read:,} rounds{order}."]
    if repair.rejected:
        reasons = ", ".join(
            f"{rule} {count:,}" for rule, count in sorted(repair.reasons.items(), key=lambda each: -each[1])
        )
        told.append(f"Left out: {repair.n_rejected:,}, in {repair.rejected} with their reasons ({reasons}).")
    told += repair.notes
    return "\n".join([*told, f"Next: {learn_command(check, str(repair.written), drop_bad_rows=False)}"])


def check_document(check: LogCheck, repair: Repair | None) -> dict[str, Any]:
    """Everything, for a program."""
    document: dict[str, Any] = {"verdict": check.verdict, "exit_code": check.exit_code}
    document |= msgspec.to_builtins(check)
    return document | {"repair": msgspec.to_builtins(repair)}
