"""The studentised bootstrap of a mean plus a ratio of sums, for many resamples at once."""

from __future__ import annotations

import numpy as np

from seachange.evaluation.formulas import Parts
from seachange.log.clusters import Clusters
from seachange.protocols import Floats

RESAMPLES = 1000
# Of more clusters than this, groups of neighbours are drawn. The spread is then known to 1 in √(2 · 4096), a hundredth.
MOST_GROUPS = 4096
# Resamples that are counted at a time, in the fastest memory.
AT_ONCE = 32
# With fewer effective clusters in the spread, (Σ ψ²)² / Σ ψ⁴ of their influences, or of the rewards' distances from
# their mean, too many resamples lack them all.
LEAST_IN_SPREAD = 10.0
# No score counts a spread below this share of the log's: rounding leaves some where there is none.
LEAST_SPREAD = 0.1


def draw_counts(n_clusters: int, seed: int) -> Floats:
    """(R, G) how often each resample draws each group, with replacement."""
    n_groups, generator = min(n_clusters, MOST_GROUPS), np.random.default_rng(seed)
    counts = np.empty((RESAMPLES, n_groups))
    for start in range(0, RESAMPLES, AT_ONCE):
        part = counts[start : start + AT_ONCE]
        # Group g of the part's resample i is place i G + g of one long count.
        picks = (
            generator.integers(n_groups, size=part.shape, dtype=np.uint16) + n_groups * np.arange(len(part))[:, None]
        )
        part[:] = np.bincount(picks.reshape(-1), minlength=part.size).reshape(part.shape)
    return counts


def bootstrap_interval(
    parts: Parts, value: float, error: float, clusters: Clusters, confidence: float, counts: Floats
) -> tuple[float, float]:
    """V̂ - s t*, t* the quantiles of (V* - V̂) / s* over resamples of whole clusters.

    Numerators and denominators are drawn together, so that a ratio that is the same in every cluster has no width.
    Holds under the conditions of the normal interval, and follows skewed terms more closely. With c rewarded rounds
    e^-c of the resamples have no reward and no spread: ``LEAST_IN_SPREAD`` is where it begins to hold.
    """
    if not 0 < error < np.inf:
        return (value, value) if error == 0 else (-np.inf, np.inf)
    n_groups = counts.shape[1]
    starts = np.arange(n_groups) * len(clusters.sizes) // n_groups

    def grouped(column: Floats) -> Floats:
        return np.add.reduceat(clusters.sums(column), starts)

    rounds = np.add.reduceat(clusters.sizes, starts)
    ratios = []
    if parts.plain is not None:
        ratios.append((grouped(parts.plain - parts.plain.mean()), rounds))
    if parts.above is not None and parts.below is not None:
        ratios.append((grouped(parts.above - parts.ratio * parts.below), grouped(parts.below)))
    moved, errors = _moved(ratios, counts)
    scores = moved / np.maximum(errors, LEAST_SPREAD * error)
    upper, lower = np.quantile(scores, [0.5 + confidence / 2, 0.5 - confidence / 2])
    return value - float(upper) * error, value - float(lower) * error


def _moved(ratios: list[tuple[Floats, Floats]], counts: Floats) -> tuple[Floats, Floats]:
    """(R,) V* - V̂ and s* of a sum of ratios Σ a / Σ b of the groups' a, which add up to 0, and b.

    s*² = G / (G - 1) Σ_g m_g ψ_g², m the counts and ψ_g the sum over the ratios of (a - (Σ m a / Σ m b) b) / Σ m b. The
    squares are multiplied out, so that every sum over groups is a column of one matrix product.
    """
    columns = [column for ratio in ratios for column in ratio]
    pairs = [(i, j) for i in range(len(columns)) for j in range(i, len(columns))]
    products = [columns[i] * columns[j] for i, j in pairs]
    sums = counts @ np.stack([*columns, *products], axis=1)
    square = {pair: sums[:, len(columns) + place] for place, pair in enumerate(pairs)}
    # ψ = Σ_i c_i column_i, with c of a and of b of every ratio.
    moved, factors = np.zeros(len(counts)), []
    for place in range(0, len(columns), 2):
        above, below = sums[:, place], sums[:, place + 1]
        scale = np.divide(1.0, below, out=np.zeros(len(below)), where=below > 0)
        moved += above * scale
        factors += [scale, -above * scale**2]
    squares = sum(
        ((1.0 if i == j else 2.0) * factors[i] * factors[j] * square[i, j] for i, j in pairs), np.zeros(len(counts))
    )
    n_groups = counts.shape[1]
    return moved, np.sqrt(np.maximum(squares, 0.0) * n_groups / (n_groups - 1))
