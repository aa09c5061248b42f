"""Fits of a log with a given number of states: initializations from clustered windows, EM runs, and the ridge."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np

from seachange.engine import stage
from seachange.kernels.change_scans import segment_sums
from seachange.kernels.regression import regression_sums, solve_ridge
from seachange.log.bandit_log import BanditLog
from seachange.log.column_statistics import moments_of
from seachange.log.units import Units
from seachange.params import require
from seachange.protocols import Floats, Ints
from seachange.states import pooled_regression
from seachange.states.clustering import cluster
from seachange.states.em import EM, EMRun, Prior
from seachange.states.expectation import Chain, LikeliestStates, expectation
from seachange.states.labels import places_in_chains
from seachange.states.switching_regression import Rewards, SwitchingRegression

if TYPE_CHECKING:
    from seachange.states.hmm import HMMOracle

Initial = Literal["free", "stationary"]

# Fits of windows and segments are shrunk toward 0 as if by this many rounds per action.
PRIOR_ROUNDS = 2.0
# With more windows, or if their sums would hold more numbers, an evenly spaced subset is used.
MAX_WINDOWS = 5_000
MAX_NUMBERS = 1 << 20
# Initializations cluster windows of a fifth of the stays they assume: from windows that average out the noise, of two
# segments per state, to windows that rarely contain a change, of half the shortest stay.
WINDOWS_PER_STAY, NARROWEST_PER_STAY = 5, 2
# With expected_stay="auto", the prior's guess.
USUAL_STAY = 100.0
# States last at least this many rounds on average, or 1/5 of a sequence: shorter ones fit the noise of single rewards.
SHORTEST_STAY, STAYS_PER_SEQUENCE = 10, 5
# Times that the states of the best fit are regrouped, and splits tried each time.
MAX_REGROUPINGS, MAX_SPLITS = 3, 2
# If the log determines the ridge, the first runs use a ridge that leaves this many rounds per coefficient.
ROUNDS_PER_COEFFICIENT = 10
# Times that the ridge is reestimated, until the effective number of coefficients changes by less than this share.
MAX_RIDGES, SAME_RIDGE = 5, 0.02


class WindowFits(NamedTuple):
    """Regressions of windows or segments of a chain."""

    grams: Floats  # (W, B, D, D) in units, like the rest
    moments: Floats  # (W, B, D)
    rounds: Floats  # (W,) rounds with a reward
    scale: Floats  # (B, D, D) mean f f': the metric of squared differences of predictions
    points: Floats  # (W, B D) coefficients, in coordinates in which that metric is Euclidean

    def grouped(self, clusters: Ints, n_clusters: int) -> tuple[Floats, Floats]:
        """Gram matrices and moments of each cluster of windows."""
        members = (clusters[:, None] == np.arange(n_clusters)).astype(float)
        grams, moments = (np.einsum("wz,w...->z...", members, sums) for sums in (self.grams, self.moments))
        return grams, moments


@dataclass(frozen=True)
class Starts:
    """Initial models for EM on a chain, from the residuals of one regression of the whole log."""

    chain: Chain
    residuals: Floats  # (n,) rewards minus the whole log's regression, in the chain's order
    spread: float  # variance of the residuals, positive
    rewards: Rewards
    seed: int
    units: Units  # of the features

    def windows_of(self, width: int) -> WindowFits:
        """Windows of ``width`` rounds within chains; an evenly spaced subset if there are too many."""
        firsts, n = self.chain.firsts, len(self.chain.log)
        begins = np.flatnonzero(places_in_chains(firsts, n) % width == 0)
        used = slice(None, None, self._stride(len(begins)))
        return self._fits_of(begins[used], np.append(begins[1:], n)[used])

    def _stride(self, n: int) -> int:
        """The step with which to choose a subset of ``n`` windows."""
        n_blocks, n_features = self.chain.log.joint.shape
        return -(-n // max(min(MAX_WINDOWS, MAX_NUMBERS // (n_blocks * n_features**2)), 1))

    def from_windows(self, width: int, n_states: int, prior: Prior, attempt: int = 0) -> SwitchingRegression | None:
        """A model with persistent states, one per cluster of windows; None if too few windows differ."""
        windows = self.windows_of(width)
        clusters = cluster(windows.points, n_states, self.seed + attempt)
        return None if clusters.max() + 1 < n_states else self._model_of(*windows.grouped(clusters, n_states), prior)

    def from_states(self, states: Ints, n_states: int, prior: Prior) -> SwitchingRegression:
        """A model with one regression per given state, (n,) in the chain's order."""
        arrays, members = self.chain.log.arrays, (states[:, None] == np.arange(n_states)).astype(np.float64)
        n_blocks = self.chain.log.joint.shape[0]
        grams, moments, _ = regression_sums(arrays.rows, arrays.actions, self.residuals, members, n_blocks)
        return self._model_of(self.units.grams(grams), self.units.moments(moments), prior)

    def regrouped(self, model: SwitchingRegression, shortest: int, prior: Prior) -> list[SwitchingRegression]:
        """Variants of ``model`` with its two most similar states merged and another state split.

        Clusters of windows may split one state or merge two, which EM cannot undo, and a state may lose all its rounds.
        The segments found by the model, of at least ``shortest`` rounds, contain no change: the states whose segments
        differ most are split.
        """
        found = LikeliestStates(len(self.chain.log))
        expectation(model, self.chain, found)
        firsts = np.flatnonzero(self.chain.starts | (np.diff(found.states, prepend=found.states[0]) != 0))
        ends = np.append(firsts[1:], len(self.chain.log))
        used = np.flatnonzero(ends - firsts >= shortest)
        if len(used) <= model.n_states:
            return []
        used = used[:: self._stride(len(used))]
        fits = self._fits_of(firsts[used], ends[used])
        owners = found.states[firsts[used]].astype(np.int64)
        counts = np.bincount(found.states, minlength=model.n_states)
        kept, freed = _most_similar(prior.deviations(model.reward_coefs), counts, fits.scale)
        owners[owners == freed] = kept
        candidates = []
        for state in np.unique(owners):
            members = np.flatnonzero(owners == state)
            halves = cluster(fits.points[members], 2, self.seed)
            if halves.max() == 1:
                clusters = owners.copy()
                clusters[members[halves == 1]] = freed
                candidates.append((_gap(fits.points[members], fits.rounds[members], halves), clusters))
        candidates.sort(key=lambda candidate: -candidate[0])
        most_promising = (clusters for _, clusters in candidates[:MAX_SPLITS])
        return [self._model_of(*fits.grouped(clusters, model.n_states), prior) for clusters in most_promising]

    def single(self, prior: Prior) -> SwitchingRegression:
        """The initial model with one state: the regression of the whole log."""
        shape = self.chain.log.joint.shape
        return self._model_of(np.zeros((1, *shape, shape[1])), np.zeros((1, *shape)), prior)

    def _model_of(self, grams: Floats, moments: Floats, prior: Prior) -> SwitchingRegression:
        """A model with persistent states and one regression per state, from sums in units."""
        n_states = len(grams)
        if self.rewards == "bernoulli":
            # One Newton step from the center: the Hessian is scaled by the variance of clicks, or, if all clicks are
            # equal, by that of half a click in the whole log.
            grams = grams * max(self.spread, 0.5 / len(self.residuals))
        transition = np.full((n_states, n_states), 1 / (prior.stay * max(n_states - 1, 1)))
        np.fill_diagonal(transition, 1 - 1 / prior.stay if n_states > 1 else 1.0)
        return SwitchingRegression(
            initial_probs=np.full(n_states, 1 / n_states),
            transition_matrix=transition,
            reward_coefs=prior.center + prior.units.raw_coefs(solve_ridge(grams, moments, prior.ridge)),
            reward_precisions=prior.units.raw_grams(grams) + prior.penalty,
            noise_variances=np.empty(0) if self.rewards == "bernoulli" else np.full(n_states, self.spread),
            joint=self.chain.log.joint,
            rewards=self.rewards,
        )

    def _fits_of(self, begins: Ints, ends: Ints) -> WindowFits:
        """Regressions, shrunk toward 0, of the rounds from ``begins`` to before ``ends``.

        In the coordinates of the points, the distance of two fits is the root mean square difference of their
        predictions over the log.
        """
        arrays, n_blocks = self.chain.log.arrays, self.chain.log.joint.shape[0]
        grams, moments, _, rounds = segment_sums(arrays.rows, arrays.actions, self.residuals, begins, ends, n_blocks)
        grams, moments = self.units.grams(grams), self.units.moments(moments)
        counts = rounds.sum(axis=1)
        scale = grams.sum(axis=0) / max(int(counts.sum()), 1)
        scale += 1e-6 * np.eye(scale.shape[-1])
        fits = np.linalg.solve(grams + PRIOR_ROUNDS * n_blocks * scale, moments[..., None])[..., 0]
        values, vectors = np.linalg.eigh(scale)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        points = np.einsum("bji,wbj->wbi", root, fits).reshape(len(grams), -1)
        return WindowFits(grams, moments, counts, scale, points)


