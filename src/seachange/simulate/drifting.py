"""Worlds without latent states: means that walk at random, and a linear model whose parameter jumps or turns."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from seachange.log.bandit_log import BanditLog
from seachange.params import require
from seachange.protocols import Floats
from seachange.simulate.rollout import Rounds


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomWalk:
    """Means walk with normal steps between 0 and 1, where they are reflected. Logs have uniform random actions.

    Every log and deployment has its own walk; ``noise`` is the deviation of rewards, or None for clicks.
    """

    n_actions: int = 10  # K
    horizon: int = 10_000  # T
    step: float = 0.003**0.5  # standard deviation of a step
    noise: float | None = None

    def __post_init__(self) -> None:
        require(self.n_actions >= 1 and self.horizon >= 1, "n_actions and horizon must be at least 1.")
        require(self.step >= 0, f"step must be at least 0; got {self.step}.")

    def _walk(self, generator: np.random.Generator) -> Rounds:
        shape = self.horizon, self.n_actions
        free = generator.random(self.n_actions) + np.cumsum(generator.normal(0, self.step, shape), axis=0)
        means = 1 - np.abs(1 - free % 2)
        contexts = np.empty((self.horizon, 0))
        if self.noise is None:
            return Rounds.with_clicks(contexts, means, generator)
        rewards = means + generator.normal(0, self.noise, shape)
        return Rounds(contexts, means, rewards, np.zeros(self.horizon, np.int64))

    def log(self, seed: int) -> BanditLog:
        """A log of uniform random actions."""
        generator = np.random.default_rng([seed, 2])
        probs = np.full((self.horizon, self.n_actions), 1 / self.n_actions)
        return self._walk(generator).logged_by(probs, generator.random(self.horizon))

    def rounds(self, seed: int, chunk: int) -> Iterator[Rounds]:
        """The rounds of a deployment, in chunks."""
        yield from self._walk(np.random.default_rng([seed, 3])).chunks(chunk)


@dataclass(frozen=True, kw_only=True, eq=False)
class MovingLinear:
    """r ~ N(θ_t · x_a, σ²) for random x_a in the unit disk (Russac, Vernade and Cappé 2019).

    θ_t jumps from (1, 0) to (-1, 0), (0, 1) and (0, -1) after every 1,000 rounds, or turns from (1, 0) to (0, 1) during
    the first half. Logs have uniform random actions and the first θ.
    """

    path: Literal["jumps", "turn"] = "jumps"
    n_actions: int = 50  # K
    horizon: int = 6_000  # T
    noise: float = 1.0  # σ

    def __post_init__(self) -> None:
        require(self.path in ("jumps", "turn"), f'path must be "jumps" or "turn"; got {self.path!r}.')
        require(self.horizon >= 6 and self.n_actions >= 2, "there must be at least 6 rounds and 2 actions.")

    @cached_property
    def parameters(self) -> Floats:
        """(T, 2) θ_t."""
        rounds = np.arange(self.horizon)
        if self.path == "jumps":
            corners = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
            return corners[np.minimum(rounds * 6 // self.horizon, 3)]
        angles = np.pi / 2 * np.minimum(2 * rounds / self.horizon, 1)
        return np.column_stack([np.cos(angles), np.sin(angles)])

    def _rounds(self, parameters: Floats, generator: np.random.Generator) -> Rounds:
        features = generator.uniform(-1, 1, (len(parameters), self.n_actions, 2))
        features /= np.maximum(np.linalg.norm(features, axis=2, keepdims=True), 1.0)
        means = np.einsum("nkd,nd->nk", features, parameters)
        rewards = means + generator.normal(0, self.noise, means.shape)
        return Rounds(features, means, rewards, np.zeros(len(means), np.int64))

    def log(self, seed: int) -> BanditLog:
        """A log of uniform random actions under the first θ."""
        generator = np.random.default_rng([seed, 2])
        rounds = self._rounds(np.repeat(self.parameters[:1], self.horizon, axis=0), generator)
        return rounds.logged_by(np.full(rounds.rewards.shape, 1 / self.n_actions), generator.random(self.horizon))

    def rounds(self, seed: int, chunk: int) -> Iterator[Rounds]:
        """The rounds of a deployment, in chunks."""
        yield from self._rounds(self.parameters, np.random.default_rng([seed, 3])).chunks(chunk)
