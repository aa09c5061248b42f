"""The paper's synthetic problem: a bandit without context whose mean rewards depend on a latent state."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from seachange.log.bandit_log import BanditLog
from seachange.params import require
from seachange.protocols import Floats, Ints
from seachange.simulate.rollout import Rounds


def paper_states(horizon: int = 100_000, n_states: int = 5, segment_length: int = 10_000) -> Ints:
    """1 2 … L L … 2 1, each for ``segment_length`` rounds, repeated until the horizon."""
    there_and_back = np.concatenate([np.arange(n_states), np.arange(n_states)[::-1]])
    return there_and_back[(np.arange(horizon) // segment_length) % len(there_and_back)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Synthetic:
    """r ~ N(μ(a, z_t), σ²) with μ(a, z) ~ Uniform(0, 1); π_0(a) ∝ exp(mean_z μ(a, z) + ε), ε ~ N(0, 0.1²).

    ``seed`` draws the world (μ and π_0); logs and deployments have their own seeds.
    """

    seed: int = 0
    n_actions: int = 5  # K
    n_states: int = 5  # L
    horizon: int = 100_000  # T
    segment_length: int = 10_000
    noise: float = 0.5  # σ
    logging_noise: float = 0.1  # standard deviation of ε
    states: npt.ArrayLike | None = None  # (T,) z_t; None: the paper's
    mean_rewards: npt.ArrayLike | None = None  # (L, K) μ(a, z); None: drawn

    def __post_init__(self) -> None:
        require(self.horizon >= 1 and self.n_actions >= 1 and self.n_states >= 1, "sizes must be at least 1.")
        states, sizes = self.state_sequence, (self.n_states, self.n_actions)
        for name, array, shape in (("states", states, (self.horizon,)), ("mean_rewards", self.state_means, sizes)):
            require(array.shape == shape, f"{name} must have shape {shape}; got {array.shape}.")
        require(states.min() >= 0 and states.max() < self.n_states, f"states must be from 0 to {self.n_states - 1}.")

    @cached_property
    def state_sequence(self) -> Ints:
        """(T,) z_t."""
        if self.states is None:
            return paper_states(self.horizon, self.n_states, self.segment_length)
        return np.asarray(self.states, dtype=np.int64)

    @cached_property
    def state_means(self) -> Floats:
        """(L, K) μ(a, z)."""
        if self.mean_rewards is None:
            return np.random.default_rng([self.seed, 0]).random((self.n_states, self.n_actions))
        return np.asarray(self.mean_rewards, dtype=np.float64)

    @cached_property
    def logging_policy(self) -> Floats:
        """(K,) π_0."""
        noise = np.random.default_rng([self.seed, 1]).normal(0, self.logging_noise, self.n_actions)
        weights = np.exp(self.state_means.mean(axis=0) + noise)
        return np.asarray(weights / weights.sum())

    def log(self, seed: int) -> BanditLog:
        """A log of the logging policy."""
        generator = np.random.default_rng([seed, 2])
        rounds = self._rounds(slice(0, self.horizon), generator)
        logging_probs = np.tile(self.logging_policy, (self.horizon, 1))
        return rounds.logged_by(logging_probs, generator.random(self.horizon))

    def rounds(self, seed: int, chunk: int) -> Iterator[Rounds]:
        """The rounds of a deployment, in chunks."""
        generator = np.random.default_rng([seed, 3])
        for start in range(0, self.horizon, chunk):
            yield self._rounds(slice(start, start + chunk), generator)

    def _rounds(self, span: slice, generator: np.random.Generator) -> Rounds:
        states = self.state_sequence[span]
        means = self.state_means[states]
        rewards = means + generator.normal(0, self.noise, means.shape)
        return Rounds(np.empty((len(states), 0)), means, rewards, states)

    def oracle_value(self) -> float:
        """Mean reward of a policy that knows every state and every mean."""
        return float(self.state_means.max(axis=1)[self.state_sequence].mean())
