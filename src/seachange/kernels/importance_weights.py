"""Importance weights, predicted rewards, and clustered sums of products."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled, reordered


@reordered
def weigh(probs, actions, propensities, unseen, rounding, weights):
    """w_t = π(a_t | x_t) / p_t.

    Returns Σ_t Σ_a π(a | x_t) ``unseen`` (a), and the first round with a negative probability or a sum that is off by
    more than ``rounding``, or -1.
    """
    missed, unsound = 0.0, -1
    for t in range(actions.size):
        total, least = 0.0, 0.0
        for a in range(probs.shape[1]):
            total += probs[t, a]
            least = min(least, probs[t, a])
            missed += probs[t, a] * unseen[a]
        # Negated so that NaN is caught too.
        if not (abs(total - 1.0) <= rounding and least >= 0.0) and unsound < 0:
            unsound = t
        weights[t] = probs[t, actions[t]] / propensities[t]
    return missed, unsound


@reordered
def expect(probs, predicted, actions, direct, modeled):
    """Σ_a π(a | x_t) r̂(x_t, a), and r̂(x_t, a_t)."""
    for t in range(actions.size):
        total = 0.0
        for a in range(probs.shape[1]):
            total += probs[t, a] * predicted[t, a]
        direct[t] = total
        modeled[t] = predicted[t, actions[t]]


@reordered
def add_own_features(rows, actions, shares, totals):
    """Add Σ_t s_t f(x_t, a_t) to ``totals`` (B, D)."""
    many, own_row, own_block = rows.shape[0] > 1, rows.shape[1] > 1, totals.shape[0] > 1
    for t in range(actions.size):
        k, r, b = t if many else 0, actions[t] if own_row else 0, actions[t] if own_block else 0
        for j in range(totals.shape[1]):
            totals[b, j] += shares[t] * rows[k, r, j]


@reordered
def add_own_scores(rows, actions, shares, coefs, scores):
    """Add s_t c · f(x_t, a_t) to ``scores`` (n,)."""
    many, own_row, own_block = rows.shape[0] > 1, rows.shape[1] > 1, coefs.shape[0] > 1
    for t in range(actions.size):
        k, r, b = t if many else 0, actions[t] if own_row else 0, actions[t] if own_block else 0
        score = 0.0
        for j in range(coefs.shape[1]):
            score += coefs[b, j] * rows[k, r, j]
        scores[t] += shares[t] * score


@compiled
def clustered_products(clusters, n_clusters, first, second, fade, window):
    """(n,) Σ_g A_g(t) B_g(t), with A_g(t) = Σ u_ts first_s over the rounds s of cluster g, and B_g(t) from ``second``.

    u_ts = fade^(t - s) for the last ``window`` rounds up to t, and 0 for earlier ones.
    """
    totals = np.empty(clusters.size)
    sums, last = np.zeros((n_clusters, 2)), np.zeros(n_clusters, dtype=np.int64)
    total, leaving = 0.0, fade**window
    for t in range(clusters.size):
        total *= fade * fade
        # Add the new round, then drop the old one; both may be in the same cluster.
        for step in range(2):
            s = t - step * window
            if s < 0:
                continue
            g, share = clusters[s], leaving if step == 1 else -1.0
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
