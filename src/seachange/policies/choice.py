"""Which objective to learn policies by: candidates are fitted to a part of the log and judged on the rest."""

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
from seachange.policies.rewards import RewardModel, fit_rewards, folds_of, kind_of
from seachange.protocols import Floats, Policy
from seachange.records import table_of

Learner = SoftmaxLearner | DMLearner

# Largest weights that candidates are clipped at, where the log has weights beyond the second.
CLIPS = (100.0, 20.0)
# Pulls that are tried beside "auto": to the surrogate's maximum, and where policies are drawn to 0.
PULLS, PULLS_TO_ZERO = (2000.0, 2.0), (0.2, 6.0)
# Weights beyond this do not decide between candidates: one round would.
MOST_WEIGHT = 100.0
# A loss is seen where chance would make a smaller one with this probability.
SEEN_AT = 0.99


@dataclass(frozen=True)
class Candidate:
    """What a way of learning would earn, as judged on times it did not learn from."""

    name: str
    value: float  # doubly robust, a round
    behind: float  # how much less than the best
    behind_error: float  # standard error of that


@dataclass(frozen=True, repr=False)
class Choice:
    """Which of the candidates was taken: the plainest that is within a standard error of the best."""

    chosen: str
    candidates: tuple[Candidate, ...]  # best first
    n_blocks: int  # of time, each of which was held out once

    @property
    def reason(self) -> str:
        """In a sentence."""
        best = self.candidates[0]
        taken = next(each for each in self.candidates if each.name == self.chosen)
        others = [each for each in self.candidates if each is not taken]
        told = "; ".join(f"{each.name} {each.value:.4g}" for each in others[:3])
        why = "earns most" if taken is best else f"is plainer than {best.name} and earns as much, to a standard error,"
        return (
            f"{taken.name} {why} on held-out time: {taken.value:.4g} a round by a doubly robust estimate over "
            f"{self.n_blocks} blocks{' (' if told else ''}{told}{')' if told else ''}."
        )

    def __repr__(self) -> str:
        """The candidates, best first."""
        rows = [
            (each.name, f"{each.value:.4g}", f"{each.behind:.4f} ± {each.behind_error:.4f}",
             "chosen" if each.name == self.chosen else "")
            for each in self.candidates
        ]  # fmt: skip
        return table_of(f"Choice: {self.chosen}, on {self.n_blocks} blocks of time", ("", "value", "behind", ""), rows)


def sensible_candidates(log: BanditLog) -> dict[str, Learner]:
    """Learners that may be best on ``log``, by name, the plainest first."""
    found: dict[str, Learner] = {"dm": DMLearner()}
    if float(log.arrays.rewards.min()) >= 0:
        found["cross-entropy"] = CrossEntropyLearner()
    if kind_of(log, "auto") == "bernoulli":
        found["dm, least squares"] = DMLearner(rewards="gaussian")
    if np.prod(log.joint.shape) > np.count_nonzero(log.arrays.rewards):
        # More coefficients than rewarded rounds: what climbs on weighted rewards would learn them by heart, and slowly.
        return found
    largest = float(1 / log.arrays.propensities.min())
    for clip in CLIPS if largest > CLIPS[1] else CLIPS[:1]:
        told = f", clip {clip:g}" if largest > CLIPS[1] else ""
        found[f"ips{told}"] = IPSLearner(clip=clip)
        found[f"dr{told}"] = DRLearner(clip=clip)
    return found


@dataclass(kw_only=True, eq=False, repr=False)
class AutoLearner(Params):
    """Learn by whatever earns most on times that were held out, by a doubly robust estimate."""

    n_folds: int = 3  # blocks of time, each of which is held out once

    def fit(self, log: BanditLog, weights: npt.ArrayLike | None = None) -> Self:
        """Learn ``policy_`` and ``choice_``, round t counting ``weights[t]`` times."""
        require_choices(log)
        counts = checked_weights(log, weights)
        self.learner_, self.choice_ = choose_objective(log, counts[:, None], n_folds=self.n_folds)
        self.policy_ = self.learner_.fit(log, counts).policy_
        return self


def choose_objective(
    log: BanditLog, membership: Floats, *, n_folds: int = 3, candidates: dict[str, Learner] | None = None
) -> tuple[Learner, Choice]:
    """The plainest candidate whose policies, one for each column of ``membership`` (n, L), earn most on held-out time.

    That is: not less than the best by more than the standard error of the difference.

    Of a candidate's policies π_z learned without a block, a round of the block says

    y_t = Σ_z u_t(z) [Σ_a π_z(a | x_t) r̂_z(x_t, a) + min{M, π_z(a_t | x_t) / p_t} (r_t - r̂_z(x_t, a_t))]

    with r̂_z from outside the block, too.
    """
    require_count("n_folds", n_folds)
    require(n_folds >= 2, "objectives are compared on held-out time: n_folds must be at least 2.")
    require_propensities(log, "choosing an objective (DMLearner does without)")
    with stage("Choosing the objective") as judging:
        trial = _Trial(log, membership, n_folds, judging)
        trial.hold(sensible_candidates(log) if candidates is None else candidates)
        if candidates is None:
            chosen = trial.choice.chosen
            trial.hold(variants(chosen, trial.learners[chosen], log))
    choice = trial.choice
    trial.say_what_is_lost(choice.candidates[0])
    return copy(trial.learners[choice.chosen]), choice


