"""Learners: maximise an off-policy objective over linear softmax policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from seachange.engine import cores, one_thread
from seachange.errors import LogError, ParameterError
from seachange.log.bandit_log import BanditLog, require_propensities, require_rewards
from seachange.params import Auto, Params, require, require_count
from seachange.policies.chosen import chosen_probs, say_what_clipping_costs
from seachange.policies.objectives import Objective
from seachange.policies.pulls import LEAST_PULL, STEEPER_THAN_SURROGATE, pull_that_pays, pull_to
from seachange.policies.rewards import RewardKind, RewardModel, cross_fitted, fit_rewards, kind_of, robust_weights
from seachange.policies.softmax import SoftmaxPolicy
from seachange.protocols import Bools, Floats

# A softmax so steep that it takes the best action: its largest coefficient, in units of the features, is this.
GREEDY = 1e6
# The pull "auto" to 0, where there is no surrogate: so many times the squared relative standard error of the value.
PULL_TO_ZERO = 2.0
# How much steeper than it was found a policy may be made.
STEEPER = np.geomspace(1.0, 1e3, 13)
# Values that differ by less, in units of mean absolute reward, are the same.
FLAT = 1e-7


def require_choices(log: BanditLog) -> None:
    """Raise where no policy can be learned from ``log``."""
    require_rewards(log, "learning a policy")
    if log.n_actions == 1:
        raise LogError("there is nothing to choose: the log has one action.")


def checked_weights(log: BanditLog, weights: npt.ArrayLike | None) -> Floats:
    """(n,) how often each round counts: once, or as given."""
    counts = np.ones(len(log)) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    if counts.shape != (len(log),):
        raise ParameterError(f"weights must have one entry a round; it has shape {counts.shape} for {len(log)} rounds.")
    if not (counts >= 0).all() or not 0 < counts.sum() < np.inf:
        raise ParameterError("weights must be at least 0, finite, and not all 0.")
    return counts


@dataclass(frozen=True)
class Optimisation:
    """How the maximisation went."""

    value: float  # J at the end
    iterations: int
    converged: bool
    l2: float  # the pull that was used
    steepness: float  # what the coefficients were multiplied with afterwards


@dataclass(kw_only=True, eq=False, repr=False)
class SoftmaxLearner(Params):
    """What learners of softmax policies share: the settings of the objective, L-BFGS, and the scale."""

    clip: float = 100.0  # M: lower trades bias for variance; below 1 / p it costs value
    temperature: float = 0.0  # τ: higher keeps the policy more random; in units of reward
    l2: float | Auto = "auto"  # pull of coefficients to where they start; in units of mean absolute reward and features
    pull: float | Auto = "auto"  # l2 in squared relative errors of the value; auto: what pays on half a log
    borrow: float = 10.0  # rounds with which the surrogate of the whole log counts for that of one of its states
    steepness: float | Auto = "auto"  # what coefficients are multiplied with at last, against the pull; auto: what pays
    max_iterations: int = 500
    workers: int | Auto = "auto"  # threads for the passes over a log; auto: one for each core; changes only the time

    def fit(self, log: BanditLog, weights: npt.ArrayLike | None = None, pooled: Self | None = None) -> Self:
        """Learn ``policy_`` from ``log``, round t counting ``weights[t]`` times, drawn to what ``pooled`` learned."""
        counts = self._checked_weights(log, weights)
        if pooled is None:
            say_what_clipping_costs(log, counts, self.clip, stacklevel=3)
        self._learn(self._objective(log, counts), pooled)
        return self

    def _learn(self, objective: Objective, pooled: Self | None) -> None:
        """Climb to a maximum; ``policy_``, ``coefs_`` and ``optimisation_`` say which."""
        start, surrogate = self._start(objective, pooled)
        if self.l2 != "auto":
            objective = objective.drawn_to(start)
        elif self.pull != "auto":
            objective = pull_to(objective, start, self.pull)
        elif surrogate is None:
            objective = pull_to(objective, start, PULL_TO_ZERO)
        else:
            objective = pull_to(objective, start, pull_that_pays(objective, surrogate, start, self._climb))
        coefs, found = self._climb(objective, start)
        steepness = self._steepness(objective, coefs)
        self.coefs_, self.policy_ = coefs, SoftmaxPolicy(steepness * coefs, objective.log.joint)
        value = -float(found.fun) * objective.scale
        self.optimisation_ = Optimisation(value, int(found.nit), found.status == 0, objective.l2, steepness)

    def _start(self, objective: Objective, pooled: Self | None) -> tuple[Floats, Objective | None]:
        """Where to climb from, and the surrogate that says so.

        Where rewards are from 0 on that is the maximum of the concave surrogate, ``surrogate_coefs_``, which is drawn
        to the pooled one's. With losses there is no surrogate; a state then has nothing to borrow.
        """
        start, self.surrogate_coefs_ = np.zeros(objective.log.joint.shape), None
        if float(objective.log.arrays.rewards.min()) < 0:
            return start, None
        surrogate = objective.as_surrogate.pulled(LEAST_PULL)
        if pooled is not None and pooled.surrogate_coefs_ is not None:
            start = pooled.surrogate_coefs_
            borrowed = self.borrow / objective.total
            surrogate = surrogate.drawn_to(start).pulled(max(borrowed, LEAST_PULL))
        self.surrogate_coefs_ = self._climb(surrogate, start)[0]
        return STEEPER_THAN_SURROGATE * self.surrogate_coefs_, surrogate

    def _objective(self, log: BanditLog, counts: Floats, **settings: Any) -> Objective:
        l2 = 0.0 if self.l2 == "auto" else self.l2
        workers = cores() if self.workers == "auto" else self.workers
        shared: dict[str, Any] = {"clip": self.clip, "temperature": self.temperature, "workers": workers}
        return Objective(log=log, weights=counts, l2=l2, **shared, **settings)

    def _climb(self, objective: Objective, start: Floats) -> tuple[Floats, Any]:
        """Coefficients at a maximum, by L-BFGS from ``start``, and what the optimiser says of it."""
        shape, scale, units = start.shape, objective.scale, objective.units

        # The optimiser sees rewards and features in their own units, so that its tolerances fit any log.
        def descend(flat: Floats) -> tuple[float, Floats]:
            value, gradient = objective.value_and_gradient(flat.reshape(shape) / units)
            return -value / scale, -(gradient / units).ravel() / scale

        # Nothing is gained by steps that rounding hides.
        hidden = float(np.finfo(objective.log.arrays.rows.dtype).eps)
        options = {"maxiter": self.max_iterations, "ftol": max(hidden, 1e-10), "gtol": max(1e3 * hidden, 1e-7)}
        with one_thread():
            found = minimize(descend, (start * units).ravel(), jac=True, method="L-BFGS-B", options=options)
        return found.x.reshape(shape) / units, found

    def _steepness(self, objective: Objective, coefs: Floats) -> float:
        """What multiplies the coefficients: the pull to 0 left the policy softer than it would be without."""
        if self.steepness != "auto":
            return self.steepness
        if objective.l2 == 0:
            return 1.0
        unpulled = objective.pulled(0.0)
        values = np.array([unpulled.value_and_gradient(factor * coefs)[0] for factor in STEEPER])
        # Where values are flat, rounding must not decide.
        return float(STEEPER[int(np.argmax(values >= values.max() - FLAT * objective.scale))])

    def _checked_weights(self, log: BanditLog, weights: npt.ArrayLike | None) -> Floats:
        require(self.clip > 0, f"clip must be positive; got {self.clip}.")
        require(self.temperature >= 0, f"temperature must be at least 0; got {self.temperature}.")
        require(self.l2 == "auto" or self.l2 >= 0, f"l2 must be auto or at least 0; got {self.l2}.")
        require(self.pull == "auto" or self.pull >= 0, f"pull must be auto or at least 0; got {self.pull}.")
        require(self.borrow >= 0, f"borrow must be at least 0; got {self.borrow}.")
        given = self.steepness
        require(given == "auto" or 0 < given < np.inf, f"steepness must be auto or positive; got {given}.")
        require_count("max_iterations", self.max_iterations)
        require_count("workers", self.workers, auto=True)
        require_choices(log)
        require_propensities(log, f"{type(self).__name__} (DMLearner does without)")
        return checked_weights(log, weights)


@dataclass(kw_only=True, eq=False, repr=False)
class IPSLearner(SoftmaxLearner):
    """Maximise inverse propensity scores: mean of min{M, π(a_t | x_t) / p_t} r_t."""


@dataclass(kw_only=True, eq=False, repr=False)
class SNIPSLearner(SoftmaxLearner):
    """Maximise self-normalised inverse propensity scores: Σ w_t r_t / Σ w_t, w_t = min{M, π(a_t | x_t) / p_t}."""

    def _objective(self, log: BanditLog, counts: Floats, **settings: Any) -> Objective:
        return super()._objective(log, counts, normalised=True, **settings)


@dataclass(kw_only=True, eq=False, repr=False)
class POEMLearner(SoftmaxLearner):
    """Maximise inverse propensity scores minus λ of their standard error (counterfactual risk minimisation)."""

    variance_penalty: float = 1.0  # λ: higher stays nearer to what the log can support

    def _objective(self, log: BanditLog, counts: Floats, **settings: Any) -> Objective:
        require(self.variance_penalty >= 0, f"variance_penalty must be at least 0; got {self.variance_penalty}.")
        return super()._objective(log, counts, variance_penalty=self.variance_penalty, **settings)


@dataclass(kw_only=True, eq=False, repr=False)
class CrossEntropyLearner(SoftmaxLearner):
    """Maximise mean of (r_t / p_t) log π(a_t | x_t), which is concave; for rewards from 0 on.

    log π(a) ≥ 1 - 1 / π(a): it grows where inverse propensity scores do, and hates to give a rewarded action up.
    """

    def _objective(self, log: BanditLog, counts: Floats, **settings: Any) -> Objective:
        least = float(log.arrays.rewards.min())
        require(least >= 0, f"cross-entropy needs rewards from 0 on; the log has {least}. Use IPSLearner.")
        return super()._objective(log, counts, surrogate=True, **settings)

    def _start(self, objective: Objective, pooled: Self | None) -> tuple[Floats, Objective | None]:
        """Its own maximum, with the pull that was asked for, is what it is to find: it starts at the pooled one's."""
        start = np.zeros(objective.log.joint.shape) if pooled is None else pooled.coefs_
        return start, None

    def _steepness(self, objective: Objective, coefs: Floats) -> float:
        return super()._steepness(objective.as_value, coefs)


