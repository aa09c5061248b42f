"""Simulated clicks: a shop with hidden moods, one with a weekly cycle, and a stationary world."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from seachange.log.bandit_log import BanditLog
from seachange.params import require
from seachange.protocols import Floats, Ints, Policy
from seachange.simulate.rollout import Rounds

ITEMS = ("boots", "coats", "lamps", "books", "games", "plants", "bikes", "tents", "wines", "rugs")
FEATURES = ("returning", "basket_size", "on_phone", "hour_of_day")
FIRST_MONDAY = np.datetime64("2026-01-05T00:00:00")
ROUNDS_PER_DAY = 200
SLOPE = 0.9  # standard deviation of w_a · x in ``Clicks``


class _StatefulClicks(ABC):
    """Clicks whose logits are linear in the context, with coefficients that depend on the state of the round."""

    greed: float  # of the logging policy
    horizon: int
    n_features: int
    coefs: Floats  # (L, K, d + 1): weights and intercepts

    @abstractmethod
    def state_sequence(self, generator: np.random.Generator) -> Ints:
        """(T,) z_t."""

    @abstractmethod
    def _log_columns(self) -> dict[str, Any]: ...

    def click_rates(self, contexts: Floats, states: Ints) -> Floats:
        """(n, K) P(click)."""
        coefs = self.coefs[states]
        logits = np.einsum("nkd,nd->nk", coefs[:, :, :-1], contexts) + coefs[:, :, -1]
        return np.asarray(1 / (1 + np.exp(-logits)))

    def logging_probs(self, contexts: Floats) -> Floats:
        """(n, K) π_0: prefers items with high click rates on average over states, and explores."""
        average = self.coefs.mean(axis=0)
        weights = np.exp(self.greed * (contexts @ average[:, :-1].T + average[:, -1]))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def log(self, seed: int) -> BanditLog:
        """A log of the logging policy."""
        generator = np.random.default_rng([seed, 2])
        rounds = self._rounds(self.state_sequence(generator), generator)
        uniforms = generator.random(self.horizon)
        return rounds.logged_by(self.logging_probs(rounds.contexts), uniforms, **self._log_columns())

    def rounds(self, seed: int, chunk: int) -> Iterator[Rounds]:
        """The rounds of a deployment, in chunks."""
        generator = np.random.default_rng([seed, 3])
        states = self.state_sequence(generator)
        for start in range(0, self.horizon, chunk):
            yield self._rounds(states[start : start + chunk], generator)

    def _rounds(self, states: Ints, generator: np.random.Generator) -> Rounds:
        contexts = generator.normal(size=(len(states), self.n_features))
        return Rounds.with_clicks(contexts, self.click_rates(contexts, states), generator, states)


def _mean_clicks(probs: Floats, rates: Floats) -> float:
    return float(np.einsum("nk,nk->", probs, rates) / len(rates))


@dataclass(frozen=True, kw_only=True, eq=False)
class Shop(_StatefulClicks):
    """P(click | x, a, z) = 1 / (1 + exp(-(b_za + w_za · x))), z_t a Markov chain with ``expected_stay``.

    z is the visitors' mood, which is not logged. ``seed`` draws the shop (b, w and the logging policy); logs and
    deployments have their own seeds and moods.
    """

    seed: int = 0
    n_actions: int = 6  # K: items
    n_features: int = 2  # d
    n_states: int = 3  # L: moods
    horizon: int = 30_000  # T
    expected_stay: float = 2_000.0

    greed = 1.0

    def __post_init__(self) -> None:
        for name, least, most in (("n_actions", 2, len(ITEMS)), ("n_features", 0, len(FEATURES))):
            value = getattr(self, name)
            require(least <= value <= most, f"{name} must be from {least} to {most}; got {value}.")
        require(self.n_states >= 1 and self.horizon >= 1, "n_states and horizon must be at least 1.")
        require(self.expected_stay > 1, f"expected_stay must be more than 1 round; got {self.expected_stay}.")

    @cached_property
    def coefs(self) -> Floats:  # type: ignore[override]
        """(L, K, d + 1): w_za and b_za."""
        generator = np.random.default_rng([self.seed, 0])
        coefs = generator.normal(0, 0.5, (self.n_states, self.n_actions, self.n_features + 1))
        coefs[:, :, -1] = generator.normal(-1.0, 1.0, (self.n_states, self.n_actions))
        return coefs

    def log_states(self, seed: int) -> Ints:
        """(T,) the moods behind ``log(seed)``, which are not in the log."""
        return self.state_sequence(np.random.default_rng([seed, 2]))

    def state_sequence(self, generator: np.random.Generator) -> Ints:
        """(T,) z_t: geometric stays, then any other mood with equal probability."""
        leaves = generator.random(self.horizon) < 1 / self.expected_stay
        leaves[0] = False
        steps = np.where(leaves, generator.integers(1, max(self.n_states, 2), self.horizon), 0)
        return np.cumsum(steps) % self.n_states

    def _log_columns(self) -> dict[str, Any]:
        return {
            "action_names": ITEMS[: self.n_actions],
            "context_names": FEATURES[: self.n_features],
            "times": np.datetime64("2026-01-01T00:00:00") + np.arange(self.horizon).astype("timedelta64[m]"),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Weekly(_StatefulClicks):
    """P(click | x, a, t) = 1 / (1 + exp(-(b_a + w_a · x + s_a,weekday(t)))), s with standard deviation ``rhythm``.

    ``seed`` draws the shop (b, w, s and the logging policy); logs and deployments have their own seeds.
    """

    seed: int = 0
    n_actions: int = 5  # K
    n_features: int = 2  # d
    weeks: int = 6  # of a log
    rhythm: float = 1.0  # standard deviation of s

    greed = 0.5

    def __post_init__(self) -> None:
        for name, least in (("n_actions", 1), ("weeks", 1), ("n_features", 0), ("rhythm", 0)):
            require(getattr(self, name) >= least, f"{name} must be at least {least}; got {getattr(self, name)}.")

    @property
    def horizon(self) -> int:  # type: ignore[override]
        """T."""
        return 7 * self.weeks * ROUNDS_PER_DAY

    @cached_property
    def coefs(self) -> Floats:  # type: ignore[override]
        """(7, K, d + 1): w_a, and b_a + s_a of each weekday."""
        generator = np.random.default_rng([self.seed, 0])
        coefs = np.empty((7, self.n_actions, self.n_features + 1))
        coefs[:, :, :-1] = generator.normal(0, 0.5, (self.n_actions, self.n_features))
        coefs[:, :, -1] = generator.normal(-1.0, 0.5, self.n_actions)
        coefs[:, :, -1] += generator.normal(0, self.rhythm, (7, self.n_actions))
        return coefs

    def state_sequence(self, generator: np.random.Generator) -> Ints:
        """(T,) the weekday, from 0 (Monday) to 6."""
        return np.arange(self.horizon) // ROUNDS_PER_DAY % 7

    def _log_columns(self) -> dict[str, Any]:
        seconds = np.arange(self.horizon) * 86_400 // ROUNDS_PER_DAY
        return {"times": FIRST_MONDAY + seconds.astype("timedelta64[s]")}

    def value(self, policy: Policy, weekday: int, seed: int = 0, n: int = 200_000) -> float:
        """Mean reward of ``policy`` on a weekday, over ``n`` visitors."""
        contexts = np.random.default_rng([seed, 4]).normal(size=(n, self.n_features))
        return _mean_clicks(policy.predict_proba(contexts), self.click_rates(contexts, np.full(n, weekday)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Clicks:
    """P(click | x, a) = 1 / (1 + exp(-(b + w_a · x + q ((v_a · x)² - 1)))), x ~ N(0, I), uniform random actions.

    No linear model can fit the quadratic term. ``seed`` draws the world (w and v); logs have their own seeds.
    """

    seed: int = 0
    n_actions: int = 10  # K
    n_features: int = 6  # d
    horizon: int = 518_400  # T
    click_rate: float = 0.04  # of a random action
    quadratic: float = 0.0  # q; 0: linear

    def __post_init__(self) -> None:
        require(self.n_actions >= 2 and self.n_features >= 1, "there must be at least 2 actions and 1 feature.")
        require(self.horizon >= 1, f"horizon must be at least 1; got {self.horizon}.")
        require(0 < self.click_rate < 1, f"click_rate must be between 0 and 1; got {self.click_rate}.")

    @cached_property
    def coefs(self) -> Floats:
        """(2, K, d): w and v."""
        drawn = np.random.default_rng([self.seed, 0]).normal(size=(2, self.n_actions, self.n_features))
        return np.asarray(drawn * np.array([SLOPE, 1.0])[:, None, None] / np.sqrt(self.n_features))

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
        rounds = Rounds.with_clicks(contexts, self.click_rates(contexts), generator)
        return rounds.logged_by(np.full(rounds.rewards.shape, 1 / self.n_actions), generator.random(self.horizon))

    def value(self, probs: Floats, contexts: Floats) -> float:
        """Clicks per round of a policy with probabilities ``probs`` (n, K) on ``contexts``."""
        return _mean_clicks(probs, self.click_rates(contexts))

    def best_linear_actions(self, contexts: Floats) -> Floats:
        """(n,) the best action by a least-squares fit to the true click rates on ``contexts``."""
        rows = np.column_stack([contexts, np.ones(len(contexts))])
        fitted = rows @ np.linalg.lstsq(rows, self.click_rates(contexts), rcond=None)[0]
        return np.asarray(np.argmax(fitted, axis=1))
