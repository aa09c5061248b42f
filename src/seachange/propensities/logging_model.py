"""Models of the logging policy: rates of actions, and choices given contexts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from seachange.engine import one_thread
from seachange.kernels.action_probs import choice_probs, choice_sums
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats, Ints

# Step from one rate to the next, in standard errors of a count: √rate changes by half of it.
STEP = 0.25
# Pseudo-actions spread over all rates, so that no rate is impossible.
PSEUDO_ACTIONS = 0.1
# More iterations would fit noise.
ITERATIONS = 100


@dataclass(frozen=True, eq=False)
class RatePrior:
    """The distribution of rates λ over actions: weights on a grid, of any shape.

    An action available in s rounds is taken c ~ Poisson(λ s) times; the weights maximize the likelihood of all counts
    (Kiefer and Wolfowitz 1956, by EM). A count is shrunk toward the rates of similar actions, the more so the less
    actions differ.
    """

    rates: Floats  # (G,) λ
    weights: Floats  # (G,)

    @classmethod
    def of(cls, taken: Floats, shown: Floats) -> Self:
        """The prior for (K,) actions, given how often each was taken and available."""
        longest = max(float(shown.max()), 1.0)
        highest = float(
            np.max(np.divide(taken * longest, shown, out=np.zeros(len(taken)), where=shown > 0), initial=1.0)
        )
        counts = np.square(STEP / 2 * np.arange(1, int(2 / STEP * np.sqrt(highest)) + 2))
        # An action that was never taken may be as rare as one round in all.
        rare = np.geomspace(1 / len(taken), counts[0], max(int(2 * np.log2(len(taken) * counts[0])), 0), endpoint=False)
        rates = np.concatenate([rare, counts]) / longest
        cases, times = np.unique(np.stack([taken, shown]), axis=1, return_counts=True)
        likelihoods = _likelihoods(rates, *cases)
        flat = np.full(len(rates), 1 / len(rates))
        weights = flat
        with one_thread():
            for _ in range(ITERATIONS):
                expected = weights * ((times / (likelihoods @ weights)) @ likelihoods)
                weights = (expected + PSEUDO_ACTIONS * flat) / (len(taken) + PSEUDO_ACTIONS)
        return cls(rates, weights)

    def means(self, taken: Floats, shown: Floats) -> Floats:
        """(K,) E[λ | c, s]."""
        cases, which = np.unique(np.stack([taken, shown]), axis=1, return_inverse=True)
        posterior = _likelihoods(self.rates, *cases) * self.weights
        with one_thread():
            found = posterior @ self.rates / posterior.sum(axis=1)
        return np.asarray(found[which.ravel()])


def _likelihoods(rates: Floats, taken: Floats, shown: Floats) -> Floats:
    """(K, G) λ^c exp(-λ s), scaled to a maximum of 1 per action."""
    scores = taken[:, None] * np.log(rates) - shown[:, None] * rates
    return np.asarray(np.exp(scores - scores.max(axis=1, keepdims=True)))


# Rounds whose features are summed at a time.
ROWS = 1 << 15
# Probabilities held in memory at a time.
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
        """(K,) rounds in which each action was taken."""
        return np.bincount(self.log.actions[self.rounds], minlength=self.log.n_actions).astype(np.float64)

    @cached_property
    def shown(self) -> Floats:
        """(K,) rounds in which each action was available."""
        if not self.log.masked:
            return np.full(self.log.n_actions, float(len(self)))
        parts = (self.log.arrays.mask[rounds] for rounds in self.parts())
        return np.asarray(sum((part.sum(axis=0) for part in parts), np.zeros(self.log.n_actions)))

    @cached_property
    def prior(self) -> RatePrior:
        """The prior of action rates in these rounds."""
        return RatePrior.of(self.taken, self.shown)

    def feature_moments(self) -> tuple[Floats, Floats]:
        """(d,) mean and standard deviation of every feature; 1 if it is constant."""
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
        # The standard deviation of a constant is rounding error.
        return means, np.where(scales > 1e-12 * np.abs(means), scales, 1.0)

    def parts(self, rows: int = ROWS) -> list[Ints]:
        """The rounds in chunks."""
        return [self.rounds[start : start + rows] for start in range(0, len(self), rows)]


@dataclass(frozen=True, eq=False)
class ChoiceModel:
    """π_0(a | x) ∝ f(a) exp(b_a + θ_a · x̃) over available actions; θ is shared if actions have their own features.

    f are the frequencies of actions, shrunk by ``RatePrior``; x̃ are features with mean 0 and variance 1. With
    coefficients of 0, the model gives the frequencies.
    """

    frequencies: Floats  # (K,)
    means: Floats  # (d,)
    scales: Floats  # (d,)
    intercepts: Floats  # (K,) b
    slopes: Floats  # (K, d), or (1, d) if actions have their own features

    @classmethod
    def plain(cls, sample: ChoiceSample, prior: RatePrior) -> Self:
        """The model of frequencies alone, shrunk by ``prior``."""
        joint = sample.log.joint
        means, scales = sample.feature_moments()
        slopes = np.zeros((joint.shape[0], joint.n_features))
        rates = prior.means(sample.taken, sample.shown)
        # Scaled so that the expected number of rounds is right.
        frequencies = rates * (len(sample) / (rates @ sample.shown) if len(sample) else 1.0)
        return cls(frequencies, means, scales, np.zeros(joint.n_actions), slopes)

    def without_contexts(self) -> ChoiceModel:
        """The frequencies that the model is based on."""
        return replace(self, intercepts=np.zeros_like(self.intercepts), slopes=np.zeros_like(self.slopes))

    def fit(self, sample: ChoiceSample, ridge: float, chance: Floats | float = 1.0) -> ChoiceModel:
        """Maximize Σ_t log π_0(a_t | x_t) - (ridge / 2) (|θ|² + |b|²), starting here; ``ridge`` is in rounds.

        Intercepts should follow noise no more than f does: if an action is taken c times and f expects f s, then
        c - u (c - f s) counts, where u is the share that contexts leave to ``chance``. The maximum is unique, so the
        starting point affects only the running time.
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
        """(K,) Σ_t π (1 - π) over Σ_t f (1 - f): the share of an action's variance that contexts leave to chance."""
        left, total = (model._variances(sample) for model in (self, self.without_contexts()))
        return np.asarray(np.minimum(left / np.maximum(total, np.finfo(float).tiny), 1.0))

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
        """Scores as base(a) + c · f(x, a) in the log's raw features, (K,) and (B, D)."""
        base, coefs = np.log(self.frequencies) + self.intercepts, np.zeros(sample.log.joint.shape)
        coefs[:, : len(self.means)] = self.slopes / self.scales
        if len(self.slopes) > 1:  # otherwise all actions shift equally
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
