"""A shop with a weekly rhythm: the best items differ by weekday."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from seachange.log.bandit_log import BanditLog
from seachange.params import require
from seachange.protocols import Floats, Ints, Policy
from seachange.simulate.rollout import Rounds

# A Monday.
START = np.datetime64("2026-01-05T00:00:00")
DAY = 86_400


@dataclass(frozen=True, kw_only=True, eq=False)
class Weekly:
    """P(click | x, a, t) = 1 / (1 + exp(-(b_a + w_a · x + s_a,weekday(t)))), s with standard deviation ``rhythm``.

    ``seed`` draws the shop (b, w, s and the logging policy); logs and deployments have their own seeds.
    """

    seed: int = 0
    n_actions: int = 5  # K
    n_features: int = 2  # d
    weeks: int = 6  # of a log
    rounds_a_day: int = 200
    rhythm: float = 1.0  # standard deviation of s

    def __post_init__(self) -> None:
        for name in ("n_actions", "weeks", "rounds_a_day"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1; got {getattr(self, name)}.")
        require(self.n_features >= 0, f"n_features must be at least 0; got {self.n_features}.")
        require(self.rhythm >= 0, f"rhythm must be at least 0; got {self.rhythm}.")

    @property
    def horizon(self) -> int:
        """T."""
        return 7 * self.weeks * self.rounds_a_day

    @cached_property
    def coefs(self) -> Floats:
        """(7, K, d + 1): w_a, and b_a + s_a of each weekday."""
        generator = np.random.default_rng([self.seed, 0])
        coefs = np.empty((7, self.n_actions, self.n_features + 1))
        coefs[:, :, :-1] = generator.normal(0, 0.5, (self.n_actions, self.n_features))
        coefs[:, :, -1] = generator.normal(-1.0, 0.5, self.n_actions)
        coefs[:, :, -1] += generator.normal(0, self.rhythm, (7, self.n_actions))
        return coefs

    @cached_property
    def times(self) -> npt.NDArray[Any]:
        """(T,) evenly spaced, starting on a Monday."""
        seconds = np.arange(self.horizon) * DAY // self.rounds_a_day
        return START + seconds.astype("timedelta64[s]")

    @cached_property
    def weekdays(self) -> Ints:
        """(T,) 0 (Monday) to 6."""
        return np.arange(self.horizon) // self.rounds_a_day % 7

    def click_rates(self, contexts: Floats, weekdays: Ints) -> Floats:
        """(n, K) P(click)."""
        coefs = self.coefs[weekdays]
        logits = np.einsum("nkd,nd->nk", coefs[:, :, :-1], contexts) + coefs[:, :, -1]
        return np.asarray(1 / (1 + np.exp(-logits)))

    def logging_probs(self, contexts: Floats) -> Floats:
        """(n, K) π_0: prefers items with high click rates over the week, and explores."""
        average = self.coefs.mean(axis=0)
        weights = np.exp(0.5 * (contexts @ average[:, :-1].T + average[:, -1]))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def log(self, seed: int) -> BanditLog:
        """A log of the logging policy."""
        generator = np.random.default_rng([seed, 2])
        rounds = self._rounds(self.weekdays, generator)
        logging_probs = self.logging_probs(rounds.contexts)
        return rounds.logged_by(logging_probs, generator.random(self.horizon), times=self.times)

    def rounds(self, seed: int, chunk: int) -> Iterator[Rounds]:
        """The rounds of a deployment, in chunks."""
        generator = np.random.default_rng([seed, 3])
        for start in range(0, self.horizon, chunk):
            yield self._rounds(self.weekdays[start : start + chunk], generator)

    def value(self, policy: Policy, weekday: int, seed: int = 0, n: int = 200_000) -> float:
        """Mean reward of ``policy`` on a weekday, over ``n`` visitors."""
        generator = np.random.default_rng([seed, 4])
        contexts = generator.normal(size=(n, self.n_features))
        probs = policy.predict_proba(contexts)
        return float(np.einsum("nk,nk->", probs, self.click_rates(contexts, np.full(n, weekday))) / n)

    def _rounds(self, weekdays: Ints, generator: np.random.Generator) -> Rounds:
        contexts = generator.normal(size=(len(weekdays), self.n_features))
        rates = self.click_rates(contexts, weekdays)
        clicks = (generator.random(rates.shape) < rates).astype(np.float64)
        return Rounds(contexts, rates, clicks, weekdays)
