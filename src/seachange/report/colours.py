"""Colours that colour-blind people and black-and-white printers can tell apart."""

from __future__ import annotations

# Okabe and Ito's, then Tol's muted ones for those who have many states.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
    "#332288", "#999933", "#882255", "#44AA99", "#F0E442", "#999999",
)  # fmt: skip
GREY = "#555555"
# Not as many as colours: a state that has the colour of another has not its marker.
MARKERS = "osD^vPX<>*h"


def colour_of(state: int) -> str:
    """The colour that a state has everywhere; they come round again after twelve."""
    return COLOURS[state % len(COLOURS)]


def ink_on(colour: str) -> str:
    """Black or white, whichever is read more easily on ``colour``."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"
