"""Figures of experiments and demos, as PNG files, and the numbers behind them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seachange.figures.colors import COLORS, GRAY, color_of, ink_on
from seachange.outputs import written_whole
from seachange.protocols import Floats, Ints

if TYPE_CHECKING:
    from seachange.experiments.paper_synthetic import StatesResult
    from seachange.experiments.paper_yahoo import Result, StatesFound


def draw_recovery(
    path: Path, rewards: Mapping[str, Floats], states: Ints, state_probs: Floats, smoothing: int, unit: str
) -> None:
    """Running mean reward of several deployments in a changing world, and the belief of the switching one below.

    ``rewards`` are expected rewards by name, in order; the first is emphasized, the last is a dashed reference.
    """
    figure, (above, below) = _panels(2, (9, 5), rows=2, sharex=True, height_ratios=[3, 1])
    changes = np.flatnonzero(np.diff(states)) + 1
    for i, (name, series) in enumerate(rewards.items()):
        color = GRAY if i == len(rewards) - 1 else COLORS[i]
        line = {"color": color, "lw": 2.2 if i == 0 else 1.3, "ls": "--" if color == GRAY else "-", "zorder": 9 - i}
        above.plot(*_running_mean(series, smoothing), label=name, **line)
    for change in changes:
        above.axvline(change, color="#bbbbbb", lw=0.8, zorder=0)
    above.set_ylabel(f"{unit}\n(mean of {smoothing:,} rounds)")
    above.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(rewards), frameon=False, fontsize=9)
    step = max(1, len(states) // 2000)
    shown = np.arange(0, len(states), step)
    below.stackplot(shown, state_probs[shown].T, colors=[*COLORS][: state_probs.shape[1]], alpha=0.75)
    for change in changes:
        below.axvline(change, color="black", lw=0.8)
    below.set_ylim(0, 1)
    below.set_ylabel("belief")
    below.set_xlabel("round (lines: changes of the world)")
    above.set_xlim(0, len(states))
    save(figure, path)


def draw_reward_by_states(path: Path, rows: Sequence[StatesResult], n_runs: int) -> None:
    """The paper's figure: mean reward against the number of states, with standard deviations over runs."""
    figure, (axes,) = _panels(1, (9, 5))
    for color, method in zip(COLORS, dict.fromkeys(row.method for row in rows), strict=False):
        points = [row for row in rows if row.method == method]
        counts, means = [row.n_states for row in points], np.array([row.mean for row in points])
        spread = np.array([row.std for row in points])
        axes.plot(counts, means, color=color, marker="o", ms=4, label=method)
        axes.fill_between(counts, means - spread, means + spread, color=color, alpha=0.15, lw=0)
    oracle = rows[0].mean / rows[0].oracle_share
    axes.axhline(oracle, color=GRAY, ls="--", lw=1, label="all states and means known")
    axes.set_xlabel("number of states k")
    axes.set_ylabel(f"mean reward ({n_runs} runs, band: ± 1 standard deviation)")
    axes.set_xticks(sorted({row.n_states for row in rows}))
    axes.legend(frameon=False, loc="lower right")
    save(figure, path)


