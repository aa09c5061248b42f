"""A stationary click world with contexts, few clicks, and a term that no linear model can fit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from seachange.log.bandit_log import BanditLog
from seachange.params import require
from seachange.protocols import Floats
from seachange.simulate.rollout import Rounds


@dataclass(frozen=True, kw_only=True, eq=False)
class Clicks:
    """P(click | x, a) = 1 / (1 + exp(-(b + w_a · x + q ((v_a · x)² - 1)))), x ~ N(0, I), uniform random actions.

    ``seed`` draws the world (w and v); logs have their own seeds.
    """

    seed: int = 0
    n_actions: int = 10  # K
    n_features: int = 6  # d
    horizon: int = 518_400  # T
    click_rate: float = 0.04  # of a random action
    slope: float = 0.9  # standard deviation of w_a · x
    quadratic: float = 0.0  # q; 0: linear

    def __post_init__(self) -> None:
        require(self.n_actions >= 2 and self.n_features >= 1, "there must be at least 2 actions and 1 feature.")
        require(self.horizon >= 1, f"horizon must be at least 1; got {self.horizon}.")
        require(0 < self.click_rate < 1, f"click_rate must be between 0 and 1; got {self.click_rate}.")

    @cached_property
    def coefs(self) -> Floats:
        """(2, K, d): w and v."""
        drawn = np.random.default_rng([self.seed, 0]).normal(size=(2, self.n_actions, self.n_features))
        return np.asarray(drawn * np.array([self.slope, 1.0])[:, None, None] / np.sqrt(self.n_features))

    @cached_property
    def intercept(self) -> float:
        """b, such that random actions have click rate ``click_rate``."""
        scores = self._scores(self.contexts(100_000, np.random.default_rng([self.seed, 1])))
        return float(brentq(lambda b: float(expit(scores + b).mean()) - self.click_rate, -50.0, 50.0))

    def contexts(self, n: int, generator: np.random.Generator) -> Floats:
        """(n, d) x."""
        return generator.normal(size=(n, self.n_features))

    def click_rates(self, contexts: Floats) -> Floats:
        """(n, K) P(click | x, a)."""
        return np.asarray(expit(self._scores(contexts) + self.intercept))

    def _scores(self, contexts: Floats) -> Floats:
        linear, bent = contexts @ self.coefs[0].T, contexts @ self.coefs[1].T
        return np.asarray(linear + self.quadratic * (np.square(bent) - 1.0))

    def log(self, seed: int) -> BanditLog:
        """A log of uniform random actions."""
        generator = np.random.default_rng([seed, 2])
        contexts = self.contexts(self.horizon, generator)
        rates = self.click_rates(contexts)
        clicks = (generator.random(rates.shape) < rates).astype(np.float64)
        rounds = Rounds(contexts, rates, clicks, np.zeros(self.horizon, dtype=np.int64))
        return rounds.logged_by(np.full(rates.shape, 1 / self.n_actions), generator.random(self.horizon))

    def value(self, probs: Floats, contexts: Floats) -> float:
        """Clicks per round of a policy with probabilities ``probs`` (n, K) on ``contexts``."""
        return float(np.einsum("nk,nk->", probs, self.click_rates(contexts)) / len(contexts))

    def best_linear_actions(self, contexts: Floats) -> Floats:
        """(n,) the best action by a least-squares fit to the true click rates on ``contexts``."""
        rows = np.column_stack([contexts, np.ones(len(contexts))])
        fitted = rows @ np.linalg.lstsq(rows, self.click_rates(contexts), rcond=None)[0]
        return np.asarray(np.argmax(fitted, axis=1))