def squared_gaps(some: Floats, others: Floats, gram: Floats) -> Floats:
    """(L, L') squared differences of predictions with coefficients (L, B, D), summed over a log with Σ f f' = gram."""
    gaps = some[:, None] - others[None, :]
    return np.asarray(np.einsum("yzbi,bij,yzbj->yz", gaps, gram, gaps))


def _most_similar(coefs: Floats, counts: Floats | Ints, scale: Floats) -> tuple[int, int]:
    """The two states that are cheapest to merge: their predictions differ least, weighted by their rounds."""
    both = np.maximum(np.add.outer(counts, counts), 1)
    costs = squared_gaps(coefs, coefs, scale) * (np.multiply.outer(counts, counts) / both)
    np.fill_diagonal(costs, np.inf)
    first, second = np.unravel_index(int(np.argmin(costs)), costs.shape)
    return int(first), int(second)


def _gap(points: Floats, rounds: Floats, halves: Ints) -> float:
    """Squared distance of the means of two halves, in units of its noise: n_0 n_1 / (n_0 + n_1) |gap|²."""
    sizes = np.bincount(halves, rounds, 2)
    means = np.stack([np.average(points[halves == h], axis=0, weights=rounds[halves == h] + 1e-12) for h in (0, 1)])
    return float(sizes.prod() / sizes.sum() * np.square(means[0] - means[1]).sum())


