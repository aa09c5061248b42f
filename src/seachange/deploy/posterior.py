"""HMM posterior sampling: act for the state the last rewards speak for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seachange.deploy.belief import BeliefDeployer, as_policy_set
from seachange.deploy.decision import Decision, Trace
from seachange.kernels.adaptive import Acceptance, Followed, LoggedRounds, follow_posterior
from seachange.kernels.emission import reward_evidence, state_scores
from seachange.kernels.rollout import run_posterior
from seachange.params import require
from seachange.policies.per_state import PolicySet
from seachange.protocols import Bools, Floats
from seachange.states.switching import SwitchingRegression


@dataclass(frozen=True, eq=False)
class PosteriorSampling(BeliefDeployer):
    """Actions by Σ_z Q_t(z) π_z(a); Q_t+1(z) ∝ Σ_z' Q_t(z') p(r_t | x_t, a_t, z') Φ(z', z), from Q_1 = P_0."""

    policies: PolicySet
    hmm: SwitchingRegression
    exploration: float = 0.0  # γ: least probability of all actions together
    memory: int = 1000  # rounds within which a late reward can count at its own round

    def __post_init__(self) -> None:
        object.__setattr__(self, "policies", as_policy_set(self.policies))
        require(
            len(self.policies) == self.hmm.n_states,
            f"there must be a policy for each of the HMM's {self.hmm.n_states} states; there are {len(self.policies)}.",
        )
        self._check_settings()
        for policy in self.policies:
            joint = getattr(policy, "joint", self.hmm.joint)
            require(
                joint == self.hmm.joint, f"policies and HMM must be of one log; they are of {joint}, {self.hmm.joint}."
            )

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
        self._require_clicks(np.array([reward]))
        evidence = np.empty(len(decision.by_state))
        reward_evidence(decision.by_state, reward, self.hmm.noise_variances, evidence)
        return evidence

    def _require_clicks(self, rewards: Floats) -> None:
        if self.hmm.rewards == "bernoulli":
            strange = rewards[(rewards < 0) | (rewards > 1)]
            require(len(strange) == 0, f"the HMM is of clicks: rewards must be in [0, 1]; got {strange[:1]}.")

    def _run(self, belief: Floats, contexts: Floats, advice: Floats, mask: Bools, uniforms: Floats,
             mean_rewards: Floats, rewards: Floats, trace: Trace) -> None:  # fmt: skip
        self._require_clicks(rewards)
        run_posterior(
            belief, advice, mask, uniforms, mean_rewards, rewards, self.exploration, self.hmm.joint.rows(contexts),
            self.hmm.reward_coefs, self.hmm.noise_variances, self.transition, trace.state_probs, trace.actions,
            trace.propensities, trace.expected_rewards,
        )  # fmt: skip

    def follow(self, belief: Floats, contexts: Floats, past: LoggedRounds, acceptance: Acceptance,
               found: Followed) -> None:  # fmt: skip
        """Live through a chunk of a log."""
        self._require_clicks(past.rewards)
        follow_posterior(
            belief, self.initial_belief, past, acceptance, found, self.exploration, self.hmm.joint.rows(contexts),
            self.hmm.reward_coefs, self.hmm.noise_variances, self.transition,
        )  # fmt: skip