def variants(name: str, learner: Learner, log: BanditLog) -> dict[str, Learner]:
    """The same objective with more and less pull, and as soft as it was found."""
    if not isinstance(learner, SoftmaxLearner):
        return {}
    to_zero = isinstance(learner, CrossEntropyLearner) or float(log.arrays.rewards.min()) < 0
    found: dict[str, Learner] = {
        f"{name}, pull {pull:g}": replace(learner, pull=pull) for pull in (PULLS_TO_ZERO if to_zero else PULLS)
    }
    return found | {f"{name}, as soft as found": replace(learner, steepness=1.0)}


class _Trial:
    """Candidates on the same held-out blocks."""

    def __init__(self, log: BanditLog, membership: Floats, n_folds: int, judging: Stage) -> None:
        self.judging = judging
        self.log, self.membership, self.clusters = log, membership, Clusters(log)
        self.folds = folds_of(log, membership.sum(axis=1), n_folds)
        self.learners: dict[str, Learner] = {}
        self.values: dict[str, Floats] = {}
        kind = kind_of(log, "auto")
        self.models = [fit_rewards(log, fold.without(membership), "auto", kind) for fold in self.folds]

    def hold(self, learners: dict[str, Learner]) -> None:
        """Judge some more candidates."""
        total = sum(map(_effort, [*self.learners.values(), *learners.values()])) * len(self.folds)
        for name, learner in learners.items():
            self.judging.expect(total, step=_effort(learner), told=name)
            values = np.zeros(len(self.log))
            for fold, models in zip(self.folds, self.models, strict=True):
                outside = np.ascontiguousarray(fold.without(self.membership).T)
                with warnings.catch_warnings():
                    # What is to be said of a learner is said when it learns from the whole log.
                    warnings.simplefilter("ignore", SeachangeWarning)
                    policies = policies_of(self.log, list(outside), learner)
                for z, (policy, model) in enumerate(zip(policies, models, strict=True)):
                    share = self.membership[fold.span, z] * fold.inside
                    values[fold.span] += share * _doubly_robust(self.log[fold.span], policy, model)
                self.judging.advance(_effort(learner))
            self.learners[name], self.values[name] = learner, values

    @property
    def choice(self) -> Choice:
        """The candidates so far, and which of them to take."""
        total, best = self.membership.sum(), max(self.values.values(), key=np.sum)
        judged = []
        for name, values in self.values.items():
            gaps = self.clusters.sums(best - values)
            error = float(np.sqrt(len(gaps)) * gaps.std() / total)
            judged.append(Candidate(name, float(values.sum() / total), float(gaps.sum() / total), error))
        chosen = next(each.name for each in judged if each.behind <= each.behind_error)
        return Choice(chosen, tuple(sorted(judged, key=lambda each: each.behind)), len(self.folds))

    def say_what_is_lost(self, best: Candidate) -> None:
        """Warn where even the best candidate is seen to earn less than the log did."""
        total = self.membership.sum()
        earned = self.membership.sum(axis=1) * self.log.arrays.rewards
        losses = self.clusters.sums(earned - self.values[best.name])
        if len(losses) < 2:
            return
        loss, error = float(losses.sum() / total), float(np.sqrt(len(losses)) * losses.std(ddof=1) / total)
        if loss > stdtrit(len(losses) - 1, SEEN_AT) * error > 0:
            warnings.warn(
                f"what is learned here earns less than the log did: {best.value:.4g} a round on held-out time, by the "
                f"best of the objectives, and {earned.sum() / total:.4g} logged ({loss:.2g} ± {error:.2g} less). "
                "Perhaps whoever chose the actions knew more than this log tells; go on as before, or log what they "
                "knew.",
                SeachangeWarning,
                stacklevel=4,
            )


def _effort(learner: Learner) -> float:
    """About how long it learns, against a direct method; only what is said of the time left depends on it."""
    if isinstance(learner, DMLearner | CrossEntropyLearner):
        return 1.0
    return 5.0 if isinstance(learner, DRLearner) else 2.0


def _doubly_robust(log: BanditLog, policy: Policy, model: RewardModel) -> Floats:
    """(n,) what each round says of ``policy``."""
    probs, everyone = policy.predict_proba(log.contexts, log.action_mask), np.arange(len(log))
    predicted = np.broadcast_to(model.predict(log), probs.shape)
    ratios = np.minimum(probs[everyone, log.arrays.actions] / log.arrays.propensities, MOST_WEIGHT)
    residuals = log.arrays.rewards - predicted[everyone, log.arrays.actions]
    return np.asarray(np.einsum("ta,ta->t", probs, predicted) + ratios * residuals)
