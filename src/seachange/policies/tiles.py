"""Rounds of a log as the kernels of objectives take them: a tile has ``SIDE_BY_SIDE`` rounds in columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.kernels.rows import SIDE_BY_SIDE
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Bools, Floats, Ints


class Tiles(NamedTuple):
    """Arguments of ``objective_sums``, S = ``SIDE_BY_SIDE``, in the features' kind of number."""

    features: Floats  # (m, D, R S)
    allowed: Bools  # (m, K, S), or (0, K, S) where every action may be shown
    chosen: Ints  # (m, S)
    residuals: Floats  # (m, S) r - m(a_t)
    inverses: Floats  # (m, S) 1 / p
    limits: Floats  # (m, S) M p: what a probability is clipped at
    weights: Floats  # (m, S) u, 0 in columns without a round
    modelled: Floats  # (m, K, S), or (0, K, S) without a reward model


def tiles_of(log: BanditLog, rounds: Ints, weights: Floats, modelled: Floats | None, clip: float) -> Tiles:
    """These ``rounds`` of ``log``, whose rounds have ``weights`` (n,) and ``modelled`` rewards, (n, K) or (1, K)."""
    rows, mask, actions, rewards, propensities = log.arrays
    n_actions, chosen, kind = log.n_actions, actions[rounds], rows.dtype
    own = rows[rounds] if len(rows) > 1 else np.broadcast_to(rows, (len(rounds), *rows.shape[1:]))
    predicted, residuals = np.empty((0, n_actions, SIDE_BY_SIDE), dtype=kind), rewards[rounds]
    if modelled is not None:
        of_rounds = modelled[rounds] if len(modelled) > 1 else np.broadcast_to(modelled, (len(rounds), n_actions))
        residuals = residuals - of_rounds[np.arange(len(rounds)), chosen]
        predicted = _in_columns(of_rounds, kind)
    allowed = _in_columns(mask[rounds], bool, True) if len(mask) > 1 else np.empty((0, n_actions, SIDE_BY_SIDE), bool)
    if len(mask) == 1 and not mask.all():
        allowed = _in_columns(np.broadcast_to(mask, (len(rounds), n_actions)), bool, True)
    features = _in_columns(np.moveaxis(own, 2, 1), kind)
    return Tiles(
        features=features.reshape(*features.shape[:2], -1),
        allowed=allowed,
        chosen=_in_columns(chosen, np.int32),
        residuals=_in_columns(residuals, kind),
        inverses=_in_columns(1 / propensities[rounds], kind),
        limits=_in_columns(clip * propensities[rounds], kind),
        weights=_in_columns(weights[rounds], kind),
        modelled=predicted,
    )


def _in_columns(values: npt.NDArray[Any], kind: npt.DTypeLike, filling: Any = 0) -> npt.NDArray[Any]:
    """(n, …) as (m, …, S), filled up at the end."""
    n_tiles = -(-len(values) // SIDE_BY_SIDE)
    whole = np.full((n_tiles * SIDE_BY_SIDE, *values.shape[1:]), filling, dtype=kind)
    whole[: len(values)] = values
    return np.ascontiguousarray(np.moveaxis(whole.reshape(n_tiles, SIDE_BY_SIDE, *values.shape[1:]), 1, -1))
