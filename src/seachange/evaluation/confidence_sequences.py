"""Confidence sequences: bounds that hold at all rounds at once, so that they may be checked at any time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.special import zeta

from seachange.log.clusters import Clusters
from seachange.protocols import Floats

# η and s of the stitched boundary: the ratio of successive variance epochs, and the decay of their error shares.
EPOCH, DECAY = 2.0, 1.4

# One number, or one per cluster.
Level: TypeAlias = float | Floats


@dataclass(frozen=True, eq=False)
class ConfidenceSequence:
    """An estimate and its confidence sequence after each round (after each sequence, if the log has sequences)."""

    values: Floats  # (G,)
    low: Floats  # (G,)
    high: Floats  # (G,)


def running_interval(
    terms: Floats, limits: tuple[Level, Level], guesses: tuple[float, float], clusters: Clusters, confidence: float
) -> ConfidenceSequence:
    """Bounds on the mean of E[term | past] so far, after each cluster.

    S / N ± u(V) / N, with S the sum of the terms, N the number of rounds and V = Σ (term - guess)², where the guess for
    a term is the mean of earlier terms, clipped to ``guesses``; u is ``stitched_boundary``. This is the
    empirical-Bernstein sequence of Howard et al. (2021), theorem 4: with probability ``confidence`` it holds at all
    times at once, for terms of any distribution within ``limits``, even if the mean changes. The lower bound depends
    only on the lower limit and the largest guess, so terms far above do not loosen it. If limits are given per cluster,
    (G,), and depend only on clusters so far, no later cluster changes the bounds.
    """
    sums, sizes = clusters.sums(terms), clusters.sizes
    totals, rounds = np.cumsum(sums), np.cumsum(sizes)
    low, high = guesses
    guess = np.full(len(sums), (low + high) / 2)
    guess[1:] = np.clip(totals[:-1] / rounds[:-1], low, high)
    variances = np.cumsum(np.square(sums - sizes * guess))
    largest, error = np.maximum.accumulate(sizes), (1 - confidence) / 2
    below = stitched_boundary(variances, largest * (high - limits[0]), error)
    above = stitched_boundary(variances, largest * (limits[1] - low), error)
    return ConfidenceSequence(totals / rounds, (totals - below) / rounds, (totals + above) / rounds)


def stitched_boundary(variances: Floats, scale: Level, error: float) -> Floats:
    """u(v) = c (√(k₁² v' ℓ + k₂² ℓ²) + k₂ ℓ), v' = max(v / c², 1), ℓ = s log(1 + log_η v') + log(ζ(s) / α).

    A sum with variance process v and steps below c ever crosses it with probability at most α; it is 0 if c ≤ 0.
    k₁ = (η^¼ + η^-¼) / √2, k₂ = (√η + 1) / 2 (Howard et al. 2021, theorem 1).
    """
    scale = np.maximum(scale, 0.0)
    first, second = (EPOCH**0.25 + EPOCH**-0.25) / np.sqrt(2), (np.sqrt(EPOCH) + 1) / 2
    scaled = np.maximum(np.divide(variances, scale**2, out=np.ones_like(variances), where=scale > 0), 1.0)
    level = DECAY * np.log1p(np.log(scaled) / np.log(EPOCH)) + np.log(zeta(DECAY) / error)
    return np.asarray(scale * (np.sqrt(first**2 * scaled * level + second**2 * np.square(level)) + second * level))