@dataclass(frozen=True, eq=False)
class Fit:
    """A log fitted with some number of states."""

    run: EMRun
    runs: tuple[EMRun, ...]  # from every initialization, best first; ``run`` continues the first
    ridge: float  # ridge of the run, in rounds
    model: SwitchingRegression  # model of the run, for the rewards of the log
    bic: float  # Bayesian information criterion, -2 log p + cost of the parameters; lower is better
    iterations: int  # total iterations of ``run``

    def merged(self, *, levels: bool = False) -> SwitchingRegression:
        """The model with one reward regression for its two most similar states, which then differ only in timing.

        With ``levels``, both keep their mean reward, so they prefer the same actions.
        """
        coefs, gram = self.model.reward_coefs.copy(), self.run.statistics.grams.sum(axis=0)
        rounds = self.run.statistics.totals[:, 1] + 1e-12
        pair = list(_most_similar(coefs, rounds, gram / rounds.sum())) if len(coefs) > 1 else [0]
        coefs[pair] = np.average(coefs[pair], axis=0, weights=rounds[pair])
        if levels:
            # The last feature is the intercept.
            sums, gaps = gram[:, :, -1], self.model.reward_coefs - coefs
            coefs[:, :, -1] += np.einsum("bi,zbi->z", sums / max(sums[:, -1].sum(), 1e-12), gaps)[:, None]
        return replace(self.model, reward_coefs=coefs)


