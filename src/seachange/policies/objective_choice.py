"""Choose the objective to learn policies by: fit candidates on part of the log, compare them on held-out time."""

import warnings
from copy import copy
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from seachange.engine import stage
from seachange.errors import SeachangeWarning, warn
from seachange.log.bandit_log import BanditLog, require_propensities
from seachange.log.clusters import Clusters
from seachange.params import Params, require, require_count, table_of
from seachange.policies.learners import (
    STRENGTHS,
    CrossEntropyLearner,
    DMLearner,
    DRLearner,
    IPSLearner,
    SoftmaxLearner,
    checked_weights,
    require_choices,
)
from seachange.policies.objectives import least_reward, reward_baseline
from seachange.policies.per_state import policies_of
from seachange.policies.reward_models import Fold, RewardModel, fit_rewards, folds_of, reward_kind
from seachange.protocols import Floats
from seachange.registry import LEARNERS

Learner = SoftmaxLearner | DMLearner

CLIPS = (100.0, 20.0)  # clips to try; the second only if the log has larger importance weights
# Regularization strengths to try besides "auto": toward the surrogate's maximum, and toward 0.
STRENGTHS_TO_ZERO = (0.2, 6.0)
MAX_WEIGHT = 100.0  # importance weights are clipped here when candidates are compared, so that no single round decides
LOSS_CONFIDENCE = 0.99  # confidence needed to warn that the learned policies earn less than the log did


@dataclass(frozen=True)
class Candidate:
    """The held-out value of one way of learning."""

    name: str
    value: float  # doubly robust estimate of the mean reward per round, optimistic: the states are those of all rounds
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
        why = "It is the best"
        if chosen is not best:
            why = f"It is the simplest within one standard error of the best, {best.name},"
        others = ", ".join(
            f"{each.name} {each.value - chosen.value:+.2g}" for each in self.candidates if each is not chosen
        )
        compared = f" Compared with it, per round: {others}." if others else ""
        return f"{chosen.name}. {why} on {self.n_blocks} held-out blocks of time (doubly robust).{compared}"

    def __repr__(self) -> str:
        marks = {self.chosen: "chosen"}
        rows = [
            (each.name, f"{each.gap:.4f} ± {each.gap_error:.4f}", marks.get(each.name, "")) for each in self.candidates
        ]
        title = f"Choice: {self.chosen} ({self.n_blocks} held-out blocks of time)"
        return table_of(title, ("", "gap", ""), rows)


def sensible_candidates(log: BanditLog) -> dict[str, Learner]:
    """Learners worth trying on ``log``, by name, the simplest first."""
    candidates: dict[str, Learner] = {"dm": DMLearner(), "cross-entropy": CrossEntropyLearner()}
    if reward_kind(log, "auto") == "bernoulli":
        candidates["dm (least squares)"] = DMLearner(rewards="gaussian")
    if np.prod(log.joint.shape) > np.count_nonzero(log.arrays.rewards != reward_baseline(log, np.ones(len(log)))):
        # More coefficients than rewarded rounds: objectives on weighted rewards would overfit, slowly.
        return candidates
    largest = float(1 / log.arrays.propensities.min())
    for clip in CLIPS if largest > CLIPS[1] else CLIPS[:1]:
        suffix = f" (clip {clip:g})" if largest > CLIPS[1] else ""
        candidates[f"ips{suffix}"] = IPSLearner(clip=clip)
        candidates[f"dr{suffix}"] = DRLearner(clip=clip)
    return candidates


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
    learners: dict[str, Learner] = {}
    values: dict[str, Floats] = {}
    with stage("Choosing the objective") as progress:
        folds, kind = folds_of(log, membership.sum(axis=1), n_folds), reward_kind(log, "auto")
        models = [fit_rewards(log, fold.without(membership), "auto", kind) for fold in folds]

        def add(more: dict[str, Learner]) -> None:
            learners.update(more)
            for name, learner in more.items():
                progress.expect(len(learners) * len(folds), step=1.0, detail=name)
                values[name] = np.zeros(len(log))
                for fold, of_fold in zip(folds, models, strict=True):
                    values[name][fold.span] += _held_out_values(log, membership, fold, learner, of_fold)
                    progress.advance()

        add(sensible_candidates(log) if candidates is None else candidates)
        if candidates is None:
            chosen = _choice(log, membership, values, len(folds)).chosen
            add(variants(chosen, learners[chosen], log))
    choice = _choice(log, membership, values, len(folds))
    _warn_if_below_log(log, membership, values[choice.candidates[0].name])
    return copy(learners[choice.chosen]), choice


