"""Columns that the action taken determines: they describe what was shown, and are not known before the choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars

# Most columns are cleared by the rows of one action among so many.
LOOKED_AT = 64
# Rounds an action, on average, that it takes to say so.
ENOUGH_EACH = 20
VARIES = object()


class ToldByAction:
    """For every column, the value that each action has; ``VARIES`` where an action has several."""

    def __init__(self) -> None:
        self.rounds = 0
        self.columns: dict[str, Any] = {}
        self.actions: set[str] = set()

    @classmethod
    def of(
        cls, actions: polars.Series, names: Iterable[str], columns: Iterable[tuple[str, polars.Series]]
    ) -> ToldByAction:
        """What one part says; ``names`` are those of its actions."""
        found = cls()
        found.rounds, found.actions = len(actions), set(names)
        head = actions.head(LOOKED_AT).to_list()
        often = Counter(head).most_common(1)
        rows = [row for row, action in enumerate(head) if action == often[0][0] and action is not None]
        for name, values in columns:
            varies = values.dtype.is_nested() or _differ(values.head(LOOKED_AT).to_list(), rows)
            found.columns[name] = VARIES if varies else _values(actions, values)
        return found

    def merge(self, later: ToldByAction) -> None:
        """Take in what a later part says."""
        self.actions |= later.actions
        for name in self.columns.keys() | later.columns.keys():
            ours, theirs = self.columns.get(name, {}), later.columns.get(name, {})
            if self.rounds == 0:
                ours = {}
            clash = ours is VARIES or theirs is VARIES or any(ours.get(a, v) != v for a, v in theirs.items())
            self.columns[name] = VARIES if clash else {**ours, **theirs}
        self.rounds += later.rounds

    def names(self) -> list[str]:
        """The columns that differ between actions and never within one."""
        if len(self.actions) < 2 or self.rounds < ENOUGH_EACH * len(self.actions):
            return []
        told = {name: values for name, values in self.columns.items() if values is not VARIES}
        return [name for name, values in told.items() if len(values) > 1 and len(set(values.values())) > 1]


def _differ(values: Sequence[Any], rows: Sequence[int]) -> bool:
    """Whether the values of some rows are not all the same."""
    first = values[rows[0]] if rows else None
    return any(values[row] is not first and values[row] != first and values[row] == values[row] for row in rows)


def _values(actions: polars.Series, values: polars.Series) -> Any:
    """The one value of each action, or ``VARIES``."""
    import polars

    frame = polars.DataFrame({"action": actions, "value": values}).drop_nulls("action")
    each = frame.group_by("action").agg(polars.col("value").first(), polars.col("value").n_unique().alias("n"))
    if (each["n"] > 1).any():
        return VARIES
    return dict(zip(each["action"].to_list(), each["value"].to_list(), strict=True))
