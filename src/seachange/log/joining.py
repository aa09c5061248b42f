"""What the parts of a log say, put together while they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seachange.log.columns import Columns
from seachange.log.features import FeatureSpec
from seachange.log.joint import JointFeatures
from seachange.log.room import Room
from seachange.log.validation import Broken
from seachange.protocols import Floats

# The columns of a log that have an entry for every round, beside its contexts.
PER_ROUND = ("actions", "rewards", "propensities", "action_mask", "logging_probs", "times", "sequences")


class Together:
    """The columns of all parts, put where they belong; parts without rounds may lack what the others have."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._rooms: dict[str, Room | None] = {}

    def put(self, start: int, part: Columns) -> None:
        """The columns of the part whose first round is that of number ``start``."""
        if len(part) == 0 < self._n:
            return
        for name in PER_ROUND:
            values = getattr(part, name)
            room = self._rooms.get(name)
            if values is None or (room is None and name in self._rooms):
                self._rooms[name] = None
                continue
            dtype = values.dtype if room is None else np.result_type(room.array, values)
            if room is None or room.array.dtype != dtype:
                wide = Room((self._n, *values.shape[1:]), dtype)
                if room is not None:
                    wide.array[:start] = room.array[:start]
                room = self._rooms[name] = wide
            room.ask_for(start, start + len(values))
            room.array[start : start + len(values)] = values

    def columns(self, spec: FeatureSpec, joint: JointFeatures, rows: Floats) -> Columns:
        """All of them, with the rows of contexts."""
        arrays: dict[str, Any] = {name: None if room is None else room.array for name, room in self._rooms.items()}
        return Columns(
            **arrays,
            contexts=None,
            action_features=None,
            n_actions=spec.n_actions,
            action_names=spec.action_names,
            context_names=spec.context_names,
            made=(joint, rows),
        )


class BrokenRules:
    """The rules that any part breaks, with the rows of all of them."""

    def __init__(self, n: int) -> None:
        self._n = n
        self.found: dict[str, Broken] = {}

    def put(self, start: int, rules: Sequence[Broken]) -> None:
        """Those that the part breaks whose first round is that of number ``start``."""
        for rows, rule, values in rules:
            none = Broken(np.zeros(self._n, dtype=bool), rule, np.empty(self._n, dtype=values.dtype))
            whole = self.found.setdefault(rule, none)
            whole.rows[start : start + len(rows)] = rows
            whole.values[start : start + len(rows)] = values
