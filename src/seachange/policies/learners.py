"""Learners: maximize an off-policy objective over linear softmax policies, regularized toward a simpler fit."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from seachange.engine import cores, one_thread
from seachange.errors import LogError, warn
from seachange.log.bandit_log import CHUNK_ROWS, BanditLog, require_propensities, require_rewards
from seachange.log.clusters import Clusters
from seachange.log.joint_features import JointFeatures
from seachange.log.units import Units
from seachange.params import Auto, Params, require, require_count
from seachange.policies.objectives import Objective, free_coefs, least_reward, policy_coefs, reward_baseline
from seachange.policies.reward_models import (
    RewardKind,
    RewardModel,
    cross_fitted,
    fit_rewards,
    reward_kind,
    robust_weights,
)
from seachange.policies.softmax import SoftmaxPolicy
from seachange.protocols import Bools, Floats, Ints, Policy
from seachange.registry import LEARNERS

GREEDY = 1e6  # largest coefficient, in units of the features, of a softmax so steep that it takes the best action
# Strengths of regularization to try, strongest first, as multiples of the squared relative standard error of the value.
STRENGTHS = (2000.0, 2.0)
STRENGTH_TO_ZERO = 2.0  # the same toward 0, if there is no surrogate
MIN_L2 = 1e-6
# The surrogate's maximum takes actions in proportion to their rewards; the best policy is more decided.
STEEPER_THAN_SURROGATE = 4.0
STEEPER = np.geomspace(1.0, 1e3, 13)  # factors by which a policy may be made steeper
FLAT = 1e-7  # values closer than this, in units of mean absolute reward, count as equal
BLOCKS = 10  # blocks of time: the odd ones are one half of the log, the even ones the other
ROUNDING = 1e-12  # smaller differences, relative to the coefficients, are rounding errors
MAX_PROBS = 1 << 24  # probabilities kept in memory at a time
MAX_CLIPPED_SHARE = 0.01  # share of rewarded rounds that may be clipped without a warning

Climb = Callable[[Objective, Floats], tuple[Floats, Any]]


def require_choices(log: BanditLog) -> None:
    """Raise if no policy can be learned from ``log``."""
    require_rewards(log, "learning a policy")
    if log.n_actions == 1:
        raise LogError("the log has only one action, so there is nothing to learn. Check the action column.")


def checked_weights(log: BanditLog, weights: npt.ArrayLike | None) -> Floats:
    """(n,) the weight of each round; 1 by default."""
    counts = np.ones(len(log)) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    one_each = counts.shape == (len(log),)
    require(one_each, f"weights must have one entry per round; got shape {counts.shape} for {len(log)} rounds.")
    valid = bool((counts >= 0).all()) and 0 < counts.sum() < np.inf
    require(valid, "weights must be finite, at least 0, and not all 0.")
    return counts


def logged_action_probs(log: BanditLog, policy: Policy, rounds: Ints | None = None, *, greedy: bool = False) -> Floats:
    """π(a_t | x_t) of every round, or of ``rounds``; ``greedy``: 1 if a_t is the most likely action of π, else 0."""
    chosen = []
    for part in log.chunk_slices(min(CHUNK_ROWS, max(MAX_PROBS // log.n_actions, 1))):
        chunk, here = log[part], np.arange(part.stop - part.start)
        if rounds is not None:
            here = rounds[slice(*np.searchsorted(rounds, (part.start, part.stop)))] - part.start
        if len(here) > 0:
            mask = None if chunk.action_mask is None else chunk.action_mask[here]
            probs, actions = policy.predict_proba(chunk.contexts[here], mask), chunk.actions[here]
            chosen.append(probs.argmax(axis=1) == actions if greedy else probs[np.arange(len(here)), actions])
    return np.concatenate(chosen).astype(np.float64) if chosen else np.empty(0)


def warn_about_clipping(log: BanditLog, counts: Floats, clip: float, stacklevel: int) -> None:
    """Warn if ``clip`` is often below 1 / p: then no policy gets full credit for those rounds."""
    rewards, propensities = log.arrays.rewards - reward_baseline(log, counts), log.arrays.propensities
    rewarded = (rewards != 0) & (counts > 0)
    clipped = rewarded & (clip * propensities < 1)
    share = int(clipped.sum()) / max(int(rewarded.sum()), 1)
    if share > MAX_CLIPPED_SHARE:
        worth = (counts * np.abs(rewards))[clipped]
        credit = clip * worth.sum() / (worth / propensities[clipped]).sum()
        warn(
            f"clip={clip:g} is below 1 / propensity in {share:.1%} of the rewarded rounds. A policy that always takes "
            f"those actions gets credit for only {credit:.1%} of what they earned. To clip nothing, use "
            f"clip={1 / float(propensities[rewarded].min()):.4g}.",
            stacklevel=stacklevel,
        )


def regularized(objective: Objective, start: Floats, strength: float) -> Objective:
    """``objective`` regularized toward ``start``: l2 = ``strength`` times its squared relative standard error there."""
    return objective.changed(l2=max(strength * objective.relative_error(start) ** 2, MIN_L2), center=start)


def best_strength(objective: Objective, surrogate: Objective, start: Floats, climb: Climb) -> float:
    """The largest strength whose held-out value is within one standard error of the best.

    On each half of the log, maximize the surrogate (that of the whole log gave ``start``), then learn by inverse
    propensity scores from there, once per strength. The greedy policies are compared by the same scores on the other
    half.
    """
    log, weights = objective.log, objective.weights
    odd = Clusters(log).folds(BLOCKS, weights) % 2 == 1
    rewards = log.arrays.rewards - objective.baseline
    rewarded = np.flatnonzero((rewards != 0) & (weights > 0))
    earned = np.zeros((len(STRENGTHS), len(rewarded)))
    for half in (odd, ~odd):
        held_out = np.flatnonzero(~half[rewarded])
        if len(held_out) in (0, len(rewarded)):
            # One half has no rewards: nothing to compare.
            return STRENGTHS[0]
        scores = objective.reweighted(weights * half)
        own = scores.as_surrogate().changed(l2=surrogate.l2, center=surrogate.center)
        center = reached = STEEPER_THAN_SURROGATE * climb(own, start / STEEPER_THAN_SURROGATE)[0]
        for each, strength in enumerate(STRENGTHS):
            reached = climb(regularized(scores, center, strength), reached)[0]
            rounds, policy = rewarded[held_out], SoftmaxPolicy(policy_coefs(log.units, log.joint, reached), log.joint)
            ratios = logged_action_probs(log, policy, rounds, greedy=True) / log.arrays.propensities[rounds]
            earned[each, held_out] = weights[rounds] * np.minimum(objective.clip, ratios) * rewards[rounds]
    gaps = earned.sum(axis=1).max() - earned.sum(axis=1)
    errors = np.sqrt(np.square(earned[np.argmin(gaps)] - earned).sum(axis=1))
    return STRENGTHS[int(np.argmax(gaps <= errors))]


@dataclass(frozen=True)
class Optimization:
    """How the optimization went."""

    value: float  # J at the end, plus the baseline
    iterations: int
    converged: bool
    l2: float  # the regularization used
    steepness: float  # factor applied to the coefficients afterward


@dataclass(kw_only=True, eq=False, repr=False)
class SoftmaxLearner(Params):
    """What all learners of softmax policies share: settings of the objective, L-BFGS, rescaling."""

    clip: float = 100.0  # M: lower trades bias for variance; below 1 / p it loses value
    baseline: float | Auto = "auto"  # b: subtracted from rewards; auto: the smallest if a tenth earn it, else the mean
    temperature: float = 0.0  # τ: higher keeps the policy more random; in units of reward
    l2: float | Auto = "auto"  # penalty on moving away from the start, in units of mean absolute reward and features
    regularization: float | Auto = "auto"  # l2 in squared relative errors of the value; auto: best on half a log
    pooling_rounds: float = 10.0  # how many rounds the fit of the whole log is worth in the fit of one state
    steepness: float | Auto = "auto"  # final factor on the coefficients, to undo shrinkage; auto: the best value
    max_iterations: int = 500
    workers: int | Auto = "auto"  # threads; auto: one per core; results do not depend on it

    def fit(self, log: BanditLog, weights: npt.ArrayLike | None = None, pooled: Self | None = None) -> Self:
        """Learn ``policy_``; round t has weight ``weights[t]``, and ``pooled`` is what to shrink toward."""
        counts = self._checked_weights(log, weights)
        if pooled is None:
            warn_about_clipping(log, counts, self.clip, stacklevel=3)
        self._learn(self._objective(log, counts), pooled)
        return self

    def _learn(self, objective: Objective, pooled: Self | None) -> None:
        """Maximize ``objective``; sets ``policy_``, ``coefs_`` and ``optimization_``."""
        start, surrogate = self._start(objective, pooled)
        strength = STRENGTH_TO_ZERO if self.regularization == "auto" else self.regularization
        if self.l2 == "auto" == self.regularization and surrogate is not None:
            strength = best_strength(objective, surrogate, start, self._climb)
        objective = regularized(objective, start, strength) if self.l2 == "auto" else objective.changed(center=start)
        coefs, result = self._climb(objective, start)
        steepness, raw = (
            self._steepness(objective, coefs),
            policy_coefs(objective.log.units, objective.log.joint, coefs),
        )
        self.coefs_, self.policy_ = raw, SoftmaxPolicy(steepness * raw, objective.log.joint)
        value = -float(result.fun) * objective.scale + (0.0 if objective.surrogate else objective.baseline)
        self.optimization_ = Optimization(value, int(result.nit), result.status == 0, objective.l2, steepness)

    def _start(self, objective: Objective, pooled: Self | None) -> tuple[Floats, Objective | None]:
        """Where to start, and the surrogate that gave it.

        If no reward is below the baseline, start from the maximum of the concave surrogate, ``surrogate_coefs_``, which
        shrinks toward the pooled one. Otherwise the surrogate ignores losses: start from 0, and do not pool states.
        """
        log, self.surrogate_coefs_ = objective.log, None
        start = free_coefs(log.units, log.joint, np.zeros(log.joint.shape))
        if least_reward(log, objective.weights) < objective.baseline:
            return start, None
        surrogate = objective.as_surrogate().changed(l2=MIN_L2, center=None)
        if pooled is not None and pooled.surrogate_coefs_ is not None:
            start = free_coefs(log.units, log.joint, pooled.surrogate_coefs_)
            surrogate = surrogate.changed(center=start, l2=max(self.pooling_rounds / objective.total, MIN_L2))
        found = self._climb(surrogate, start)[0]
        self.surrogate_coefs_ = policy_coefs(log.units, log.joint, found)
        return STEEPER_THAN_SURROGATE * found, surrogate

    def _objective(self, log: BanditLog, counts: Floats, **settings: Any) -> Objective:
        settings |= {"clip": self.clip, "temperature": self.temperature, "l2": 0.0 if self.l2 == "auto" else self.l2}
        settings |= {"baseline": reward_baseline(log, counts) if self.baseline == "auto" else self.baseline}
        return Objective(log, counts, workers=cores() if self.workers == "auto" else self.workers, **settings)

    def _climb(self, objective: Objective, start: Floats) -> tuple[Floats, Any]:
        """Coefficients at a maximum, by L-BFGS from ``start``, and the optimizer's result."""
        shape, scale = start.shape, objective.scale

        # The optimizer works in units of the rewards, too, so its tolerances fit any log.
        def descend(flat: Floats) -> tuple[float, Floats]:
            value, gradient = objective.value_and_gradient(flat.reshape(shape))
            return -value / scale, -gradient.ravel() / scale

        # Steps below rounding gain nothing; from a slope g, the penalty allows a gain of g² / (2 l2).
        rounding = float(np.finfo(objective.log.arrays.rows.dtype).eps)
        least = max(1e3 * rounding, 1e-7, (2 * objective.l2 * rounding) ** 0.5)
        options = {"maxiter": self.max_iterations, "ftol": max(rounding, 1e-10), "gtol": least}
        with one_thread():
            result = minimize(descend, start.ravel(), jac=True, method="L-BFGS-B", options=options)
        return result.x.reshape(shape), result

    def _steepness(self, objective: Objective, coefs: Floats) -> float:
        """Factor on the coefficients: regularization leaves the policy softer than it should be."""
        if self.steepness != "auto":
            return self.steepness
        if objective.l2 == 0:
            return 1.0
        plain = objective.changed(l2=0.0)
        values = np.array([plain.value_and_gradient(factor * coefs)[0] for factor in STEEPER])
        # If values are flat, rounding must not decide.
        return float(STEEPER[int(np.argmax(values >= values.max() - FLAT * objective.scale))])

    def _checked_weights(self, log: BanditLog, weights: npt.ArrayLike | None) -> Floats:
        require(self.clip > 0, f"clip must be positive; got {self.clip}.")
        given = self.baseline == "auto" or np.isfinite(self.baseline)
        require(given, f'baseline must be "auto" or a number; got {self.baseline}.')
        for name, auto in (("temperature", False), ("l2", True), ("regularization", True), ("pooling_rounds", False)):
            value, choices = getattr(self, name), '"auto" or ' if auto else ""
            require((auto and value == "auto") or value >= 0, f"{name} must be {choices}at least 0; got {value}.")
        valid = self.steepness == "auto" or 0 < self.steepness < np.inf
        require(valid, f'steepness must be "auto" or positive; got {self.steepness}.')
        require_count("max_iterations", self.max_iterations)
        require_count("workers", self.workers, auto=True)
        require_choices(log)
        require_propensities(log, f"{type(self).__name__} (DMLearner needs none)")
        return checked_weights(log, weights)


