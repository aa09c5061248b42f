"""Where EM starts: windows of the log, each with its own regression, clustered into states."""

from __future__ import annotations

import numpy as np

from seachange.kernels.regression import penalised_gram, solve_ridge, window_sums
from seachange.protocols import Floats, Ints
from seachange.states.clustering import cluster
from seachange.states.em import Prior
from seachange.states.switching import Chain, SwitchingRegression

# A window's fit is drawn to 0 as if by this many rounds of every action.
WINDOW_PRIOR_ROUNDS = 2.0
# Where there are more windows, or their sums would hold more numbers, evenly chosen ones stand for all.
MOST_WINDOWS = 5_000
MOST_NUMBERS = 1 << 24


def window_start(chain: Chain, n_states: int, width: int, prior: Prior, seed: int) -> SwitchingRegression | None:
    """A sticky model whose states are clusters of windows of ``width`` rounds; None where too few windows differ."""
    grams, moments, n_rounds = _sums_of_windows(chain, width)
    clusters = cluster(_fits_of_windows(grams, moments, n_rounds), n_states, seed)
    if clusters.max() + 1 < n_states:
        return None
    members = (clusters[:, None] == np.arange(n_states)).astype(float)
    state_grams, state_moments = np.einsum("wz,wbij->zbij", members, grams), np.einsum("wz,wbi->zbi", members, moments)
    transition = np.full((n_states, n_states), 1 / (prior.stay * max(n_states - 1, 1)))
    np.fill_diagonal(transition, 1 - 1 / prior.stay if n_states > 1 else 1.0)
    return SwitchingRegression(
        initial_probs=np.full(n_states, 1 / n_states),
        transition_matrix=transition,
        reward_coefs=solve_ridge(state_grams, state_moments, prior.penalties),
        reward_precisions=penalised_gram(state_grams, prior.penalties),
        noise_variance=max(float(np.nanvar(chain.log.arrays.rewards)), 1e-300),
        joint=chain.log.joint,
    )


def _sums_of_windows(chain: Chain, width: int) -> tuple[Floats, Floats, int]:
    """Gram matrices (W, B, D, D), moments (W, B, D) and rounds of consecutive windows, or of evenly chosen ones."""
    windows = _windows(chain, width)
    n_blocks, n_features = chain.log.joint.shape
    n_windows = int(windows[-1]) + 1
    stride = -(-n_windows // max(min(MOST_WINDOWS, MOST_NUMBERS // (n_blocks * n_features**2)), 1))
    chosen = np.where(windows % stride == 0, windows // stride, -1)
    grams = np.zeros((-(-n_windows // stride), n_blocks, n_features, n_features))
    moments = np.zeros((len(grams), n_blocks, n_features))
    for rounds in chain.slices:
        arrays = chain.log[rounds].arrays
        window_sums(arrays.rows, arrays.actions, arrays.rewards, chosen[rounds], grams, moments)
    return grams, moments, max(int(np.isfinite(chain.log.arrays.rewards[chosen >= 0]).sum()), 1)


def _fits_of_windows(grams: Floats, moments: Floats, n_rounds: int) -> Floats:
    """(W, B D) regressions of the windows, drawn to 0.

    They are given in coordinates in which two windows are as far apart as their predictions differ, in the mean square
    over the log, so that the scale of a feature does not matter.
    """
    n_blocks = moments.shape[1]
    scale = grams.sum(axis=0) / n_rounds
    units = np.einsum("bii->i", scale)
    scale += 1e-9 * np.diag(np.where(units > 0, units, 1.0))
    fits = np.linalg.solve(grams + WINDOW_PRIOR_ROUNDS * n_blocks * scale, moments[..., None])[..., 0]
    return np.asarray(np.einsum("bji,wbj->wbi", np.linalg.cholesky(scale), fits)).reshape(len(grams), -1)


def _windows(chain: Chain, width: int) -> Ints:
    """(n,) number of the window each round of the chain falls into; a new sequence starts a new window."""
    n = len(chain.starts)
    first = np.maximum.accumulate(np.where(chain.starts, np.arange(n), 0))
    return np.cumsum((np.arange(n) - first) % width == 0) - 1
