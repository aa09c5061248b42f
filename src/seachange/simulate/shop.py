"""A shop whose visitors' mood, which is not logged, changes over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from seachange.log.bandit_log import BanditLog
from seachange.params import require
from seachange.protocols import Floats, Ints
from seachange.simulate.rollout import Rounds

ITEMS = ("boots", "coats", "lamps", "books", "games", "plants", "bikes", "tents", "wines", "rugs")
FEATURES = ("returning", "basket_size", "on_phone", "hour_of_day")


@dataclass(frozen=True, kw_only=True, eq=False)
class Shop:
    """P(click | x, a, z) = 1 / (1 + exp(-(b_za + w_za · x))), z_t a Markov chain with ``expected_stay``.

    ``seed`` draws the shop (b, w and the logging policy); logs and deployments have their own seeds and moods.
    """

    seed: int = 0
    n_actions: int = 6  # K: items
    n_features: int = 2  # d
    n_states: int = 3  # L: moods
    horizon: int = 30_000  # T
    expected_stay: float = 2_000.0

    def __post_init__(self) -> None:
        require(2 <= self.n_actions <= len(ITEMS), f"n_actions must be from 2 to {len(ITEMS)}; got {self.n_actions}.")
        require(
            0 <= self.n_features <= len(FEATURES),
            f"n_features must be from 0 to {len(FEATURES)}; got {self.n_features}.",
        )
        require(self.n_states >= 1 and self.horizon >= 1, "n_states and horizon must be at least 1.")
        require(self.expected_stay > 1, f"expected_stay must be more than 1 round; got {self.expected_stay}.")

    @cached_property
    def coefs(self) -> Floats:
        """(L, K, d + 1): w_za and b_za."""
        generator = np.random.default_rng([self.seed, 0])
        coefs = generator.normal(0, 0.5, (self.n_states, self.n_actions, self.n_features + 1))
        coefs[:, :, -1] = generator.normal(-1.0, 1.0, (self.n_states, self.n_actions))
        return coefs

    def click_rates(self, contexts: Floats, states: Ints) -> Floats:
        """(n, K) P(click)."""
        coefs = self.coefs[states]
        logits = np.einsum("nkd,nd->nk", coefs[:, :, :-1], contexts) + coefs[:, :, -1]
        return np.asarray(1 / (1 + np.exp(-logits)))

    def logging_probs(self, contexts: Floats) -> Floats:
        """(n, K) π_0: prefers items with high click rates on average over moods, and explores."""
        average = self.coefs.mean(axis=0)
        weights = np.exp(contexts @ average[:, :-1].T + average[:, -1])
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def log(self, seed: int) -> BanditLog:
        """A log of the logging policy."""
        generator = np.random.default_rng([seed, 2])
        rounds = self._rounds(self.state_sequence(generator), generator)
        return rounds.logged_by(
            self.logging_probs(rounds.contexts),
            generator.random(self.horizon),
            action_names=ITEMS[: self.n_actions],
            context_names=FEATURES[: self.n_features],
            times=np.datetime64("2026-01-01T00:00:00") + np.arange(self.horizon).astype("timedelta64[m]"),
        )

    def log_states(self, seed: int) -> Ints:
        """(T,) the moods behind ``log(seed)``, which are not in the log."""
        return self.state_sequence(np.random.default_rng([seed, 2]))

    def rounds(self, seed: int, chunk: int) -> Iterator[Rounds]:
        """The rounds of a deployment, in chunks."""
        generator = np.random.default_rng([seed, 3])
        states = self.state_sequence(generator)
        for start in range(0, self.horizon, chunk):
            yield self._rounds(states[start : start + chunk], generator)

    def state_sequence(self, generator: np.random.Generator) -> Ints:
        """(T,) z_t: geometric stays, then any other mood with equal probability."""
        leaves = generator.random(self.horizon) < 1 / self.expected_stay
        leaves[0] = False
        steps = np.where(leaves, generator.integers(1, max(self.n_states, 2), self.horizon), 0)
        return np.cumsum(steps) % self.n_states

    def _rounds(self, states: Ints, generator: np.random.Generator) -> Rounds:
        contexts = generator.normal(size=(len(states), self.n_features))
        rates = self.click_rates(contexts, states)
        clicks = (generator.random(rates.shape) < rates).astype(np.float64)
        return Rounds(contexts, rates, clicks, states)
