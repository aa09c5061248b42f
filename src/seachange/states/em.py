"""EM for switching regressions: the prior, runs from several initializations, and the M-step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter

import numpy as np

from seachange.engine import map_in_order, stage
from seachange.kernels.regression import solve_ridge
from seachange.log.column_statistics import moments_of
from seachange.log.units import Units
from seachange.protocols import Floats
from seachange.states.expectation import Chain, Expectation, Workspace, expectation
from seachange.states.switching_regression import LEAST_PROBABILITY, SwitchingRegression

# Lower bound on the noise variance, relative to that of the rewards, for states that fit their rounds exactly.
NOISE_FLOOR = 1e-10
# Iterations after which runs are compared, and those too far behind are abandoned.
COMPARE_EVERY = 5
# Times that a Newton step that overshoots is halved.
MAX_HALVINGS = 10


@dataclass(frozen=True)
class Prior:
    """Prior of EM: coefficients are near a center, and states persist. Every part may have weight 0."""

    ridge: float  # penalty on the squared distance to the center in ``units``, in rounds
    visits: float  # pseudo-visits of ``stay`` rounds, spread evenly over the states
    stay: float  # expected rounds in a state
    units: Units  # of the features
    shortest: float = 1.0  # lower bound on the expected rounds in a state, unless ``stationary``
    center: Floats | float = 0.0  # (B, D) coefficients to shrink toward
    noise: tuple[float, float] = (0.0, 1.0)  # with noise per state: pseudo-rounds of each, and their variance
    stationary: bool = False  # chains start from the stationary distribution of Φ instead of a free P_0

    def transition_counts(self, n_states: int) -> Floats:
        """(L, L) pseudo-counts of transitions."""
        if n_states == 1:
            return np.zeros((1, 1))
        visits = self.visits / n_states
        counts = np.full((n_states, n_states), visits / (n_states - 1))
        np.fill_diagonal(counts, visits * (self.stay - 1))
        return counts

    def first_counts(self, n_states: int) -> Floats:
        """(L,) pseudo-counts of first states."""
        return np.full(n_states, 0.0 if self.stationary else self.visits / n_states)

    def deviations(self, coefs: Floats) -> Floats:
        """(L, B, D) distance of coefficients to the center, in ``units``."""
        return self.units.coefs(coefs - self.center)

    def squares(self, coefs: Floats) -> Floats:
        """(L,) ridge Σ (c̃ - center)²: the ridge penalty."""
        return np.asarray(self.ridge * np.sum(np.square(self.deviations(coefs)), axis=(1, 2)))

    @cached_property
    def penalty(self) -> Floats:
        """(D, D) the ridge, for raw coefficients."""
        return self.units.raw_grams(self.ridge * np.eye(len(self.units.means)))

    def log_density(self, model: SwitchingRegression) -> float:
        """Log density of the prior at ``model``, up to a constant."""
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
    """The state of EM from one initialization."""

    model: SwitchingRegression
    statistics: Expectation  # of the model
    objectives: tuple[float, ...]  # log-likelihood + log prior, initially and after each iteration
    converged: bool = False
    abandoned: bool = False  # too far behind other runs

    @property
    def log_likelihood(self) -> float:
        """log p(rewards) of the model."""
        return float(self.statistics.log_likelihood)

    @property
    def objective(self) -> float:
        """Log-likelihood + log prior of the model."""
        return self.objectives[-1]

    @property
    def iterations(self) -> int:
        """The number of iterations."""
        return len(self.objectives) - 1

    def progress(self, least_gain: float) -> float:
        """Estimated share of the iterations done, assuming that gains shrink geometrically."""
        first, last = self.objectives[1] - self.objectives[0], self.objectives[-1] - self.objectives[-2]
        if self.converged or min(first, last) <= least_gain or least_gain <= 0:
            return 1.0 if least_gain > 0 else 0.0
        return float(np.clip(np.log(first / last) / np.log(first / least_gain), 0.0, 1.0))

    def out_of_reach(self, best: float, max_iterations: int) -> bool:
        """Whether it would miss ``best`` even if every remaining iteration gained as much as the last."""
        gain = self.objectives[-1] - self.objectives[-2]
        return not self.converged and self.objective + gain * (max_iterations - self.iterations) < best


@dataclass(frozen=True)
class EM:
    """EM on a chain under a prior, with a stopping rule."""

    chain: Chain
    prior: Prior
    tolerance: float  # a run has converged when an iteration gains less than this per round
    max_iterations: int

    def run_all(self, starts: Sequence[SwitchingRegression], workers: int = 1) -> list[EMRun]:
        """Runs from all initializations, best first; those too far behind after some iterations are abandoned."""
        ended: list[EMRun] = []
        running = list(map_in_order(self.start, starts, workers=workers))
        with stage("", 1.0) as progress:
            while running:
                some = partial(self.iterate, iterations=COMPARE_EVERY, workers=max(1, workers // len(running)))
                running = list(map_in_order(some, running, workers=workers))
                best = max(run.objective for run in [*ended, *running])
                running = [replace(run, abandoned=run.out_of_reach(best, self.max_iterations)) for run in running]
                ended += filter(self._has_ended, running)
                running = [run for run in running if not self._has_ended(run)]
                progress.reach(min((run.progress(self.least_gain) for run in running), default=1.0))
        return sorted(ended, key=attrgetter("objective"), reverse=True)

    def start(
        self,
        model: SwitchingRegression,
        workers: int = 1,
        workspace: Workspace | None = None,
        before: tuple[float, ...] = (),
    ) -> EMRun:
        """A run at ``model``, with the precisions of its own statistics; ``before`` are the objectives so far."""
        statistics = expectation(model, self.chain, workspace=workspace, workers=workers)
        objective = float(statistics.log_likelihood + self.prior.log_density(model))
        precisions = statistics.grams + self.prior.penalty
        return EMRun(replace(model, reward_precisions=precisions), statistics, (*before, objective))

    def iterate(self, run: EMRun, iterations: int, workers: int = 1) -> EMRun:
        """The run after at most ``iterations`` more."""
        workspace = Workspace.for_chain(self.chain, run.model)
        for _ in range(min(iterations, self.max_iterations - run.iterations)):
            run = self._iteration(run, workspace, workers)
            if run.converged:
                break
        return run

    def finish(self, start: SwitchingRegression, workers: int = 1) -> EMRun:
        """A run until it has converged."""
        return self.iterate(self.start(start, workers), self.max_iterations, workers)

    def _iteration(self, run: EMRun, workspace: Workspace, workers: int) -> EMRun:
        model = maximization(run.model, run.statistics, self.prior, self._noise_floor)
        # For clicks the M-step is a Newton step, which may overshoot.
        for _ in range(1 + (MAX_HALVINGS if model.rewards == "bernoulli" else 0)):
            after = self.start(model, workers, workspace, run.objectives)
            if after.objective >= run.objective:
                return replace(after, converged=after.objective - run.objective <= self.least_gain)
            model = replace(model, reward_coefs=0.5 * (model.reward_coefs + run.model.reward_coefs))
        # Rounding, or halving did not help: keep the previous model.
        return replace(run, objectives=(*run.objectives, run.objective), converged=True)

    @cached_property
    def least_gain(self) -> float:
        """A run has converged when an iteration gains less; does not depend on the unit of rewards."""
        return self.tolerance * moments_of(self.chain.log.arrays.rewards).n_seen

    @cached_property
    def _noise_floor(self) -> float:
        return NOISE_FLOOR * moments_of(self.chain.log.arrays.rewards).variance or 1e-300

    def _has_ended(self, run: EMRun) -> bool:
        return run.converged or run.abandoned or run.iterations >= self.max_iterations


def maximization(
    model: SwitchingRegression, statistics: Expectation, prior: Prior, floor: float
) -> SwitchingRegression:
    """The M-step: the model that maximizes the expected log-likelihood plus the log prior.

    For clicks there is no closed form; the coefficients take one Newton step.
    """
    moves = statistics.transitions + prior.transition_counts(model.n_states)
    if prior.stationary:
        transition = stationary_maximum(moves, statistics.first_states, model.transition_matrix)
        initial = _fundamental(transition)[1]
    else:
        transition = persistent(probabilities(moves), prior.shortest)
        initial = probabilities(statistics.first_states + prior.first_counts(model.n_states))
    grams, moments = prior.units.grams(statistics.grams), prior.units.moments(statistics.moments)
    if model.rewards == "bernoulli":
        gradient = moments - prior.ridge * prior.deviations(model.reward_coefs)
        coefs = model.reward_coefs + prior.units.raw_coefs(solve_ridge(grams, gradient, prior.ridge))
        variances = model.noise_variances
    else:
        origin = prior.deviations(np.zeros_like(moments))
        found = solve_ridge(grams, moments - prior.ridge * origin, prior.ridge)
        coefs, fitted = prior.units.raw_coefs(found), np.einsum("zbij,zbj->zbi", grams, found)
        explained = np.sum(found * (2 * moments - fitted), axis=(1, 2))
        squares, rounds = statistics.totals[:, 0] - explained + prior.squares(coefs), statistics.totals[:, 1]
        if model.rewards == "gaussian":
            squares, rounds = np.full_like(squares, squares.sum()), rounds.sum()
        else:
            squares, rounds = squares + prior.noise[0] * prior.noise[1], rounds + prior.noise[0]
        variances = np.maximum(squares / np.maximum(rounds, 1e-300), floor)
    return replace(
        model, initial_probs=initial, transition_matrix=transition, reward_coefs=coefs, noise_variances=variances
    )


def probabilities(counts: Floats) -> Floats:
    """Counts to probabilities along the last axis; uniform without counts."""
    counts = np.maximum(counts, LEAST_PROBABILITY)
    return np.asarray(counts / counts.sum(axis=-1, keepdims=True))


def persistent(transition: Floats, shortest: float) -> Floats:
    """The nearest Φ, in likelihood, with expected stays 1 / (1 - Φ(z, z)) of at least ``shortest`` rounds."""
    staying = np.diag(transition)
    bounded = transition * np.minimum(1.0, 1 / (shortest * np.maximum(1 - staying, 1e-300)))[:, None]
    np.fill_diagonal(bounded, np.maximum(staying, 1 - 1 / shortest))
    return np.asarray(bounded)


def stationary_maximum(moves: Floats, firsts: Floats, start: Floats) -> Floats:
    """Φ that maximizes Σ_ij moves(i, j) log Φ(i, j) + Σ_z firsts(z) log π(z), with π = π Φ (as in econometrics)."""
    from scipy.optimize import minimize
    from scipy.special import softmax

    n_states = len(firsts)
    if n_states == 1:
        return np.ones((1, 1))

    def rows(logits: Floats) -> Floats:
        return np.asarray(np.maximum(softmax(logits.reshape(n_states, n_states), axis=1), 1e-30))

    def loss(logits: Floats) -> tuple[float, Floats]:
        transition = rows(logits)
        deviations, probs = _fundamental(transition)
        value = float(np.sum(moves * np.log(transition)) + np.sum(firsts * np.log(probs)))
        # dπ(k) = Σ_ij π(i) dΦ(i, j) Z(j, k) for changes that preserve row sums.
        slopes = moves / transition + probs[:, None] * (deviations @ (firsts / probs))[None, :]
        inner = transition * (slopes - np.sum(transition * slopes, axis=1, keepdims=True))
        return -value, -inner.ravel()

    logits = np.log(np.maximum(start, 1e-30)).ravel()
    found = minimize(loss, logits, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10})
    return rows(found.x if found.fun <= loss(logits)[0] else logits)


def _fundamental(transition: Floats) -> tuple[Floats, Floats]:
    """Z = (I - Φ + 1 π')⁻¹ and π."""
    n_states = len(transition)
    ones = np.ones((n_states, n_states))
    probs = np.linalg.solve((np.eye(n_states) - transition + ones).T, np.ones(n_states))
    probs = np.maximum(probs, 1e-300) / np.maximum(probs, 1e-300).sum()
    return np.linalg.inv(np.eye(n_states) - transition + np.tile(probs, (n_states, 1))), probs
