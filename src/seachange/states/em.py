"""Expectation-maximisation of a switching regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from seachange.engine import map_in_order, stage
from seachange.kernels.regression import penalised_gram, solve_ridge
from seachange.log.moments import Moments, moments_of
from seachange.protocols import Floats
from seachange.states.chain import Chain
from seachange.states.expectation import Expectation, Workspace, expectation
from seachange.states.stationary import stationary_maximum, stationary_probs
from seachange.states.switching import LEAST_PROBABILITY, SwitchingRegression

# The noise never falls below this share of the rewards' spread: a state that fits its rounds exactly stays a state.
NOISE_FLOOR = 1e-10
# Iterations after which runs are compared with each other, and those left behind are given up.
HEAT = 5
# A step of Newton's method that goes too far is halved, at most this often.
MOST_HALVINGS = 10


@dataclass(frozen=True)
class Prior:
    """What EM believes before the log: coefficients are near a centre, states are sticky. All of it may vanish."""

    penalties: Floats  # (D,) ridge: pull of each coefficient to the centre, in rounds times its feature's unit squared
    visits: float  # imagined visits to each state, each left after ``stay`` rounds for any other
    stay: float  # expected rounds in a state
    centre: Floats | float = 0.0  # (B, D) the coefficients of a state of which nothing is known
    noise: tuple[float, float] = (
        0.0,
        1.0,
    )  # where states have their own noise: imagined rounds of each, their variance
    stationary: bool = False  # chains start from the stationary distribution of Φ, not from a P_0 of their own

    def transition_counts(self, n_states: int) -> Floats:
        """(L, L) imagined moves."""
        if n_states == 1:
            return np.zeros((1, 1))
        counts = np.full((n_states, n_states), self.visits / (n_states - 1))
        np.fill_diagonal(counts, self.visits * (self.stay - 1))
        return counts

    def first_counts(self, n_states: int) -> Floats:
        """(L,) imagined chains by their first state: as many as visits to one state, spread evenly."""
        return np.full(n_states, 0.0 if self.stationary else self.visits / n_states)

    def squares(self, coefs: Floats) -> Floats:
        """(L,) Σ penalty (c - centre)²: what the ridge adds to the squared residuals."""
        return np.asarray(np.sum(self.penalties * np.square(coefs - self.centre), axis=(1, 2)))

    def log_density(self, model: SwitchingRegression) -> float:
        """Logarithm of the prior at ``model``, up to a constant."""
        moves = self.transition_counts(model.n_states) * np.log(model.transition_matrix)
        firsts = self.first_counts(model.n_states) * np.log(model.initial_probs)
        density = float(moves.sum() + firsts.sum())
        squares, variances = self.squares(model.reward_coefs), model.noise_variances
        if model.rewards == "bernoulli":
            return density - 0.5 * float(squares.sum())
        if model.rewards == "gaussian per state":
            rounds, variance = self.noise
            squares = squares + rounds * variance
            density -= 0.5 * rounds * float(np.log(variances).sum())
        return density - 0.5 * float(np.sum(squares / variances))


@dataclass(frozen=True, eq=False)
class EMRun:
    """Where one start has led so far."""

    model: SwitchingRegression
    statistics: Expectation  # of the model
    objectives: tuple[float, ...]  # log-likelihood + log prior at the start and after each iteration
    converged: bool = False
    given_up: bool = False  # it was too far behind other starts

    @property
    def log_likelihood(self) -> float:
        """log p(rewards) of the model."""
        return self.statistics.log_likelihood

    @property
    def objective(self) -> float:
        """Log-likelihood + log prior of the model."""
        return self.objectives[-1]

    @property
    def iterations(self) -> int:
        """Iterations so far."""
        return len(self.objectives) - 1

    def share_done(self, least_gain: float) -> float:
        """How far it has come, as far as one can tell: gains shrink by about the same factor in every iteration."""
        first, last = self.objectives[1] - self.objectives[0], self.objectives[-1] - self.objectives[-2]
        if self.converged or min(first, last) <= least_gain or least_gain <= 0:
            return 1.0 if least_gain > 0 else 0.0
        return float(np.clip(np.log(first / last) / np.log(first / least_gain), 0.0, 1.0))

    def hopeless(self, best: float, most_iterations: int) -> bool:
        """Whether its last gain, made again in every iteration left, would not take it to ``best``."""
        gain = self.objectives[-1] - self.objectives[-2]
        return not self.converged and self.objective + gain * (most_iterations - self.iterations) < best


@dataclass(frozen=True)
class EM:
    """How a chain is climbed: what is believed before, and when to stop."""

    chain: Chain
    prior: Prior
    tolerance: float  # a run has converged when an iteration gains less than this a round
    most_iterations: int

    def race(self, starts: Sequence[SwitchingRegression], workers: int = 1) -> list[EMRun]:
        """Runs from all starts, best first; those hopelessly behind are given up, by iteration, not by time."""
        over: list[EMRun] = []
        running = list(map_in_order(self.begin, starts, workers=workers))
        with stage("", 1.0) as climbing:
            while running:
                heat = partial(self.climb, iterations=HEAT, workers=max(1, workers // len(running)))
                running = list(map_in_order(heat, running, workers=workers))
                best = max(run.objective for run in [*over, *running])
                running = [replace(run, given_up=run.hopeless(best, self.most_iterations)) for run in running]
                over += filter(self._over, running)
                running = [run for run in running if not self._over(run)]
                climbing.reach(min((run.share_done(self.least_gain) for run in running), default=1.0))
        return sorted(over, key=lambda run: -run.objective)

    def begin(self, start: SwitchingRegression, workers: int = 1) -> EMRun:
        """A run of no iterations."""
        statistics = expectation(start, self.chain, workers=workers)
        return self._run(start, statistics, (self._objective(start, statistics),), converged=False)

    def climb(self, run: EMRun, iterations: int, workers: int = 1) -> EMRun:
        """At most ``iterations`` more."""
        room = Workspace.for_chain(self.chain, run.model)
        for _ in range(min(iterations, self.most_iterations - run.iterations)):
            run = self._iterate(run, room, workers)
            if run.converged:
                break
        return run

    def finish(self, start: SwitchingRegression, workers: int = 1) -> EMRun:
        """A run to its end."""
        return self.climb(self.begin(start, workers), self.most_iterations, workers)

    def _iterate(self, run: EMRun, room: Workspace, workers: int) -> EMRun:
        model = maximisation(run.model, run.statistics, self.prior, self._noise_floor)
        statistics = expectation(model, self.chain, workspace=room, workers=workers)
        objective = self._objective(model, statistics)
        # Newton's step towards the M-step's maximum, which clicks take, may go past it.
        for _ in range(MOST_HALVINGS if model.rewards == "bernoulli" else 0):
            if objective >= run.objective:
                break
            model = replace(model, reward_coefs=0.5 * (model.reward_coefs + run.model.reward_coefs))
            statistics = expectation(model, self.chain, workspace=room, workers=workers)
            objective = self._objective(model, statistics)
        if objective < run.objective:
            # Rounding, or what no half of a step could mend: the run stays where it was.
            return replace(run, objectives=(*run.objectives, run.objective), converged=True)
        return self._run(model, statistics, (*run.objectives, objective), objective - run.objective <= self.least_gain)

    def _run(
        self, model: SwitchingRegression, statistics: Expectation, objectives: tuple[float, ...], converged: bool
    ) -> EMRun:
        """A run whose model has the precision that its own statistics give the coefficients."""
        precisions = penalised_gram(statistics.grams, self.prior.penalties)
        return EMRun(replace(model, reward_precisions=precisions), statistics, objectives, converged)

    def _objective(self, model: SwitchingRegression, statistics: Expectation) -> float:
        return statistics.log_likelihood + self.prior.log_density(model)

    @cached_property
    def least_gain(self) -> float:
        """An iteration that gains less is the last one. Unlike a share of the log-likelihood it has no unit."""
        return self.tolerance * self._moments.n_seen

    @cached_property
    def _noise_floor(self) -> float:
        return NOISE_FLOOR * self._moments.variance or 1e-300

    @cached_property
    def _moments(self) -> Moments:
        return moments_of(self.chain.log.arrays.rewards)

    def _over(self, run: EMRun) -> bool:
        return run.converged or run.given_up or run.iterations >= self.most_iterations


def maximisation(
    model: SwitchingRegression, statistics: Expectation, prior: Prior, floor: float
) -> SwitchingRegression:
    """The M-step: the model that maximises the expected log-likelihood plus the log prior.

    Where rewards are clicks that has no closed form; one step of Newton's method is made towards it.
    """
    moves = statistics.transitions + prior.transition_counts(model.n_states)
    if prior.stationary:
        transition = stationary_maximum(moves, statistics.first_states, model.transition_matrix)
        initial = stationary_probs(transition)
    else:
        transition = probabilities(moves)
        initial = probabilities(statistics.first_states + prior.first_counts(model.n_states))
    pull = prior.penalties * (model.reward_coefs - prior.centre)
    if model.rewards == "bernoulli":
        coefs = model.reward_coefs + solve_ridge(statistics.grams, statistics.moments - pull, prior.penalties)
        variances = model.noise_variances
    else:
        coefs = solve_ridge(statistics.grams, statistics.moments + prior.penalties * prior.centre, prior.penalties)
        variances = _noise_variances(model, coefs, statistics, prior, floor)
    return replace(
        model,
        initial_probs=initial,
        transition_matrix=transition,
        reward_coefs=coefs,
        noise_variances=variances,
    )


def _noise_variances(
    model: SwitchingRegression, coefs: Floats, statistics: Expectation, prior: Prior, floor: float
) -> Floats:
    """(L,) mean squared residuals, of each state or of all."""
    fitted = np.einsum("zbij,zbj->zbi", statistics.grams, coefs)
    explained = np.sum(coefs * (2 * statistics.moments - fitted), axis=(1, 2))
    squares, rounds = statistics.totals[:, 0] - explained + prior.squares(coefs), statistics.totals[:, 1]
    if model.rewards == "gaussian":
        return np.full(model.n_states, max(float(squares.sum() / max(rounds.sum(), 1e-300)), floor))
    imagined, variance = prior.noise
    return np.asarray(np.maximum((squares + imagined * variance) / np.maximum(rounds + imagined, 1e-300), floor))


def probabilities(counts: Floats) -> Floats:
    """Counts to probabilities along the last axis, also where there are none."""
    counts = np.maximum(counts, LEAST_PROBABILITY)
    return np.asarray(counts / counts.sum(axis=-1, keepdims=True))
