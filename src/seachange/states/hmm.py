"""The hidden Markov oracle: states are what makes the rewards of the log most likely."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np

from seachange.engine import one_thread
from seachange.errors import NoChangeWarning, SeachangeWarning
from seachange.log.bandit_log import BanditLog, require_log, require_rounds
from seachange.log.moments import moments_of, skewness_of
from seachange.params import Auto, Params, require, require_count
from seachange.states.alignment import in_the_order_of, regression_of
from seachange.states.fitting import Fit, FitSettings, Fitter
from seachange.states.labels import StateLabels, by_first_appearance, labels_from_states
from seachange.states.selection import StateCount, choose_n_states
from seachange.states.switching import Rewards, SwitchingRegression

Initial = Literal["free", "stationary"]

# Restarts whose objectives differ by less than this a round ended at the same place.
SAME_END = 1e-6
# A noise for each state must not cost more than this factor of the squared error of forecasts.
SAME_ERROR = 1.002
# A state that is left sooner than this, in rounds, is not a state of the world.
SHORTEST_STAY = 10.0
# Gaussian states take rewards that are more skewed than this for several worlds.
SKEWED = 1.0
# A BIC that is lower by less says little.
BIC_MARGIN = 2.0
ZERO_OR_ONE = "Rewards as 0 or 1 (bought or not) often show what skewed ones hide"


@dataclass(frozen=True)
class Restart:
    """Where one start of EM led."""

    objective: float  # log-likelihood + log prior
    iterations: int
    converged: bool
    given_up: bool  # it was too far behind the others


@dataclass(frozen=True, eq=False)
class HMMReport:
    """How the fit went."""

    log_likelihood: float
    bic: float  # lower is better
    single_state_bic: float  # the same for one state
    iterations: int  # of the best restart, from beginning to end
    converged: bool
    objectives: tuple[float, ...]  # log-likelihood + log prior along the last climb of the best restart
    restarts: tuple[Restart, ...]  # best first
    agreed: int  # restarts that ended where the best did
    ridge: float  # that was used, in rounds
    state_counts: tuple[StateCount, ...]  # evidence for each number of states that was tried


@dataclass(kw_only=True, eq=False, repr=False)
class HMMOracle(Params):
    """Fit a switching regression by EM and label each round by its smoothed posterior.

    r_t ~ N(β_z · f(x_t, a_t), σ²) with z_t a Markov chain, ẑ_t = argmax_z p(z_t = z | all rewards)

    States are numbered in the order in which they first occur in the log that was fitted, or, with ``align_to``, as the
    most similar states of an earlier fit; what is new takes the numbers that are left.
    """

    n_states: int | Auto = "auto"  # L; auto: as many as help to foresee held-out rewards
    restarts: int = 4  # more: safer against poor starts, slower
    expected_stay: float | Auto = "auto"  # rounds in a state, a guess; auto: a chain visits each state twice
    prior_visits: float = 1.0  # weight of that guess, in visits to each state; 0: none
    rewards: Rewards | Auto = "auto"  # how they are distributed; auto: bernoulli where all are 0 or 1, else gaussian
    initial: Initial = "free"  # P_0: its own parameter, or the stationary distribution of Φ
    ridge: float | Auto = "auto"  # pull of the states to the fit of the whole log, in rounds; auto: most likely
    tolerance: float = 1e-8  # EM stops when it gains less log-likelihood than this a round
    max_iterations: int = 200
    align_to: Any = None  # an earlier model, or its oracle, whose numbers of states are kept for states that are alike
    seed: int = 0
    workers: int = 1  # threads for the restarts; changes nothing but the time

    def fit(self, log: BanditLog) -> Self:
        """Learn ``model_`` and ``report_``; warn where one state explains the log as well."""
        self._check(log)
        with one_thread():
            return self._fit(log)

    def _fit(self, log: BanditLog) -> Self:
        fitter = Fitter.of(log, self._kind_of(log), self._settings)
        counts: tuple[StateCount, ...] = ()
        if self.n_states == "auto":
            fit, counts = choose_n_states(log, fitter)
            single_state_bic = counts[0].bic
        else:
            fit = fitter.fit(self.n_states)
            single_state_bic = fitter.fit(1).bic
        if self.rewards == "auto" and fit.model.rewards == "gaussian" and fit.model.n_states > 1:
            fit = self._noise_chosen(log, fitter, fit)
        run, model = fit.run, fit.model
        states = model.likeliest_states(log)
        if self.align_to is None:
            order = by_first_appearance(states, model.n_states)
        else:
            order = in_the_order_of(regression_of(self.align_to), model, states, run.statistics.grams.sum(axis=0))
        self.model_: SwitchingRegression = model.reordered(order)
        best, rounds = fit.raced[0].objective, moments_of(log.arrays.rewards).n_seen
        self.report_ = HMMReport(
            log_likelihood=run.log_likelihood,
            bic=fit.bic,
            single_state_bic=single_state_bic,
            iterations=fit.iterations,
            converged=run.converged,
            objectives=run.objectives,
            restarts=tuple(Restart(r.objective, r.iterations, r.converged, r.given_up) for r in fit.raced),
            agreed=sum(best - r.objective <= SAME_END * rounds for r in fit.raced),
            ridge=fit.ridge,
            state_counts=counts,
        )
        self._warn(log)
        return self

    def _noise_chosen(self, log: BanditLog, fitter: Fitter, fit: Fit) -> Fit:
        """A noise for each state where that is likelier, and foresees rewards as well as one for all."""
        other = fitter.with_noise_per_state(fit)
        errors = [moments_of(each.model.predict_rewards(log) - log.arrays.rewards) for each in (fit, other)]
        one, each = (error.variance + error.mean**2 for error in errors)
        return other if other.bic < fit.bic and each <= SAME_ERROR * one else fit

    def _warn(self, log: BanditLog) -> None:
        """Say where there is no evidence of change."""
        report, model = self.report_, self.model_
        one = model.n_states == 1 if self.n_states == "auto" else report.bic >= report.single_state_bic
        if self.n_states != 1 and one:
            warnings.warn(self._no_evidence(log), NoChangeWarning, stacklevel=4)
        elif self.n_states != "auto" and model.shortest_stay < SHORTEST_STAY:
            advice = f"Skewed rewards do that. {ZERO_OR_ONE}." if self._skewed(log) else "Ask for fewer states."
            warnings.warn(
                f"a state lasts {model.shortest_stay:.1f} rounds: it follows the noise of single rewards, not a world "
                f"that changes. {advice}",
                SeachangeWarning,
                stacklevel=4,
            )

    def _skewed(self, log: BanditLog) -> bool:
        return self.model_.rewards != "bernoulli" and abs(skewness_of(log.arrays.rewards)) > SKEWED

    def predict(self, log: BanditLog) -> StateLabels:
        """Label every round of ``log`` by the smoothed posterior of the fitted model."""
        require_log(log, "an oracle")
        posteriors = self.model_.smooth(log)
        states = np.argmax(posteriors, axis=1)
        return labels_from_states(states, self.model_.n_states, log, posteriors, from_rewards=True)

    def _no_evidence(self, log: BanditLog) -> str:
        report, tried = self.report_, self.report_.state_counts[1:]
        if self.n_states != "auto":
            better = report.bic > report.single_state_bic + BIC_MARGIN
            words = ("better", "than") if better else ("as well", "as")
            return (
                f"no evidence of change: one state explains the log {words[0]} (BIC {report.single_state_bic:,.1f}) "
                f"{words[1]} {self.model_.n_states} (BIC {report.bic:,.1f}); lower is better."
            )
        if not tried:
            return "no evidence of change: the log is too short or too regular for more than one state."
        gains = ", ".join(
            f"{count.n_states}: {round(count.gain, 1) + 0.0:+} ± {count.gain_error:.1f}" for count in tried
        )
        told = f"no evidence of change: more states do not foresee held-out rewards better (log-likelihood {gains})."
        lowest = min(tried, key=lambda count: count.bic)
        if lowest.bic < report.single_state_bic - BIC_MARGIN and self._skewed(log):
            told += (
                f" BIC is lower all the same ({lowest.bic:,.1f} with {lowest.n_states} states, "
                f"{report.single_state_bic:,.1f} with one): the rewards are skewed, and states would follow the noise "
                f"of single rewards. {ZERO_OR_ONE}."
            )
        return told

    def _check(self, log: BanditLog) -> None:
        require_rounds(log, "an oracle")
        for name in ("prior_visits", "ridge", "tolerance"):
            given = getattr(self, name)
            require((name == "ridge" and given == "auto") or given >= 0, f"{name} must be at least 0; got {given}.")
        for name, choices in (("rewards", ("auto", *get_args(Rewards))), ("initial", get_args(Initial))):
            given = getattr(self, name)
            require(given in choices, f"{name} must be one of {', '.join(choices)}; got {given!r}.")
        require_count("n_states", self.n_states, auto=True)
        require_count("restarts", self.restarts)
        require_count("max_iterations", self.max_iterations)
        require_count("workers", self.workers)
        require(
            self.expected_stay == "auto" or self.expected_stay > 1,
            f"expected_stay must be more than 1 round; got {self.expected_stay}.",
        )
        require(moments_of(log.arrays.rewards).n_seen > 0, "no round of the log has a reward.")

    @property
    def _settings(self) -> FitSettings:
        return FitSettings(
            restarts=self.restarts,
            expected_stay=self.expected_stay,
            prior_visits=self.prior_visits,
            ridge=self.ridge,
            stationary=self.initial == "stationary",
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            seed=self.seed,
            workers=self.workers,
        )

    def _kind_of(self, log: BanditLog) -> Rewards:
        """How the rewards of ``log`` are distributed."""
        rewards = (log.arrays.rewards[rounds] for rounds in log.chunk_slices())
        others = (part[np.isfinite(part) & (part != 0) & (part != 1)] for part in rewards)
        other = next((float(part[0]) for part in others if len(part)), None)
        if self.rewards == "bernoulli":
            require(other is None, f'rewards="bernoulli" needs rewards of 0 or 1; the log has {other}.')
        if self.rewards == "auto":
            return "bernoulli" if other is None else "gaussian"
        return self.rewards
