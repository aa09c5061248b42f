"""Exp4.S: experts weighed by what they would have earned, with a share kept for those that fell behind."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from seachange.deploy.belief import BeliefDeployer, as_policy_set
from seachange.deploy.decision import Decision, Trace
from seachange.errors import ParameterError
from seachange.kernels.adaptive import Acceptance, Followed, LoggedRounds, follow_exp4s
from seachange.kernels.belief import exp4s_evidence
from seachange.kernels.rollout import run_exp4s
from seachange.params import Auto, require
from seachange.policies.per_state import PolicySet
from seachange.protocols import Bools, Floats


@dataclass(frozen=True, eq=False)
class Exp4S(BeliefDeployer):
    """w̃(z) ∝ w(z) exp(-η c̃(z)), then w'(z) = (1 - β) w̃(z) + β / L; actions by (1 - γ) Σ_z w(z) π_z(a) + γ / K.

    c̃(z) = π_z(a_t) (1 - r_t) / 𝓔_t(a_t), with rewards brought to [0, 1] by ``reward_range``. With segments of length ℓ,
    β = 1 / ℓ and η = √((log(L ℓ) + 2) / (K ℓ)) bound the regret of a segment by 2 √(K ℓ (log(L ℓ) + 2)).

    Where the mean m of rewards is known, they are held against b = min(m + s, 1) instead of 1, with s² = m (1 - m), the
    most that they can vary: c̃(z) = π_z(a_t) (b - r_t) / 𝓔_t(a_t). That leaves the experts' differences as they are and
    takes most of the noise away where rewards are rare; η is divided by √v, v = s² + (b - m)², which is what is left.
    The bound is that of b = 1.
    """

    policies: PolicySet
    expected_stay: float | Auto = "auto"  # ℓ: how long the world stays as it is; auto: as the log's segments did
    reward_range: tuple[float, float] = (0.0, 1.0)  # rewards outside it are allowed, but cost the guarantee
    mixing: Literal["corrected", "paper"] = "corrected"  # "paper": β = 1 / L, as printed
    learning_rate: float | Auto = "auto"  # η: higher trusts the last rewards more
    exploration: float = 0.0  # γ: least probability of all actions together
    memory: int = 1000  # rounds within which a late reward can count at its own round
    mean_reward: float | None = None  # m, such as the log's; None: rewards are held against 1, as printed

    def __post_init__(self) -> None:
        object.__setattr__(self, "policies", as_policy_set(self.policies))
        require(self.mixing in ("corrected", "paper"), f'mixing must be "corrected" or "paper"; got {self.mixing!r}.')
        require(self.reward_range[1] > self.reward_range[0], f"reward_range must rise; got {self.reward_range}.")
        low, high = self.reward_range
        require(
            self.mean_reward is None or low <= self.mean_reward <= high,
            f"mean_reward must be within reward_range {self.reward_range}; got {self.mean_reward}.",
        )
        self._check_settings()
        require(1 <= self.stay < math.inf, f"expected_stay must be at least 1 round, and finite; got {self.stay}.")
        given = self.learning_rate
        require(given == "auto" or 0 < given < math.inf, f"learning_rate must be positive and finite; got {given}.")

    @property
    def stay(self) -> float:
        """ℓ."""
        if self.expected_stay != "auto":
            return self.expected_stay
        if self.policies.expected_stay is None:
            raise ParameterError(
                'these policies do not know the log\'s segments; give expected_stay instead of "auto".'
            )
        return self.policies.expected_stay

    @property
    def share_rate(self) -> float:
        """β."""
        return 1 / len(self.policies) if self.mixing == "paper" else 1 / self.stay

    @cached_property
    def transition(self) -> Floats:
        """(1 - β) I + β / L."""
        n_states = len(self.policies)
        return (1 - self.share_rate) * np.eye(n_states) + self.share_rate / n_states

    @cached_property
    def initial_belief(self) -> Floats:
        """w_1 = 1 / L."""
        return np.full(len(self.policies), 1 / len(self.policies))

    def rate(self, n_actions: int) -> float:
        """η."""
        if self.learning_rate != "auto":
            return self.learning_rate
        n_states = len(self.policies)
        if self.mixing == "paper":
            return math.sqrt(math.log(n_states) / (self.stay * n_actions))
        return math.sqrt((math.log(n_states * self.stay) + 2) / (n_actions * self.stay * self._good[1]))

    @cached_property
    def _good(self) -> tuple[float, float]:
        """b and v, of rewards brought to [0, 1]."""
        low, high = self.reward_range
        if self.mean_reward is None or self.mixing == "paper":
            return 1.0, 1.0
        mean = (self.mean_reward - low) / (high - low)
        variance = mean * (1 - mean)
        if variance == 0:  # rewards that never differed say nothing of how much they might
            return 1.0, 1.0
        good = min(mean + math.sqrt(variance), 1.0)
        return good, variance + (good - mean) ** 2

    @property
    def _scale(self) -> tuple[float, float]:
        """What is taken from a reward, and by what the rest is divided, so that its cost is one less that."""
        low, high = self.reward_range
        return low - (1 - self._good[0]) * (high - low), high - low

    def _by_state(self, contexts: Floats, advice: Floats, action: int) -> Floats:
        return np.ascontiguousarray(advice[:, action])

    def _evidence(self, decision: Decision, reward: float) -> Floats:
        low, span = self._scale
        evidence = np.empty(len(decision.by_state))
        cost = 1.0 - (reward - low) / span
        exp4s_evidence(decision.by_state, decision.propensity, cost, self.rate(len(decision.probs)), evidence)
        return evidence

    def _run(self, belief: Floats, contexts: Floats, advice: Floats, mask: Bools, uniforms: Floats,
             mean_rewards: Floats, rewards: Floats, trace: Trace) -> None:  # fmt: skip
        low, span = self._scale
        run_exp4s(
            belief, advice, mask, uniforms, mean_rewards, rewards, self.exploration, self.rate(rewards.shape[1]),
            low, span, self.transition, trace.state_probs, trace.actions, trace.propensities,
            trace.expected_rewards,
        )  # fmt: skip

    def follow(self, belief: Floats, contexts: Floats, past: LoggedRounds, acceptance: Acceptance,
               found: Followed) -> None:  # fmt: skip
        """Live through a chunk of a log."""
        low, span = self._scale
        rate = self.rate(past.advice.shape[2])
        follow_exp4s(
            belief, self.initial_belief, past, acceptance, found, self.exploration, rate, low, span, self.transition
        )  # fmt: skip
