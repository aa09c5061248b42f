"""Where EM starts: windows of the log, each with its own regression, clustered into states."""

from __future__ import annotations

import numpy as np

from seachange.kernels.regression import solve_ridge, window_sums
from seachange.protocols import Floats, Ints
from seachange.states.clustering import cluster
from seachange.states.em import NOISE_FLOOR, Prior, explained
from seachange.states.switching import Chain, SwitchingRegression

# A window's fit is drawn towards the pooled one as if by this many rounds of every action.
WINDOW_PRIOR_ROUNDS = 2.0


def window_start(chain: Chain, n_states: int, width: int, prior: Prior, seed: int) -> SwitchingRegression | None:
    """A sticky model whose states are clusters of windows of ``width`` rounds; None where too few windows differ."""
    grams, moments = _sums_of_windows(chain, width)
    rewards = chain.log.arrays.rewards
    n_observed = int(np.isfinite(rewards).sum())
    clusters = cluster(_fits_of_windows(grams, moments, n_observed, prior.ridge), n_states, seed)
    if clusters.max() + 1 < n_states:
        return None
    members = (clusters[:, None] == np.arange(n_states)).astype(float)
    state_grams, state_moments = np.einsum("wz,wbij->zbij", members, grams), np.einsum("wz,wbi->zbi", members, moments)
    coefs = solve_ridge(state_grams, state_moments, prior.ridge)
    squares = float(np.nansum(np.square(rewards))) - explained(state_grams, state_moments, coefs)
    transition = np.full((n_states, n_states), 1 / (prior.stay * max(n_states - 1, 1)))
    np.fill_diagonal(transition, 1 - 1 / prior.stay if n_states > 1 else 1.0)
    return SwitchingRegression(
        initial_probs=np.full(n_states, 1 / n_states),
        transition_matrix=transition,
        reward_coefs=coefs,
        reward_precisions=state_grams + prior.ridge * np.eye(grams.shape[-1]),
        noise_variance=max(squares / n_observed, NOISE_FLOOR * float(np.nanvar(rewards)), 1e-300),
        joint=chain.log.joint,
    )


def _sums_of_windows(chain: Chain, width: int) -> tuple[Floats, Floats]:
    """Gram matrices (W, B, D, D) and moments (W, B, D) of consecutive windows."""
    windows = _windows(chain, width)
    n_blocks, n_features = chain.log.joint.shape
    grams = np.zeros((int(windows[-1]) + 1, n_blocks, n_features, n_features))
    moments = np.zeros((len(grams), n_blocks, n_features))
    for rounds in chain.slices:
        arrays = chain.log[rounds].arrays
        window_sums(arrays.rows, arrays.actions, arrays.rewards, windows[rounds], grams, moments)
    return grams, moments


def _fits_of_windows(grams: Floats, moments: Floats, n_observed: int, ridge: float) -> Floats:
    """(W, B D) regressions of the windows, drawn towards the pooled one.

    They are given in coordinates in which two windows are as far apart as their predictions differ, in the mean square
    over the log, so that the scale of a feature does not matter.
    """
    n_blocks, n_features = moments.shape[1:]
    pooled_gram = grams.sum(axis=0)
    pooled = solve_ridge(pooled_gram, moments.sum(axis=0), ridge)
    scale = pooled_gram / n_observed
    scale += 1e-9 * max(np.trace(scale.sum(axis=0)), 1e-300) / n_features * np.eye(n_features)
    misfit = moments - np.einsum("wbij,bj->wbi", grams, pooled)
    offsets = np.linalg.solve(grams + WINDOW_PRIOR_ROUNDS * n_blocks * scale, misfit[..., None])[..., 0]
    return np.asarray(np.einsum("bji,wbj->wbi", np.linalg.cholesky(scale), offsets)).reshape(len(grams), -1)


def _windows(chain: Chain, width: int) -> Ints:
    """(n,) number of the window each round of the chain falls into; a new sequence starts a new window."""
    n = len(chain.starts)
    first = np.maximum.accumulate(np.where(chain.starts, np.arange(n), 0))
    return np.cumsum((np.arange(n) - first) % width == 0) - 1
