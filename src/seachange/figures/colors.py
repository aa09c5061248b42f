"""Colors that remain distinct for color-blind readers and in black-and-white print."""

from __future__ import annotations

# Okabe and Ito's palette, then Tol's muted one for logs with many states.
COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
    "#332288", "#999933", "#882255", "#44AA99", "#F0E442", "#999999",
)  # fmt: skip
GRAY = "#555555"
# A different number than colors, so that states that share a color have different markers.
MARKERS = "osD^vPX<>*h"


def color_of(state: int) -> str:
    """The color of a state in all figures; colors repeat after twelve."""
    return COLORS[state % len(COLORS)]


def ink_on(color: str) -> str:
    """Black or white, whichever is more readable on ``color``."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"
