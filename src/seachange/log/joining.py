"""What the parts of a log say, put together while they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from seachange.log.columns import Columns
from seachange.log.features import FeatureSpec
from seachange.log.joint import JointFeatures
from seachange.log.number_rows import fresh
from seachange.log.validation import Broken
from seachange.protocols import Floats

# The columns of a log that have an entry for every round, beside its contexts.
PER_ROUND = ("actions", "rewards", "propensities", "action_mask", "logging_probs", "times", "sequences")


class Together:
    """The columns of all parts, put where they belong; parts without rounds may lack what the others have."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._arrays: dict[str, npt.NDArray[Any] | None] = {}

    def put(self, start: int, part: Columns) -> None:
        """The columns of the part whose first round is that of number ``start``."""
        if len(part) == 0 < self._n:
            return
        for name in PER_ROUND:
            values = getattr(part, name)
            whole = self._arrays.setdefault(name, None if values is None else self._room(values))
            if values is None or whole is None:
                self._arrays[name] = None
                continue
            dtype = np.result_type(whole, values)
            if dtype != whole.dtype:
                whole = self._arrays[name] = whole.astype(dtype)
            whole[start : start + len(values)] = values

    def _room(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        shape = (self._n, *values.shape[1:])
        return np.empty(shape, dtype=values.dtype) if values.dtype.hasobject else fresh(shape, values.dtype)

    def columns(self, spec: FeatureSpec, joint: JointFeatures, rows: Floats) -> Columns:
        """All of them, with the rows of contexts."""
        return Columns(
            **self._arrays,  # type: ignore[arg-type]
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
