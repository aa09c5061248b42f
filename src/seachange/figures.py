"""Figures as PNG files, their colors, and the numbers behind them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars

from seachange.analysis.formatting import count_of, shown_name, stay_text
from seachange.analysis.states_summary import StatesSummary
from seachange.analysis.timeline import time_ticks
from seachange.outputs import written_whole
from seachange.protocols import Floats, Ints

if TYPE_CHECKING:
    from seachange.experiments.arena_runs import CurvePoint
    from seachange.experiments.paper_synthetic import StatesResult
    from seachange.experiments.paper_yahoo import Result, StatesByHour

# Okabe and Ito's palette, then Tol's muted one for logs with many states.
COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
    "#332288", "#999933", "#882255", "#44AA99", "#F0E442", "#999999",
)  # fmt: skip
GRAY = "#555555"
TICKS = 10  # ticks of the time axis, at most
MARKERS = "osD^vPX<>*h"  # a different number than colors, so that states that share a color have different markers


def color_of(state: int) -> str:
    """The color of a state in all figures; colors repeat after twelve."""
    return COLORS[state % len(COLORS)]


def ink_on(color: str) -> str:
    """Black or white, whichever is more readable on ``color``."""
    red, green, blue = bytes.fromhex(color[1:])
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"


def _canvas(size: tuple[float, float]) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=size, dpi=140, layout="constrained")


def _panels(size: tuple[float, float], rows: int = 1, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    figure = _canvas(size)
    panels = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _save(figure: Any, path: Path) -> None:
    with written_whole(path) as temporary:
        figure.savefig(temporary, format="png")


# Experiments


def draw_recovery(
    path: Path, rewards: Mapping[str, Floats], states: Ints, state_probs: Floats, smoothing: int, unit: str
) -> None:
    """Running mean reward of several deployments in a changing world, and the belief of the switching one below.

    ``rewards`` are expected rewards by name, in order; the first is emphasized, the last is a dashed reference.
    """
    figure, (above, below) = _panels((9, 5), rows=2, sharex=True, height_ratios=[3, 1])
    for i, (name, series) in enumerate(rewards.items()):
        color = GRAY if i == len(rewards) - 1 else COLORS[i]
        line = {"color": color, "lw": 2.2 if i == 0 else 1.3, "ls": "--" if color == GRAY else "-", "zorder": 9 - i}
        above.plot(*_running_mean(series, smoothing), label=name, **line)
    above.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(rewards), frameon=False, fontsize=9)
    shown = np.arange(0, len(states), max(1, len(states) // 2000))
    below.stackplot(shown, state_probs[shown].T, colors=COLORS[: state_probs.shape[1]], alpha=0.75)
    for change in np.flatnonzero(np.diff(states)) + 1:
        above.axvline(change, color="#bbbbbb", lw=0.8, zorder=0)
        below.axvline(change, color="black", lw=0.8)
    above.set(xlim=(0, len(states)), ylabel=f"{unit}\n(mean of {smoothing:,} rounds)")
    below.set(ylim=(0, 1), ylabel="belief", xlabel="round (lines: state changes)")
    _save(figure, path)


def draw_reward_by_states(path: Path, rows: Sequence["StatesResult"], n_runs: int) -> None:
    """The paper's figure: mean reward against the number of states, with standard deviations over runs."""
    figure, (axes,) = _panels((9, 5))
    for color, method in zip(COLORS, dict.fromkeys(row.method for row in rows), strict=False):
        _draw_band_of_runs(axes, [row for row in rows if row.method == method], color)
    oracle = rows[0].mean / rows[0].oracle_share
    axes.axhline(oracle, color=GRAY, ls="--", lw=1, label="all states and means known")
    axes.set(xlabel="number of states k", ylabel=f"mean reward ({n_runs} runs, band: ± 1 standard deviation)")
    axes.set_xticks(sorted({row.n_states for row in rows}))
    axes.legend(frameon=False, loc="lower right")
    _save(figure, path)


def _draw_band_of_runs(axes: Any, rows: Sequence["StatesResult | Result"], color: str) -> None:
    """One method's mean against the number of states, and one standard deviation around it."""
    counts, means, spread = np.array([(row.n_states, row.mean, row.std) for row in rows], dtype=np.float64).T
    axes.plot(counts, means, color=color, marker="o", ms=4, label=rows[0].method)
    axes.fill_between(counts, means - spread, means + spread, color=color, alpha=0.15, lw=0)


