"""What is in a log that was checked: tables, and strips over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from seachange.report.colours import colour_of
from seachange.report.strip import HEIGHTS
from seachange.report.tables import count_of, shown_name, table

if TYPE_CHECKING:
    from seachange.check.record import ActionCheck, ContextCheck, LogCheck

# Rows of tables.
MOST_ACTIONS, MOST_CONTEXTS = 10, 12
LABEL = 22
UNCOUNTED = ("yes or no", "nothing", "text")


def summary_table(check: LogCheck) -> Table:
    """What is there, in a line each."""
    rows = [("rounds", _rounds(check))]
    if check.columns:
        rows.append(("columns", ", ".join(f"{word}={shown_name(place, 30)}" for word, place in check.columns.items())))
    rows += [("actions", _actions(check)), ("contexts", _contexts(check))]
    if check.pool is not None:
        low, high = check.pool
        rows.append(
            ("to choose among", f"{low:,} actions a round" if low == high else f"{low:,} to {high:,} actions a round")
        )
    if check.rewards is not None:
        rows.append(("rewards", _rewards(check)))
    rows.append(("propensities", _propensities(check)))
    rows.append(("time", _times(check)))
    return table("What is there", ("", ""), rows, n_text=2)


def _rounds(check: LogCheck) -> str:
    files = count_of(check.n_files, "file") if check.n_files else "memory"
    told = f"{check.n_rounds:,} in {files} ({check.format})"
    return told if check.n_usable == check.n_rounds else f"{told}; {check.n_usable:,} break no rule"


def _actions(check: LogCheck) -> str:
    taken = [each for each in check.actions if each.n_rounds]
    told = ", ".join(f"{shown_name(each.action)} {each.share:.1%}" for each in taken[:5])
    if len(taken) <= 5:
        return f"{check.n_actions:,}: {told}"
    rarest = taken[-1]
    listed = "" if len(check.actions) < check.n_actions else f", … {shown_name(rarest.action)} {_share(rarest.share)}"
    return f"{check.n_actions:,}: {told}{listed}"


def _contexts(check: LogCheck) -> str:
    if not check.contexts:
        return "none"
    kinds: dict[str, int] = {}
    for each in check.contexts:
        kinds[each.kind] = kinds.get(each.kind, 0) + 1
    plural = [f"{count} {kind}{'s' if count > 1 and kind not in UNCOUNTED else ''}" for kind, count in kinds.items()]
    return f"{count_of(check.n_contexts, 'column')}: {', '.join(plural)}"


def _rewards(check: LogCheck) -> str:
    rewards = check.rewards
    assert rewards is not None
    rewarded = f"{rewards.n_rewarded:,} rewarded"
    if rewards.kind == "clicks":
        return f"clicks, {rewarded} ({_share(rewards.mean)})"
    zeros = f", {_share(rewards.share_of_zeros)} zeros" if rewards.share_of_zeros else ""
    return f"numbers from {rewards.lowest:.4g} to {rewards.highest:.4g}, mean {rewards.mean:.4g}{zeros}"


def _propensities(check: LogCheck) -> str:
    found = check.propensities
    if found is None:
        return "none"
    told = f"from {found.lowest:.3g} to {found.highest:.3g}; mean of 1/p {found.inverse_sum:.4g}"
    if check.pool is None:
        told += f" ({check.n_actions:,} actions)"
    return (
        f"{told}; effective rounds: {found.uniform_rounds:,.0f} of choices at random, {found.best_rounds:,.0f} of "
        f"always {shown_name(found.best_action)}"
    )


def _times(check: LogCheck) -> str:
    times = check.times
    if times is None:
        return "none"
    told = f"{moment_told(times.first, times.dated)} to {moment_told(times.last, times.dated)}"
    return told if times.rounds_a_day is None else f"{told}, {times.rounds_a_day:,.0f} rounds a day"


def actions_table(check: LogCheck) -> Table:
    """Support of the most frequent actions."""
    rows = [_action_row(each) for each in check.actions[:MOST_ACTIONS]]
    if check.n_actions > MOST_ACTIONS:
        rows.append((f"… {check.n_actions - MOST_ACTIONS:,} more", "", "", "", "", ""))
    columns = ("action", "rounds", "mean reward", "least p", "mean of 1/p (1)", "eff. rounds")
    return table("Support of actions", columns, rows)


def _action_row(each: ActionCheck) -> tuple[str, ...]:
    inverse = "" if each.inverse_mean is None else f"{each.inverse_mean:.3f} ± {each.inverse_error:.3f}"
    return (
        shown_name(each.action), f"{each.n_rounds:,}", "" if each.mean_reward is None else f"{each.mean_reward:.4g}",
        "" if each.least_propensity is None else f"{each.least_propensity:.3g}", inverse,
        f"{each.effective_rounds:,.0f}",
    )  # fmt: skip


def contexts_table(check: LogCheck) -> Table:
    """The raw features, first those that move."""
    ordered = sorted(check.contexts, key=lambda each: -(each.moved or 0))
    rows = [_context_row(each, check) for each in ordered[:MOST_CONTEXTS]]
    if len(ordered) > MOST_CONTEXTS:
        rows.append((f"… {len(ordered) - MOST_CONTEXTS:,} more", "", "", "", "", ""))
    columns = ("context", "kind", "distinct", "missing", "range", "moves over time")
    return table("Contexts", columns, rows, n_text=2)


def _context_row(each: ContextCheck, check: LogCheck) -> tuple[str, ...]:
    span = "" if each.lowest is None else f"{each.lowest:.3g} to {each.highest:.3g}"
    about = "" if each.distinct_exact else "~"
    return (
        shown_name(each.name), each.kind, f"{about}{each.n_distinct:,}",
        _share(each.n_missing / max(check.n_rounds, 1)) if each.n_missing else "", span,
        "" if each.moved is None else f"{each.moved:.0%} of its variance",
    )  # fmt: skip


def drift_strip(check: LogCheck, width: int) -> Text:
    """Mean reward and shares of actions over time, and whether one state would do."""
    drift = check.drift
    assert drift is not None
    result = Text.assemble(("Over time", "bold"), f", in slices of {drift.slice_rounds:,} rounds\n")
    known = [mean for mean in drift.mean_rewards if mean is not None]
    low, high = min(known), max(known)
    result.append("mean reward".ljust(LABEL))
    result.append(_bars(drift.mean_rewards, min(low, 0.0), high), style=colour_of(0))
    result.append(f"  {low:.3g} to {high:.3g}\n")
    for i, (name, shares) in enumerate(zip(drift.actions, drift.shares, strict=True)):
        result.append(f"share of {shown_name(name, LABEL - 11)}".ljust(LABEL))
        result.append(_bars(shares, 0.0, max(max(each) for each in drift.shares)), style=colour_of(i + 1))
        result.append(f"  {min(shares):.1%} to {max(shares):.1%}\n")
    if drift.changes:
        which = "from slice to slice" if drift.reward_z >= drift.neighbour_z else "together with their neighbours"
        z = max(drift.reward_z, drift.neighbour_z)
        told = f"Rewards of the same actions change {which}, beyond chance (z = {z:.1f}): one state will not do."
    else:
        told = "Nothing at a glance speaks against a single state."
    return result.append(told)


def _bars(values: Sequence[float | None], low: float, high: float) -> str:
    spread = max(high - low, 1e-300)
    return "".join(" " if value is None else HEIGHTS[1 + round(7 * (value - low) / spread)] for value in values)


def moment_told(moment: float, dated: bool) -> str:
    """A time to the minute, or a number."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M") if dated else f"{moment:,.6g}"


def _share(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else f"{share:.2%}" if share >= 0.00005 else f"{share:.1e}"
