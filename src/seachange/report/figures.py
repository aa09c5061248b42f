"""Figures, as PNG files."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seachange.outputs import written_whole
from seachange.protocols import Floats, Ints
from seachange.report.colours import COLOURS, GREY

if TYPE_CHECKING:
    from seachange.experiments.synthetic import StatesResult


def draw_recovery(
    path: Path, rewards: Mapping[str, Floats], states: Ints, state_probs: Floats, smoothing: int, unit: str
) -> None:
    """Running mean reward of several deployments over a changing world, and the belief of the switching one below.

    ``rewards`` are expected rewards by name, drawn in order; the first is the one to look at.
    """
    figure, (above, below) = _axes(2, height_ratios=[3, 1])
    changes = np.flatnonzero(np.diff(states)) + 1
    for i, (name, series) in enumerate(rewards.items()):
        colour = GREY if name.startswith("told") else COLOURS[i]
        line = {"color": colour, "lw": 2.2 if i == 0 else 1.3, "ls": "--" if colour == GREY else "-", "zorder": 9 - i}
        above.plot(*_running_mean(series, smoothing), label=name, **line)
    for change in changes:
        above.axvline(change, color="#bbbbbb", lw=0.8, zorder=0)
    above.set_ylabel(f"{unit}\n(mean of {smoothing:,} rounds)")
    above.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(rewards), frameon=False, fontsize=9)
    step = max(1, len(states) // 2000)
    shown = np.arange(0, len(states), step)
    below.stackplot(shown, state_probs[shown].T, colors=[*COLOURS][: state_probs.shape[1]], alpha=0.75)
    for change in changes:
        below.axvline(change, color="black", lw=0.8)
    below.set_ylim(0, 1)
    below.set_ylabel("belief")
    below.set_xlabel("round (lines: the world changed)")
    above.set_xlim(0, len(states))
    save(figure, path)


def draw_reward_by_states(path: Path, rows: Sequence[StatesResult], n_runs: int) -> None:
    """The paper's figure: mean reward against the number of states, with standard deviations over runs."""
    figure, (axes,) = _axes(1)
    for colour, method in zip(COLOURS, dict.fromkeys(row.method for row in rows), strict=False):
        points = [row for row in rows if row.method == method]
        counts, means = [row.n_states for row in points], np.array([row.mean for row in points])
        spread = np.array([row.std for row in points])
        axes.plot(counts, means, color=colour, marker="o", ms=4, label=method)
        axes.fill_between(counts, means - spread, means + spread, color=colour, alpha=0.15, lw=0)
    oracle = rows[0].mean / rows[0].oracle_share
    axes.axhline(oracle, color=GREY, ls="--", lw=1, label="told every state and mean")
    axes.set_xlabel("number of states k")
    axes.set_ylabel(f"mean reward ({n_runs} runs, band: ± 1 standard deviation)")
    axes.set_xticks(sorted({row.n_states for row in rows}))
    axes.legend(frameon=False, loc="lower right")
    save(figure, path)


def write_csv(path: Path, rows: Sequence[Any]) -> None:
    """The numbers behind a figure, a line for each record."""
    with written_whole(path) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(rows[0])])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def _running_mean(series: Floats, width: int) -> tuple[Ints, Floats]:
    """Means of ``width`` rounds, each drawn at its last round, thinned to what a figure can show."""
    width = min(width, len(series))
    sums = np.cumsum(np.insert(series, 0, 0.0))
    ends = np.arange(width, len(series) + 1)
    shown = slice(None, None, max(1, len(ends) // 2000))
    return ends[shown], ((sums[width:] - sums[:-width]) / width)[shown]


def _axes(rows: int, **grid: Any) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False, gridspec_kw=grid)[:, 0]
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Any, path: Path) -> None:
    """Write a figure down."""
    with written_whole(path) as beside:
        figure.savefig(beside, format="png")
