"""One policy per latent state."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from seachange.engine import stage
from seachange.errors import warn
from seachange.log.bandit_log import BanditLog
from seachange.log.joint_features import JointFeatures
from seachange.params import require
from seachange.policies.learners import DMLearner, SoftmaxLearner
from seachange.policies.reward_models import RewardModel
from seachange.policies.softmax import SoftmaxPolicy, advice_of
from seachange.protocols import Floats, Policy, PolicyLearner
from seachange.states.labels import StateLabels


@dataclass(frozen=True, eq=False, repr=False)
class PolicySet:
    """Π = (π_z): one policy for each state."""

    policies: Sequence[Policy]
    expected_stay: float | None = None  # mean length of a segment in the log they were learned from

    def __len__(self) -> int:
        return len(self.policies)

    def __repr__(self) -> str:
        kinds = ", ".join(sorted({type(policy).__name__ for policy in self}))
        return f"PolicySet({len(self)} policies ({kinds}), expected_stay={self.expected_stay})"

    def __getitem__(self, state: int) -> Policy:
        return self.policies[state]

    def __iter__(self) -> Iterator[Policy]:
        return iter(self.policies)

    @cached_property
    def _linear(self) -> tuple[Floats, JointFeatures] | None:
        """The (L, B, D) coefficients of all policies and their features, if all are softmax policies of the same."""
        linear = [policy for policy in self.policies if isinstance(policy, SoftmaxPolicy)]
        if len(linear) < len(self) or any(policy.joint != linear[0].joint for policy in linear):
            return None
        return np.stack([policy.coefs for policy in linear]), linear[0].joint

    def advice(self, contexts: npt.ArrayLike, action_mask: npt.ArrayLike | None = None) -> Floats:
        """(n, L, K): every state's distribution over actions."""
        if self._linear is not None:
            return advice_of(*self._linear, contexts, action_mask)
        return np.stack([policy.predict_proba(contexts, action_mask) for policy in self.policies], axis=1)


def learn_per_state(
    log: BanditLog,
    labels: StateLabels,
    learner: PolicyLearner,
    *,
    soft: bool = False,
    reward_models: Sequence[RewardModel] | None = None,
) -> PolicySet:
    """π̂_z = argmax_π Σ_t u_t(z) V̂_t(π) for every state z.

    u_t(z) is 1 if round t has label z, else 0; with ``soft`` it is the label's probability of z. Built-in learners
    shrink the policy of a state toward that of the whole log, more so for states with few rounds; a state without
    rounds gets the policy of the whole log. ``reward_models``, one per state, come from an HMM and spare a
    ``DMLearner`` its own fits.
    """
    count = len(labels.states)
    require(count == len(log), f"labels must have one entry per round; got {count} for {len(log)} rounds.")
    if isinstance(learner, DMLearner) and reward_models is not None:
        policies = tuple(copy(learner).use_model(model, log).policy_ for model in reward_models)
        return PolicySet(policies, labels.expected_stay)
    memberships = list(labels.weights(soft))
    if empty := [state for state, weights in enumerate(memberships) if not weights.sum() > 0]:
        states = f"state {empty[0]} has" if len(empty) == 1 else f"{len(empty)} states have"
        warn(f"{states} no rounds and will use the policy of the whole log. Use fewer states.")
    return PolicySet(policies_of(log, memberships, learner), labels.expected_stay)


def policies_of(log: BanditLog, memberships: Sequence[Floats], learner: PolicyLearner) -> tuple[Policy, ...]:
    """π̂_z for each (n,) array of ``memberships``; one without rounds gets the policy of all rounds."""
    empty = [not weights.sum() > 0 for weights in memberships]
    pools = isinstance(learner, DMLearner | SoftmaxLearner) and len(memberships) > 1
    policies: list[Policy] = []
    with stage("Learning the policies", len(memberships) + 1) as learning:
        pooled = copy(learner).fit(log, np.sum(memberships, axis=0)) if pools or any(empty) else None
        toward = (pooled,) if pools else ()
        for is_empty, weights in zip(empty, memberships, strict=True):
            learning.advance()
            learned = pooled if is_empty else copy(learner).fit(log, weights, *toward)
            policies.append(learned.policy_)  # type: ignore[union-attr]
    return tuple(policies)