def variants(name: str, learner: Learner, log: BanditLog) -> dict[str, Learner]:
    """The same objective with stronger and weaker regularization, and without rescaling."""
    if not isinstance(learner, SoftmaxLearner):
        return {}
    counts = np.ones(len(log))
    to_zero = isinstance(learner, CrossEntropyLearner) or least_reward(log, counts) < reward_baseline(log, counts)
    candidates: dict[str, Learner] = {
        f"{name} (regularization {strength:g})": replace(learner, regularization=strength)
        for strength in (STRENGTHS_TO_ZERO if to_zero else STRENGTHS)
    }
    return candidates | {f"{name} (not rescaled)": replace(learner, steepness=1.0)}


def _held_out_values(
    log: BanditLog, membership: Floats, fold: Fold, learner: Learner, models: list[RewardModel]
) -> Floats:
    """(m,) y_t for the rounds of the fold's span; 0 outside the fold."""
    with warnings.catch_warnings():
        # Warnings come when the chosen learner learns from the whole log.
        warnings.simplefilter("ignore", SeachangeWarning)
        policies = policies_of(log, list(np.ascontiguousarray(fold.without(membership).T)), learner)
    part, values = log[fold.span], np.zeros(len(fold.inside))
    for policy, model, share in zip(policies, models, membership[fold.span].T, strict=True):
        probs, rounds = policy.predict_proba(part.contexts, part.action_mask), np.arange(len(part))
        predicted = np.broadcast_to(model.predict(part), probs.shape)
        ratios = np.minimum(probs[rounds, part.arrays.actions] / part.arrays.propensities, MAX_WEIGHT)
        residuals = part.arrays.rewards - predicted[rounds, part.arrays.actions]
        values += share * fold.inside * (np.einsum("ta,ta->t", probs, predicted) + ratios * residuals)
    return values


def _choice(log: BanditLog, membership: Floats, values: dict[str, Floats], n_blocks: int) -> Choice:
    total, best, clusters = membership.sum(), max(values.values(), key=np.sum), Clusters(log)
    candidates = []
    for name, each in values.items():
        gaps = clusters.sums(best - each)
        error = float(np.sqrt(len(gaps)) * gaps.std() / total)
        candidates.append(Candidate(name, float(each.sum() / total), float(gaps.sum() / total), error))
    chosen = next(each.name for each in candidates if each.gap <= each.gap_error)
    return Choice(chosen, tuple(sorted(candidates, key=lambda each: each.gap)), n_blocks)


def _warn_if_below_log(log: BanditLog, membership: Floats, values: Floats) -> None:
    """Warn if even the best candidate, with these ``values``, clearly earns less than the log did."""
    total, earned = membership.sum(), membership.sum(axis=1) * log.arrays.rewards
    losses = Clusters(log).sums(earned - values)
    if len(losses) < 2:
        return
    loss, error = float(losses.sum() / total), float(np.sqrt(len(losses)) * losses.std(ddof=1) / total)
    if loss > stdtrit(len(losses) - 1, LOSS_CONFIDENCE) * error > 0:
        warn(
            f"the learned policy earns less than the logging policy did: {values.sum() / total:.4g} vs. "
            f"{earned.sum() / total:.4g} per round on held-out blocks of time (difference {loss:.2g} ± {error:.2g}). "
            "The logging policy may have used information that this log lacks. Add it to the log, or keep the current "
            "policy.",
            stacklevel=4,
        )