@dataclass(frozen=True)
class Fitter:
    """Fits one log with any number of states.

    States are modeled as deviations from one regression of the whole log: that regression is subtracted from Gaussian
    rewards, and for clicks it is the center that states shrink toward.
    """

    chain: Chain
    starts: Starts
    pooled: pooled_regression.PooledFit
    settings: "HMMOracle"  # for its hyperparameters
    start_tolerance: float = 0.0  # runs from the initializations stop here already; the best one continues

    @classmethod
    def of(cls, log: BanditLog, rewards: Rewards, settings: "HMMOracle") -> Self:
        """A fitter of ``log``."""
        ones = np.ones(len(log))
        if rewards == "bernoulli":
            chain = Chain(log)
            pooled = pooled_regression.click_fit(log, ones, pooled_regression.click_center(log, ones))
            residuals = pooled_regression.residual_log(chain.log, pooled.coefs, clicks=True).arrays.rewards
        else:
            pooled = pooled_regression.linear_fits(log, ones[:, None])[0]
            chain = Chain(pooled_regression.residual_log(log, pooled.coefs))
            residuals = chain.log.arrays.rewards
        spread = max(moments_of(residuals).variance, 1e-300)
        starts = Starts(chain, residuals, spread, rewards, settings.seed, log.units)
        return cls(chain, starts, pooled, settings)

    def prior(self, n_states: int, ridge: float) -> Prior:
        """The prior of EM."""
        given, visits = self.settings.expected_stay, self.settings.prior_segments
        stay = min(USUAL_STAY, self._longest_stay(n_states)) if given == "auto" else given
        return Prior(
            ridge=ridge,
            units=self.starts.units,
            visits=visits,
            stay=stay,
            shortest=self.shortest_stay if visits > 0 else 1.0,
            center=self.pooled.coefs if self.starts.rewards == "bernoulli" else 0.0,
            noise=(min(ridge, 1.0), self.starts.spread),
            stationary=self.settings.initial == "stationary",
        )

    @property
    def shortest_stay(self) -> int:
        """The shortest expected stay of a state, in rounds."""
        given, length = self.settings.expected_stay, len(self.chain.log) // len(self.chain.firsts)
        guess = SHORTEST_STAY if given == "auto" else int(given)
        return max(1, min(SHORTEST_STAY, guess, length // STAYS_PER_SEQUENCE))

    def _longest_stay(self, n_states: int) -> float:
        """The stay, in rounds, if each state is visited twice."""
        return max(len(self.chain.log) / len(self.chain.firsts) / (2 * n_states), 2.0)

    def fit(self, n_states: int) -> Fit:
        """The best run of all initializations, with the given ridge or the one with the highest marginal likelihood."""
        ridge = self._first_ridge(n_states)
        prior = self.prior(n_states, ridge)
        em = EM(self.chain, prior, max(self.settings.tolerance, self.start_tolerance), self.settings.max_iterations)
        with stage("Finding the states", 2) as fitting:
            runs = em.run_all([self.starts.single(prior)]) if n_states == 1 else self._runs(em, n_states)
            if em.tolerance > self.settings.tolerance:
                em = replace(em, tolerance=self.settings.tolerance)
                runs[0] = em.iterate(runs[0], em.max_iterations, self.settings.workers)
            fitting.advance()
            if self.settings.ridge == "auto":
                return self._with_best_ridge(em, runs, ridge)
        return self._fit_of(runs[0], runs, ridge, runs[0].iterations)

    def fit_from(self, states: Ints, n_states: int) -> Fit:
        """EM from given states, one per round of the log."""
        ridge = self._first_ridge(n_states)
        em = EM(self.chain, self.prior(n_states, ridge), self.settings.tolerance, self.settings.max_iterations)
        start = self.starts.from_states(self.chain.in_chain_order(states), n_states, em.prior)
        return self._with_best_ridge(em, [em.finish(start)], ridge)

    def _first_ridge(self, n_states: int) -> float:
        """The given ridge or, if the log determines it, one for the first runs."""
        if self.settings.ridge != "auto":
            return self.settings.ridge
        most = len(self.chain.log) / (ROUNDS_PER_COEFFICIENT * n_states)
        return pooled_regression.bounding_ridge(self.pooled.grams / n_states, most)

    def with_noise_per_state(self, fit: Fit) -> Fit:
        """The fit, continued with one noise variance per state."""
        fitter = replace(self, starts=replace(self.starts, rewards="gaussian per state"))
        prior = fitter.prior(fit.model.n_states, fit.ridge)
        em = EM(self.chain, prior, self.settings.tolerance, self.settings.max_iterations)
        run = em.finish(replace(fit.run.model, rewards="gaussian per state"), self.settings.workers)
        return fitter._fit_of(run, fit.runs, fit.ridge, fit.iterations + run.iterations)

    def _runs(self, em: EM, n_states: int) -> list[EMRun]:
        """EM from every initialization, best first."""
        prior, workers = em.prior, self.settings.workers
        widest = max(1, int(self._longest_stay(n_states) / WINDOWS_PER_STAY))
        narrowest = max(1, min(widest, int(prior.shortest / NARROWEST_PER_STAY)))
        widths = np.geomspace(widest, narrowest, self.settings.restarts).astype(int).tolist()
        priors = [replace(prior, stay=max(WINDOWS_PER_STAY * width, 2 * prior.shortest)) for width in widths]
        starts = [self.starts.from_windows(width, n_states, priors[i], i) for i, width in enumerate(widths)]
        runs = em.run_all([start for start in starts if start is not None], workers)
        require(
            len(runs) > 0,
            f"n_states={n_states} is too many for this log: its rewards do not differ enough to form that many "
            "groups. Use fewer states.",
        )
        for _ in range(MAX_REGROUPINGS):
            regrouped = self.starts.regrouped(runs[0].model, widths[-1], prior)
            best, runs = runs[0], [*runs, *em.run_all(regrouped, workers)]
            runs.sort(key=attrgetter("objective"), reverse=True)
            if runs[0].objective - best.objective <= em.least_gain:
                break
        return runs

    def _with_best_ridge(self, em: EM, runs: Sequence[EMRun], ridge: float) -> Fit:
        """The best run, continued with the ridge of highest marginal likelihood given its states."""
        run, iterations = runs[0], runs[0].iterations
        for _ in range(MAX_RIDGES):
            deviations = em.prior.deviations(run.model.reward_coefs)
            grams = self.starts.units.grams(run.statistics.grams)
            # At the maximum, the gradient of the likelihood equals that of the penalty.
            linear = np.einsum("zbij,zbj->zbi", grams, deviations) + ridge * deviations
            known, noises = pooled_regression.effective_coefs(grams, ridge), np.ones(grams.shape[:2])
            if run.model.rewards != "bernoulli":
                rounds = float(run.statistics.totals[:, 1].sum())
                noises = noises * run.model.noise_variances[:, None] * rounds / max(rounds - known, 0.1 * rounds)
            better = pooled_regression.best_ridge(grams, linear, noises)
            if abs(pooled_regression.effective_coefs(grams, better) - known) <= SAME_RIDGE * known:
                break
            ridge = better
            em = replace(em, prior=self.prior(run.model.n_states, ridge))
            run = em.finish(run.model, self.settings.workers)
            iterations += run.iterations
        return self._fit_of(run, runs, ridge, iterations)

    def _fit_of(self, run: EMRun, runs: Sequence[EMRun], ridge: float, iterations: int) -> Fit:
        """The fit of a run, for the rewards of the log."""
        model = run.model if run.model.rewards == "bernoulli" else run.model.shifted(self.pooled.coefs)
        rounds = max(moments_of(self.chain.log.arrays.rewards).n_seen, 1)
        # With a ridge, both the coefficients of the whole log and the deviations of states have a cost.
        grams = self.starts.units.grams(run.statistics.grams)
        cost = pooled_regression.coefficient_cost(grams, ridge, rounds) + (self.pooled.cost if ridge > 0 else 0.0)
        others = model.n_parameters - model.reward_coefs.size
        if self.settings.initial == "stationary":
            # P_0 follows from Φ.
            others -= model.n_states - 1
        squares = self.prior(model.n_states, ridge).squares(run.model.reward_coefs)
        penalty = float(np.sum(squares / (1.0 if model.rewards == "bernoulli" else model.noise_variances)))
        criterion = -2 * run.log_likelihood + penalty + cost + others * math.log(rounds)
        return Fit(run, tuple(runs), ridge, model, criterion, iterations)
