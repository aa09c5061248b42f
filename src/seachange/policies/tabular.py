"""Tables: one distribution over actions for every distinct context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError, ModelFileError
from seachange.log.bandit_log import BanditLog
from seachange.log.joint_features import JointFeatures
from seachange.protocols import Bools, Floats, Ints
from seachange.registry import POLICIES, Arrays, SavedPart


@POLICIES.register("table")
@dataclass(frozen=True, eq=False)
class TabularPolicy:
    """π(a | x) as a table over the situations of a log: a context and the set of actions available in it.

    A situation in the table has its own row. A known context with another action set uses its row with the most
    actions; an unknown context uses ``fallback``. Both are restricted to the available actions, and are uniform over
    them if no probability remains.
    """

    contexts: Floats  # (C, W) the contexts, flattened
    masks: Bools  # (C, K) which actions were available
    probs: Floats  # (C, K)
    fallback: Floats  # (K,)
    joint: JointFeatures

    def predict_proba(self, contexts: npt.ArrayLike, action_mask: npt.ArrayLike | None = None) -> Floats:
        """π(a | x) for every row of ``contexts``."""
        n = len(np.asarray(contexts))
        self.joint.rows(contexts)  # same checks and messages as other policies
        mask = np.broadcast_to(self.joint.mask(action_mask, n), (n, self.joint.n_actions))
        asked = flattened(np.asarray(contexts, dtype=self.contexts.dtype), n)
        rows, seen = self._rows(asked, mask)
        return restricted(np.where(seen[:, None], self.probs[rows], self.fallback), mask)

    def learned(self) -> tuple[None, Arrays]:
        """What a model file keeps."""
        return None, {name: getattr(self, name) for name in ("contexts", "masks", "probs", "fallback")}

    @classmethod
    def restore(cls, part: SavedPart, joint: JointFeatures, labels: Any) -> TabularPolicy:
        """The policy that a model file holds."""
        n_actions = joint.n_actions
        probs = part.distributions("probs", (None, n_actions))
        if len(probs) == 0:
            raise ModelFileError(f"{part.prefix}probs must have a row.")
        return cls(
            part.contexts(
                "contexts", (len(probs), joint.n_features * (n_actions if joint.kind == "per action" else 1))
            ),
            part.flags("masks", (len(probs), n_actions)),
            probs,
            part.distributions("fallback", (n_actions,)),
            joint,
        )

    def _rows(self, contexts: Floats, mask: Bools) -> tuple[Ints, Bools]:
        """(n,) rows of the table, and whether the context is in it."""
        n_rows = len(self.contexts)
        # Number the table's contexts and the requested ones jointly; of a context's rows, the widest mask comes last.
        _, same = np.unique(np.concatenate([self.contexts, contexts]), axis=0, return_inverse=True)
        known, asked = same.ravel()[:n_rows], same.ravel()[n_rows:]
        widest = np.full(same.max(initial=0) + 1, -1)
        by_width = np.argsort(self.masks.sum(axis=1), kind="stable")
        widest[known[by_width]] = by_width
        rows = widest[asked]
        exact = _row_indices(
            np.column_stack([known, self.masks]).astype(np.int64), np.column_stack([asked, mask]).astype(np.int64)
        )
        return np.where(exact >= 0, exact, np.maximum(rows, 0)), rows >= 0


class Situations(NamedTuple):
    """The distinct situations of a log, and the situation of each round."""

    contexts: Floats  # (C, W)
    masks: Bools  # (C, K)
    of_round: Ints  # (n,)


def situations_of(log: BanditLog) -> Situations:
    """The distinct pairs of a context and a set of available actions."""
    contexts = flattened(log.contexts, len(log))
    if not log.masked:
        distinct, indices = np.unique(contexts, axis=0, return_inverse=True)
        return Situations(distinct, np.ones((len(distinct), log.n_actions), dtype=bool), indices.ravel())
    _, of_context = np.unique(contexts, axis=0, return_inverse=True)
    keys = np.column_stack([of_context.ravel(), log.arrays.mask]).astype(np.int64)
    _, first, indices = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return Situations(contexts[first], log.arrays.mask[first], indices.ravel())


def flattened(contexts: Floats, n: int) -> Floats:
    """(n, W), with -0.0 replaced by 0.0."""
    if contexts.size and not np.isfinite(contexts).all():
        raise LogError("contexts must be finite.")
    return np.ascontiguousarray(contexts.reshape(n, int(np.prod(contexts.shape[1:]))) + np.zeros((), contexts.dtype))


def _row_indices(table: Ints, asked: Ints) -> Ints:
    """(n,) index of each row of ``asked`` in ``table``, whose rows are distinct; -1 if it is not there."""
    _, same = np.unique(np.concatenate([table, asked]), axis=0, return_inverse=True)
    indices = np.full(same.max(initial=0) + 1, -1)
    indices[same.ravel()[: len(table)]] = np.arange(len(table))
    return np.asarray(indices[same.ravel()[len(table) :]])


def restricted(probs: Floats, mask: Bools) -> Floats:
    """Distributions restricted to the available actions; uniform if none of those has any probability."""
    allowed = np.where(mask, probs, 0.0)
    left = allowed.sum(axis=1, keepdims=True)
    uniform = mask / mask.sum(axis=1, keepdims=True)
    return np.asarray(np.where(left > 0, allowed / np.where(left > 0, left, 1.0), uniform))
