"""HMM posterior sampling: act for the state that best explains recent rewards."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from seachange.deploy.belief_deployer import MEMORY, BeliefDeployer
from seachange.deploy.decision import Decision
from seachange.errors import ParameterError
from seachange.kernels.belief_updates import logged_posterior_evidence, run_posterior
from seachange.kernels.emission import reward_evidence, state_scores
from seachange.kernels.replay_steps import follow_posterior
from seachange.log.bandit_log import BanditLog
from seachange.params import require
from seachange.policies.per_state import PolicySet
from seachange.protocols import Floats
from seachange.registry import DEPLOYERS
from seachange.states.switching_regression import SwitchingRegression, hmm_of

if TYPE_CHECKING:
    from seachange.model import SwitchingModel


@DEPLOYERS.register("posterior")
@dataclass(frozen=True, eq=False, repr=False)
class PosteriorSampling(BeliefDeployer):
    """Actions by Σ_z Q_t(z) π_z(a); Q_t+1(z) ∝ Σ_z' Q_t(z') p(r_t | x_t, a_t, z') Φ(z', z), from Q_1 = P_0."""

    policies: PolicySet
    hmm: SwitchingRegression
    exploration: float = 0.0  # γ: share of random choices
    memory: int = MEMORY  # rounds within which a late reward still counts
    preference: ClassVar[int] = 2
    kernels: ClassVar[tuple[Any, Any]] = (run_posterior, follow_posterior)

    @classmethod
    def suits(cls, model: "SwitchingModel") -> bool:
        """Models whose states an HMM found."""
        return hmm_of(model.oracle) is not None

    @classmethod
    def from_model(cls, model: "SwitchingModel", *, exploration: float, memory: int) -> Self:
        """The deployer with the HMM of the model."""
        if (hmm := hmm_of(model.oracle)) is None:
            raise ParameterError('kind="posterior" needs a model whose states an HMM found; use "exp4s".')
        return cls(model.policies, hmm, exploration=exploration, memory=memory)

    def __post_init__(self) -> None:
        super().__post_init__()
        count, n_states = len(self.policies), self.hmm.n_states
        require(count == n_states, f"the HMM has {n_states} states, but there are {count} policies.")
        for policy in self.policies:
            joint, own = getattr(policy, "joint", self.hmm.joint), self.hmm.joint
            require(joint == own, f"policies and HMM must be of the same log; got {joint} and {own}.")

    @property
    def transition(self) -> Floats:
        """Φ."""
        return self.hmm.transition_matrix

    @property
    def initial_belief(self) -> Floats:
        """Q_1 = P_0."""
        return self.hmm.initial_probs

    def _by_state(self, contexts: Floats, advice: Floats, action: int) -> Floats:
        scores = np.empty(len(advice))
        state_scores(self.hmm.joint.rows(contexts)[0], action, self.hmm.reward_coefs, scores)
        return scores

    def _evidence(self, decision: Decision, reward: float) -> Floats:
        require_clicks(self.hmm, np.array([reward]))
        evidence = np.empty(len(decision.by_state))
        reward_evidence(decision.by_state, reward, self.hmm.evidence_variances, evidence)
        return evidence

    def _logged_evidence(self, log: BanditLog) -> Floats:
        own, joint = self.hmm.joint, log.joint
        require(joint == own, f"the HMM was fitted with {own}; this log has {joint}.")
        require_clicks(self.hmm, log.arrays.rewards)
        model, evidences = (self.hmm.reward_coefs, self.hmm.evidence_variances), np.ones((len(log), self.hmm.n_states))
        logged_posterior_evidence(log.arrays.rows, log.arrays.actions, log.arrays.rewards, *model, evidences)
        return evidences

    def _settings(self, contexts: Floats, rewards: Floats, n_actions: int) -> tuple[Any, ...]:
        require_clicks(self.hmm, rewards)
        return self.hmm.joint.rows(contexts), self.hmm.reward_coefs, self.hmm.evidence_variances


def require_clicks(hmm: SwitchingRegression, rewards: Floats) -> None:
    """Raise unless ``rewards`` suit the HMM: if it models clicks, they are in [0, 1]."""
    if hmm.rewards == "bernoulli":
        outside = rewards[(rewards < 0) | (rewards > 1)]
        require(len(outside) == 0, f"the HMM models clicks: rewards must be in [0, 1]; got {outside[:1]}.")
