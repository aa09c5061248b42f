"""Sums of products of rounds that count together, within a memory that moves along."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled


@compiled
def products_together(places, n_places, first, second, fade, window):
    """(n,) Σ_g A_g(t) B_g(t) with A_g(t) = Σ u_ts first_s over the rounds s of place g, and B_g of ``second``.

    u_ts = fade^(t - s) for the last ``window`` rounds until t, and 0 for those before.
    """
    totals = np.empty(places.size)
    sums, last = np.zeros((n_places, 2)), np.zeros(n_places, dtype=np.int64)
    total, leaving = 0.0, fade**window
    for t in range(places.size):
        total *= fade * fade
        # What enters first, then what leaves: a place may have both.
        for step in range(2):
            s = t - step * window
            if s < 0:
                continue
            g, share = places[s], leaving if step == 1 else -1.0
            if last[g] < t:
                since = fade ** (t - last[g])
                sums[g, 0] *= since
                sums[g, 1] *= since
                last[g] = t
            before = sums[g, 0] * sums[g, 1]
            sums[g, 0] -= share * first[s]
            sums[g, 1] -= share * second[s]
            total += sums[g, 0] * sums[g, 1] - before
        totals[t] = total
    return totals
