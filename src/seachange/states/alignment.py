"""Which state of a new fit is which state of an old one."""

from __future__ import annotations

from typing import Any

import numpy as np

from seachange.errors import ParameterError
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
    """
    from scipy.optimize import linear_sum_assignment

    if old.joint != new.joint:
        raise ParameterError(f"align_to is of {old.joint}; the log has {new.joint}.")
    gaps = old.reward_coefs[:, None] - new.reward_coefs[None, :]
    distances = np.einsum("yzbi,bij,yzbj->yz", gaps, gram, gaps)
    matched = linear_sum_assignment(distances)[1]
    rest = [state for state in by_first_appearance(states, new.n_states) if state not in matched]
    return np.array([*matched, *rest], dtype=np.int64)
