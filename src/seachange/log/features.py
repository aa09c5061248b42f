"""FeatureSpec: how the raw columns of a log become feature vectors, recorded so that it can be repeated exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import msgspec

from seachange.log.feature_types import Category, Feature, Flag, Hashed, LeftOut, Number, distinct_names
from seachange.log.record_encoding import Encoded, record_encoder

__all__ = ["Category", "Encoded", "Feature", "FeatureSpec", "Flag", "Hashed", "LeftOut", "Number", "plain_features"]


class FeatureSpec(msgspec.Struct, frozen=True, dict=True):
    """How the raw columns of a log become feature vectors.

    It is fitted on one log (``log.features``), saved in the model, and encodes later logs and single records the same
    way. Actions are ``named``, or indices into the list of each round. If those lists have features of their own
    (``pool``), f(x, a) = [a, x ⊗ a] if ``crossed``, else a alone: what all actions share cancels in a softmax.
    """

    format: str  # of the log that it was fitted on
    columns: dict[str, str]  # which column holds the action, the reward, …
    action_names: tuple[str, ...]
    shared: tuple[Feature, ...]
    pool: tuple[Feature, ...] = ()
    named: bool = True
    listed: bool = False  # each round has its own list of actions
    crossed: bool = False
    precision: Literal["float64", "float32"] = "float64"
    holders: tuple[str, ...] = ()  # the table's columns that hold the shared ones: user, which holds user.age
    left_out: tuple[LeftOut, ...] = ()

    @property
    def n_actions(self) -> int:
        """K; for lists, the length of the longest."""
        return len(self.action_names)

    @property
    def n_features(self) -> int:
        """Length of the vector that policies see: d."""
        n_shared, n_pool = (sum(len(feature.names) for feature in side) for side in (self.shared, self.pool))
        return n_pool * (1 + n_shared * self.crossed) if self.pool else n_shared

    def encodes_like(self, other: FeatureSpec) -> bool:
        """Whether both make the same vectors from the same raw columns."""
        ours, theirs = ((spec.shared, spec.pool, spec.crossed, spec.action_names) for spec in (self, other))
        return ours == theirs

    @cached_property
    def shared_names(self) -> tuple[str, ...]:
        """The features that all actions of a round share."""
        return distinct_names([name for feature in self.shared for name in feature.names])

    @cached_property
    def pool_names(self) -> tuple[str, ...]:
        """The features that each action of a round has of its own."""
        return distinct_names([name for feature in self.pool for name in feature.names])

    @cached_property
    def context_names(self) -> tuple[str, ...]:
        """The features that policies see, in order."""
        if not self.pool:
            return self.shared_names
        crossed = [f"{x} × {a}" for x in self.shared_names for a in self.pool_names] if self.crossed else []
        return distinct_names([*self.pool_names, *crossed])

    @property
    def sources(self) -> tuple[str, ...]:
        """The raw columns behind the shared features, each once."""
        return tuple(dict.fromkeys(feature.column for feature in self.shared))

    @property
    def pool_sources(self) -> tuple[str, ...]:
        """The raw columns behind the features of actions, each once."""
        return tuple(dict.fromkeys(feature.column for feature in self.pool))

    def words(self, columns: Mapping[str, str | Sequence[str]] | None = None) -> dict[str, str | Sequence[str]]:
        """The column mapping of the log that this was fitted on; ``columns`` overrides it."""
        return {**self.columns, "contexts": self.holders, **(columns or {})}

    def encode_record(self, record: Mapping[str, Any]) -> Encoded:
        """The context and the action mask of one raw record, a row of the table or a JSON object.

        None is a missing value. A key that is absent counts as missing if the log had missing values there; otherwise
        it is an error. Extra keys are ignored. If each round has its own list of actions, pass it under ``actions``:
        one mapping per action, or their names.
        """
        return self._encoder(record)

    @cached_property
    def _encoder(self) -> Callable[[Mapping[str, Any]], Encoded]:
        return record_encoder(self)

    def described(self) -> list[tuple[str, str, str]]:
        """For display: each raw column, its encoding, and its features."""
        rows = []
        for feature in (*self.shared, *self.pool):
            names = feature.names
            shown = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}" if len(names) > 2 else ", ".join(names)
            whose = "" if not self.pool else " (per round)" if feature in self.shared else " (per action)"
            listed = shown if len(names) < 3 else f"{len(names)}: {shown}"
            rows.append((feature.column, feature.description + whose, listed))
        return rows

    told = described  # until its caller uses the new name

    def __repr__(self) -> str:
        """Sizes and columns."""
        columns = ", ".join((*self.sources, *self.pool_sources)) or "none"
        return f"FeatureSpec({self.n_features} features from the columns {columns}; {self.n_actions} actions)"

    def unit_of(self, name: str) -> float | None:
        """One unit of the feature ``name`` in raw units; None if it is not a standardized number."""
        return self._units.get(name)

    @cached_property
    def _units(self) -> dict[str, float]:
        names, features = (self.pool_names, self.pool) if self.pool else (self.shared_names, self.shared)
        start, units = 0, {}
        for feature in features:
            if isinstance(feature, Number):
                units[names[start]] = feature.scale
            start += len(feature.names)
        return units


def plain_features(context_names: Sequence[str], action_names: Sequence[str]) -> FeatureSpec:
    """Numbers unchanged, for models that were learned from arrays."""
    numbers = tuple(Number(name, 0.0, 1.0) for name in context_names)
    return FeatureSpec("arrays", {}, tuple(action_names), numbers, holders=tuple(context_names))
