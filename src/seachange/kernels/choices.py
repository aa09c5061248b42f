"""Logit models of the action taken: p(a) ∝ exp(base(a) + c · f(x, a)) over the actions that may be shown."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled, reordered
from seachange.kernels.softmax import softmax_row


@compiled
def choice_probs(rows, mask, rounds, base, coefs, probs):
    """probs[i] of rounds[i], (m, K)."""
    for i in range(rounds.size):
        t = rounds[i]
        softmax_row(rows[t if rows.shape[0] > 1 else 0], mask[t if mask.shape[0] > 1 else 0], base, coefs, probs[i])


@reordered
def choice_sums(rows, mask, actions, rounds, base, coefs, base_slope, coef_slope):
    """Σ -log p(a_t) over these rounds; its gradients are added to ``base_slope`` (K,) and ``coef_slope`` (B, D)."""
    own_row, own_block = rows.shape[1] > 1, coefs.shape[0] > 1
    probs = np.empty(base.size)
    loss = 0.0
    for i in range(rounds.size):
        t = rounds[i]
        row, chosen = rows[t if rows.shape[0] > 1 else 0], actions[t]
        level = softmax_row(row, mask[t if mask.shape[0] > 1 else 0], base, coefs, probs)
        score = base[chosen]
        for j in range(coefs.shape[1]):
            score += coefs[chosen if own_block else 0, j] * row[chosen if own_row else 0, j]
        loss += level - score
        probs[chosen] -= 1.0
        for a in range(probs.size):
            base_slope[a] += probs[a]
            for j in range(coefs.shape[1]):
                coef_slope[a if own_block else 0, j] += probs[a] * row[a if own_row else 0, j]
    return loss
