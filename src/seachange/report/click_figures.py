"""Figures of the front page: relative click rates against the number of states, and states against the hour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seachange.report.colours import COLOURS, GREY, colour_of, ink_on
from seachange.report.figures import save

if TYPE_CHECKING:
    from seachange.experiments.yahoo import Result
    from seachange.experiments.yahoo_states import StatesFound


def draw_relative_rates(path: Path, results: Sequence[Result], n_runs: int, note: str) -> None:
    """The paper's two figures: click rates over those of documents shown at random, against k."""
    horizons = list(dict.fromkeys(result.horizon for result in results))
    figure, every = _panels(len(horizons), (10.5, 4.6), sharey=True)
    switching = list(dict.fromkeys(result.method for result in results if result.n_states is not None))
    for axes, horizon in zip(every, horizons, strict=True):
        mine = [result for result in results if result.horizon == horizon and result.method != "oracle"]
        for method in dict.fromkeys(result.method for result in mine):
            points = [result for result in mine if result.method == method]
            means, spread = np.array([p.mean for p in points]), np.array([p.std for p in points])
            if method in switching and len(points) > 1:
                colour = COLOURS[switching.index(method)]
                counts = [point.n_states for point in points]
                axes.plot(counts, means, color=colour, marker="o", ms=4, label=method)
                axes.fill_between(counts, means - spread, means + spread, color=colour, alpha=0.15, lw=0)
            elif method not in switching:
                style = {"IPS": ":", "DR": "--", "POEM": "-."}[method]
                axes.axhline(means[0], color=GREY, ls=style, lw=1.2, label=f"{method}, one policy")
        axes.set_title(horizon)
        axes.set_xlabel("number of states k")
        axes.set_xticks(sorted({result.n_states for result in mine if result.n_states is not None}))
    runs = f"{n_runs} runs, band: ± 1 standard deviation" if n_runs > 1 else "1 run"
    every[0].set_ylabel(f"click rate, relative to chance\n({runs})")
    every[0].legend(frameon=False, fontsize=9)
    figure.supxlabel(note, fontsize=8, color=GREY)
    save(figure, path)


def draw_states_by_hour(path: Path, found: StatesFound, note: str) -> None:
    """Which state each hour of each day was in, and which documents led in each state."""
    n_days, n_states, n_hours = found.n_days, found.n_states, 24
    figure, (above, below) = _panels(2, (10.5, 6.2), rows=2, height_ratios=[max(2, n_days), max(2.5, 0.62 * n_states)])
    for span in found.spans:
        above.barh(span.day, span.end - span.first, left=span.first, height=0.82, color=colour_of(span.state), lw=0)
    above.set_ylim(n_days - 0.5, -0.5)
    above.set_yticks(range(n_days), [f"day {day + 1}" for day in range(n_days)])
    above.set_xlim(0, n_hours)
    above.set_xticks(range(0, n_hours + 1, 3))
    above.set_xlabel("hour since the first visit of the day")
    above.set_title(
        f"The state of {found.told_by_hour:.0%} of rounds is the likeliest one of their hour "
        f"(the most common state alone: {found.most_common:.0%})",
        loc="left", fontsize=10,
    )  # fmt: skip
    for state, leaders in enumerate(found.leaders):
        start = 0.0
        for i, (name, share) in enumerate(leaders):
            below.barh(state, share, left=start, height=0.78, color=colour_of(state), alpha=1 - 0.27 * i, lw=0)
            ink = ink_on(colour_of(state)) if i == 0 else "black"
            if share > 0.06:
                below.text(start + share / 2, state, f"{name}", ha="center", va="center", fontsize=7, color=ink)
            start += share
    below.set_ylim(n_states - 0.5, -0.5)
    below.set_yticks(range(n_states), [f"state {state}" for state in range(n_states)])
    below.set_xlim(0, 1)
    below.set_xlabel("share of the state's time in which a document had the highest click rate (the three foremost)")
    figure.supxlabel(note, fontsize=8, color=GREY)
    save(figure, path)


def _panels(n: int, size: tuple[float, float], rows: int = 1, sharey: bool = False, **grid: Any) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    every = figure.subplots(rows, n // rows, squeeze=False, sharey=sharey, gridspec_kw=grid).ravel()
    for axes in every:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, every