@dataclass(kw_only=True, eq=False, repr=False)
class DRLearner(SoftmaxLearner):
    """Maximise the doubly robust value: a reward model, corrected by weighted residuals.

    The model of a round is fitted to other times only.
    """

    rewards: RewardKind | Auto = "auto"  # how the reward model takes them to be distributed
    ridge: float | Auto = "auto"  # of the reward model, in rounds; auto: what the rewards make most likely
    n_folds: int = 5  # runs of rounds, each of which is modelled from the others

    def _objective(self, log: BanditLog, counts: Floats, **settings: Any) -> Objective:
        require(self.ridge == "auto" or self.ridge >= 0, f"ridge must be at least 0; got {self.ridge}.")
        require_count("n_folds", self.n_folds)
        modelled = self._modelled(log, counts, counts > 0)
        return super()._objective(log, counts, modelled=modelled, **settings)

    def _modelled(self, log: BanditLog, weights: Floats, asked: Bools) -> Floats:
        """(n, K) r̂, fitted with these ``weights``, of the rounds that are ``asked`` for."""
        return cross_fitted(log, weights, self.ridge, kind_of(log, self.rewards), self.n_folds, asked)


@dataclass(kw_only=True, eq=False, repr=False)
class MRDRLearner(DRLearner):
    """The doubly robust value again, its reward model weighed for least variance ("more robust").

    The model matters where the correction is noisy: rounds weigh π(a_t | x_t) (1 - p_t) / p_t² in its fit. Policy and
    model take turns.
    """

    turns: int = 2  # how often the policy is learned, the first time as by DRLearner

    def fit(self, log: BanditLog, weights: npt.ArrayLike | None = None, pooled: Self | None = None) -> Self:
        """Learn ``policy_`` from ``log``, round t counting ``weights[t]`` times, drawn to what ``pooled`` learned."""
        require_count("turns", self.turns)
        super().fit(log, weights, pooled)
        counts = checked_weights(log, weights)
        for _ in range(1, self.turns):
            noisy = counts * robust_weights(chosen_probs(log, self.policy_), log.arrays.propensities)
            # A policy that the log never followed, or that it followed without fail, has no such rounds.
            if noisy.sum() > 0:
                modelled = self._modelled(log, noisy, counts > 0)
                self._learn(SoftmaxLearner._objective(self, log, counts, modelled=modelled), pooled)
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class DMLearner(Params):
    """Take the action whose modelled reward is highest: the direct method, right where its linear model is."""

    rewards: RewardKind | Auto = "auto"  # how the reward model takes them to be distributed
    ridge: float | Auto = "auto"  # of the reward model, in rounds; auto: what the rewards make most likely

    def fit(self, log: BanditLog, weights: npt.ArrayLike | None = None, pooled: Self | None = None) -> Self:
        """Learn ``policy_``, round t counting ``weights[t]`` times; the model is drawn to that of ``pooled``."""
        require_choices(log)
        require(self.ridge == "auto" or self.ridge >= 0, f"ridge must be at least 0; got {self.ridge}.")
        counts, kind = checked_weights(log, weights), kind_of(log, self.rewards)
        centre = None if pooled is None else pooled.reward_model_.coefs
        return self.take(fit_rewards(log, counts[:, None], self.ridge, kind, centre)[0], log)

    def take(self, model: RewardModel, log: BanditLog) -> Self:
        """Learn ``policy_`` from a reward model that was fitted to ``log`` already."""
        largest = float(np.abs(model.coefs * log.scales).max())
        self.reward_model_ = model
        self.policy_ = SoftmaxPolicy(model.coefs * (GREEDY / max(largest, 1e-300)), log.joint)
        return self


# Learners by the name of what they maximise.
LEARNERS: dict[str, type[SoftmaxLearner | DMLearner]] = {
    "ips": IPSLearner,
    "snips": SNIPSLearner,
    "dm": DMLearner,
    "dr": DRLearner,
    "mrdr": MRDRLearner,
    "poem": POEMLearner,
    "cross-entropy": CrossEntropyLearner,
}
