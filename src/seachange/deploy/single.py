"""One policy, whatever the world does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seachange.deploy.belief import BeliefDeployer
from seachange.deploy.decision import Decision, Trace
from seachange.kernels.adaptive import Acceptance, Followed, LoggedRounds, follow_fixed
from seachange.kernels.rollout import run_fixed
from seachange.policies.per_state import PolicySet
from seachange.protocols import Bools, Floats, Policy


@dataclass(frozen=True, eq=False)
class SinglePolicy(BeliefDeployer):
    """Deploy ``policy`` as it is; rewards change nothing."""

    policy: Policy
    exploration: float = 0.0  # γ: least probability of all actions together
    memory: int = 1000  # rounds within which a late reward is accepted

    def __post_init__(self) -> None:
        self._check_settings()

    @property
    def policies(self) -> PolicySet:  # type: ignore[override]
        """The policy as a set of one."""
        return PolicySet((self.policy,))

    @property
    def transition(self) -> Floats:
        """One state, never left."""
        return np.ones((1, 1))

    @property
    def initial_belief(self) -> Floats:
        """Certainty."""
        return np.ones(1)

    def _by_state(self, contexts: Floats, advice: Floats, action: int) -> Floats:
        return np.ascontiguousarray(advice[:, action])

    def _evidence(self, decision: Decision, reward: float) -> Floats:
        return np.ones(1)

    def _run(self, belief: Floats, contexts: Floats, advice: Floats, mask: Bools, uniforms: Floats,
             mean_rewards: Floats, rewards: Floats, trace: Trace) -> None:  # fmt: skip
        run_fixed(
            belief, advice, mask, uniforms, mean_rewards, self.exploration, trace.actions, trace.propensities,
            trace.expected_rewards,
        )  # fmt: skip
        trace.state_probs[:] = 1.0

    def follow(self, belief: Floats, contexts: Floats, past: LoggedRounds, acceptance: Acceptance,
               found: Followed) -> None:  # fmt: skip
        """Live through a chunk of a log."""
        follow_fixed(belief, self.initial_belief, past, acceptance, found, self.exploration)
