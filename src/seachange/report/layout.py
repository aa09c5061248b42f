"""What every section of the report shares: its record, number and text formats, and which rounds values are from."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seachange.analysis.comparison import IN_SAMPLE_BIAS, Comparison
from seachange.analysis.formatting import count_of
from seachange.analysis.report_content import ReportContent
from seachange.evaluation.deployment import Difference
from seachange.evaluation.diagnostics import Reason
from seachange.evaluation.value_estimate import ValueEstimate
from seachange.learning import TRAINING_SHARE

MINUS = "−"
MOST_DECIMALS = 6
LONG_NAME = 48  # longer names are truncated within sentences


@dataclass(frozen=True)
class Section:
    """One section of the page.

    ``template`` is Jinja; it sees the keys of the view, ``content``, ``states``, ``basis``, ``count_of`` and the macros
    of macros.html. A view may return a "figure": JSON data for the script, found there under the section's id.
    """

    id: str
    title: Callable[[ReportContent], str]  # in the navigation
    view: Callable[[ReportContent], dict[str, Any]]
    template: str


class Numbers:
    """Formats numbers with as many decimals as their typical standard error justifies."""

    def __init__(self, errors: Iterable[float], values: Iterable[float] = ()) -> None:
        sizes = [error for error in errors if 0 < error < np.inf]
        sizes = sizes or [abs(value) / 100 for value in values if value and np.isfinite(value)]
        self.decimals = int(np.clip(-np.floor(np.log10(np.median(sizes) / 3)), 0, MOST_DECIMALS)) if sizes else 3

    def format(self, value: float, sign: bool = False) -> str:
        """A number, with a real minus sign."""
        if not np.isfinite(value):
            return "∞" if value > 0 else f"{MINUS}∞" if value < 0 else "–"
        return f"{value:{'+' if sign else ''}z,.{self.decimals}f}".replace("-", MINUS)

    def interval(self, found: ValueEstimate | Difference, sign: bool = False) -> str:
        """From low to high, or that there is no interval."""
        if np.isinf(found.low) and np.isinf(found.high):
            return "no interval"
        return f"{self.format(found.low, sign)} to {self.format(found.high, sign)}"


def numbers_of(comparison: Comparison) -> Numbers:
    """The format for all values of a comparison."""
    everything = (comparison.switching, comparison.logging, comparison.single)
    estimates = [each.estimate for each in everything if each is not None and each.estimate is not None]
    return Numbers((each.std_error for each in estimates), (each.value for each in estimates))


def reward_numbers(content: ReportContent) -> Numbers:
    """The format for mean rewards of the log."""
    if content.comparison is not None and content.comparison.logging.estimate is not None:
        return numbers_of(content.comparison)
    return Numbers([], content.states.mean_rewards.tolist())


def share_text(share: float, decimals: int = 0) -> str:
    """A share in percent that says 0% or 100% only if that is exact."""
    least, rounded = 10.0 ** -(decimals + 2), round(share, decimals + 2)
    if rounded == 0 and share > 0:
        return f"less than {least:.{decimals}%}"
    if rounded == 1 and share < 1:
        return f"more than {1 - least:.{decimals}%}"
    return f"{share:.{decimals}%}"


def signed(form: str, *values: float) -> str:
    """Numbers in this format, with real minus signs."""
    return form.format(*values).replace("-", MINUS)


def reasons_text(reasons: Sequence[Reason]) -> str:
    """Reasons as sentences, with command-line options as fixes."""
    return " ".join(reason.text(shell=True) for reason in reasons)


def refusals_of(content: ReportContent) -> tuple[Reason, ...]:
    """Why the model has no value, if it has none."""
    return content.holdout.refusals if content.comparison is None else content.comparison.switching.refusals


def further_reasons(reasons: Sequence[Reason], content: ReportContent) -> str:
    """Reasons as sentences; empty if they are those of the model itself, which the page already shows."""
    return "" if tuple(reasons) == refusals_of(content) else reasons_text(reasons)


def rounded(values: Any, decimals: int) -> list[float | None]:
    """Values for JSON, rounded, with null for NaN and infinity."""
    return [round(value, decimals) if np.isfinite(value) else None for value in values.tolist()]


def short_edges(edges: Any) -> list[float]:
    """Positions to a ten-thousandth of the axis, which a figure cannot show."""
    decimals = int(np.clip(5 - np.floor(np.log10(np.ptp(edges) or 1.0)), 0, 9))
    return [round(edge, decimals) if decimals else round(edge) for edge in edges.tolist()]


@dataclass(frozen=True)
class Basis:
    """Which rounds, and whose policies, the numbers of a page are from."""

    title: str
    text: str
    of_values: str = ""  # for sections about values, if the model may have seen part of the log
    of_states: str = ""  # for sections about states and policies


def basis_of(content: ReportContent) -> Basis | None:
    """New or held-out rounds; None if there are none."""
    holdout, n = content.holdout, content.states.n_rounds
    if holdout.kind is None:
        return None
    if holdout.kind == "unseen":
        one = holdout.n_rounds == 1
        which = "this one round" if one else f"any of these {holdout.n_rounds:,} rounds"
        by = "times and contents" if content.states.axis.timed else "contents"
        text = f"The model was not learned from {which}, judging by {'its' if one else 'their'} {by}."
        if not holdout.certain:
            text = "The log has no times, and its rounds are too similar to tell whether the model was learned from "
            text += f"{which}. They are treated as new."
        return Basis("New rounds", text)
    everything = f"All {n:,} rounds, with this model."
    last = f"the last {count_of(holdout.n_rounds, 'round')}"
    span = f"Held-out rounds {holdout.first_round:,} to {n - 1:,}"
    seen = holdout.overlap or "the log begins with the rounds the model was learned from"
    text = f"{seen[0].upper()}{seen[1:]}, and {IN_SAMPLE_BIAS}. "
    if holdout.kind == "rest":
        text += f"All values are therefore estimated on {last}, which the model has not seen. States and policies are "
        text += "shown for the whole log."
        return Basis("Held-out rounds", text, f"{span}.", everything)
    text += "All values and diagnostics therefore come from a second set of policies, learned the same way from the "
    text += f"first {count_of(holdout.first_round, 'round')} ({TRAINING_SHARE:.0%}) and evaluated on {last}. The "
    text += "sections on states and policies describe your model on the whole log."
    of_values = f"{span}, with policies relearned from earlier rounds."
    return Basis("Evaluated on held-out rounds with relearned policies", text, of_values, everything)
