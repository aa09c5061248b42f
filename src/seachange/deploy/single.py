"""A deployment of one policy."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from seachange.deploy.belief_deployer import MEMORY, BeliefDeployer
from seachange.deploy.decision import Decision
from seachange.kernels.belief_updates import run_exp4s
from seachange.kernels.replay_steps import follow_exp4s
from seachange.log.bandit_log import BanditLog
from seachange.policies.per_state import PolicySet
from seachange.protocols import Floats, Policy
from seachange.registry import DEPLOYERS

if TYPE_CHECKING:
    from seachange.model import SwitchingModel


@DEPLOYERS.register("single")
@dataclass(frozen=True, eq=False, repr=False)
class SinglePolicy(BeliefDeployer):
    """Deploy ``policy`` unchanged, whatever the rewards."""

    policy: Policy
    exploration: float = 0.0  # γ: share of random choices
    memory: int = MEMORY  # rounds within which a late reward is accepted
    preference: ClassVar[int] = 1
    kernels: ClassVar[tuple[Any, Any]] = (run_exp4s, follow_exp4s)

    @classmethod
    def suits(cls, model: "SwitchingModel") -> bool:
        """Models of one state; with more, switching is the default."""
        return model.n_states == 1

    @classmethod
    def from_model(cls, model: "SwitchingModel", *, exploration: float, memory: int) -> Self:
        """The deployer of the model's single policy."""
        return cls(model.single, exploration=exploration, memory=memory)

    @cached_property
    def policies(self) -> PolicySet:  # type: ignore[override]
        """A set of one policy."""
        return PolicySet((self.policy,))

    @property
    def transition(self) -> Floats:
        """One state, never left."""
        return np.ones((1, 1))

    @property
    def initial_belief(self) -> Floats:
        """Certainty."""
        return np.ones(1)

    def _evidence(self, decision: Decision, reward: float) -> Floats:
        return np.ones(1)

    def _logged_evidence(self, log: BanditLog) -> Floats:
        return np.ones((len(log), 1))

    def _settings(self, contexts: Floats, rewards: Floats, n_actions: int) -> tuple[Any, ...]:
        return 0.0, 0.0, 1.0  # Exp4.S with one expert and no learning
