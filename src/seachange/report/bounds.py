"""What the paper's bounds say of a model, for a terminal and for a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Group
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from seachange.report.tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seachange.evaluation.bounds import Bound
    from seachange.evaluation.filled_bounds import ModelBounds, Quantities

MARKS = {True: "✓", False: "✗", None: "?"}


def bounds_view(found: ModelBounds) -> Group:
    """The answer, the bounds, the quantities, and what each bound needs."""
    parts: list[Any] = [_answer(found.bounds), "", _bounds(found.bounds), "", _quantities(found.quantities)]
    for bound in found.bounds:
        parts += ["", Text(f"{bound.name}: {bound.bounds}", style="bold"), Padding(_story(bound), (0, 0, 0, 2))]
        parts.append(_conditions(bound))
    return Group(*parts)


def _answer(bounds: Sequence[Bound]) -> str:
    silent = sum(bound.vacuous for bound in bounds)
    if silent == 0:
        return "Every bound says something for this log, where its conditions hold."
    which = "None of the bounds says" if silent == len(bounds) else f"{silent} of {len(bounds)} bounds do not say"
    return f"{which} anything for this log: {'they are' if silent > 1 else 'it is'} no less than all that is at stake."


def bounds_document(found: ModelBounds) -> dict[str, Any]:
    """The same for a program; what is infinite is null."""
    return {
        "quantities": msgspec.to_builtins(found.quantities),
        "bounds": [
            {**msgspec.to_builtins(bound), "vacuous": bound.vacuous, "verdict": bound.verdict} for bound in found.bounds
        ],
    }


def _quantities(q: Quantities) -> Table:
    low, high = q.reward_range
    rows = [
        ("T", f"{q.n_rounds:,}", "rounds of the model's log"),
        ("S", f"{q.n_segments:,}", f"segments, the shortest of {q.shortest_segment:,} rounds"),
        ("L, K", f"{q.n_states}, {q.n_actions}", "states, actions"),
        ("M", f"{q.max_ratio:,.4g}", "largest π / π_0"),
        ("Δ", f"{q.min_change:.4g}", "smallest change of mean reward"),
        ("w", f"{q.window:,.0f}", "window of the paper's detector"),
        ("ε", f"{q.wrong_rounds:,.0f}", "rounds with a wrong state"),
        ("log N", f"{q.log_class_size:,.0f}", q.policy_class),
        ("ℓ", f"{q.expected_stay:,.0f}", "expected stay in a state"),
        ("r", f"{low:g} to {high:g}", "range of rewards"),
        ("δ", f"{q.delta:g}", "for states and for rewards, each"),
    ]
    return table("What the bounds are made of", ("", "", ""), rows, n_text=3)


def _bounds(bounds: tuple[Bound, ...]) -> Table:
    rows = [
        (b.name, bound_number(b.printed), bound_number(b.corrected), bound_number(b.total), _chance(b), b.verdict)
        for b in bounds
    ]
    columns = ("bound", "printed", "corrected", "at stake", "holds", "")
    return table("The paper's bounds", columns, rows)


def _story(bound: Bound) -> str:
    """What it comes to, in a sentence."""
    flaw = f" Printed: {bound_number(bound.printed)} ({bound.printed_flaw})." if bound.printed_flaw else ""
    if bound.vacuous:
        told = (
            f"says nothing: {bound_number(bound.corrected)} is no less than the {bound_number(bound.total)} at stake."
        )
    elif bound.broken:
        told = f"{bound_number(bound.corrected)}, but it does not apply: {len(bound.broken)} of its conditions fail."
    else:
        told = f"at most {bound_number(bound.corrected)} of {bound_number(bound.total)}."
    return escape(f"{told}{flaw}")


def _conditions(bound: Bound) -> Padding:
    """What must hold, each with a mark, broken lines below the words."""
    rows = Table.grid(padding=(0, 1, 0, 0))
    for condition in bound.conditions:
        rows.add_row(MARKS[condition.holds], escape(condition.rule))
    return Padding(rows, (0, 0, 0, 2))


def _chance(bound: Bound) -> str:
    return "average" if bound.probability is None else f"{bound.probability:.0%}"


def bound_number(value: float) -> str:
    """A bound, or what is at stake, with the figures that it is worth."""
    if value == float("inf"):
        return "∞"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"