def draw_regrets(path: Path, points: Sequence["CurvePoint"], n_runs: int) -> None:
    """Mean regret of each method in an environment against the round."""
    figure, (axes,) = _panels((9, 5))
    last = {each.method: each.regret for each in points}
    for i, method in enumerate(sorted(last, key=lambda name: last[name])):
        own = [each for each in points if each.method == method]
        style = ("-", "--", ":")[i // len(COLORS) % 3]
        axes.plot([p.round for p in own], [p.regret for p in own], style, color=COLORS[i % len(COLORS)], label=method)
    axes.set(xlabel="round", ylabel=f"regret (mean of {count_of(n_runs, 'run')})")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    _save(figure, path)


def write_csv(path: Path, rows: Sequence[Any]) -> None:
    """Write the numbers behind a figure, one line per record."""
    with written_whole(path) as temporary:
        polars.DataFrame([asdict(row) for row in rows]).write_csv(temporary)


def _running_mean(series: Floats, width: int) -> tuple[Ints, Floats]:
    """Means of ``width`` rounds, each at its last round, thinned to what a figure can show."""
    width = min(width, len(series))
    ends = np.arange(width, len(series) + 1, max(1, len(series) // 2000))
    sums = np.cumsum(np.insert(series, 0, 0.0))
    return ends, (sums[ends] - sums[ends - width]) / width


def draw_relative_rates(path: Path, results: Sequence["Result"], n_runs: int, note: str) -> None:
    """The paper's two figures: click rates relative to documents shown at random, against k."""
    horizons = list(dict.fromkeys(result.horizon for result in results))
    figure, every = _panels((10.5, 4.6), columns=len(horizons), sharey=True)
    switching = list(dict.fromkeys(result.method for result in results if result.n_states is not None))
    for axes, horizon in zip(every, horizons, strict=True):
        mine = [result for result in results if result.horizon == horizon and result.method != "oracle"]
        for method in dict.fromkeys(result.method for result in mine):
            points = [result for result in mine if result.method == method]
            if style := {"IPS": ":", "DR": "--", "POEM": "-."}.get(method):
                axes.axhline(points[0].mean, color=GRAY, ls=style, lw=1.2, label=f"{method}, one policy")
            elif len(points) > 1:
                _draw_band_of_runs(axes, points, COLORS[switching.index(method)])
        axes.set(title=horizon, xlabel="number of states k")
        axes.set_xticks(sorted({result.n_states for result in mine if result.n_states is not None}))
    runs = f"{n_runs} runs, band: ± 1 standard deviation" if n_runs > 1 else "1 run"
    every[0].set_ylabel(f"click rate relative to random\n({runs})")
    every[0].legend(frameon=False, fontsize=9)
    figure.supxlabel(note, fontsize=8, color=GRAY)
    _save(figure, path)


def draw_states_by_hour(path: Path, found: "StatesByHour", note: str) -> None:
    """The state in each hour of each day, and the leading documents in each state."""
    n_days, n_states = found.n_days, found.n_states
    heights = [max(2, n_days), max(2.5, 0.62 * n_states)]
    figure, (above, below) = _panels((10.5, 6.2), rows=2, height_ratios=heights)
    for day, first, end, state in found.spans:
        above.barh(day, end - first, left=first, height=0.82, color=color_of(state), lw=0)
    above.set_yticks(range(n_days), [f"day {day + 1}" for day in range(n_days)])
    above.set(xlim=(0, 24), ylim=(n_days - 0.5, -0.5), xticks=range(0, 25, 3))
    above.set_xlabel("hour since the first visit of the day")
    above.set_title(
        f"{found.hour_share:.0%} of rounds are in the likeliest state of their hour "
        f"(always guessing the most common state: {found.most_common_share:.0%})",
        loc="left", fontsize=10,
    )  # fmt: skip
    for state, leaders in enumerate(found.leaders):
        start = 0.0
        for i, (name, share) in enumerate(leaders):
            bar = below.barh(state, share, left=start, height=0.78, color=color_of(state), alpha=1 - 0.27 * i, lw=0)
            if share > 0.06:
                ink = ink_on(color_of(state)) if i == 0 else "black"
                below.bar_label(bar, [name], label_type="center", fontsize=7, color=ink)
            start += share
    below.set_yticks(range(n_states), [f"state {state}" for state in range(n_states)])
    below.set(xlim=(0, 1), ylim=(n_states - 0.5, -0.5))
    below.set_xlabel("share of the state's time in which a document had the highest click rate (top three)")
    figure.supxlabel(note, fontsize=8, color=GRAY)
    _save(figure, path)


# The states of a log

MOST_ACTIONS = 15  # at most this many actions are shown, those taken most often
# A column of the strip belongs to a state with at least this share of it; with two states, one always has.
MOSTLY = 0.49
OVER_TIME = 3.4  # height of the panels over time, in inches
EMPTY = "#bbbbbb"
TITLE: dict[str, Any] = {"loc": "left", "fontsize": 10, "fontweight": "bold"}
MOST_WRITTEN = 12  # with more states, the transition matrix shows colors without numbers


def draw_states(path: Path, summary: StatesSummary) -> None:
    """Segments and posteriors over time; below, rewards by action, transitions, and the number of states."""
    n_actions = min(summary.n_actions, MOST_ACTIONS)
    below = float(np.clip(0.32 * n_actions * max(1.0, len(summary.in_use) / 4), 3.4, 9))
    figure = _canvas((11, OVER_TIME + below))
    heights = [0.35 if summary.n_chains == 1 else 0.01, 1.7, below]
    grid = figure.add_gridspec(3, 2, height_ratios=heights, width_ratios=[1.5, 1])
    strip, over_time = figure.add_subplot(grid[0, :]), figure.add_subplot(grid[1, :])
    _draw_segments(strip, summary)
    _draw_bands(over_time, summary)
    strip.set_xlim(over_time.get_xlim())
    _draw_rewards(figure.add_subplot(grid[2, 0]), summary, below)
    side = grid[2, 1].subgridspec(2, 1, height_ratios=[1.25, 1], hspace=0.05)
    if summary.n_states > 1:
        _draw_transitions(figure.add_subplot(side[0]), summary)
    _draw_evidence(figure.add_subplot(side[1] if summary.n_states > 1 else grid[2, 1]), summary)
    _save(figure, path)


def _positions(summary: StatesSummary, values: Floats) -> Any:
    """Positions on the axis in the form matplotlib needs."""
    return np.asarray(values * 1000).astype("datetime64[ms]") if summary.axis.kind == "date" else values


def _draw_segments(axes: Any, summary: StatesSummary) -> None:
    """The state of every interval, numbered if there is room; white if several states share it."""
    found = f"{count_of(summary.n_states, 'state')}, {count_of(len(summary.change_points), 'change')}"
    where = f"in {count_of(summary.n_rounds, 'round')}"
    if summary.n_chains > 1:
        where += f" of {summary.n_chains:,} sequences"
    axes.set_title(f"{found} {where}", loc="left", fontsize=12, fontweight="bold")
    axes.axis("off")
    if summary.n_chains > 1:
        return
    bands, shares = summary.bands, np.nan_to_num(summary.bands.shares)
    likeliest = np.where(shares.max(axis=1) >= MOSTLY, np.argmax(shares, axis=1), -1)
    edges = np.flatnonzero(np.diff(likeliest, prepend=-2, append=-2))
    whole = bands.edges[-1] - bands.edges[0]
    for first, last in pairwise(edges):
        state, low, high = int(likeliest[first]), bands.edges[first], bands.edges[last]
        if state < 0:
            continue
        left, right, middle = _positions(summary, np.array([low, high, (low + high) / 2]))
        axes.axvspan(left, right, color=color_of(state), lw=0)
        if high - low > 0.012 * whole:
            place = {"ha": "center", "va": "center", "transform": axes.get_xaxis_transform()}
            axes.text(middle, 0.45, str(state), fontsize=9, color=ink_on(color_of(state)), **place)


def _draw_bands(axes: Any, summary: StatesSummary) -> None:
    """Probability of each state, stacked; states without rounds are combined in gray."""
    bands, used = summary.bands, summary.in_use
    edges = _positions(summary, np.repeat(bands.edges, 2)[1:-1])
    steps = np.repeat(np.nan_to_num(bands.shares), 2, axis=0)
    others = np.delete(steps, used, axis=1).sum(axis=1)
    colors = [*(color_of(state) for state in used), EMPTY]
    axes.stackplot(edges, np.vstack([steps[:, used].T, others]), colors=colors, lw=0, alpha=0.75)
    ticks = [0, 0.5, 1] if summary.has_probs or summary.n_chains > 1 else []
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, 1), yticks=ticks)
    axes.set_ylabel("share of rounds" if summary.n_chains > 1 else "probability of state" if summary.has_probs else "")
    kind, (low, high) = summary.axis.kind, (float(bands.edges[0]), float(bands.edges[-1]))
    # The dates of both ends: ticks show only the part of a time that changes.
    days = " to ".join(dict.fromkeys(summary.axis.format(end)[:10] for end in summary.axis.ends))
    axes.set_xlabel({"date": days, "seconds": "time, seconds"}.get(kind, kind))
    axes.spines[["top", "right"]].set_visible(False)
    at, texts = zip(*time_ticks(kind, low, high, TICKS), strict=True)
    axes.set_xticks(_positions(summary, np.array(at)), texts)


def _draw_rewards(axes: Any, summary: StatesSummary, inches: float) -> None:
    """Mean reward of each action in each state; hollow marks have few rounds."""
    cells, used = summary.cells, summary.in_use
    actions = np.sort(np.argsort(-cells.rounds.sum(axis=0), kind="stable")[:MOST_ACTIONS])
    for place, state in enumerate(used):
        color, marker = color_of(state), MARKERS[state % len(MARKERS)]
        heights = np.arange(len(actions)) + (place - (len(used) - 1) / 2) * (0.7 / len(used))
        means = cells.means[state, actions]
        bars = np.maximum(np.nan_to_num([means - cells.low[state, actions], cells.high[state, actions] - means]), 0)
        for rare in (False, True):
            shown = (cells.rare[state, actions] == rare) & (cells.rounds[state, actions] >= 1)
            style = {"ms": 5, "elinewidth": 1.2, "mfc": "white" if rare else color, "alpha": 0.6 if rare else 1}
            style |= {"fmt": marker, "color": color, "label": None if rare else f"state {state}"}
            axes.errorbar(means[shown], heights[shown], xerr=bars[:, shown], **style)
    for line in np.arange(len(actions) - 1) + 0.5:
        axes.axhline(line, color="#dddddd", lw=0.7, zorder=0)
    # Matplotlib reads dollars as formulas.
    names = [shown_name(summary.action_names[action]).replace("$", r"\$") for action in actions]
    axes.set_yticks(np.arange(len(actions)), names)
    axes.set_ylim(len(actions) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    few = " (hollow: fewer than 20 rounds)" if (cells.rare & (cells.rounds >= 1))[used].any() else ""
    axes.set_xlabel(f"mean reward, {summary.confidence:.0%} intervals{few}")
    most = f" ({len(actions)} most frequent)" if len(actions) < summary.n_actions else ""
    axes.set_title(f"Mean reward by action{most}", **TITLE)
    if summary.n_states > 1:
        if empty := summary.n_states - len(used):
            axes.errorbar([], [], fmt="s", color=EMPTY, label=f"{count_of(empty, 'more state')} without rounds")
        axes.legend(frameon=False, fontsize=8, ncols=6, loc="upper left",
                    bbox_to_anchor=(0, -0.5 / inches), handletextpad=0.1, columnspacing=1)  # fmt: skip


def _draw_transitions(axes: Any, summary: StatesSummary) -> None:
    """The next state when a state is left, and expected stays as row labels."""
    used = summary.in_use
    if summary.n_states == 2 or len(used) == 1:
        _draw_stays(axes, summary)
        return
    size, leaving = len(used), summary.transitions.leaving[used][:, used]
    names = [str(state) for state in used]
    if size < summary.n_states:
        leaving, names = np.column_stack([leaving, 1 - leaving.sum(axis=1)]), [*names, "others"]
    axes.set_title("Next state", **TITLE)
    axes.imshow(np.nan_to_num(leaving), cmap="Greys", vmin=0, vmax=1.25, aspect="auto")
    for (i, j), share in np.ndenumerate(leaving) if size <= MOST_WRITTEN else ():
        if i != j and not np.isnan(share):
            color = "white" if share > 0.6 else "black"
            axes.text(j, i, f"{share:.0%}", ha="center", va="center", fontsize=8, color=color)
    stays = {state: _stay(summary, state) for state in used}
    axes.set_yticks(np.arange(size), [f"{state}  ({stay})" if stay else str(state) for state, stay in stays.items()])
    axes.set_xticks(np.arange(len(names)), names)
    axes.tick_params(length=0, labelsize=8)
    axes.set_ylabel("from (expected stay)", fontsize=9)
    axes.set_xlabel("to", fontsize=9)
    axes.spines[:].set_visible(False)


def _draw_stays(axes: Any, summary: StatesSummary) -> None:
    """Expected stays of two states, or of the only state that occurs."""
    axes.set_title("Expected stay", **TITLE)
    used = summary.in_use
    stays, places = summary.transitions.expected_stays[used], np.arange(len(used))
    shown = np.where(np.isfinite(stays) & (stays <= 100 * summary.n_rounds), stays, 0.0)
    axes.barh(places, shown, color=[color_of(state) for state in used], height=0.5)
    for place, state in enumerate(used):
        axes.annotate(_stay(summary, state), (shown[place], place), (5, 0), textcoords="offset points", va="center",
                      fontsize=9)  # fmt: skip
    axes.set_yticks(places, [f"state {state}" for state in used])
    axes.set(xlim=(0, 1.35 * max(shown.max(), 1.0)), ylim=(len(used) - 0.4, -0.6), xticks=[])
    axes.tick_params(length=0, labelsize=9)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def _stay(summary: StatesSummary, state: int) -> str:
    rounds, time = stay_text(summary, state)
    return time or rounds


def _draw_evidence(axes: Any, summary: StatesSummary) -> None:
    """How much better each number of states predicts held-out rewards than one state, and BIC."""
    evidence = summary.evidence
    where = "" if evidence is None or evidence.of_this_log else "on the log the model was learned from"
    axes.set_title("How many states?", **TITLE)
    if evidence is None or len(evidence.counts) < 2:
        axes.axis("off")
        text = f"{summary.n_states} ({'from change-point detection' if summary.oracle == 'change-point' else 'given'})"
        if evidence is not None:
            text = f"{summary.n_states} ({'too few rounds for more' if evidence.counts else 'given'})."
            text += f"\nBIC: {evidence.bic:,.0f}; with one state: {evidence.single_state_bic:,.0f}\n(lower is better)."
            text += f"\nComputed {where}." if where else ""
        axes.text(0, 0.85, text, transform=axes.transAxes, color=GRAY, va="top", fontsize=9)
        return
    numbers = [count.n_states for count in evidence.counts]
    held_out = np.array([count.predictive - evidence.counts[0].predictive for count in evidence.counts])
    errors = np.array([count.gain_error for count in evidence.counts])
    by_bic = np.array([(evidence.counts[0].bic - count.bic) / 2 for count in evidence.counts])
    axes.plot(numbers, by_bic, color=GRAY, lw=1, ls="--", marker="x", ms=4)
    axes.errorbar(numbers, held_out, yerr=errors, color="black", marker="o", ms=4, lw=1.3, elinewidth=1.2)
    if summary.n_states in numbers:
        chosen = held_out[numbers.index(summary.n_states)]
        axes.plot(summary.n_states, chosen, "o", ms=11, mfc="none", color="black")
    above, below = ("bottom", "top") if held_out[-1] >= by_bic[-1] else ("top", "bottom")
    aside = {"textcoords": "offset points", "fontsize": 8}
    axes.annotate("held out", (numbers[-1], held_out[-1]), (6, 0), va=above, **aside)
    axes.annotate("−BIC / 2", (numbers[-1], by_bic[-1]), (6, 0), va=below, color=GRAY, **aside)
    axes.margins(x=0.12, y=0.3)
    # Below the axis, no line crosses the label.
    axes.set_xticks(numbers, [f"{n}\nchosen" if n == summary.n_states else str(n) for n in numbers])
    axes.tick_params(labelsize=8)
    axes.set_xlabel(f"states, {where}" if where else "states", fontsize=9)
    axes.set_ylabel("gain over one state\n(log-likelihood)", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
