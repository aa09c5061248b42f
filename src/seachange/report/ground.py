"""On which rounds a model may be judged: none that it learned from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from seachange.errors import RefusedError, SeachangeError
from seachange.evaluation.support import Judged
from seachange.learning import learn
from seachange.log.bandit_log import BanditLog
from seachange.model import SwitchingModel
from seachange.policies.per_state import PolicySet, policies_of
from seachange.policies.rewards import folds_of
from seachange.protocols import Policy
from seachange.provenance import seconds_of
from seachange.states.hmm import HMMOracle
from seachange.states.labels import KnownStates, StateLabels, labels_from_states

# Where a model has learned from the whole log: the part that one like it learns from, to be judged on the rest.
LEARNED_SHARE = 0.6
# Blocks of time; a policy without states is learned from all but one of them, and judged on that one.
BLOCKS = 3

# Why nothing is judged on what it learned from, for whoever reports and whoever evaluates.
LOOKS_BETTER = "a policy looks better than it is on rounds that it learned from"

GroundKind = Literal["unseen", "rest", "held out"]


@dataclass(frozen=True)
class SinglePolicy:
    """A policy that never switches."""

    name: str
    policy: Judged
    labels: StateLabels | None = None  # which block of time a round is in, where each has a policy of its own


@dataclass(frozen=True, eq=False)
class Ground:
    """What is judged, and on what."""

    kind: GroundKind  # all rounds are new to the model; those after its own; or a model like it, on what it did not see
    model: SwitchingModel
    log: BanditLog
    labels: StateLabels  # known ahead of each reward, where an oracle can say that
    first_round: int  # of the log that was given
    singles: tuple[SinglePolicy, ...]

    @property
    def switches(self) -> bool:
        """Whether there is more than one state."""
        return self.model.n_states > 1

    @property
    def told_states(self) -> bool:
        """Whether values by these labels are of a policy that is told the states, which no deployment is."""
        return self.switches and self.labels.from_rewards


def ground_of(log: BanditLog, model: SwitchingModel) -> Ground:
    """What of ``log`` is new to ``model``; where nothing is, the last rounds and a model learned alike from the first.

    Raises ``RefusedError`` where neither can be had.
    """
    if not isinstance(model.oracle, KnownStates):
        model.label_ahead(log[:1])  # raises where the model is of other actions or contexts
    seen = rounds_seen(log, model)
    if seen == 0:
        return Ground("unseen", model, log, model.label_ahead(log), 0, _alone(model, log))
    if seen < len(log):
        later, labels = log[seen:], _from_round(model.label_ahead(log), log, seen)
        return Ground("rest", model, later, labels, seen, _alone(model, later))
    try:
        return _held_out(log, model, round(LEARNED_SHARE * len(log)))
    except SeachangeError as error:
        raise RefusedError(
            "the model was learned from these very rounds, and none like it can be learned from the first "
            f"{LEARNED_SHARE:.0%} of them to be judged on the rest ({error}). A later log would cure it."
        ) from error


def _held_out(log: BanditLog, model: SwitchingModel, cut: int) -> Ground:
    """A model learned alike from the rounds before ``cut``, to be judged on those after it."""
    known, later = log[:cut], log[cut:]
    alike = _learned_alike(known, model)
    labels = _from_round(_labels(alike, log, model), log, cut)
    singles: tuple[SinglePolicy, ...] = ()
    if alike.n_states > 1:
        pooled = learn(known, oracle="none", objective=model.learner).policies[0]
        singles = (SinglePolicy("one policy, learned without states", pooled), *_each_alone(alike))
    return Ground("held out", alike, later, labels, cut, singles)


def rounds_seen(log: BanditLog, model: SwitchingModel) -> int:
    """How many rounds, from the first on, the model may have learned from."""
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


def _alone(model: SwitchingModel, log: BanditLog) -> tuple[SinglePolicy, ...]:
    """Each state's policy used alone, and where it can be learned, one without states."""
    if model.n_states == 1:
        return ()
    try:
        return (_learned_elsewhere(log, model), *_each_alone(model))
    except SeachangeError:
        return _each_alone(model)


def _each_alone(model: SwitchingModel) -> tuple[SinglePolicy, ...]:
    return tuple(SinglePolicy(f"the policy of state {z}, always", policy) for z, policy in enumerate(model.policies))


def _learned_elsewhere(log: BanditLog, model: SwitchingModel) -> SinglePolicy:
    """A policy without states for each block of time, learned from the other blocks as the model was."""
    everything = np.ones(len(log))
    blocks, block_of = folds_of(log, everything, BLOCKS), np.zeros(len(log), dtype=np.int64)
    policies: list[Policy] = []
    for i, block in enumerate(blocks):
        block_of[block.span][block.inside] = i
        policies += policies_of(log, [block.without(everything)], model.learner)
    labels = labels_from_states(block_of, len(blocks), log)
    return SinglePolicy("one policy, learned without states", PolicySet(tuple(policies)), labels)


def _learned_alike(known: BanditLog, model: SwitchingModel) -> SwitchingModel:
    """A model with the settings of ``model``, its states numbered alike where an HMM can."""
    oracle = model.oracle
    if isinstance(oracle, KnownStates):
        return learn(known, KnownStates(model.labels.states[: len(known)]), objective=model.learner)
    fresh = oracle.clone()  # type: ignore[attr-defined]
    if isinstance(oracle, HMMOracle):
        fresh.set_params(n_states=model.n_states, align_to=oracle)
    return learn(known, fresh, objective=model.learner)


def _labels(alike: SwitchingModel, log: BanditLog, model: SwitchingModel) -> StateLabels:
    """The labels of the whole log; states that are known are known of all of it."""
    return model.labels if isinstance(model.oracle, KnownStates) else alike.label_ahead(log)


def _from_round(labels: StateLabels, log: BanditLog, first: int) -> StateLabels:
    """The labels of the rounds from ``first`` on."""
    probs = None if labels.state_probs is None else labels.state_probs[first:]
    part = labels_from_states(labels.states[first:], labels.n_states, log[first:], probs)
    return replace(part, from_rewards=labels.from_rewards)
