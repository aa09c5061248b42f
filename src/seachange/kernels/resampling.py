"""Bootstrap resamples of an estimate that is a mean plus a ratio of sums."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import reordered


@reordered
def resampled(picks, sums, estimates, errors):
    """Estimates of resamples and their own standard errors.

    ``picks`` (R, G) are the groups of each resample and ``sums`` (G, 4) of each group: plain, rounds, above and below.
    V = Σ plain / Σ rounds + Σ above / Σ below; its error is √(G / (G - 1) Σ ψ²), ψ the linear part of each group:
    (plain - mean rounds) / Σ rounds + (above - ratio below) / Σ below.
    """
    n_groups = picks.shape[1]
    for b in range(picks.shape[0]):
        plain, rounds, above, below = 0.0, 0.0, 0.0, 0.0
        for i in range(n_groups):
            g = picks[b, i]
            plain += sums[g, 0]
            rounds += sums[g, 1]
            above += sums[g, 2]
            below += sums[g, 3]
        per_round = 1.0 / rounds
        per_below = 1.0 / below if below > 0.0 else 0.0
        mean, ratio = plain * per_round, above * per_below
        squares = 0.0
        for i in range(n_groups):
            g = picks[b, i]
            part = (sums[g, 0] - mean * sums[g, 1]) * per_round + (sums[g, 2] - ratio * sums[g, 3]) * per_below
            squares += part * part
        estimates[b] = mean + ratio
        errors[b] = np.sqrt(squares * n_groups / (n_groups - 1.0))