@LEARNERS.register("ips")
@dataclass(kw_only=True, eq=False, repr=False)
class IPSLearner(SoftmaxLearner):
    """Maximize inverse propensity scores: mean of min{M, π(a_t | x_t) / p_t} (r_t - b)."""


@LEARNERS.register("snips")
@dataclass(kw_only=True, eq=False, repr=False)
class SNIPSLearner(SoftmaxLearner):
    """Maximize self-normalized inverse propensity scores: Σ w_t r_t / Σ w_t, w_t = min{M, π(a_t | x_t) / p_t}."""

    def _objective(self, log: BanditLog, counts: Floats, **settings: Any) -> Objective:
        return super()._objective(log, counts, normalized=True, **settings)


@LEARNERS.register("poem")
@dataclass(kw_only=True, eq=False, repr=False)
class POEMLearner(SoftmaxLearner):
    """Maximize inverse propensity scores minus λ standard errors (counterfactual risk minimization)."""

    variance_penalty: float = 1.0  # λ: higher stays closer to what the log supports

    def _objective(self, log: BanditLog, counts: Floats, **settings: Any) -> Objective:
        require(self.variance_penalty >= 0, f"variance_penalty must be at least 0; got {self.variance_penalty}.")
        return super()._objective(log, counts, variance_penalty=self.variance_penalty, **settings)


