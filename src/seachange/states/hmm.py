"""The hidden Markov oracle: states are what makes the rewards of the log most likely."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from seachange.engine import one_thread
from seachange.errors import NoChangeWarning, SeachangeWarning
from seachange.log.bandit_log import BanditLog, require_rounds
from seachange.params import Auto, Params, require, require_count
from seachange.states.fitting import FitSettings, Fitter
from seachange.states.labels import StateLabels, by_first_appearance, labels_from_states
from seachange.states.selection import StateCount, bic, choose_n_states
from seachange.states.switching import Rewards, SwitchingRegression

# A state that is left sooner than this, in rounds, is not a state of the world.
SHORTEST_STAY = 10.0


@dataclass(frozen=True, eq=False)
class HMMReport:
    """How the fit went."""

    log_likelihood: float
    bic: float  # lower is better
    single_state_bic: float  # the same for one state
    iterations: int
    converged: bool
    objectives: tuple[float, ...]  # log-likelihood + log prior along the best restart
    restarts: tuple[float, ...]  # where each restart ended
    state_counts: tuple[StateCount, ...]  # evidence for each number of states that was tried


@dataclass(kw_only=True, eq=False, repr=False)
class HMMOracle(Params):
    """Fit a switching regression by EM and label each round by its smoothed posterior.

    r_t ~ N(β_z · f(x_t, a_t), σ²) with z_t a Markov chain, ẑ_t = argmax_z p(z_t = z | all rewards)

    States are numbered in the order in which they first occur in the log that was fitted.
    """

    n_states: int | Auto = "auto"  # L; auto: the lowest BIC
    restarts: int = 4  # more: safer against poor starts, slower
    expected_stay: float | Auto = "auto"  # rounds in a state, a guess; auto: a chain visits each state twice
    prior_visits: float = 1.0  # weight of that guess, in visits to each state; 0: none
    rewards: Rewards | Auto = "auto"  # how they are distributed; auto: bernoulli where all are 0 or 1, else gaussian
    initial: Literal["free", "stationary"] = "free"  # P_0: its own parameter, or the stationary distribution of Φ
    ridge: float | Auto = "auto"  # pull of the states to the fit of the whole log, in rounds; auto: most likely
    tolerance: float = 1e-8  # EM stops when it gains less than this share of the log-likelihood
    max_iterations: int = 200
    seed: int = 0
    workers: int = 1  # threads for the restarts; changes nothing but the time

    def fit(self, log: BanditLog) -> Self:
        """Learn ``model_`` and ``report_``; warn where one state explains the log as well."""
        self._check(log)
        with one_thread():
            return self._fit(log)

    def _fit(self, log: BanditLog) -> Self:
        fitter = Fitter.of(log, self._kind_of(log), self._settings)
        n_observed = int(np.isfinite(log.arrays.rewards).sum())
        counts: tuple[StateCount, ...] = ()
        if self.n_states == "auto":
            runs, counts = choose_n_states(log, fitter)
            single_state_bic = counts[0].bic
        else:
            runs = fitter.runs(self.n_states)
            single_state_bic = bic(fitter.runs(1)[0], n_observed)
        best, model = runs[0], fitter.model(runs[0])
        order = by_first_appearance(np.argmax(model.smooth(log), axis=1), model.n_states)
        self.model_: SwitchingRegression = model.reordered(order)
        self.report_ = HMMReport(
            log_likelihood=best.log_likelihood,
            bic=bic(best, n_observed),
            single_state_bic=single_state_bic,
            iterations=best.iterations,
            converged=best.converged,
            objectives=best.objectives,
            restarts=tuple(run.objective for run in runs),
            state_counts=counts,
        )
        if self.n_states != 1 and self.report_.bic >= single_state_bic:
            warnings.warn(self._no_evidence(), NoChangeWarning, stacklevel=3)
        elif model.shortest_stay < SHORTEST_STAY:
            warnings.warn(
                f"a state lasts {model.shortest_stay:.1f} rounds: it follows the noise of single rewards, not a world "
                "that changes (skewed rewards do that). Ask for fewer states, or transform the rewards.",
                SeachangeWarning,
                stacklevel=3,
            )
        return self

    def predict(self, log: BanditLog) -> StateLabels:
        """Label every round of ``log`` by the smoothed posterior of the fitted model."""
        posteriors = self.model_.smooth(log)
        return labels_from_states(np.argmax(posteriors, axis=1), self.model_.n_states, log, posteriors)

    def _no_evidence(self) -> str:
        report, tried = self.report_, self.report_.state_counts[1:]
        if self.n_states == "auto" and not tried:
            return "no evidence of change: the log is too short or too regular for more than one state."
        rival = min((count.bic for count in tried), default=report.bic)
        others = "several" if tried else f"{self.model_.n_states}"
        return (
            f"no evidence of change: one state explains the log as well (BIC {report.single_state_bic:.1f}) "
            f"as {others} (BIC {rival:.1f}); lower is better."
        )

    def _check(self, log: BanditLog) -> None:
        require_rounds(log, "an oracle")
        for name in ("prior_visits", "ridge", "tolerance"):
            given = getattr(self, name)
            require((name == "ridge" and given == "auto") or given >= 0, f"{name} must be at least 0; got {given}.")
        require_count("n_states", self.n_states, auto=True)
        require_count("restarts", self.restarts)
        require_count("max_iterations", self.max_iterations)
        require_count("workers", self.workers)
        require(
            self.expected_stay == "auto" or self.expected_stay > 1,
            f"expected_stay must be more than 1 round; got {self.expected_stay}.",
        )
        require(bool(np.isfinite(log.arrays.rewards).any()), "no round of the log has a reward.")

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
        seen = log.arrays.rewards[np.isfinite(log.arrays.rewards)]
        clicks = bool(np.isin(seen, (0.0, 1.0)).all())
        if self.rewards == "bernoulli":
            odd = seen[~np.isin(seen, (0.0, 1.0))]
            require(clicks, f'rewards="bernoulli" needs rewards of 0 or 1; the log has {odd[:1]}.')
        if self.rewards == "auto":
            return "bernoulli" if clicks else "gaussian"
        return self.rewards
