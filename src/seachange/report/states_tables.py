"""``seachange states`` on a terminal: every table fits into 80 columns, or into as many as there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from seachange.log.joint import JointFeatures
from seachange.report.contrasts import Contrast
from seachange.report.states import StatesSummary
from seachange.report.strip import state_strip
from seachange.report.tables import contexts_told, count_of, shown_name, table
from seachange.states.hmm import BIC_MARGIN

FEW = "* fewer than 20 rounds."
MOST_CHANGES, MOST_ACTIONS, MOST_CONTRASTS, MOST_TARGETS = 20, 12, 3, 10
KINDS = {"gaussian per state": " with a noise for each state", "bernoulli": " of clicks"}


def states_view(summary: StatesSummary, width: int) -> Group:
    """Everything, for a terminal of ``width`` columns."""
    parts: list[RenderableType] = [
        Group(headline(summary), contexts_line(summary)),
        state_strip(summary, width),
        overview_table(summary),
    ]
    if summary.clock is not None and summary.clock.followed:
        parts.append(Text(str(summary.clock)))
    if summary.n_states > 1:
        parts.append(moves_table(summary))
    if summary.changes:
        parts.append(changes_table(summary))
    elif summary.n_chains > 1:
        parts.append(changes_per_sequence(summary))
    parts.append(reward_tables(summary, width))
    if len(summary.in_use) > 1:
        parts.append(distinguishing(summary))
    if summary.evidence is not None:
        parts.append(evidence_table(summary))
    return Group(*(each for part in parts for each in (part, "")))


def headline(summary: StatesSummary) -> RenderableType:
    """What was found, in a line."""
    found = f"{count_of(summary.n_states, 'state')}, {count_of(len(summary.change_points), 'change')}"
    where = f"in {count_of(summary.n_rounds, 'round')}"
    if summary.n_chains > 1:
        where += f" of {summary.n_chains:,} sequences"
    how = {"hmm": "by a hidden Markov model", "change-point": "by change-points", "other": ""}[summary.oracle]
    kind = KINDS.get(summary.rewards or "", "")
    return Text.assemble((found, "bold"), f" {where}", f", {how}{kind}" if how else "")


def contexts_line(summary: StatesSummary) -> Text:
    """Which contexts the states were found with."""
    joint = JointFeatures(summary.contexts, summary.n_actions, len(summary.context_names))
    told = contexts_told(joint, summary.context_names)
    return _dim(told if joint.kind == "none" else f"contexts {told}")


def overview_table(summary: StatesSummary) -> RenderableType:
    """How much of the log each state has, and what it earned there."""
    rows, show = [], decimals_for(summary)
    for state in summary.in_use:
        count, mean = int(summary.counts[state]), summary.mean_rewards[state]
        known = not np.isnan(mean)
        rows.append(
            (f"state {state}", f"{count:,}", f"{count / summary.n_rounds:.1%}", f"{int(summary.visits[state]):,}",
             f"{mean:z,.{show}f}" if known else "-", _earns_most(summary, state) if known else "-")
        )  # fmt: skip
    columns = ("", "rounds", "share", "segments", "mean reward", "earns most")
    parts = [_titled("States", columns, rows, n_text=1)]
    if empty := summary.n_states - len(summary.in_use):
        parts.append(_dim(f"{count_of(empty, 'more state')} hold{'s' if empty == 1 else ''} no round."))
    if any(row[-1].endswith("*") for row in rows):
        parts.append(_dim(FEW))
    return Group(*parts)


def _earns_most(summary: StatesSummary, state: int) -> str:
    """The action that earned most in enough rounds, then one that earned more in a few."""
    cells = summary.cells
    best = [action for action in (cells.best[state], cells.best_of_few[state]) if action is not None]
    return ", ".join(
        shown_name(summary.action_names[action]) + ("*" if cells.rare[state, action] else "") for action in best
    )


def moves_table(summary: StatesSummary) -> RenderableType:
    """How long each state stays, and where the world goes from it."""
    moves, timed, size = summary.transitions, summary.axis.timed, summary.n_states
    shown, empty = summary.in_use, summary.n_states - len(summary.in_use)
    wide = size > 2 and len(shown) <= MOST_TARGETS
    rows: list[Sequence[object]] = []
    for state in shown:
        stay = moves.expected_stays[state]
        if not np.isfinite(stay) or stay > 100 * summary.n_rounds:
            told = ("never left" if stay > 0 else "-", "")
        else:
            told = (f"{stay:,.0f}", summary.axis.say_duration(float(stay)))
        to = moves.leaving[state]
        targets = ["·" if i == state or np.isnan(to[i]) else f"{to[i]:.0%}" for i in shown]
        targets += [f"{1 - to[shown].sum():.0%}"] if empty else []
        if size == 2:
            targets = []
        elif not wide:
            likeliest = [i for i in np.argsort(-np.nan_to_num(to), kind="stable")[:3] if to[i] > 0.005]
            targets = [", ".join(f"{i} ({to[i]:.0%})" for i in likeliest) or "-"]
        rows.append((f"state {state}", *(told if timed else told[:1]), *targets))
    heads = [f"→ {i}" for i in shown] + ["→ others"] * (empty > 0) if wide else [] if size == 2 else ["then to"]
    columns = ("", "rounds", *(("time",) if timed else ()), *heads)
    source = "of the model" if summary.oracle == "hmm" else "as counted"
    what = "Expected stay" if size == 2 else "Expected stay, and where to when it is left"
    return _titled(f"{what} ({source})", columns, rows)


def changes_table(summary: StatesSummary, most: int = MOST_CHANGES) -> RenderableType:
    """Where the world changed, and how sure that is."""
    changes, axis = summary.changes[:most], summary.axis
    judged = any(change.p_value is not None for change in changes)
    sure = any(change.probability is not None for change in changes)
    placed = any(change.low is not None for change in changes)
    columns = ["first round", *(["time"] if axis.timed else []), "from → to"]
    columns += ["sure"] if sure else []
    columns += ["p-value"] if judged else []
    columns += [f"{summary.confidence:.0%} within rounds"] if placed else []
    times = [axis.say(float(axis.at(change.round))) for change in changes] if axis.timed else []
    whole = axis.kind == "date" and all(time.endswith(":00") for time in times)
    rows = []
    for i, change in enumerate(changes):
        row = [f"{change.round:,}", *([times[i][:-3] if whole else times[i]] if axis.timed else [])]
        row += [f"{change.before} → {change.after}"]
        row += [_probability(change.probability)] if sure else []
        row += [_p_value(change.p_value)] if judged else []
        row += [f"{change.low:,} to {change.high:,}" if change.low is not None else "-"] if placed else []
        rows.append(row)
    left_out = len(summary.changes) - len(changes)
    title = "Changes, how sure they are (at least) and where they lie" if sure else "Changes"
    title += f" (the first {most}; {left_out:,} more with --json)" if left_out > 0 else ""
    counted = "Rounds count from 0." if not summary.n_dropped else "Rounds count from 0, without the rows left out."
    return Group(_titled(title, columns, rows, n_text=0), _dim(counted))


def changes_per_sequence(summary: StatesSummary) -> RenderableType:
    """How often the sequences change."""
    counts = summary.changes_per_chain
    parts = [f"{n:,} with {count_of(k, 'change')}" for k, n in enumerate(counts[:4]) if n]
    if (rest := int(counts[4:].sum())) > 0:
        parts.append(f"{rest:,} with more")
    mean = len(summary.change_points) / summary.n_chains
    told = f"{', '.join(parts)} ({mean:.2f} changes on average)"
    return Group(Text("Sequences", style="bold"), Text(told))


def reward_tables(summary: StatesSummary, width: int) -> RenderableType:
    """Mean reward by action and state; states that do not fit beside each other go below."""
    cells, show = summary.cells, decimals_for(summary)
    order = np.argsort(-cells.rounds.sum(axis=0), kind="stable")
    actions = sorted(order[:MOST_ACTIONS].tolist())
    names = [shown_name(summary.action_names[action]) for action in actions]
    texts = {state: [_cell(summary, state, action, show) for action in actions] for state in summary.in_use}
    widest = max((len(text) for column in texts.values() for text in column), default=1)
    a_table = max(1, (width - max(map(len, names)) - 2) // (max(widest, 8) + 2))
    left_out = summary.n_actions - len(actions)
    title = f"Mean reward by action, {summary.confidence:.0%} intervals"
    title += f" ({len(actions)} actions most taken of {summary.n_actions})" if left_out else ""
    parts: list[RenderableType] = []
    for first in range(0, len(texts), a_table):
        shown = summary.in_use[first : first + a_table]
        rows = [(name, *(texts[state][i] for state in shown)) for i, name in enumerate(names)]
        parts.append(_titled(title if first == 0 else "", ("", *(f"state {state}" for state in shown)), rows))
    if note := _reward_note(summary):
        parts.append(_dim(note))
    return Group(*parts)


def distinguishing(summary: StatesSummary) -> RenderableType:
    """What differs most in each state, in words."""
    lines = Table.grid(padding=(0, 1, 0, 0))
    used = summary.in_use
    two = len(used) == 2  # then one tells all of the other
    for state in used[:1] if two else used:
        mine = [contrast for contrast in summary.contrasts if contrast.state == state]
        shown = mine if two else mine[:MOST_CONTRASTS]
        told = [in_words(each, f"in state {used[1]}" if two else "elsewhere") for each in shown] or [
            "nothing beyond chance"
        ]
        for i, line in enumerate(told):
            lines.add_row(f"state {state}:" if i == 0 else "", Text(line))
    parts: list[RenderableType] = [Text("What distinguishes the states (se: standard errors)", style="bold"), lines]
    if any(contrast.feature is not None for contrast in summary.contrasts):
        what = "Features: of a standard deviation more (how much that is stands after +), or of 1 for 0."
        at = "" if summary.contexts == "per action" else " Actions: on average over the log's contexts."
        parts.append(_dim(what + at))
    return Group(*parts)


def in_words(contrast: Contrast, elsewhere: str = "elsewhere", longest: int = 20) -> str:
    """A contrast as a person would say it, with names of at most ``longest`` signs."""
    who = None if contrast.action is None else f"'{shown_name(contrast.action, longest)}'"
    here, there, errors = contrast.here, contrast.elsewhere, f"({abs(contrast.std_errors):.1f} se)"
    if contrast.feature is None:
        gap, mine, theirs = _alike(abs(here - there), here, there, figures=2)
        more = "more" if here > there else "less"
        return f"{who} earns {gap} {more} than {elsewhere}: {mine}, not {theirs} {errors}"
    more = "" if contrast.step is None else f" +{contrast.step:.3g}"
    feature = f"'{shown_name(contrast.feature, longest)}'{more}"
    if contrast.scale == "log-odds":
        odds = f"the odds of {who}" if who else "the odds"
        _, mine, theirs = _alike(float(np.exp(max(here, there))), np.exp(here), np.exp(there), figures=3)
        return f"{feature} multiplies {odds} by {mine}, {elsewhere} by {theirs} {errors}"
    verbs = ["lifts" if effect > 0 else "lowers" for effect in (here, there)]
    again = "" if verbs[0] == verbs[1] else f"{verbs[1]} it "
    _, mine, theirs = _alike(max(abs(here), abs(there)), abs(here), abs(there), figures=3)
    return f"{feature} {verbs[0]} {who or 'the reward'} by {mine}, {elsewhere} {again}by {theirs} {errors}"


def evidence_table(summary: StatesSummary) -> RenderableType:
    """Why so many states."""
    evidence = summary.evidence
    assert evidence is not None
    if not evidence.counts:
        rows = [
            ("1", f"{evidence.single_state_bic:,.1f}", ""),
            (str(summary.n_states), f"{evidence.bic:,.1f}", "← given"),
        ]
        body = _titled("Evidence for the number of states (BIC: lower is better)", ("states", "BIC", ""), rows)
        return Group(body, *_evidence_notes(summary))
    found = []
    for count in evidence.counts:
        gain = "" if count.n_states == 1 else f"{count.gain:+,.1f} ± {count.gain_error:,.1f}"
        chosen = "← chosen" if count.n_states == summary.n_states else ""
        found.append((count.n_states, gain, f"{count.bic:,.1f}", chosen))
    title = "Evidence for the number of states: log-likelihood of held-out rewards"
    return Group(_titled(title, ("states", "gain over fewer", "BIC", ""), found), *_evidence_notes(summary))


def _evidence_notes(summary: StatesSummary) -> list[Text]:
    """Where the evidence is from, and why its two columns differ."""
    evidence, told = summary.evidence, []
    assert evidence is not None
    bics = {count.n_states: count.bic for count in evidence.counts}
    lowest = min(bics, key=lambda n: bics[n], default=0)
    if lowest > summary.n_states and bics[lowest] < bics[summary.n_states] - BIC_MARGIN:
        told.append(f"BIC alone would take {lowest}; states that follow noise lower it too, but foresee nothing.")
    if not evidence.of_this_log:
        told.append("This evidence is of the log that the model was learned on.")
    return [_dim(" ".join(told))] if told else []


def decimals_for(summary: StatesSummary) -> int:
    """Decimals that show the intervals of the usual cell to two figures."""
    halves = (summary.cells.high - summary.cells.low) / 2
    usable = np.isfinite(halves) & (halves > 0)
    usual = usable & ~summary.cells.rare
    if not usable.any():
        return 3
    return int(np.clip(1 - np.floor(np.log10(np.median(halves[usual if usual.any() else usable]))), 0, 9))


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


def _reward_note(summary: StatesSummary) -> str:
    told = []
    if (summary.cells.rare & (summary.cells.rounds >= 1))[summary.in_use].any():
        told.append(FEW)
    if summary.contexts != "none":
        told.append("Averages over the contexts in which the log took the action.")
    return " ".join(told)


def _dim(text: str) -> Text:
    return Text(text, style="dim")


def _alike(*values: float, figures: int) -> list[str]:
    """Numbers with as many decimals as the first one needs for so many figures."""
    size = abs(values[0])
    decimals = int(np.clip(figures - 1 - np.floor(np.log10(size)), 0, 9)) if size > 0 else 2
    return [f"{value:z,.{decimals}f}" for value in values]


def _titled(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], n_text: int = 1) -> RenderableType:
    """A table below its title, which may be wider."""
    body = table("", columns, rows, n_text)
    body.title = None
    return Group(Text(title, style="bold"), body)


def _probability(value: float | None) -> str:
    return "-" if value is None else ">99.9%" if value > 0.999 else f"{value:.1%}"


def _p_value(value: float | None) -> str:
    return "-" if value is None else "<0.0001" if value < 1e-4 else f"{value:.2g}"
