"""Linear softmax policies: π(a | x; θ) ∝ exp(θ · f(x, a)) over the actions that may be shown."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled


@compiled
def softmax_row(row, allowed, base, coefs, probs):
    """probs(a) ∝ exp(base(a) + θ_a · x_a), and 0 where ``allowed`` is false; returns max + log Σ exp of the scores."""
    own_row, own_block = row.shape[0] > 1, coefs.shape[0] > 1
    highest = -np.inf
    for a in range(probs.size):
        if allowed[a]:
            logit = base[a]
            for j in range(coefs.shape[1]):
                logit += coefs[a if own_block else 0, j] * row[a if own_row else 0, j]
            probs[a] = logit
            highest = max(highest, logit)
    total = 0.0
    for a in range(probs.size):
        probs[a] = np.exp(probs[a] - highest) if allowed[a] else 0.0
        total += probs[a]
    for a in range(probs.size):
        probs[a] /= total
    return highest + np.log(total)


@compiled
def softmax_advice(rows, coefs, mask, advice):
    """advice[t, z] = π(· | x_t; θ_z) for every round t and coefficient set z."""
    base = np.zeros(advice.shape[2])
    for t in range(advice.shape[0]):
        row = rows[t if rows.shape[0] > 1 else 0]
        allowed = mask[t if mask.shape[0] > 1 else 0]
        for z in range(advice.shape[1]):
            softmax_row(row, allowed, base, coefs[z], advice[t, z])
