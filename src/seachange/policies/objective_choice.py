"""Choose the objective to learn policies by: fit candidates on part of the log, compare them on held-out time."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from seachange.engine import Stage, stage
from seachange.errors import SeachangeWarning
from seachange.log.bandit_log import BanditLog, require_propensities
from seachange.log.clusters import Clusters
from seachange.params import Params, require, require_count
from seachange.policies.learners import (
    CrossEntropyLearner,
    DMLearner,
    DRLearner,
    IPSLearner,
    SoftmaxLearner,
    checked_weights,
    require_choices,
)
from seachange.policies.per_state import policies_of
from seachange.policies.reward_models import RewardModel, fit_rewards, folds_of, reward_kind
from seachange.protocols import Floats, Policy
from seachange.records import table_of
from seachange.registry import LEARNERS

Learner = SoftmaxLearner | DMLearner

# Clips to try; the second only if the log has larger importance weights.
CLIPS = (100.0, 20.0)
# Regularization strengths to try besides "auto": toward the surrogate's maximum, and toward 0.
STRENGTHS, STRENGTHS_TO_ZERO = (2000.0, 2.0), (0.2, 6.0)
# Importance weights are clipped here when candidates are compared, so that no single round decides.
MAX_WEIGHT = 100.0
# Confidence needed to warn that the learned policies earn less than the log did.
LOSS_CONFIDENCE = 0.99


@dataclass(frozen=True)
class Candidate:
    """The held-out value of one way of learning."""

    name: str
    value: float  # doubly robust estimate of the mean reward per round
    gap: float  # to the best candidate
    gap_error: float  # standard error of the gap


@dataclass(frozen=True, repr=False)
class Choice:
    """The chosen candidate: the simplest one within one standard error of the best."""

    chosen: str
    candidates: tuple[Candidate, ...]  # best first
    n_blocks: int  # blocks of time, each held out once

    @property
    def reason(self) -> str:
        """One or two sentences for people."""
        best = self.candidates[0]
        chosen = next(each for each in self.candidates if each.name == self.chosen)
        why = (
            "highest held-out value"
            if chosen is best
            else f"simplest within one standard error of the best, {best.name}"
        )
        others = ", ".join(f"{each.name} {each.value:.4g}" for each in self.candidates if each is not chosen)
        return (
            f"{chosen.name} ({why}): {chosen.value:.4g} per round, a doubly robust estimate over {self.n_blocks} "
            f"held-out blocks of time.{f' Others: {others}.' if others else ''}"
        )

    def __repr__(self) -> str:
        """The candidates, best first."""
        rows = [
            (each.name, f"{each.value:.4g}", f"{each.gap:.4f} ± {each.gap_error:.4f}",
             "chosen" if each.name == self.chosen else "")
            for each in self.candidates
        ]  # fmt: skip
        return table_of(
            f"Choice: {self.chosen} ({self.n_blocks} held-out blocks of time)", ("", "value", "gap", ""), rows
        )


def sensible_candidates(log: BanditLog) -> dict[str, Learner]:
    """Learners worth trying on ``log``, by name, the simplest first."""
    found: dict[str, Learner] = {"dm": DMLearner()}
    if float(log.arrays.rewards.min()) >= 0:
        found["cross-entropy"] = CrossEntropyLearner()
    if reward_kind(log, "auto") == "bernoulli":
        found["dm, least squares"] = DMLearner(rewards="gaussian")
    if np.prod(log.joint.shape) > np.count_nonzero(log.arrays.rewards):
        # More coefficients than rewarded rounds: objectives on weighted rewards would overfit, slowly.
        return found
    largest = float(1 / log.arrays.propensities.min())
    for clip in CLIPS if largest > CLIPS[1] else CLIPS[:1]:
        suffix = f", clip {clip:g}" if largest > CLIPS[1] else ""
        found[f"ips{suffix}"] = IPSLearner(clip=clip)
        found[f"dr{suffix}"] = DRLearner(clip=clip)
    return found


@LEARNERS.register("auto")
@dataclass(kw_only=True, eq=False, repr=False)
class AutoLearner(Params):
    """Learn with the objective that has the highest doubly robust value on held-out time."""

    n_folds: int = 3  # blocks of time, each held out once

    def fit(self, log: BanditLog, weights: npt.ArrayLike | None = None) -> Self:
        """Learn ``policy_`` and ``choice_``; round t has weight ``weights[t]``."""
        require_choices(log)
        counts = checked_weights(log, weights)
        self.learner_, self.choice_ = choose_objective(log, counts[:, None], n_folds=self.n_folds)
        self.policy_ = self.learner_.fit(log, counts).policy_
        return self


def choose_objective(
    log: BanditLog, membership: Floats, *, n_folds: int = 3, candidates: dict[str, Learner] | None = None
) -> tuple[Learner, Choice]:
    """The simplest candidate whose held-out value is within one standard error of the best.

    Each candidate learns one policy per column of ``membership`` (n, L). With policies π_z learned without a block of
    time, a round t of that block contributes

    y_t = Σ_z u_t(z) [Σ_a π_z(a | x_t) r̂_z(x_t, a) + min{M, π_z(a_t | x_t) / p_t} (r_t - r̂_z(x_t, a_t))]

    where r̂_z is fitted outside the block too.
    """
    require_count("n_folds", n_folds)
    require(n_folds >= 2, "n_folds must be at least 2, to compare objectives on held-out time.")
    require_propensities(log, "choosing an objective (DMLearner needs none)")
    with stage("Choosing the objective") as progress:
        trial = _Trial(log, membership, n_folds, progress)
        trial.add(sensible_candidates(log) if candidates is None else candidates)
        if candidates is None:
            chosen = trial.choice.chosen
            trial.add(variants(chosen, trial.learners[chosen], log))
    choice = trial.choice
    trial.warn_if_below_log(choice.candidates[0])
    return copy(trial.learners[choice.chosen]), choice


def variants(name: str, learner: Learner, log: BanditLog) -> dict[str, Learner]:
    """The same objective with stronger and weaker regularization, and without rescaling."""
    if not isinstance(learner, SoftmaxLearner):
        return {}
    to_zero = isinstance(learner, CrossEntropyLearner) or float(log.arrays.rewards.min()) < 0
    found: dict[str, Learner] = {
        f"{name}, regularization {strength:g}": replace(learner, regularization=strength)
        for strength in (STRENGTHS_TO_ZERO if to_zero else STRENGTHS)
    }
    return found | {f"{name}, not rescaled": replace(learner, steepness=1.0)}


class _Trial:
    """Candidates on the same held-out blocks."""

    def __init__(self, log: BanditLog, membership: Floats, n_folds: int, progress: Stage) -> None:
        self.progress = progress
        self.log, self.membership, self.clusters = log, membership, Clusters(log)
        self.folds = folds_of(log, membership.sum(axis=1), n_folds)
        self.learners: dict[str, Learner] = {}
        self.values: dict[str, Floats] = {}
        kind = reward_kind(log, "auto")
        self.models = [fit_rewards(log, fold.without(membership), "auto", kind) for fold in self.folds]

    def add(self, learners: dict[str, Learner]) -> None:
        """Estimate the held-out values of more candidates."""
        total = sum(map(_effort, [*self.learners.values(), *learners.values()])) * len(self.folds)
        for name, learner in learners.items():
            self.progress.expect(total, step=_effort(learner), detail=name)
            values = np.zeros(len(self.log))
            for fold, models in zip(self.folds, self.models, strict=True):
                outside = np.ascontiguousarray(fold.without(self.membership).T)
                with warnings.catch_warnings():
                    # Warnings come when the chosen learner learns from the whole log.
                    warnings.simplefilter("ignore", SeachangeWarning)
                    policies = policies_of(self.log, list(outside), learner)
                for z, (policy, model) in enumerate(zip(policies, models, strict=True)):
                    share = self.membership[fold.span, z] * fold.inside
                    values[fold.span] += share * _doubly_robust(self.log[fold.span], policy, model)
                self.progress.advance(_effort(learner))
            self.learners[name], self.values[name] = learner, values

    @property
    def choice(self) -> Choice:
        """The candidates so far, and which one to use."""
        total, best = self.membership.sum(), max(self.values.values(), key=np.sum)
        candidates = []
        for name, values in self.values.items():
            gaps = self.clusters.sums(best - values)
            error = float(np.sqrt(len(gaps)) * gaps.std() / total)
            candidates.append(Candidate(name, float(values.sum() / total), float(gaps.sum() / total), error))
        chosen = next(each.name for each in candidates if each.gap <= each.gap_error)
        return Choice(chosen, tuple(sorted(candidates, key=lambda each: each.gap)), len(self.folds))

    def warn_if_below_log(self, best: Candidate) -> None:
        """Warn if even the best candidate clearly earns less than the log did."""
        total = self.membership.sum()
        earned = self.membership.sum(axis=1) * self.log.arrays.rewards
        losses = self.clusters.sums(earned - self.values[best.name])
        if len(losses) < 2:
            return
        loss, error = float(losses.sum() / total), float(np.sqrt(len(losses)) * losses.std(ddof=1) / total)
        if loss > stdtrit(len(losses) - 1, LOSS_CONFIDENCE) * error > 0:
            warnings.warn(
                f"the learned policy earns less than the log did: {best.value:.4g} per round on held-out time, against "
                f"{earned.sum() / total:.4g} in the log ({loss:.2g} ± {error:.2g} less). The logging policy may use "
                "information that is not in this log: log that too, or keep the current policy.",
                SeachangeWarning,
                stacklevel=4,
            )


def _effort(learner: Learner) -> float:
    """Rough learning time relative to the direct method; used only for the progress display."""
    if isinstance(learner, DMLearner | CrossEntropyLearner):
        return 1.0
    return 5.0 if isinstance(learner, DRLearner) else 2.0


def _doubly_robust(log: BanditLog, policy: Policy, model: RewardModel) -> Floats:
    """(n,) each round's doubly robust contribution to the value of ``policy``."""
    probs, rounds = policy.predict_proba(log.contexts, log.action_mask), np.arange(len(log))
    predicted = np.broadcast_to(model.predict(log), probs.shape)
    ratios = np.minimum(probs[rounds, log.arrays.actions] / log.arrays.propensities, MAX_WEIGHT)
    residuals = log.arrays.rewards - predicted[rounds, log.arrays.actions]
    return np.asarray(np.einsum("ta,ta->t", probs, predicted) + ratios * residuals)
