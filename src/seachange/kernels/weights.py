"""Weights and predicted rewards of rounds, from the probabilities of a policy."""

from __future__ import annotations

from seachange.kernels.compiler import reordered


@reordered
def weigh(probs, actions, propensities, unseen, rounding, weights):
    """w_t = π(a_t | x_t) / p_t.

    Returns Σ_t Σ_a π(a | x_t) ``unseen`` (a), and the first round whose probabilities are below 0 or do not add up to
    1 within ``rounding``, or -1.
    """
    missed, unsound = 0.0, -1
    for t in range(actions.size):
        total, least = 0.0, 0.0
        for a in range(probs.shape[1]):
            total += probs[t, a]
            least = min(least, probs[t, a])
            missed += probs[t, a] * unseen[a]
        # NaN fails every comparison.
        if not (abs(total - 1.0) <= rounding and least >= 0.0) and unsound < 0:
            unsound = t
        weights[t] = probs[t, actions[t]] / propensities[t]
    return missed, unsound


@reordered
def expect(probs, predicted, actions, direct, modelled):
    """Σ_a π(a | x_t) r̂(x_t, a), and r̂(x_t, a_t)."""
    for t in range(actions.size):
        total = 0.0
        for a in range(probs.shape[1]):
            total += probs[t, a] * predicted[t, a]
        direct[t] = total
        modelled[t] = predicted[t, actions[t]]


@reordered
def add_own_features(rows, actions, shares, totals):
    """Σ_t s_t f(x_t, a_t), added to ``totals`` (B, D)."""
    many, own_row, own_block = rows.shape[0] > 1, rows.shape[1] > 1, totals.shape[0] > 1
    for t in range(actions.size):
        k, r, b = t if many else 0, actions[t] if own_row else 0, actions[t] if own_block else 0
        for j in range(totals.shape[1]):
            totals[b, j] += shares[t] * rows[k, r, j]


@reordered
def add_own_scores(rows, actions, shares, coefs, scores):
    """s_t c · f(x_t, a_t), added to ``scores`` (n,)."""
    many, own_row, own_block = rows.shape[0] > 1, rows.shape[1] > 1, coefs.shape[0] > 1
    for t in range(actions.size):
        k, r, b = t if many else 0, actions[t] if own_row else 0, actions[t] if own_block else 0
        score = 0.0
        for j in range(coefs.shape[1]):
            score += coefs[b, j] * rows[k, r, j]
        scores[t] += shares[t] * score
