"""Which action was taken, as a logit model of contexts: the policy that made a log, as far as the log shows it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from seachange.engine import one_thread
from seachange.kernels.choices import choice_probs, choice_sums
from seachange.log.bandit_log import BanditLog
from seachange.log.rates import RatePrior
from seachange.protocols import Floats, Ints

# Rounds that are looked at together where their features are summed up.
ROWS = 1 << 15
# Probabilities that are worked on at a time.
CELLS = 1 << 20


@dataclass(frozen=True, eq=False)
class ChoiceSample:
    """Some rounds of a log."""

    log: BanditLog
    rounds: Ints  # (m,)

    def __len__(self) -> int:
        """m."""
        return len(self.rounds)

    @cached_property
    def taken(self) -> Floats:
        """(K,) rounds that took an action."""
        return np.bincount(self.log.actions[self.rounds], minlength=self.log.n_actions).astype(np.float64)

    @cached_property
    def shown(self) -> Floats:
        """(K,) rounds that could."""
        if not self.log.masked:
            return np.full(self.log.n_actions, float(len(self)))
        parts = (self.log.arrays.mask[rounds] for rounds in self.parts())
        return np.asarray(sum((part.sum(axis=0) for part in parts), np.zeros(self.log.n_actions)))

    @cached_property
    def prior(self) -> RatePrior:
        """How often the actions of these rounds are taken."""
        return RatePrior.of(self.taken, self.shown)

    def feature_moments(self) -> tuple[Floats, Floats]:
        """(d,) mean and standard deviation of every feature; 1 where it never varies."""
        n_features = self.log.joint.n_features
        if n_features == 0 or len(self) == 0:
            return np.zeros(n_features), np.ones(n_features)
        parts = self.parts()
        contexts = self.log.contexts
        count = len(self) * (contexts.shape[1] if contexts.ndim == 3 else 1)
        sums, squares = np.zeros(n_features), np.zeros(n_features)
        for part in parts:
            sums += contexts[part].reshape(-1, n_features).sum(axis=0, dtype=np.float64)
        means = sums / count
        for part in parts:
            squares += np.square(contexts[part].reshape(-1, n_features) - means).sum(axis=0)
        scales = np.sqrt(squares / count)
        # A constant differs from its mean by rounding, which is not a scale.
        return means, np.where(scales > 1e-12 * np.abs(means), scales, 1.0)

    def parts(self, rows: int = ROWS) -> list[Ints]:
        """The rounds, so many at a time."""
        return [self.rounds[start : start + rows] for start in range(0, len(self), rows)]


@dataclass(frozen=True, eq=False)
class ChoiceModel:
    """π_0(a | x) ∝ f(a) exp(b_a + θ_a · x̃) over the actions that may be shown; θ is common where actions have vectors.

    f are the frequencies of actions as ``RatePrior`` sees them, x̃ features of mean 0 and variance 1. Coefficients of 0
    are the frequencies.
    """

    frequencies: Floats  # (K,)
    means: Floats  # (d,)
    scales: Floats  # (d,)
    intercepts: Floats  # (K,) b
    slopes: Floats  # (K, d), or (1, d) where actions have vectors of their own

    @classmethod
    def plain(cls, sample: ChoiceSample, prior: RatePrior) -> Self:
        """The model that knows only how often actions were taken, in the light of what rates there are."""
        joint = sample.log.joint
        means, scales = sample.feature_moments()
        slopes = np.zeros((joint.shape[0], joint.n_features))
        rates = prior.means(sample.taken, sample.shown)
        # As many rounds are expected as there are.
        frequencies = rates * (len(sample) / (rates @ sample.shown) if len(sample) else 1.0)
        return cls(frequencies, means, scales, np.zeros(joint.n_actions), slopes)

    def without_contexts(self) -> ChoiceModel:
        """The frequencies that the model starts from."""
        return replace(self, intercepts=np.zeros_like(self.intercepts), slopes=np.zeros_like(self.slopes))

    def fit(self, sample: ChoiceSample, ridge: float, chance: Floats | float = 1.0) -> ChoiceModel:
        """Maximise Σ_t log π_0(a_t | x_t) - (ridge / 2) (|θ|² + |b|²) from here; ``ridge`` counts in rounds.

        Intercepts are to follow chance no more than f does: of c takings that f expects to be f s, c - u (c - f s)
        count, with u the ``chance`` that contexts leave. The maximum is unique, so where the search starts changes
        nothing but the time.
        """
        from scipy.optimize import minimize

        if len(sample) == 0 or sample.log.n_actions == 1:
            return self

        surplus = np.zeros(len(self.intercepts) + self.slopes.size)
        surplus[: len(self.intercepts)] = chance * (sample.taken - self.frequencies * sample.shown)

        def descend(flat: Floats) -> tuple[float, Floats]:
            loss, slope = self._with(flat)._loss(sample)
            loss, slope = loss + float(surplus @ flat), slope + surplus
            return (loss + ridge / 2 * float(flat @ flat)) / len(sample), (slope + ridge * flat) / len(sample)

        start = np.concatenate([self.intercepts, self.slopes.ravel()])
        options = {"maxiter": 300, "ftol": 1e-9, "gtol": 1e-5}
        with one_thread():
            found = minimize(descend, start, jac=True, method="L-BFGS-B", options=options)
        return self._with(found.x)

    def probs(self, sample: ChoiceSample) -> Floats:
        """(m, K) π_0(a | x_t)."""
        arrays = sample.log.arrays
        found = np.empty((len(sample), len(self.intercepts)))
        choice_probs(arrays.rows, arrays.mask, sample.rounds, *self._raw(sample), found)
        return found

    def chance(self, sample: ChoiceSample) -> Floats:
        """(K,) Σ_t π (1 - π) over Σ_t f (1 - f): the share of an action's takings that contexts leave to chance."""
        left, all_of_it = (model._variances(sample) for model in (self, self.without_contexts()))
        return np.asarray(np.minimum(left / np.maximum(all_of_it, np.finfo(float).tiny), 1.0))

    def log_loss(self, sample: ChoiceSample) -> float:
        """Σ_t -log π_0(a_t | x_t)."""
        return self._loss(sample)[0]

    def _variances(self, sample: ChoiceSample) -> Floats:
        """(K,) Σ_t π_0(a | x_t) (1 - π_0(a | x_t))."""
        total = np.zeros(len(self.intercepts))
        for rounds in sample.parts(max(CELLS // len(total), 1)):
            probs = self.probs(ChoiceSample(sample.log, rounds))
            total += (probs * (1 - probs)).sum(axis=0)
        return total

    def _with(self, flat: Floats) -> ChoiceModel:
        n_actions = len(self.intercepts)
        return replace(self, intercepts=flat[:n_actions], slopes=flat[n_actions:].reshape(self.slopes.shape))

    def _raw(self, sample: ChoiceSample) -> tuple[Floats, Floats]:
        """Scores as base(a) + c · f(x, a) in the log's own features, (K,) and (B, D)."""
        base, coefs = np.log(self.frequencies) + self.intercepts, np.zeros(sample.log.joint.shape)
        coefs[:, : len(self.means)] = self.slopes / self.scales
        if len(self.slopes) > 1:  # otherwise the shift is the same for all actions
            base = base - coefs[:, : len(self.means)] @ self.means
        return base, coefs

    def _loss(self, sample: ChoiceSample) -> tuple[float, Floats]:
        """Σ_t -log π_0(a_t | x_t) and its gradient in (b, θ)."""
        arrays = sample.log.arrays
        base, coefs = self._raw(sample)
        intercepts, raw = np.zeros_like(base), np.zeros_like(coefs)
        loss = choice_sums(
            arrays.rows, arrays.mask, arrays.actions, sample.rounds, base, coefs, intercepts, raw
        )  # fmt: skip
        slopes = raw[:, : len(self.means)]
        if len(self.slopes) > 1:
            slopes = slopes - intercepts[:, None] * self.means
        return float(loss), np.concatenate([intercepts, (slopes / self.scales).ravel()])
