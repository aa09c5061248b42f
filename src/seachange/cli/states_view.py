"""What ``seachange states`` shows: a strip of states over time, and tables."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from seachange.analysis.formatting import (
    count_of,
    decimals_for,
    describe_contexts,
    describe_contrast,
    new_regimes_text,
    shown_name,
)
from seachange.analysis.states_summary import Evidence, StatesSummary
from seachange.cli.tables import spaced, table
from seachange.figures import color_of, ink_on
from seachange.log.bandit_log import BanditLog
from seachange.log.joint_features import JointFeatures
from seachange.outputs import written_whole
from seachange.protocols import Floats
from seachange.states.hmm import BIC_MARGIN
from seachange.states.labels import StateLabels

SIGNS = "0123456789abcdefghijklmnopqrstuvwxyz"
HEIGHTS = " ▁▂▃▄▅▆▇█"
MOST_LINES = 12  # states with a line of their own
LABEL = 9
# A column of the strip belongs to a state with at least this share of it.
MAJORITY = 0.55
FEW = "* fewer than 20 rounds."
MOST_CHANGES, MOST_ACTIONS, MOST_CONTRASTS, MOST_TARGETS = 20, 12, 3, 10
KINDS = {
    "gaussian per state": " with a noise variance for each state",
    "bernoulli": " of clicks",
    "hurdle": " of purchases",
}


def state_strip(summary: StatesSummary, width: int) -> Text:
    """Lines of at most ``width`` characters: the state over time, the probability of each state, and the time axis."""
    n_columns = max(1, min(width - LABEL, len(summary.bands.rounds)))
    shares = summary.bands.coarser(n_columns).shares
    result = Text()
    if summary.n_chains == 1:
        result = Text.assemble("segments".ljust(LABEL), *map(_strip_cell, shares), "\n")
    if (summary.has_probs or summary.n_chains > 1) and summary.n_states > 1:
        most_rounds = np.argsort(-summary.counts, kind="stable")[: min(MOST_LINES, len(summary.in_use))]
        for state in sorted(most_rounds.tolist()):
            heights = "".join(map(_height, shares[:, state]))
            result.append(Text.assemble(f"state {state}".ljust(LABEL), (heights, color_of(state)), "\n"))
    result.append(" " * LABEL + _ticks(summary, n_columns), style="dim")
    return result


def _strip_cell(shares: Floats) -> Text:
    """The sign of the state; a dot if no state has the majority, a blank if there are no rounds."""
    if np.isnan(shares).any():
        return Text(" ")
    state = int(np.argmax(shares))
    if shares[state] < MAJORITY:
        return Text("·", style="dim")
    color = color_of(state)
    return Text(SIGNS[state % len(SIGNS)], style=f"{ink_on(color)} on {color}")


def _height(share: float) -> str:
    return HEIGHTS[int(np.ceil(share * 8 - 1e-3))] if share > 0.02 else " "


def _ticks(summary: StatesSummary, n_columns: int) -> str:
    """The times of the first, the middle and the last column."""
    axis, edges = summary.axis, summary.bands.edges
    last = edges[-1] - 1 if axis.kind in ("round", "round of its sequence") else edges[-1]
    first, end = axis.format(float(edges[0])), axis.format(float(last))
    middle = axis.format(float((edges[0] + edges[-1]) / 2))
    if axis.kind == "date" and edges[-1] - edges[0] > 5 * 86400:
        first, middle, end = first[:10], middle[:10], end[:10]
    if len(first) + len(middle) + len(end) + 8 > n_columns:
        return first + end.rjust(n_columns - len(first)) if len(first) + len(end) < n_columns else first
    line = first + middle.center(n_columns - len(first) - len(end))
    return line[: n_columns - len(end)] + end


def states_view(summary: StatesSummary, width: int) -> Group:
    """Everything, for a terminal with ``width`` columns."""
    parts: list[RenderableType] = [_headline(summary)]
    if news := new_regimes_text(summary.new_regimes, summary.n_states, summary.axis):
        parts.append(Text(news, style="bold yellow"))
    parts += [state_strip(summary, width), _overview(summary)]
    if summary.clock is not None and summary.clock.followed:
        parts.append(Text(str(summary.clock)))
    if summary.n_states > 1:
        parts.append(_moves(summary))
    if summary.changes:
        parts.append(_changes(summary))
    elif summary.n_chains > 1:
        parts.append(_changes_per_sequence(summary))
    parts.append(_rewards(summary, width))
    if len(summary.in_use) > 1:
        parts.append(_differences(summary))
    if summary.evidence is not None:
        parts.append(_evidence(summary, summary.evidence))
    return spaced([*parts, ""])


def _headline(summary: StatesSummary) -> RenderableType:
    """What was found, and the contexts that were used to find it."""
    found = f"{count_of(summary.n_states, 'state')}, {count_of(len(summary.change_points), 'change')}"
    where = f"in {count_of(summary.n_rounds, 'round')}"
    where += f" in {summary.n_chains:,} sequences" if summary.n_chains > 1 else ""
    how = {"hmm": ", by a hidden Markov model", "change-point": ", by change-point detection", "other": ""}
    kind = KINDS.get(summary.rewards or "", "")
    joint = JointFeatures(summary.contexts, summary.n_actions, len(summary.context_names))
    contexts = describe_contexts(joint, summary.context_names)
    return Group(
        Text.assemble((found, "bold"), f" {where}{how[summary.oracle]}{kind}"),
        Text(contexts if joint.kind == "none" else f"contexts {contexts}", style="dim"),
    )


def _overview(summary: StatesSummary) -> RenderableType:
    """The share of each state in the log, its mean reward, and its best action."""
    rows, decimals = [], decimals_for(summary)
    for state in summary.in_use:
        count, mean = int(summary.counts[state]), summary.mean_rewards[state]
        earned = ("-", "-") if np.isnan(mean) else (f"{mean:z,.{decimals}f}", _best_actions(summary, state))
        share = f"{count / summary.n_rounds:.1%}"
        rows.append((f"state {state}", f"{count:,}", share, f"{int(summary.segment_counts[state]):,}", *earned))
    columns = ("", "rounds", "share", "segments", "mean reward", "best action")
    empty, few = summary.n_states - len(summary.in_use), any(row[-1].endswith("*") for row in rows)
    notes = ([f"{count_of(empty, 'more state')} without rounds."] if empty else []) + [FEW] * few
    return table("States", columns, rows, note=" ".join(notes))


def _best_actions(summary: StatesSummary, state: int) -> str:
    """The best action with enough rounds, and any better one with few rounds."""
    cells, names = summary.cells, summary.action_names
    best = [action for action in (cells.best[state], cells.best_rare[state]) if action is not None]
    return ", ".join(shown_name(names[action]) + "*" * bool(cells.rare[state, action]) for action in best)


def _moves(summary: StatesSummary) -> RenderableType:
    """How long each state lasts, and which states follow it."""
    shown, timed = summary.in_use, summary.axis.timed
    two, empty = summary.n_states == 2, summary.n_states > len(summary.in_use)
    wide = not two and len(shown) <= MOST_TARGETS
    rows = []
    for state in shown:
        stay, to = summary.transitions.expected_stays[state], summary.transitions.leaving[state]
        expected = (f"{stay:,.0f}", summary.axis.format_duration(float(stay)))
        if not np.isfinite(stay) or stay > 100 * summary.n_rounds:
            expected = ("until the end" if stay > 0 else "-", "")
        targets = []
        if wide:
            targets = ["·" if i == state or np.isnan(to[i]) else f"{to[i]:.0%}" for i in shown]
            targets += [f"{1 - to[shown].sum():.0%}"] if empty else []
        elif not two:
            likeliest = [i for i in np.argsort(-np.nan_to_num(to), kind="stable")[:3] if to[i] > 0.005]
            targets = [", ".join(f"{i} ({to[i]:.0%})" for i in likeliest) or "-"]
        rows.append((f"state {state}", *(expected if timed else expected[:1]), *targets))
    heads = [f"→ {i}" for i in shown] + ["→ others"] * empty if wide else [] if two else ["next state"]
    source = "from the model" if summary.oracle == "hmm" else "counted from the segments"
    title = f"How long each state lasts{'' if two else ' and what follows it'} ({source})"
    return table(title, ("", "rounds", *(("time",) if timed else ()), *heads), rows, note=summary.missed_segments)


def _changes(summary: StatesSummary) -> RenderableType:
    """When the state changed, and with which probability."""
    changes, axis = summary.changes[:MOST_CHANGES], summary.axis
    times = [axis.format(float(axis.at(change.round))) for change in changes] if axis.timed else []
    if axis.kind == "date" and all(time.endswith(":00") for time in times):
        times = [time[:-3] for time in times]
    certain = any(change.probability is not None for change in changes)
    columns = {"first round": [f"{change.round:,}" for change in changes]}
    columns |= {"time": times} if times else {}
    columns["from → to"] = [f"{change.before} → {change.after}" for change in changes]
    if certain:
        columns["probability"] = [_probability(change.probability) for change in changes]
    if any(change.p_value is not None for change in changes):
        columns["p-value"] = [_p_value(change.p_value) for change in changes]
    if any(change.low is not None for change in changes):
        interval = f"{summary.confidence:.0%} interval (rounds)"
        columns[interval] = ["-" if each.low is None else f"{each.low:,} to {each.high:,}" for each in changes]
    title = "Changes (probabilities are lower bounds)" if certain else "Changes"
    if hidden := len(summary.changes) - len(changes):
        title += f" (the first {MOST_CHANGES}; {hidden:,} more with --json)"
    counted = f"Rounds are numbered from 0{'; dropped rounds are not counted' if summary.n_dropped else ''}."
    return table(title, [*columns], zip(*columns.values(), strict=True), n_text=0, note=counted)


def _changes_per_sequence(summary: StatesSummary) -> RenderableType:
    """How often the state changes within a sequence."""
    counts = summary.changes_per_chain
    parts = [f"{n:,} with {count_of(k, 'change')}" for k, n in enumerate(counts[:4]) if n]
    if (rest := int(counts[4:].sum())) > 0:
        parts.append(f"{rest:,} with more")
    mean = len(summary.change_points) / summary.n_chains
    return Text.assemble(("Sequences\n", "bold"), f"{', '.join(parts)} ({mean:.2f} changes on average)")


def _rewards(summary: StatesSummary, width: int) -> RenderableType:
    """Mean reward by action and state; states that do not fit side by side go below."""
    cells, decimals = summary.cells, decimals_for(summary)
    order = np.argsort(-cells.rounds.sum(axis=0), kind="stable")
    actions = sorted(order[:MOST_ACTIONS].tolist())
    names = [shown_name(summary.action_names[action]) for action in actions]
    texts = {state: [_cell(summary, state, action, decimals) for action in actions] for state in summary.in_use}
    widest = max((len(text) for column in texts.values() for text in column), default=1)
    per_table = max(1, (width - max(map(len, names)) - 2) // (max(widest, 8) + 2))
    title = f"Mean reward by action, {summary.confidence:.0%} intervals"
    if len(actions) < summary.n_actions:
        title += f" (the {len(actions)} most frequent of {summary.n_actions} actions)"
    any_rare = (cells.rare & (cells.rounds >= 1))[summary.in_use].any()
    averages = "" if summary.contexts == "none" else "Averages over the contexts in which the action was taken."
    note, parts = " ".join(filter(None, (FEW if any_rare else "", averages))), []
    for first in range(0, len(texts), per_table):
        shown = summary.in_use[first : first + per_table]
        rows = [(name, *(texts[state][i] for state in shown)) for i, name in enumerate(names)]
        last = note if first + per_table >= len(texts) else ""
        parts.append(table("" if first else title, ("", *(f"state {state}" for state in shown)), rows, note=last))
    return Group(*parts)


def _differences(summary: StatesSummary) -> RenderableType:
    """What differs most between the states, in words."""
    lines, used = Table.grid(padding=(0, 1, 0, 0)), summary.in_use
    two = len(used) == 2  # then one state says everything about the other
    features = False
    for state in used[:1] if two else used:
        mine = [contrast for contrast in summary.contrasts if contrast.state == state]
        shown = mine if two else mine[:MOST_CONTRASTS]
        features |= any(each.feature is not None for each in shown)
        texts = [describe_contrast(each, f"in state {used[1]}" if two else "in other states") for each in shown]
        for i, line in enumerate(texts or ["no significant difference"]):
            lines.add_row(f"state {state}:" if i == 0 else "", Text(line))
    parts: list[RenderableType] = [Text("How the states differ (SE: standard errors)", style="bold"), lines]
    if features:
        what = "Feature effects are for an increase of one standard deviation (shown after +), or for 1 versus 0."
        averages = "" if summary.contexts == "per action" else " Action effects are averaged over contexts."
        parts.append(Text(what + averages, style="dim"))
    return Group(*parts)


def _evidence(summary: StatesSummary, evidence: Evidence) -> RenderableType:
    """Why this number of states, which log that is from, and why its two columns may disagree."""
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]] = []
    title = "Evidence for the number of states"
    if evidence.counts:
        title, columns = f"{title}: log-likelihood of held-out rewards", ("states", "gain", "BIC", "")
        for each in evidence.counts:
            gain = "" if each.n_states == 1 else f"{each.gain:+,.1f} ± {each.gain_error:,.1f}"
            chosen = "← chosen" if each.n_states == summary.n_states else ""
            rows.append((each.n_states, gain, f"{each.bic:,.1f}", chosen))
    else:
        title, columns = f"{title} (BIC: lower is better)", ("states", "BIC", "")
        rows = [(1, f"{evidence.single_state_bic:,.1f}", ""), (summary.n_states, f"{evidence.bic:,.1f}", "← given")]
    notes, bics = [], {count.n_states: count.bic for count in evidence.counts}
    lowest = min(bics, key=lambda n: bics[n], default=0)
    if lowest > summary.n_states and bics[lowest] < bics[summary.n_states] - BIC_MARGIN:
        notes.append(f"BIC alone would choose {lowest}, but the extra states do not predict held-out rewards better.")
    if not evidence.of_this_log:
        notes.append("This evidence is from the log the model was learned from.")
    return table(title, columns, rows, note=" ".join(notes))


def _cell(summary: StatesSummary, state: int, action: int, decimals: int) -> Text:
    cells = summary.cells
    mean, rounds = cells.means[state, action], cells.rounds[state, action]
    if rounds < 1 or np.isnan(mean):
        return Text("-", style="dim")
    if np.isnan(cells.low[state, action]):
        return Text(f"{mean:z,.{decimals}f} (1 round)", style="dim")
    half = max(cells.high[state, action] - mean, mean - cells.low[state, action])
    rare = bool(cells.rare[state, action])
    style = "dim" if rare else "bold" if cells.best[state] == action else ""
    return Text(f"{mean:z,.{decimals}f} ±{half:,.{decimals}f}{'*' if rare else ' '}", style=style)


def _probability(value: float | None) -> str:
    return "-" if value is None else ">99.9%" if value > 0.999 else f"{value:.1%}"


def _p_value(value: float | None) -> str:
    return "-" if value is None else "<0.0001" if value < 1e-4 else f"{value:.2g}"


def write_states(path: Path, log: BanditLog, labels: StateLabels) -> None:
    """Write one row per round to a CSV or Parquet file: number, time, sequence, state, and (HMM only) its probability.

    Dropped rounds have no number.
    """
    import polars

    columns: dict[str, Any] = {"round": np.arange(len(log))}
    if log.times is not None:
        times = np.asarray(log.times)
        columns["time"] = times.astype("datetime64[us]") if times.dtype.kind == "M" else times
    if log.sequences is not None:
        columns["sequence"] = log.sequences
    columns["state"] = labels.states
    if labels.state_probs is not None:
        columns["probability"] = labels.state_probs[np.arange(len(log)), labels.states]
    frame = polars.DataFrame(columns)
    with written_whole(path) as temporary:
        (frame.write_csv if path.suffix.lower() == ".csv" else frame.write_parquet)(temporary)
