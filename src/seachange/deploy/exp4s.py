"""Exp4.S: exponential weights over experts, with a share for experts that fell behind."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from seachange.deploy.belief_deployer import MEMORY, BeliefDeployer
from seachange.deploy.decision import Decision
from seachange.errors import ParameterError
from seachange.kernels.belief_updates import exp4s_evidence, logged_exp4s_evidence, run_exp4s
from seachange.kernels.replay_steps import follow_exp4s
from seachange.log.bandit_log import BanditLog
from seachange.params import Auto, require
from seachange.policies.per_state import PolicySet
from seachange.protocols import Floats
from seachange.registry import DEPLOYERS

if TYPE_CHECKING:
    from seachange.model import SwitchingModel


@DEPLOYERS.register("exp4s")
@dataclass(frozen=True, eq=False, repr=False)
class Exp4S(BeliefDeployer):
    """w̃(z) ∝ w(z) exp(-η c̃(z)), then w'(z) = (1 - β) w̃(z) + β / L; actions by (1 - γ) Σ_z w(z) π_z(a) + γ / K.

    c̃(z) = π_z(a_t) (1 - r_t) / 𝓔_t(a_t), with rewards scaled to [0, 1] by ``reward_range``. With segments of length ℓ,
    β = 1 / ℓ and η = √((log(L ℓ) + 2) / (K ℓ)) bound the regret of a segment by 2 √(K ℓ (log(L ℓ) + 2)).

    If the mean m of rewards is known, they are compared with b = min(m + s, 1) instead of 1, with s² = m (1 - m) the
    largest possible variance: c̃(z) = π_z(a_t) (b - r_t) / 𝓔_t(a_t). That keeps the differences between experts and
    removes most of the noise if rewards are rare; η is divided by √v, v = s² + (b - m)², the remaining noise. The bound
    above is that of b = 1; with b < 1, bounds need exploration.
    """

    policies: PolicySet
    expected_stay: float | Auto = "auto"  # ℓ: mean length of a segment; auto: as in the log
    reward_range: tuple[float, float] = (0.0, 1.0)  # rewards outside it are allowed but void the guarantee
    mixing: Literal["corrected", "paper"] = "corrected"  # "paper": β = 1 / L, as printed
    learning_rate: float | Auto = "auto"  # η: higher reacts faster to recent rewards
    exploration: float = 0.0  # γ: share of random choices
    memory: int = MEMORY  # rounds within which a late reward still counts
    mean_reward: float | None = None  # m, e.g. of the log; None: rewards are compared with 1, as printed
    kernels: ClassVar[tuple[Any, Any]] = (run_exp4s, follow_exp4s)

    @classmethod
    def suits(cls, model: "SwitchingModel") -> bool:
        """Any model."""
        return True

    @classmethod
    def from_model(cls, model: "SwitchingModel", *, exploration: float, memory: int) -> Self:
        """The deployer with the reward range and mean reward of the model's log."""
        low_high, mean = model.provenance.reward_range, model.provenance.mean_reward
        return cls(model.policies, reward_range=low_high, mean_reward=mean, exploration=exploration, memory=memory)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.mixing in ("corrected", "paper"), f'mixing must be "corrected" or "paper"; got {self.mixing!r}.')
        (low, high), mean = self.reward_range, self.mean_reward
        require(high > low, f"reward_range must be (least, most); got {self.reward_range}.")
        inside = mean is None or low <= mean <= high
        require(inside, f"mean_reward must be within reward_range {self.reward_range}; got {mean}.")
        require(1 <= self.stay < math.inf, f"expected_stay must be at least 1 round, and finite; got {self.stay}.")
        rate = self.learning_rate
        require(rate == "auto" or 0 < rate < math.inf, f"learning_rate must be positive and finite; got {rate}.")

    @property
    def stay(self) -> float:
        """ℓ."""
        stay = self.policies.expected_stay if self.expected_stay == "auto" else self.expected_stay
        if stay is None:
            raise ParameterError('expected_stay="auto" needs policies from learn_per_state; give a number of rounds.')
        return stay

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
        """b and v, for rewards scaled to [0, 1]."""
        (low, high), given = self.reward_range, self.mean_reward
        mean = 1.0 if given is None or self.mixing == "paper" else (given - low) / (high - low)
        variance = mean * (1 - mean)
        if variance == 0:  # rewards that never varied do not tell how much they can
            return 1.0, 1.0
        good = min(mean + math.sqrt(variance), 1.0)
        return good, variance + (good - mean) ** 2

    @property
    def baseline(self) -> float:
        """b, for rewards scaled to [0, 1]."""
        return self._good[0]

    @property
    def _scale(self) -> tuple[float, float]:
        """Offset and span of rewards: the cost of a reward is 1 - (reward - offset) / span."""
        low, high = self.reward_range
        return low - (1 - self.baseline) * (high - low), high - low

    def _evidence(self, decision: Decision, reward: float) -> Floats:
        (low, span), evidence = self._scale, np.empty(len(decision.by_state))
        cost = 1.0 - (reward - low) / span
        exp4s_evidence(decision.by_state, decision.propensity, cost, self.rate(len(decision.probs)), evidence)
        return evidence

    def _logged_evidence(self, log: BanditLog) -> Floats:
        advice, evidences = self.logged_advice(log), np.ones((len(log), len(self.policies)))
        logged = log.arrays.actions, log.propensities, log.arrays.rewards
        logged_exp4s_evidence(advice, *logged, self.rate(log.n_actions), *self._scale, evidences)
        return evidences

    def _settings(self, contexts: Floats, rewards: Floats, n_actions: int) -> tuple[Any, ...]:
        return self.rate(n_actions), *self._scale
