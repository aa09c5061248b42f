"""Standard errors, and normal, gamma and empirical-Bernstein intervals; rounds of one sequence count as one."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.stats import pearson3
from scipy.stats import t as student

from seachange.evaluation.formulas import Parts
from seachange.log.clusters import Clusters
from seachange.protocols import Floats


def influences(parts: Parts, clusters: Clusters) -> Floats:
    """(G,) ψ_g / n, ψ_g the cluster's sum of (plain - mean) + (above - ratio below) / mean(below).

    What each cluster puts into V̂ beyond its mean; infinite where the ratio has nothing below.
    """
    linear = np.zeros(clusters.n_rounds) if parts.plain is None else parts.plain - parts.plain.mean()
    if parts.above is not None and parts.below is not None:
        mean = float(parts.below.mean())
        if not mean > 0:
            return np.full(len(clusters.sizes), np.inf)
        linear = linear + (parts.above - parts.ratio * parts.below) / mean
    found = clusters.sums(linear)
    found /= clusters.n_rounds
    return found


def standard_error(parts: Parts, clusters: Clusters) -> float:
    """√(G / (G - 1) Σ_g ψ_g²) / n of the clusters' ``influences``; infinite of one cluster."""
    return spread_of(influences(parts, clusters))


def spread_of(found: Floats) -> float:
    """The standard error that these influences make."""
    count = len(found)
    return float(np.sqrt(found @ found * count / (count - 1))) if count > 1 else np.inf


def normal_interval(value: float, error: float, clusters: Clusters, confidence: float) -> tuple[float, float]:
    """V̂ ± t s, t the quantile of Student's distribution with G - 1 degrees of freedom.

    Holds as the number of clusters grows, if no few of them dominate the sum.
    """
    if not np.isfinite(error):
        return -np.inf, np.inf
    reach = float(student.ppf(0.5 + confidence / 2, len(clusters.sizes) - 1)) * error
    return value - reach, value + reach


def gamma_interval(
    value: float, found: Floats, weights: Floats, rewards: Floats, confidence: float
) -> tuple[float, float]:
    """V̂ where few clusters make all of its spread, as where few rounds have a reward; ``found`` are the influences.

    Each end is a quantile of a gamma distribution, moved to the mean V̂ + ψ', with the variance Σ ψ² + ψ'² and the
    skewness 2 (Σ ψ³ + ψ'³) / (Σ ψ² + ψ'²)^1.5, mirrored where that is below 0. ψ' is one more round that only chance
    kept away: the farthest influence to that side that was seen, or where it is farther ± w' δ' / n, w' = Σ w² / Σ w
    the mean weight of the policy's own choices and δ' = Σ δ² / Σ δ of the distances of rewards from their mean, to that
    side. Of c clicks with equal weights in a long log the ends are the exact ones of a Poisson mean (Garwood 1936);
    with other weights this is the idea of Fay and Feuer (1997), who take the largest weight for w'.
    """
    spread, away = float(np.sqrt(found @ found)), rewards - rewards.mean()
    scaled = found / spread
    third = float(np.sum(scaled**3))
    typical = float(weights @ weights / weights.sum()) / (len(weights) * spread)

    def end(side: float, share: float) -> float:
        farthest, distances = float((side * scaled).max()), np.maximum(side * away, 0.0)
        total = float(distances.sum())
        more = side * max(farthest, typical * float(distances @ distances) / total if total > 0 else 0.0)
        variance = 1 + more**2
        skewness = 2 * (third + more**3) / variance**1.5
        return value + spread * float(pearson3.ppf(share, skewness, loc=more, scale=np.sqrt(variance)))

    return end(-1.0, 0.5 - confidence / 2), end(1.0, 0.5 + confidence / 2)


def bernstein_interval(
    terms: Floats, limits: tuple[float, float], clusters: Clusters, confidence: float
) -> tuple[float, float]:
    """mean ± √(2 s² log(4 / δ) / G) + 7 R log(4 / δ) / (3 (G - 1)) of terms within ``limits``, δ = 1 - confidence.

    Maurer and Pontil (2009), at any number G of independent clusters. With clusters of several rounds the terms are
    their sums over the mean size, and R grows with the largest of them.
    """
    count, n = len(clusters.sizes), clusters.n_rounds
    middle = sum(limits) / 2
    sums = clusters.sums(terms - middle) * (count / n)
    radius = _bernstein_radius(sums, _reach(clusters, limits[1] - limits[0]), confidence)
    mean = middle + float(sums.mean())
    return mean - radius, mean + radius


def bernstein_ratio(
    parts: Parts, weight_bound: float, reward_range: tuple[float, float], clusters: Clusters, confidence: float
) -> tuple[float, float]:
    """Of Σ w r / Σ w: all v for which the mean of w (r - v), which is 0 at the value, is within its radius of 0."""
    low, high = reward_range
    scale = len(clusters.sizes) / clusters.n_rounds
    assert parts.above is not None, "a ratio has a numerator"
    assert parts.below is not None, "and a denominator"
    below = clusters.sums(parts.below) * scale
    above = clusters.sums(parts.above) * scale + (parts.level - low) * below
    reach = _reach(clusters, weight_bound * (high - low))

    def excess(shift: float) -> float:
        """How far outside the radius the mean is at v = low + ``shift``: concave on either side of the estimate."""
        terms = above - shift * below
        return abs(float(terms.mean())) - _bernstein_radius(terms, reach, confidence)

    total = float(below.sum())
    centre = float(above.sum()) / total if total > 0 else (high - low) / 2

    def edge(end: float) -> float:
        return low + (end if excess(end) <= 0 else float(brentq(excess, *sorted((end, centre)), xtol=1e-12)))

    return edge(0.0), edge(high - low)


def _reach(clusters: Clusters, width: float) -> float:
    return width * float(clusters.sizes.max()) * len(clusters.sizes) / clusters.n_rounds


def _bernstein_radius(terms: Floats, reach: float, confidence: float) -> float:
    count = len(terms)
    if count < 2:
        return np.inf
    depth = np.log(4 / (1 - confidence))
    return float(np.sqrt(2 * terms.var(ddof=1) * depth / count) + 7 * reach * depth / (3 * (count - 1)))