@LEARNERS.register("cross-entropy")
@dataclass(kw_only=True, eq=False, repr=False)
class CrossEntropyLearner(SoftmaxLearner):
    """Maximize the mean of (max{r_t - b, 0} / p_t) log π(a_t | x_t), which is concave.

    log π(a) ≥ 1 - 1 / π(a): it increases with inverse propensity scores, and penalizes dropping a rewarded action.
    """

    def _objective(self, log: BanditLog, counts: Floats, **settings: Any) -> Objective:
        return super()._objective(log, counts, surrogate=True, **settings)

    def _start(self, objective: Objective, pooled: Self | None) -> tuple[Floats, Objective | None]:
        """The surrogate is the objective itself: start from the pooled fit."""
        start = np.zeros(objective.log.joint.shape) if pooled is None else pooled.coefs_
        return free_coefs(objective.log.units, objective.log.joint, start), None

    def _steepness(self, objective: Objective, coefs: Floats) -> float:
        return super()._steepness(replace(objective, surrogate=False), coefs)


@LEARNERS.register("dr")
@dataclass(kw_only=True, eq=False, repr=False)
class DRLearner(SoftmaxLearner):
    """Maximize the doubly robust value: a reward model plus weighted residuals. The model is cross-fitted over time."""

    rewards: RewardKind | Auto = "auto"  # distribution assumed by the reward model
    ridge: float | Auto = "auto"  # of the reward model, in rounds; auto: by marginal likelihood
    n_folds: int = 5  # blocks of time for cross-fitting

    def _objective(self, log: BanditLog, counts: Floats, **settings: Any) -> Objective:
        require(self.ridge == "auto" or self.ridge >= 0, f"ridge must be at least 0; got {self.ridge}.")
        require_count("n_folds", self.n_folds)
        return super()._objective(log, counts, modeled=self._modeled(log, counts, counts > 0), **settings)

    def _modeled(self, log: BanditLog, weights: Floats, needed: Bools) -> Floats:
        """(n, K) r̂, fitted with ``weights``, for the rounds that are ``needed``."""
        return cross_fitted(log, weights, self.ridge, reward_kind(log, self.rewards), self.n_folds, needed)


