"""Which state of a new fit is which state of an old one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from seachange.errors import ParameterError, SeachangeWarning
from seachange.protocols import Floats, Ints
from seachange.states.labels import by_first_appearance
from seachange.states.switching import SwitchingRegression


def regression_of(old: Any) -> SwitchingRegression:
    """The switching regression of a model, of an oracle, or itself."""
    found = getattr(getattr(old, "oracle", old), "model_", old)
    if not isinstance(found, SwitchingRegression):
        raise ParameterError(f"align_to must be a model whose states an HMM found, or its oracle; got {old!r}.")
    return found


def in_the_order_of(old: SwitchingRegression, new: SwitchingRegression, states: Ints, gram: Floats) -> Ints:
    """An order of the new states: those that match an old one as the old ones, then the rest as they first occur.

    States match so that their predictions differ least in all, in the mean square over the log, whose Gram matrices
    Σ f f' are ``gram`` (B, D, D); every old state has at most one match. ``states`` (n,) are those of the new fit.
    Numbers have no gaps: where an old state is gone, others have its number, and that is said.
    """
    from scipy.optimize import linear_sum_assignment

    if old.joint != new.joint:
        raise ParameterError(f"align_to is of {old.joint}; the log has {new.joint}.")
    distances = _distances(old, new, gram)
    rows, matched = linear_sum_assignment(distances)
    _warn_of_the_gone(rows, distances[rows, matched], _distances(old, old, gram))
    rest = [state for state in by_first_appearance(states, new.n_states) if state not in matched]
    return np.array([*matched, *rest], dtype=np.int64)


def _distances(some: SwitchingRegression, others: SwitchingRegression, gram: Floats) -> Floats:
    """How far apart the predictions of any two states are."""
    gaps = some.reward_coefs[:, None] - others.reward_coefs[None, :]
    return np.asarray(np.einsum("yzbi,bij,yzbj->yz", gaps, gram, gaps))


def _warn_of_the_gone(rows: Ints, found: Floats, apart: Floats) -> None:
    """Warn where an old state has no match, or one that is less like it than another old state is."""
    np.fill_diagonal(apart, np.inf)
    same = {int(row) for row, distance in zip(rows, found, strict=True) if distance <= apart[row].min()}
    gone = [row for row in range(len(apart)) if row not in same]
    if gone:
        warnings.warn(
            f"states of align_to that are not found again: {', '.join(map(str, gone))}; numbers may mean other states.",
            SeachangeWarning,
            stacklevel=4,
        )
