"""Expectation-maximisation of a switching regression, from starts that windows of the log suggest."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from seachange.kernels.regression import solve_ridge, window_sums
from seachange.protocols import Floats, Ints
from seachange.states.clustering import cluster
from seachange.states.switching import Chain, Expectation, SwitchingRegression, Workspace, expectation

# A window's fit is drawn towards the pooled one as if by this many rounds of every action.
WINDOW_PRIOR_ROUNDS = 2.0
# The noise never falls below this share of the rewards' spread: a state that fits its rounds exactly stays a state.
NOISE_FLOOR = 1e-10


@dataclass(frozen=True)
class Prior:
    """What EM believes before the log: coefficients are small, states are sticky. All of it may vanish."""

    ridge: float  # pseudo-rounds that pull each coefficient to 0
    visits: float  # imagined visits to each state, each left after ``stay`` rounds for any other
    stay: float  # expected rounds in a state

    def transition_counts(self, n_states: int) -> Floats:
        """(L, L) imagined moves."""
        if n_states == 1:
            return np.zeros((1, 1))
        counts = np.full((n_states, n_states), self.visits / (n_states - 1))
        np.fill_diagonal(counts, self.visits * (self.stay - 1))
        return counts

    def first_counts(self, n_states: int) -> Floats:
        """(L,) imagined chains by their first state: one for every imagined visit, spread evenly."""
        return np.full(n_states, self.visits / n_states)

    def log_density(self, model: SwitchingRegression) -> float:
        """Logarithm of the prior at ``model``, up to a constant."""
        moves = self.transition_counts(model.n_states) * np.log(np.maximum(model.transition_matrix, 1e-300))
        firsts = self.first_counts(model.n_states) * np.log(np.maximum(model.initial_probs, 1e-300))
        return float(
            moves.sum() + firsts.sum() - self.ridge * np.square(model.reward_coefs).sum() / (2 * model.noise_variance)
        )


@dataclass(frozen=True, eq=False)
class EMResult:
    """Where one start led."""

    model: SwitchingRegression
    objectives: tuple[float, ...]  # log-likelihood + log prior before each iteration and at the end
    log_likelihood: float
    converged: bool


def run_em(start: SwitchingRegression, chain: Chain, prior: Prior, tolerance: float, max_iterations: int) -> EMResult:
    """Iterate until log-likelihood plus log prior gains less than ``tolerance`` of itself."""
    model, objectives, room = start, [], Workspace.for_chain(chain, start.n_states)
    floor = NOISE_FLOOR * float(np.nanvar(chain.log.arrays.rewards)) or 1e-300
    for _ in range(max_iterations):
        statistics = expectation(model, chain, workspace=room)
        objectives.append(statistics.log_likelihood + prior.log_density(model))
        if len(objectives) > 1 and objectives[-1] - objectives[-2] <= tolerance * abs(objectives[-1]):
            return EMResult(model, tuple(objectives), statistics.log_likelihood, True)
        model = maximisation(model, statistics, prior, floor)
    likelihood = model.log_likelihood(chain.log)
    return EMResult(model, (*objectives, likelihood + prior.log_density(model)), likelihood, False)


def maximisation(
    model: SwitchingRegression, statistics: Expectation, prior: Prior, floor: float
) -> SwitchingRegression:
    """The M-step: the model that maximises the expected log-likelihood plus the log prior."""
    coefs = solve_ridge(statistics.grams, statistics.moments, prior.ridge)
    squares = statistics.totals[:, 0].sum() - explained(statistics.grams, statistics.moments, coefs)
    penalised = squares + prior.ridge * np.square(coefs).sum()
    return replace(
        model,
        initial_probs=_probabilities(statistics.first_states + prior.first_counts(model.n_states)),
        transition_matrix=_probabilities(statistics.transitions + prior.transition_counts(model.n_states)),
        reward_coefs=coefs,
        reward_precisions=statistics.grams + prior.ridge * np.eye(coefs.shape[-1]),
        noise_variance=max(float(penalised / max(statistics.totals[:, 1].sum(), 1e-300)), floor),
    )


def explained(grams: Floats, moments: Floats, coefs: Floats) -> float:
    """2 c·m - c'Gc: how much of Σ r² the coefficients explain."""
    fitted = np.einsum("zbij,zbj->zbi", grams, coefs)
    return float(2 * np.sum(coefs * moments) - np.sum(coefs * fitted))


def window_start(chain: Chain, n_states: int, width: int, prior: Prior, seed: int) -> SwitchingRegression | None:
    """A model whose states are clusters of windows of ``width`` rounds; None where too few windows differ.

    Every window gets its own regression, drawn towards the pooled one. Two windows are as far apart as their
    predictions differ, on average over the log.
    """
    arrays, joint = chain.log.arrays, chain.log.joint
    windows = _windows(chain, width)
    n_blocks, n_features = joint.shape
    grams, moments = window_sums(arrays.rows, arrays.actions, arrays.rewards, windows, int(windows[-1]) + 1, n_blocks)
    pooled_gram, pooled_moment = grams.sum(axis=0), moments.sum(axis=0)
    n_observed = max(int(np.isfinite(arrays.rewards).sum()), 1)
    scale = pooled_gram / n_observed
    scale += 1e-9 * max(np.trace(scale.sum(axis=0)), 1e-300) / n_features * np.eye(n_features)
    pooled = solve_ridge(pooled_gram, pooled_moment, prior.ridge)
    misfit = moments - np.einsum("wbij,bj->wbi", grams, pooled)
    offsets = np.linalg.solve(grams + WINDOW_PRIOR_ROUNDS * n_blocks * scale, misfit[..., None])[..., 0]
    points = np.einsum("bji,wbj->wbi", np.linalg.cholesky(scale), offsets).reshape(len(grams), -1)
    clusters = cluster(points, n_states, seed)
    if clusters.max() + 1 < n_states:
        return None
    members = (clusters[:, None] == np.arange(n_states)).astype(float)
    state_grams, state_moments = np.einsum("wz,wbij->zbij", members, grams), np.einsum("wz,wbi->zbi", members, moments)
    coefs = solve_ridge(state_grams, state_moments, max(prior.ridge, 1e-9))
    squares = float(np.nansum(np.square(arrays.rewards))) - explained(state_grams, state_moments, coefs)
    stay = np.full((n_states, n_states), 1 / (prior.stay * max(n_states - 1, 1)))
    np.fill_diagonal(stay, 1 - 1 / prior.stay if n_states > 1 else 1.0)
    return SwitchingRegression(
        initial_probs=np.full(n_states, 1 / n_states),
        transition_matrix=stay,
        reward_coefs=coefs,
        reward_precisions=state_grams + prior.ridge * np.eye(n_features),
        noise_variance=max(squares / n_observed, NOISE_FLOOR * float(np.nanvar(arrays.rewards)), 1e-300),
        joint=joint,
    )


def _windows(chain: Chain, width: int) -> Ints:
    """(n,) number of the window each round of the chain falls into; a new sequence starts a new window."""
    n = len(chain.starts)
    first = np.maximum.accumulate(np.where(chain.starts, np.arange(n), 0))
    return np.cumsum((np.arange(n) - first) % width == 0) - 1


def _probabilities(counts: Floats) -> Floats:
    """Counts to probabilities along the last axis, none of them 0: evidence must be able to overrule any."""
    return np.asarray(np.maximum(counts, 1e-30) / np.maximum(counts, 1e-30).sum(axis=-1, keepdims=True))