@LEARNERS.register("mrdr")
@dataclass(kw_only=True, eq=False, repr=False)
class MRDRLearner(DRLearner):
    """Maximize the doubly robust value, with the reward model weighted for minimal variance ("more robust").

    The model is fitted with weights π(a_t | x_t) (1 - p_t) / p_t², which depend on the policy: policy and model are
    fitted in turns.
    """

    turns: int = 2  # how often the policy is learned; the first time as by DRLearner

    def fit(self, log: BanditLog, weights: npt.ArrayLike | None = None, pooled: Self | None = None) -> Self:
        """Learn ``policy_``; round t has weight ``weights[t]``, and ``pooled`` is what to shrink toward."""
        require_count("turns", self.turns)
        super().fit(log, weights, pooled)
        counts = checked_weights(log, weights)
        for _ in range(1, self.turns):
            noisy = counts * robust_weights(logged_action_probs(log, self.policy_), log.arrays.propensities)
            # There are none if the log never, or always, took the policy's actions.
            if noisy.sum() > 0:
                modeled = self._modeled(log, noisy, counts > 0)
                self._learn(SoftmaxLearner._objective(self, log, counts, modeled=modeled), pooled)
        return self


@LEARNERS.register("dm")
@dataclass(kw_only=True, eq=False, repr=False)
class DMLearner(Params):
    """Take the action with the highest modeled reward: the direct method. As good as its linear model."""

    rewards: RewardKind | Auto = "auto"  # distribution assumed by the reward model
    ridge: float | Auto = "auto"  # of the reward model, in rounds; auto: by marginal likelihood

    def fit(self, log: BanditLog, weights: npt.ArrayLike | None = None, pooled: Self | None = None) -> Self:
        """Learn ``policy_``; round t has weight ``weights[t]``, and the model shrinks toward that of ``pooled``."""
        require_choices(log)
        require(self.ridge == "auto" or self.ridge >= 0, f"ridge must be at least 0; got {self.ridge}.")
        counts, kind = checked_weights(log, weights), reward_kind(log, self.rewards)
        center = None if pooled is None else pooled.reward_model_.coefs
        return self.use_model(fit_rewards(log, counts[:, None], self.ridge, kind, center)[0], log)

    def use_model(self, model: RewardModel, log: BanditLog) -> Self:
        """Set ``policy_`` from a reward model that is already fitted to ``log``."""
        self.reward_model_, self.policy_ = model, greedy_policy(model.coefs, log.units, log.joint)
        return self


def greedy_policy(reward_coefs: Floats, units: Units, joint: JointFeatures) -> SoftmaxPolicy:
    """The policy that takes the action with the highest reward, according to ``reward_coefs`` (B, D)."""
    coefs = free_coefs(units, joint, reward_coefs)
    # What all actions have in common does not matter.
    gaps = coefs - coefs.mean(axis=0) if len(coefs) > 1 else coefs
    largest, rounding = float(np.abs(gaps).max()), ROUNDING * float(np.abs(coefs).max())
    steepness = GREEDY / largest if largest > rounding else 0.0
    return SoftmaxPolicy(policy_coefs(units, joint, steepness * gaps), joint)
