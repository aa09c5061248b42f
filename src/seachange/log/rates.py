"""How often actions are taken: rates that borrow from each other, as many counts of few rounds must."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from seachange.engine import one_thread
from seachange.protocols import Floats

# Steps from one rate to the next, in standard errors of a count: √rate moves by half of it.
STEP = 0.25
# The share of an action that is imagined to have any rate at all, so that none is impossible.
IMAGINED = 0.1
# More would follow chance more closely than rates.
ITERATIONS = 100


@dataclass(frozen=True, eq=False)
class RatePrior:
    """The distribution of rates λ over actions, of any shape: weights on a grid.

    An action that s rounds could show is taken c ~ Poisson(λ s) times, and the weights are those that make the counts
    of all actions likeliest (Kiefer and Wolfowitz 1956, by EM). Actions that are taken alike give one rate, a long
    tail gives a tail: a count is believed as far as such actions differ.
    """

    rates: Floats  # (G,) λ
    weights: Floats  # (G,)

    @classmethod
    def of(cls, taken: Floats, shown: Floats) -> Self:
        """The prior of (K,) actions that were taken in so many of the rounds that could show them."""
        longest = max(float(shown.max()), 1.0)
        highest = float(
            np.max(np.divide(taken * longest, shown, out=np.zeros(len(taken)), where=shown > 0), initial=1.0)
        )
        counts = np.square(STEP / 2 * np.arange(1, int(2 / STEP * np.sqrt(highest)) + 2))
        # What is never taken may be as rare as one round in all.
        rare = np.geomspace(1 / len(taken), counts[0], max(int(2 * np.log2(len(taken) * counts[0])), 0), endpoint=False)
        rates = np.concatenate([rare, counts]) / longest
        cases, times = np.unique(np.stack([taken, shown]), axis=1, return_counts=True)
        likelihoods = _likelihoods(rates, *cases)
        flat = np.full(len(rates), 1 / len(rates))
        weights = flat
        with one_thread():
            for _ in range(ITERATIONS):
                expected = weights * ((times / (likelihoods @ weights)) @ likelihoods)
                weights = (expected + IMAGINED * flat) / (len(taken) + IMAGINED)
        return cls(rates, weights)

    def means(self, taken: Floats, shown: Floats) -> Floats:
        """(K,) E[λ | c, s]."""
        cases, which = np.unique(np.stack([taken, shown]), axis=1, return_inverse=True)
        posterior = _likelihoods(self.rates, *cases) * self.weights
        with one_thread():
            found = posterior @ self.rates / posterior.sum(axis=1)
        return np.asarray(found[which.ravel()])


def _likelihoods(rates: Floats, taken: Floats, shown: Floats) -> Floats:
    """(K, G) λ^c exp(-λ s), the largest of an action being 1."""
    scores = taken[:, None] * np.log(rates) - shown[:, None] * rates
    return np.asarray(np.exp(scores - scores.max(axis=1, keepdims=True)))
