"""Learners: maximise an off-policy objective over linear softmax policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from seachange.engine import one_thread
from seachange.errors import LogError, ParameterError
from seachange.log.bandit_log import BanditLog, require_propensities, require_rewards
from seachange.params import Auto, Params, require, require_count
from seachange.policies.objectives import Objective
from seachange.policies.rewards import RewardModel, fit_rewards
from seachange.policies.softmax import SoftmaxPolicy
from seachange.protocols import Floats

# The policy of a reward model is a softmax so steep that it takes the best action: the largest coefficient is this.
GREEDY = 1e6


def require_choices(log: BanditLog) -> None:
    """Raise where no policy can be learned from ``log``."""
    require_rewards(log, "learning a policy")
    if log.n_actions == 1:
        raise LogError("there is nothing to choose: the log has one action.")


@dataclass(frozen=True)
class Optimisation:
    """How the maximisation went."""

    value: float  # J at the end
    iterations: int
    converged: bool


@dataclass(kw_only=True, eq=False, repr=False)
class _SoftmaxLearner(Params):
    """What the learners share: the settings of the objective, and L-BFGS."""

    clip: float = 100.0  # M: lower trades bias for variance; below 1 / p it costs value
    temperature: float = 0.0  # τ: higher keeps the policy more random; in units of reward
    l2: float = 1e-5  # pull of the coefficients to 0; in units of the mean absolute reward and of each feature
    max_iterations: int = 500

    def fit(self, log: BanditLog, weights: npt.ArrayLike | None = None) -> Self:
        """Learn ``policy_`` from ``log``, round t counting ``weights[t]`` times."""
        counts = self._checked_weights(log, weights)
        objective = Objective(
            log=log,
            weights=counts,
            reward_model=self._reward_model(log, counts),
            clip=self.clip,
            temperature=self.temperature,
            variance_penalty=self._variance_penalty(),
            l2=self.l2,
        )
        shape, scale, units = log.joint.shape, objective.scale, objective.units

        # The optimiser sees rewards and features in their own units, so that its tolerances fit any log.
        def descend(flat: Floats) -> tuple[float, Floats]:
            value, gradient = objective.value_and_gradient(flat.reshape(shape) / units)
            return -value / scale, -(gradient / units).ravel() / scale

        options = {"maxiter": self.max_iterations, "ftol": 1e-12, "gtol": 1e-7}
        with one_thread():
            found = minimize(descend, np.zeros(log.joint.size), jac=True, method="L-BFGS-B", options=options)
        self.policy_ = SoftmaxPolicy(found.x.reshape(shape) / units, log.joint)
        self.optimisation_ = Optimisation(-float(found.fun) * scale, int(found.nit), found.status == 0)
        return self

    def _reward_model(self, log: BanditLog, weights: Floats) -> RewardModel | None:
        return None

    def _variance_penalty(self) -> float:
        return 0.0

    def _checked_weights(self, log: BanditLog, weights: npt.ArrayLike | None) -> Floats:
        require(self.clip > 0, f"clip must be positive; got {self.clip}.")
        require(self.temperature >= 0, f"temperature must be at least 0; got {self.temperature}.")
        require(self.l2 >= 0, f"l2 must be at least 0; got {self.l2}.")
        require_count("max_iterations", self.max_iterations)
        require_choices(log)
        require_propensities(log, f"{type(self).__name__} (DMLearner does without)")
        return checked_weights(log, weights)


def checked_weights(log: BanditLog, weights: npt.ArrayLike | None) -> Floats:
    """(n,) how often each round counts: once, or as given."""
    counts = np.ones(len(log)) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    if counts.shape != (len(log),):
        raise ParameterError(f"weights must have one entry a round; it has shape {counts.shape} for {len(log)} rounds.")
    if not (counts >= 0).all() or not 0 < counts.sum() < np.inf:
        raise ParameterError("weights must be at least 0, finite, and not all 0.")
    return counts


def _reward_model(log: BanditLog, weights: Floats, ridge: float | Auto) -> RewardModel:
    require(ridge == "auto" or ridge >= 0, f"ridge must be at least 0; got {ridge}.")
    return fit_rewards(log, weights[:, None], ridge)[0]


@dataclass(kw_only=True, eq=False, repr=False)
class IPSLearner(_SoftmaxLearner):
    """Maximise inverse propensity scores: mean of min{M, π(a_t | x_t) / p_t} r_t."""


@dataclass(kw_only=True, eq=False, repr=False)
class DRLearner(_SoftmaxLearner):
    """Maximise the doubly robust value: a least-squares reward model, corrected by weighted residuals."""

    ridge: float | Auto = "auto"  # of the reward model, in rounds; auto: what the rewards make most likely

    def _reward_model(self, log: BanditLog, weights: Floats) -> RewardModel:
        return _reward_model(log, weights, self.ridge)


@dataclass(kw_only=True, eq=False, repr=False)
class DMLearner(Params):
    """Take the action whose modelled reward is highest: the direct method, right where its linear model is."""

    ridge: float | Auto = "auto"  # of the reward model, in rounds; auto: what the rewards make most likely

    def fit(self, log: BanditLog, weights: npt.ArrayLike | None = None) -> Self:
        """Learn ``policy_`` from ``log``, round t counting ``weights[t]`` times."""
        require_choices(log)
        coefs = _reward_model(log, checked_weights(log, weights), self.ridge).coefs
        units = log.joint.scales(log.arrays.rows)
        steepness = GREEDY / max(float(np.abs(coefs * units).max()), 1e-300)
        self.policy_ = SoftmaxPolicy(steepness * coefs, log.joint)
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class POEMLearner(_SoftmaxLearner):
    """Maximise inverse propensity scores minus λ of their standard error (counterfactual risk minimisation)."""

    variance_penalty: float = 1.0  # λ: higher stays nearer to what the log can support

    def _variance_penalty(self) -> float:
        require(self.variance_penalty >= 0, f"variance_penalty must be at least 0; got {self.variance_penalty}.")
        return self.variance_penalty


# Learners by the name of what they maximise.
LEARNERS: dict[str, type[IPSLearner | DMLearner | DRLearner | POEMLearner]] = {
    "ips": IPSLearner,
    "dm": DMLearner,
    "dr": DRLearner,
    "poem": POEMLearner,
}
