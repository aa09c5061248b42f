"""The rounds a model may be evaluated on: none that it was learned from."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from seachange.errors import SeachangeError, SeachangeWarning
from seachange.evaluation.diagnostics import NoEstimateError, Reason
from seachange.evaluation.support import PolicyLike
from seachange.learning import learn
from seachange.log.bandit_log import BanditLog
from seachange.model import SwitchingModel
from seachange.model_file import seconds_of
from seachange.policies.per_state import PolicySet, policies_of
from seachange.policies.reward_models import folds_of
from seachange.protocols import Policy
from seachange.states.hmm import HMMOracle
from seachange.states.labels import KnownStates, StateLabels, labels_from_states

# If a model was learned from the whole log, a similar one is learned from this share and evaluated on the rest.
TRAINING_SHARE = 0.6
# Blocks of time; a policy without states is learned from all but one of them and evaluated on that one.
BLOCKS = 3
# Why nothing is evaluated on its own training data.
IN_SAMPLE_BIAS = "policies look better than they are on the rounds they were learned from"

HoldoutKind = Literal["unseen", "rest", "held out"]


@dataclass(frozen=True)
class Baseline:
    """A policy that never switches."""

    name: str
    policy: PolicyLike
    labels: StateLabels | None = None  # the block of time of each round, if each block has its own policy
    pooled: bool = False  # learned without states


@dataclass(frozen=True, eq=False)
class Holdout:
    """A model and rounds that it was not learned from."""

    kind: HoldoutKind  # a new log; the rounds after its own; or a similar model, on rounds that it has not seen
    model: SwitchingModel
    log: BanditLog
    labels: StateLabels  # known before each reward, if the oracle allows it
    first_round: int  # in the original log
    baselines: tuple[Baseline, ...]

    @property
    def switches(self) -> bool:
        """Whether there is more than one state."""
        return self.model.n_states > 1

    @property
    def hindsight(self) -> bool:
        """Whether the labels use rewards that a deployment would not have yet."""
        return self.switches and self.labels.from_rewards


def holdout_of(log: BanditLog, model: SwitchingModel) -> Holdout:
    """The rounds of ``log`` that are new to ``model``, or else the last rounds, with a model learned from the rest.

    Raises ``RefusedError`` if neither is possible.
    """
    if not isinstance(model.oracle, KnownStates):
        model.require_own_features(log)
    seen = rounds_seen(log, model)
    if seen == 0:
        return Holdout("unseen", model, log, _labels_ahead(model, log), 0, _baselines(model, log))
    if seen < len(log):
        later, labels = log[seen:], _from_round(_labels_ahead(model, log), log, seen)
        return Holdout("rest", model, later, labels, seen, _baselines(model, later))
    try:
        return _relearned(log, model, round(TRAINING_SHARE * len(log)))
    except SeachangeError as error:
        problem = (
            "The model was learned from these rounds, and a similar model cannot be learned from the first "
            f"{TRAINING_SHARE:.0%} of them: {str(error).rstrip('.')}."
        )
        raise NoEstimateError((Reason("holdout", problem, ("use a later log",)),), can_force=False) from error


def _relearned(log: BanditLog, model: SwitchingModel, cut: int) -> Holdout:
    """A model learned in the same way from the rounds before ``cut``, to be evaluated on those after it."""
    training, later = log[:cut], log[cut:]
    similar = _learn_similar(training, model)
    labels = model.labels if isinstance(model.oracle, KnownStates) else _labels_ahead(similar, log)
    baselines: tuple[Baseline, ...] = ()
    if similar.n_states > 1:
        pooled = learn(training, oracle="none", objective=model.learner).policies[0]
        baselines = (Baseline("one policy, learned without states", pooled, pooled=True), *_state_policies(similar))
    return Holdout("held out", similar, later, _from_round(labels, log, cut), cut, baselines)


def rounds_seen(log: BanditLog, model: SwitchingModel) -> int:
    """How many rounds, counted from the first, the model may have been learned from."""
    provenance, n = model.provenance, model.provenance.n_rounds
    if len(log) > n and log[:n].fingerprint() == provenance.fingerprint:
        return n
    if provenance.overlap(log) is None:
        return 0
    span = provenance.seconds
    if log.times is None or span is None or log.fingerprint() == provenance.fingerprint:
        return len(log)
    earlier = np.flatnonzero(seconds_of(log.times) <= span[1])
    return int(earlier[-1]) + 1 if len(earlier) else len(log)


def _baselines(model: SwitchingModel, log: BanditLog) -> tuple[Baseline, ...]:
    """Each state's policy used in every round and, if it can be learned, one policy without states."""
    if model.n_states == 1:
        return ()
    try:
        return (_cross_learned(log, model), *_state_policies(model))
    except SeachangeError:
        return _state_policies(model)


def _state_policies(model: SwitchingModel) -> tuple[Baseline, ...]:
    return tuple(Baseline(f"the policy of state {z} in every round", each) for z, each in enumerate(model.policies))


def _cross_learned(log: BanditLog, model: SwitchingModel) -> Baseline:
    """A policy without states for each block of time, learned from the other blocks in the way of the model."""
    everything = np.ones(len(log))
    blocks, block_of = folds_of(log, everything, BLOCKS), np.zeros(len(log), dtype=np.int64)
    policies: list[Policy] = []
    for i, block in enumerate(blocks):
        block_of[block.span][block.inside] = i
        policies += policies_of(log, [block.without(everything)], model.learner)
    labels = labels_from_states(block_of, len(blocks), log)
    return Baseline("one policy, learned without states", PolicySet(tuple(policies)), labels, pooled=True)


def _learn_similar(training: BanditLog, model: SwitchingModel) -> SwitchingModel:
    """A model with the settings of ``model``, and with the same numbering of states if an HMM found them."""
    oracle = model.oracle
    if isinstance(oracle, KnownStates):
        return learn(training, KnownStates(model.labels.states[: len(training)]), objective=model.learner)
    fresh = oracle.clone()  # type: ignore[attr-defined]
    if isinstance(oracle, HMMOracle):
        fresh.set_params(n_states=model.n_states, align_to=oracle)
    return learn(training, fresh, objective=model.learner)


def _labels_ahead(model: SwitchingModel, log: BanditLog) -> StateLabels:
    """``model.label_ahead`` without its last warning, on labels that use rewards: the deployment is replayed then."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SeachangeWarning)
        labels = model.label_ahead(log)
    for each in caught[:-1] if labels.from_rewards and model.n_states > 1 else caught:
        warnings.warn(each.message, stacklevel=2)
    return labels


def _from_round(labels: StateLabels, log: BanditLog, first: int) -> StateLabels:
    """The labels of the rounds from ``first`` on."""
    probs = None if labels.state_probs is None else labels.state_probs[first:]
    part = labels_from_states(labels.states[first:], labels.n_states, log[first:], probs)
    return replace(part, from_rewards=labels.from_rewards)
