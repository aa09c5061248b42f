"""Expectation-maximisation of a switching regression."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from seachange.kernels.regression import penalised_gram, solve_ridge
from seachange.protocols import Floats
from seachange.states.switching import Chain, Expectation, SwitchingRegression, Workspace, expectation

# The noise never falls below this share of the rewards' spread: a state that fits its rounds exactly stays a state.
NOISE_FLOOR = 1e-10


@dataclass(frozen=True)
class Prior:
    """What EM believes before the log: coefficients are small, states are sticky. All of it may vanish."""

    penalties: Floats  # (D,) ridge: pull of each coefficient to 0, in rounds times the squared unit of its feature
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
        """(L,) imagined chains by their first state: as many as visits to one state, spread evenly."""
        return np.full(n_states, self.visits / n_states)

    def squares(self, coefs: Floats) -> float:
        """Σ penalty c²: what the ridge adds to the squared residuals."""
        return float(np.sum(self.penalties * np.square(coefs)))

    def log_density(self, model: SwitchingRegression) -> float:
        """Logarithm of the prior at ``model``, up to a constant."""
        moves = self.transition_counts(model.n_states) * np.log(np.maximum(model.transition_matrix, 1e-300))
        firsts = self.first_counts(model.n_states) * np.log(np.maximum(model.initial_probs, 1e-300))
        return float(moves.sum() + firsts.sum() - self.squares(model.reward_coefs) / (2 * model.noise_variance))


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
    coefs = solve_ridge(statistics.grams, statistics.moments, prior.penalties)
    fitted = np.einsum("zbij,zbj->zbi", statistics.grams, coefs)
    explained = float(2 * np.sum(coefs * statistics.moments) - np.sum(coefs * fitted))
    squares = statistics.totals[:, 0].sum() - explained + prior.squares(coefs)
    return replace(
        model,
        initial_probs=_probabilities(statistics.first_states + prior.first_counts(model.n_states)),
        transition_matrix=_probabilities(statistics.transitions + prior.transition_counts(model.n_states)),
        reward_coefs=coefs,
        reward_precisions=penalised_gram(statistics.grams, prior.penalties),
        noise_variance=max(float(squares / max(statistics.totals[:, 1].sum(), 1e-300)), floor),
    )


def _probabilities(counts: Floats) -> Floats:
    """Counts to probabilities along the last axis, none of them 0: evidence must be able to overrule any."""
    return np.asarray(np.maximum(counts, 1e-30) / np.maximum(counts, 1e-30).sum(axis=-1, keepdims=True))
