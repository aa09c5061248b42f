"""Tables: one distribution over actions for every distinct context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError
from seachange.log.bandit_log import BanditLog
from seachange.log.joint import JointFeatures
from seachange.protocols import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class TabularPolicy:
    """π(a | x) as a table over the situations of a log: a context, and which actions could be shown in it.

    A situation that is in the table has its own row. A context that was seen with other actions to choose from has the
    row of the largest choice, one that was never seen has ``fallback``; both are restricted to the actions that may be
    shown, all of which are taken alike where that leaves none.
    """

    contexts: Floats  # (C, W) the contexts, flattened
    masks: Bools  # (C, K) which actions could be shown
    probs: Floats  # (C, K)
    fallback: Floats  # (K,)
    joint: JointFeatures

    def predict_proba(self, contexts: npt.ArrayLike, action_mask: npt.ArrayLike | None = None) -> Floats:
        """π(a | x) for every row of ``contexts``."""
        n = len(np.asarray(contexts))
        self.joint.rows(contexts)  # the same checks, and the same words, as of other policies
        mask = np.broadcast_to(self.joint.mask(action_mask, n), (n, self.joint.n_actions))
        asked = flattened(np.asarray(contexts, dtype=self.contexts.dtype), n)
        rows, seen = self._rows(asked, mask)
        return restricted(np.where(seen[:, None], self.probs[rows], self.fallback), mask)

    def _rows(self, contexts: Floats, mask: Bools) -> tuple[Ints, Bools]:
        """(n,) rows of the table, and whether the context is in it at all."""
        n_rows = len(self.contexts)
        # One numbering of the table's contexts and those asked for; in it, rows of a context follow the largest choice.
        _, same = np.unique(np.concatenate([self.contexts, contexts]), axis=0, return_inverse=True)
        known, asked = same.ravel()[:n_rows], same.ravel()[n_rows:]
        widest = np.full(same.max(initial=0) + 1, -1)
        by_width = np.argsort(self.masks.sum(axis=1), kind="stable")
        widest[known[by_width]] = by_width
        rows = widest[asked]
        exact = _places(
            np.column_stack([known, self.masks]).astype(np.int64), np.column_stack([asked, mask]).astype(np.int64)
        )
        return np.where(exact >= 0, exact, np.maximum(rows, 0)), rows >= 0


class Situations(NamedTuple):
    """The distinct situations of a log, and which round is in which."""

    contexts: Floats  # (C, W)
    masks: Bools  # (C, K)
    of_round: Ints  # (n,)


def situations_of(log: BanditLog) -> Situations:
    """Contexts, together with which actions could be shown, that differ."""
    contexts = flattened(log.contexts, len(log))
    if not log.masked:
        distinct, places = np.unique(contexts, axis=0, return_inverse=True)
        return Situations(distinct, np.ones((len(distinct), log.n_actions), dtype=bool), places.ravel())
    _, of_context = np.unique(contexts, axis=0, return_inverse=True)
    keys = np.column_stack([of_context.ravel(), log.arrays.mask]).astype(np.int64)
    _, first, places = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return Situations(contexts[first], log.arrays.mask[first], places.ravel())


def flattened(contexts: Floats, n: int) -> Floats:
    """(n, W), with one zero only."""
    if contexts.size and not np.isfinite(contexts).all():
        raise LogError("contexts must be finite.")
    return np.ascontiguousarray(contexts.reshape(n, int(np.prod(contexts.shape[1:]))) + np.zeros((), contexts.dtype))


def _places(table: Ints, asked: Ints) -> Ints:
    """(n,) where the rows ``asked`` for are in ``table``, whose rows differ; -1 where they are not."""
    _, same = np.unique(np.concatenate([table, asked]), axis=0, return_inverse=True)
    places = np.full(same.max(initial=0) + 1, -1)
    places[same.ravel()[: len(table)]] = np.arange(len(table))
    return np.asarray(places[same.ravel()[len(table) :]])


def restricted(probs: Floats, mask: Bools) -> Floats:
    """Distributions over the actions that may be shown; all alike where they have none of the probability."""
    allowed = np.where(mask, probs, 0.0)
    left = allowed.sum(axis=1, keepdims=True)
    alike = mask / mask.sum(axis=1, keepdims=True)
    return np.asarray(np.where(left > 0, allowed / np.where(left > 0, left, 1.0), alike))
