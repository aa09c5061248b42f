"""The hidden Markov oracle: states are what makes the rewards of the log most likely."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from seachange.engine import map_in_order
from seachange.errors import NoChangeWarning, ParameterError, SeachangeWarning
from seachange.log.bandit_log import BanditLog, require_rounds
from seachange.params import Auto, Params, require, require_count
from seachange.protocols import Floats
from seachange.states.em import EMResult, Prior, run_em
from seachange.states.labels import StateLabels, by_first_appearance, labels_from_states
from seachange.states.pooled import pooled_fit, residual_log
from seachange.states.selection import StateCount, bic, choose_n_states
from seachange.states.starts import regrouped_starts, window_start, windows_of
from seachange.states.switching import Chain, SwitchingRegression

# Restart i clusters windows of a stay's length divided by 5 · 2^i: from windows that average the noise away to windows
# that hardly ever straddle a change.
LONGEST_WINDOWS_A_STAY = 5
MAX_STATES = 12
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
    ridge: float = 1.0  # pull of the states to the fit of the whole log, in rounds
    tolerance: float = 1e-8  # EM stops when it gains less than this share of the log-likelihood
    max_iterations: int = 200
    seed: int = 0
    workers: int = 1  # threads for the restarts; changes nothing but the time

    def fit(self, log: BanditLog) -> Self:
        """Learn ``model_`` and ``report_``; warn where one state explains the log as well."""
        self._check(log)
        scales = log.joint.scales(log.arrays.rows)
        pooled = pooled_fit(log, scales)
        chain, penalties = Chain(residual_log(log, pooled)), self.ridge * np.square(scales)
        n_observed = int(np.isfinite(log.arrays.rewards).sum())
        counts: tuple[StateCount, ...] = ()
        if self.n_states == "auto":
            results, counts = choose_n_states(
                lambda k: self._best_of_restarts(chain, k, penalties), MAX_STATES, n_observed, SHORTEST_STAY
            )
            single_state_bic = counts[0].bic
        else:
            results = self._best_of_restarts(chain, self.n_states, penalties)
            single_state_bic = bic(self._best_of_restarts(chain, 1, penalties)[0], n_observed)
        best = results[0]
        model = best.model.shifted(pooled)
        order = by_first_appearance(np.argmax(model.smooth(log), axis=1), model.n_states)
        self.model_: SwitchingRegression = model.reordered(order)
        self.report_ = HMMReport(
            log_likelihood=best.log_likelihood,
            bic=bic(best, n_observed),
            single_state_bic=single_state_bic,
            iterations=len(best.objectives) - 1,
            converged=best.converged,
            objectives=best.objectives,
            restarts=tuple(result.objectives[-1] for result in results),
            state_counts=counts,
        )
        if self.n_states != 1 and self.report_.bic >= single_state_bic:
            warnings.warn(self._no_evidence(), NoChangeWarning, stacklevel=2)
        elif model.shortest_stay < SHORTEST_STAY:
            warnings.warn(
                f"a state lasts {model.shortest_stay:.1f} rounds: it follows the noise of single rewards, not a world "
                "that changes (skewed rewards do that). Ask for fewer states, or transform the rewards.",
                SeachangeWarning,
                stacklevel=2,
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
        for name, low in {"prior_visits": 0, "ridge": 0, "tolerance": 0}.items():
            require(getattr(self, name) >= low, f"{name} must be at least {low}; got {getattr(self, name)}.")
        require_count("n_states", self.n_states, auto=True)
        require_count("restarts", self.restarts)
        require_count("max_iterations", self.max_iterations)
        require_count("workers", self.workers)
        require(
            self.expected_stay == "auto" or self.expected_stay > 1,
            f"expected_stay must be more than 1 round; got {self.expected_stay}.",
        )
        require(bool(np.isfinite(log.arrays.rewards).any()), "no round of the log has a reward.")

    def _best_of_restarts(self, chain: Chain, n_states: int, penalties: Floats) -> list[EMResult]:
        """EM from every start, best first."""
        n = len(chain.log)
        length = n / int(chain.starts.sum())
        stay = max(length / (2 * n_states), 2.0) if self.expected_stay == "auto" else self.expected_stay
        prior = Prior(penalties, self.prior_visits, stay)
        # A start needs windows enough to make clusters of, whatever the stay.
        widest = max(1, min(int(stay / LONGEST_WINDOWS_A_STAY), n // (2 * n_states)))
        n_starts = self.restarts if n_states > 1 else 1
        widths = [max(1, widest >> i) for i in range(n_starts)]
        windows = {width: windows_of(chain, width) for width in widths}

        def climb(start: SwitchingRegression | None) -> EMResult | None:
            return None if start is None else run_em(start, chain, prior, self.tolerance, self.max_iterations)

        def attempt(i: int) -> EMResult | None:
            return climb(window_start(chain, windows[widths[i]], n_states, prior, self.seed + i))

        results = _best_first(map_in_order(attempt, range(n_starts), workers=self.workers))
        if not results:
            raise ParameterError(
                f"n_states={n_states} is more than the log can hold: it has {n} rounds whose windows show fewer "
                "distinct fits. Ask for fewer states."
            )
        if n_states > 2:
            regrouped = regrouped_starts(chain, results[0].model, widths[-1], prior, self.seed)
            results = _best_first([*results, *map_in_order(climb, regrouped, workers=self.workers)])
        return results


def _best_first(results: Iterable[EMResult | None]) -> list[EMResult]:
    return sorted((result for result in results if result is not None), key=lambda result: -result.objectives[-1])