def write_csv(path: Path, rows: Sequence[Any]) -> None:
    """Write the numbers behind a figure, one line per record."""
    with written_whole(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(rows[0])])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def _running_mean(series: Floats, width: int) -> tuple[Ints, Floats]:
    """Means of ``width`` rounds, each at its last round, thinned to what a figure can show."""
    width = min(width, len(series))
    sums = np.cumsum(np.insert(series, 0, 0.0))
    ends = np.arange(width, len(series) + 1)
    shown = slice(None, None, max(1, len(ends) // 2000))
    return ends[shown], ((sums[width:] - sums[:-width]) / width)[shown]


def save(figure: Any, path: Path) -> None:
    """Write a figure to ``path``."""
    with written_whole(path) as temporary:
        figure.savefig(temporary, format="png")


def draw_relative_rates(path: Path, results: Sequence[Result], n_runs: int, note: str) -> None:
    """The paper's two figures: click rates relative to documents shown at random, against k."""
    horizons = list(dict.fromkeys(result.horizon for result in results))
    figure, every = _panels(len(horizons), (10.5, 4.6), sharey=True)
    switching = list(dict.fromkeys(result.method for result in results if result.n_states is not None))
    for axes, horizon in zip(every, horizons, strict=True):
        mine = [result for result in results if result.horizon == horizon and result.method != "oracle"]
        for method in dict.fromkeys(result.method for result in mine):
            points = [result for result in mine if result.method == method]
            means, spread = np.array([p.mean for p in points]), np.array([p.std for p in points])
            if method in switching and len(points) > 1:
                color = COLORS[switching.index(method)]
                counts = [point.n_states for point in points]
                axes.plot(counts, means, color=color, marker="o", ms=4, label=method)
                axes.fill_between(counts, means - spread, means + spread, color=color, alpha=0.15, lw=0)
            elif method not in switching:
                style = {"IPS": ":", "DR": "--", "POEM": "-."}[method]
                axes.axhline(means[0], color=GRAY, ls=style, lw=1.2, label=f"{method}, one policy")
        axes.set_title(horizon)
        axes.set_xlabel("number of states k")
        axes.set_xticks(sorted({result.n_states for result in mine if result.n_states is not None}))
    runs = f"{n_runs} runs, band: ± 1 standard deviation" if n_runs > 1 else "1 run"
    every[0].set_ylabel(f"click rate relative to random\n({runs})")
    every[0].legend(frameon=False, fontsize=9)
    figure.supxlabel(note, fontsize=8, color=GRAY)
    save(figure, path)


def draw_states_by_hour(path: Path, found: StatesFound, note: str) -> None:
    """The state in each hour of each day, and the leading documents in each state."""
    n_days, n_states, n_hours = found.n_days, found.n_states, 24
    figure, (above, below) = _panels(2, (10.5, 6.2), rows=2, height_ratios=[max(2, n_days), max(2.5, 0.62 * n_states)])
    for span in found.spans:
        above.barh(span.day, span.end - span.first, left=span.first, height=0.82, color=color_of(span.state), lw=0)
    above.set_ylim(n_days - 0.5, -0.5)
    above.set_yticks(range(n_days), [f"day {day + 1}" for day in range(n_days)])
    above.set_xlim(0, n_hours)
    above.set_xticks(range(0, n_hours + 1, 3))
    above.set_xlabel("hour since the first visit of the day")
    above.set_title(
        f"{found.told_by_hour:.0%} of rounds are in the likeliest state of their hour "
        f"(always guessing the most common state: {found.most_common:.0%})",
        loc="left", fontsize=10,
    )  # fmt: skip
    for state, leaders in enumerate(found.leaders):
        start = 0.0
        for i, (name, share) in enumerate(leaders):
            below.barh(state, share, left=start, height=0.78, color=color_of(state), alpha=1 - 0.27 * i, lw=0)
            ink = ink_on(color_of(state)) if i == 0 else "black"
            if share > 0.06:
                below.text(start + share / 2, state, f"{name}", ha="center", va="center", fontsize=7, color=ink)
            start += share
    below.set_ylim(n_states - 0.5, -0.5)
    below.set_yticks(range(n_states), [f"state {state}" for state in range(n_states)])
    below.set_xlim(0, 1)
    below.set_xlabel("share of the state's time in which a document had the highest click rate (top three)")
    figure.supxlabel(note, fontsize=8, color=GRAY)
    save(figure, path)


def _panels(
    n: int, size: tuple[float, float], rows: int = 1, sharex: bool = False, sharey: bool = False, **grid: Any
) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    every = figure.subplots(rows, n // rows, squeeze=False, sharex=sharex, sharey=sharey, gridspec_kw=grid).ravel()
    for axes in every:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, every
