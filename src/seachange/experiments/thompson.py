"""Bernoulli Thompson sampling, as the shop of the Open Bandit data ran it: which action stands at which place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.integrate import trapezoid
from scipy.stats import beta

from seachange.protocols import Floats

# The Beta distributions of the 80 items of campaign "all" when logging began (Open Bandit Pipeline, prior_bts.yaml).
# fmt: off
CLICKS = (
    47, 8, 62, 142, 3, 14, 7, 857, 12, 15, 6, 100, 48, 23, 71, 61, 13, 16, 518, 30, 7, 4, 23, 8, 10, 11, 11, 18,
    121, 11, 11, 10, 14, 9, 204, 58, 3, 19, 42, 1013, 2, 328, 15, 31, 14, 138, 45, 55, 23, 38, 10, 401, 52, 6,
    3, 6, 5, 32, 35, 133, 52, 820, 43, 195, 8, 42, 40, 4, 32, 30, 9, 22, 6, 23, 5, 54, 8, 22, 65, 246,
)
SKIPS = (
    12198, 3566, 15993, 35522, 2367, 4609, 3171, 181745, 4372, 4951, 3100, 24665, 13210, 7061, 18061, 17449,
    5644, 6787, 111326, 8776, 3334, 2271, 7389, 2659, 3665, 4724, 3561, 5085, 27407, 4601, 4756, 4120, 4736,
    3788, 45292, 14719, 2189, 5589, 11995, 222255, 2308, 70034, 4801, 8274, 5421, 31912, 12213, 13576, 6230,
    10382, 4141, 85731, 12811, 2707, 2250, 2668, 2886, 9581, 9465, 28336, 12062, 162793, 12107, 41240, 3162,
    11604, 10818, 2923, 8897, 8654, 4000, 6580, 3174, 6766, 2602, 14506, 3968, 7523, 16532, 51964,
)
# fmt: on
GRID = 4001
# What is left out of every distribution's upper tail.
TAIL = 1e-12


def place_probs(clicks: npt.ArrayLike, skips: npt.ArrayLike, n_places: int) -> Floats:
    """P(action a has the k-th largest draw) (K, n_places), the draws θ_a ~ Beta(clicks_a, skips_a) independent.

    ∫ f_a(x) P(exactly k - 1 of the others exceed x) dx, by the trapezoid rule.
    """
    first, second = np.asarray(clicks, dtype=np.float64)[:, None], np.asarray(skips, dtype=np.float64)[:, None]
    draws = np.linspace(0.0, float(beta.isf(TAIL, first, second).max()), GRID)
    densities, exceeding = beta.pdf(draws, first, second), beta.sf(draws, first, second)
    before = _counts(exceeding, n_places)[:-1]
    after = _counts(exceeding[::-1], n_places)[:-1][::-1]
    probs = np.empty((len(exceeding), n_places))
    for place in range(n_places):
        others = sum(before[:, i] * after[:, place - i] for i in range(place + 1))
        probs[:, place] = trapezoid(densities * others, draws)
    return probs


def _counts(exceeding: Floats, n_places: int) -> Floats:
    """P(j of the first a actions exceed x) (K + 1, n_places, grid) for j below ``n_places``."""
    counts = np.zeros((len(exceeding) + 1, n_places, exceeding.shape[1]))
    counts[0, 0] = 1.0
    for action, above in enumerate(exceeding):
        counts[action + 1] = counts[action] * (1 - above)
        counts[action + 1, 1:] += counts[action, :-1] * above
    return counts
