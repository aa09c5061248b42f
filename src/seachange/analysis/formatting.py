"""How numbers, names and counts are written, in tables and on the page."""

import re
from collections.abc import Sequence

import numpy as np

from seachange.analysis.state_contrasts import Contrast
from seachange.analysis.states_summary import StatesSummary
from seachange.analysis.timeline import TimeAxis
from seachange.log.joint_features import JointFeatures
from seachange.states.new_states import NewRegime

MOST_REGIMES = 3  # more are counted


def describe_contexts(joint: JointFeatures, names: Sequence[str]) -> str:
    """The features of the contexts."""
    features = ", ".join(shown_name(name) for name in first_names(names))
    return joint.description if joint.kind == "none" else f"{joint.description}: {features}"


def count_of(n: int, thing: str) -> str:
    """A count with its noun, in the plural unless it is 1."""
    return f"{n:,} {thing}" if n == 1 else f"{n:,} {thing}s"


def shown_name(name: str, longest: int = 20) -> str:
    """A name from a log, truncated if it is long, without characters that a terminal would interpret."""
    plain = "".join(sign if sign.isprintable() else "�" for sign in name)
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def first_names(names: Sequence[str], most: int = 8) -> list[str]:
    """The first names, and how many more there are."""
    return [*names[:most], f"… {len(names) - most} more"] if len(names) > most else [*names]


def new_regimes_text(regimes: Sequence[NewRegime], n_states: int, axis: TimeAxis) -> str:
    """When there were new regimes, and what they are, in a sentence or two; empty if there were none."""

    def when(round: int) -> str:
        return axis.format(float(axis.at(round)))[:16] if axis.kind == "date" else f"round {round:,}"

    spans = [
        f"since {when(each.first)}" if each.ongoing else f"from {when(each.first)} to {when(each.last)}"
        for each in regimes
    ]
    if not spans:
        return ""
    if len(spans) > MOST_REGIMES + 1:
        spans = [*spans[: MOST_REGIMES - 1], f"{len(spans) - MOST_REGIMES} more", spans[-1]]
    none = "the known state does not explain" if n_states == 1 else f"none of the {n_states} known states explains"
    what = "New regime" if len(regimes) == 1 else f"{len(regimes)} new regimes,"
    return f"{what} {listed(spans)}: {none} these rewards."


def listed(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, or ``a, b, and c``."""
    *before, last = parts
    if not before:
        return last
    return f"{', '.join(before)}{',' if len(before) > 1 else ''} and {last}"


def stored_time_text(time: str) -> str:
    """A stored time without needless characters."""
    return re.sub(r"\.0+$", "", re.sub(r"(?<=\d)T(?=\d)", " ", time))


def describe_contrast(
    contrast: Contrast, elsewhere: str = "in other states", longest: int = 20, minus: str = "-"
) -> str:
    """A contrast as a sentence, with names of at most ``longest`` characters."""
    here, there, errors = contrast.here, contrast.elsewhere, f"{abs(contrast.std_errors):.1f} SE"
    action = None if contrast.action is None else f"'{shown_name(contrast.action, longest)}'"
    if contrast.feature is None:
        gap, own, other = _same_decimals(abs(here - there), here, there, figures=2, minus=minus)
        more = "more" if here > there else "less"
        return f"{action} earns {gap} {more} than {elsewhere} ({own} vs. {other}, {errors})"
    step = "" if contrast.step is None else f" +{contrast.step:.3g}"
    feature = f"'{shown_name(contrast.feature, longest)}'{step}"
    if contrast.scale == "log-odds":
        _, own, other = _same_decimals(float(np.exp(max(here, there))), np.exp(here), np.exp(there), figures=3)
        odds = f"the odds of a reward for {action}" if action else "the odds of a reward"
        return f"{feature} multiplies {odds} by {own} ({elsewhere} by {other}, {errors})"
    verbs = ["raises" if effect > 0 else "lowers" for effect in (here, there)]
    again = "" if verbs[0] == verbs[1] else f"{verbs[1]} it "
    _, own, other = _same_decimals(max(abs(here), abs(there)), abs(here), abs(there), figures=3)
    reward = f"the reward of {action}" if action else "the reward"
    return f"{feature} {verbs[0]} {reward} by {own} ({elsewhere} {again}by {other}, {errors})"


def decimals_for(summary: StatesSummary) -> int:
    """Decimals that show the interval of a typical cell to two figures."""
    halves = (summary.cells.high - summary.cells.low) / 2
    usable = np.isfinite(halves) & (halves > 0)
    usual = usable & ~summary.cells.rare
    half = np.median(halves[usual if usual.any() else usable]) if usable.any() else 0.01
    return int(np.clip(1 - np.floor(np.log10(half)), 0, 9))


def stay_text(summary: StatesSummary, state: int) -> tuple[str, str]:
    """The expected stay in rounds, and in time if the log has times; empty if unknown."""
    stay = float(summary.transitions.expected_stays[state])
    if not np.isfinite(stay) or stay > 100 * summary.n_rounds:
        return "never left" if stay > 0 else "", ""
    return count_of(round(stay), "round"), summary.axis.format_duration(stay) if summary.axis.timed else ""


def _same_decimals(*values: float, figures: int, minus: str = "-") -> list[str]:
    """Numbers with as many decimals as the first one needs for this many significant figures."""
    size = abs(values[0])
    decimals = int(np.clip(figures - 1 - np.floor(np.log10(size)), 0, 9)) if size > 0 else 2
    return [f"{value:z,.{decimals}f}".replace("-", minus) for value in values]
