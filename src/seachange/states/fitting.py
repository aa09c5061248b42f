"""From a log to a switching regression of a given number of states: starts, restarts, the best of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from seachange.engine import stage
from seachange.errors import ParameterError
from seachange.log.bandit_log import BanditLog
from seachange.log.moments import moments_of
from seachange.params import Auto
from seachange.protocols import Floats
from seachange.states.chain import Chain
from seachange.states.em import EM, EMRun, Prior
from seachange.states.pooled import PooledFit, pooled_click_fit, pooled_fit, residual_log
from seachange.states.shrinkage import bounding_ridge, determined, evidence_ridge, occam
from seachange.states.starts import Starts
from seachange.states.switching import Rewards, SwitchingRegression

# Restart i clusters windows of a stay's length divided by 5 · 2^i: from windows that average the noise away to windows
# that hardly ever straddle a change.
LONGEST_WINDOWS_A_STAY = 5
# Where nothing is believed about stays, one more start supposes that a state is left as soon as this, in rounds. (Else
# not: states that last a round or two explain noise that is not Gaussian better than the world's states do.)
RESTLESS_STAY = 2.0
# How often the best fit's states are regrouped, as long as that makes it better.
MOST_REGROUPINGS = 3
# Where the log decides about the ridge, starts race with one that leaves so many rounds for each coefficient.
ROUNDS_A_COEFFICIENT = 10
# How often the ridge is chosen anew for the states found, until that hardly changes what the log determines.
MOST_RIDGES, SAME_RIDGE = 5, 0.02


class FitSettings(NamedTuple):
    """The knobs of ``HMMOracle`` that concern one fit."""

    restarts: int
    expected_stay: float | Auto
    prior_visits: float
    ridge: float | Auto
    stationary: bool
    tolerance: float
    max_iterations: int
    seed: int
    workers: int


@dataclass(frozen=True, eq=False)
class Fit:
    """A log fitted with some number of states."""

    run: EMRun
    raced: tuple[EMRun, ...]  # every start, best first; the run goes on from the first
    ridge: float  # that the run ended with, in rounds
    model: SwitchingRegression  # of the run, for rewards as the log has them
    bic: float  # Bayesian information criterion, -2 log p + what the parameters cost; lower is better
    iterations: int  # of the best start, from beginning to end


@dataclass(frozen=True)
class Fitter:
    """Fits one log with any number of states.

    EM works with what differs from the regression of the whole log: Gaussian rewards are taken less that regression,
    of clicks it is the centre that states are drawn to.
    """

    chain: Chain
    starts: Starts
    pooled: PooledFit
    scales: Floats  # (D,) units of the features
    settings: FitSettings

    @classmethod
    def of(cls, log: BanditLog, rewards: Rewards, settings: FitSettings) -> Fitter:
        """A fitter of ``log``."""
        scales = log.scales
        if rewards == "bernoulli":
            pooled, chain = pooled_click_fit(log, scales), Chain(log)
            residuals = residual_log(chain.log, pooled.coefs, clicks=True).arrays.rewards
        else:
            pooled = pooled_fit(log, scales)
            chain = Chain(residual_log(log, pooled.coefs))
            residuals = chain.log.arrays.rewards
        spread = max(moments_of(residuals).variance, 1e-300)
        starts = Starts(chain, residuals, spread, rewards, settings.seed)
        return cls(chain, starts, pooled, scales, settings)

    def prior(self, n_states: int, ridge: float) -> Prior:
        """What EM believes before the log."""
        clicks, length = self.starts.rewards == "bernoulli", len(self.chain.log) / len(self.chain.firsts)
        given = self.settings.expected_stay
        return Prior(
            penalties=ridge * np.square(self.scales),
            visits=self.settings.prior_visits,
            stay=max(length / (2 * n_states), 2.0) if given == "auto" else given,
            centre=self.pooled.coefs if clicks else 0.0,
            noise=(min(ridge, 1.0), self.starts.spread),
            stationary=self.settings.stationary,
        )

    def fit(self, n_states: int) -> Fit:
        """The best of all starts, under the given ridge or the one that the log makes most likely."""
        ridge = self.settings.ridge
        if ridge == "auto":
            most = len(self.chain.log) / (ROUNDS_A_COEFFICIENT * n_states)
            ridge = bounding_ridge(self.pooled.grams / n_states, most, self.scales)
        prior = self.prior(n_states, ridge)
        em = EM(self.chain, prior, self.settings.tolerance, self.settings.max_iterations)
        with stage("Finding the states", 2) as fitting:
            raced = em.race([self.starts.single(prior)]) if n_states == 1 else self._race(em, n_states)
            fitting.advance()
            if self.settings.ridge == "auto":
                return self._with_best_ridge(em, raced, ridge)
        return self._fit_of(raced[0], raced, ridge, raced[0].iterations)

    def with_noise_per_state(self, fit: Fit) -> Fit:
        """The fit, continued with a noise variance for each state."""
        fitter = replace(self, starts=replace(self.starts, rewards="gaussian per state"))
        prior = fitter.prior(fit.model.n_states, fit.ridge)
        em = EM(self.chain, prior, self.settings.tolerance, self.settings.max_iterations)
        run = em.finish(replace(fit.run.model, rewards="gaussian per state"), self.settings.workers)
        return fitter._fit_of(run, fit.raced, fit.ridge, fit.iterations + run.iterations)

    def _race(self, em: EM, n_states: int) -> list[EMRun]:
        """EM from every start, best first."""
        prior, workers = em.prior, self.settings.workers
        n = len(self.chain.log)
        # A start needs windows enough to make clusters of, whatever the stay.
        widest = max(1, min(int(prior.stay / LONGEST_WINDOWS_A_STAY), n // (2 * n_states)))
        widths = [max(1, widest >> i) for i in range(self.settings.restarts)]
        found: list[SwitchingRegression | None] = []
        for i, width in enumerate(widths):
            windows = self.starts.windows_of(width)
            found.append(self.starts.from_windows(windows, n_states, prior, i))
        if prior.visits == 0:
            restless = replace(prior, stay=RESTLESS_STAY)
            found.append(self.starts.from_windows(windows, n_states, restless, len(widths)))
        runs = em.race([start for start in found if start is not None], workers)
        if not runs:
            raise ParameterError(
                f"n_states={n_states} is more than the log can hold: it has {n} rounds whose windows show fewer "
                "distinct fits. Ask for fewer states."
            )
        for _ in range(MOST_REGROUPINGS):
            regrouped = self.starts.regrouped(runs[0].model, widths[-1], prior)
            best, runs = runs[0], _best_first([*runs, *em.race(regrouped, workers)])
            if runs[0].objective - best.objective <= em.least_gain:
                break
        return runs

    def _with_best_ridge(self, em: EM, raced: Sequence[EMRun], ridge: float) -> Fit:
        """The best run, continued under the ridge that the states found make most likely."""
        run, iterations = raced[0], raced[0].iterations
        for _ in range(MOST_RIDGES):
            deviations, grams = run.model.reward_coefs - em.prior.centre, run.statistics.grams
            # At the maximum the likelihood's slope is what the ridge pulls with.
            linear = np.einsum("zbij,zbj->zbi", grams, deviations) + em.prior.penalties * deviations
            known, noises = determined(grams, ridge, self.scales), np.ones(grams.shape[:2])
            if run.model.rewards != "bernoulli":
                rounds = float(run.statistics.totals[:, 1].sum())
                noises = noises * run.model.noise_variances[:, None] * rounds / max(rounds - known, 0.1 * rounds)
            better = evidence_ridge(grams, linear, noises, self.scales)
            if abs(determined(grams, better, self.scales) - known) <= SAME_RIDGE * known:
                break
            ridge = better
            em = replace(em, prior=self.prior(run.model.n_states, ridge))
            run = em.finish(run.model, self.settings.workers)
            iterations += run.iterations
        return self._fit_of(run, raced, ridge, iterations)

    def _fit_of(self, run: EMRun, raced: Sequence[EMRun], ridge: float, iterations: int) -> Fit:
        """The run in the terms of the log."""
        model = run.model if run.model.rewards == "bernoulli" else run.model.shifted(self.pooled.coefs)
        rounds = max(moments_of(self.chain.log.arrays.rewards).n_seen, 1)
        # A ridge takes the place of counting coefficients: those of the whole log, and how states differ from it.
        cost = occam(run.statistics.grams, ridge, self.scales, rounds) + (self.pooled.cost if ridge > 0 else 0.0)
        others = model.n_parameters - model.reward_coefs.size
        if self.settings.stationary:
            # Where chains start follows from where they go.
            others -= model.n_states - 1
        squares = self.prior(model.n_states, ridge).squares(run.model.reward_coefs)
        pull = float(np.sum(squares / (1.0 if model.rewards == "bernoulli" else model.noise_variances)))
        criterion = -2 * run.log_likelihood + pull + cost + others * math.log(rounds)
        return Fit(run, tuple(raced), ridge, model, criterion, iterations)


def _best_first(runs: list[EMRun]) -> list[EMRun]:
    return sorted(runs, key=lambda run: -run.objective)
