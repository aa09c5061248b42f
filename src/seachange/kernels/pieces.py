"""Pieces of a log, from one round to another: what a regression needs of each, and where two of them part."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled
from seachange.kernels.rows import tabled


@compiled
def piece_sums(rows, actions, rewards, begins, ends, n_blocks):
    """Σ [f f', f r, r², 1] by block over the rounds of every piece; rounds without a reward are left out.

    Pieces may overlap. Returns (P, B, D, D), (P, B, D), (P, B) and (P, B).
    """
    n_pieces, n_features = begins.size, rows.shape[2]
    grams = np.zeros((n_pieces, n_blocks, n_features, n_features))
    moments = np.zeros((n_pieces, n_blocks, n_features))
    squares, counts = np.zeros((n_pieces, n_blocks)), np.zeros((n_pieces, n_blocks))
    many, own_row = rows.shape[0] > 1, rows.shape[1] > 1
    # Without contexts the features are the action alone: counting is enough.
    counted = tabled(rows)
    for p in range(n_pieces):
        for t in range(begins[p], ends[p]):
            reward = rewards[t]
            if np.isnan(reward):
                continue
            b = actions[t] if n_blocks > 1 else 0
            counts[p, b] += 1.0
            squares[p, b] += reward * reward
            if counted:
                moments[p, b, 0] += reward
                continue
            row = rows[t if many else 0, actions[t] if own_row else 0]
            for i in range(n_features):
                moments[p, b, i] += row[i] * reward
                for j in range(i + 1):
                    grams[p, b, i, j] += row[i] * row[j]
        for b in range(n_blocks):
            if counted:
                moments[p, b, 0] *= rows[0, 0, 0]
                grams[p, b, 0, 0] = counts[p, b] * rows[0, 0, 0] * rows[0, 0, 0]
            for i in range(n_features):
                for j in range(i):
                    grams[p, b, j, i] = grams[p, b, i, j]
    return grams, moments, squares, counts


@compiled
def places(rows, actions, rewards, spans, coefs, variances, clip):
    """Where two fits part: change c lies from ``spans[c, 0]`` to ``spans[c, 1]``, and has a fit on either side.

    The place τ has log-likelihood Σ_{t<τ} log p(r_t; β_left) + Σ_{t≥τ} log p(r_t; β_right), for ``coefs`` (C, 2, B, D).
    Rewards are normal with ``variances`` (C, B), or, where ``clip`` is positive, clicks whose probability is kept that
    far from 0 and 1. Returns the likeliest places, (C,).
    """
    found = np.empty(spans.shape[0], dtype=np.int64)
    n_blocks, n_features = coefs.shape[2], coefs.shape[3]
    many, own_row = rows.shape[0] > 1, rows.shape[1] > 1
    for c in range(spans.shape[0]):
        total, best, found[c] = 0.0, 0.0, spans[c, 0]
        for t in range(spans[c, 0], spans[c, 1]):
            reward = rewards[t]
            if np.isnan(reward):
                continue
            b = actions[t] if n_blocks > 1 else 0
            row = rows[t if many else 0, actions[t] if own_row else 0]
            left, right = 0.0, 0.0
            for j in range(n_features):
                left += coefs[c, 0, b, j] * row[j]
                right += coefs[c, 1, b, j] * row[j]
            if clip > 0.0:
                left, right = min(max(left, clip), 1.0 - clip), min(max(right, clip), 1.0 - clip)
                total += reward * np.log(left / right) + (1.0 - reward) * np.log((1.0 - left) / (1.0 - right))
            else:
                total += (left - right) * (reward - 0.5 * (left + right)) / variances[c, b]
            if total > best:
                best, found[c] = total, t + 1
    return found


@compiled
def score_spread(rows, actions, residuals, n_blocks):
    """Σ e² f f' by block, (B, D, D): how the scores of a fit scatter."""
    n_features = rows.shape[2]
    spread = np.zeros((n_blocks, n_features, n_features))
    many, own_row = rows.shape[0] > 1, rows.shape[1] > 1
    for t in range(actions.size):
        residual = residuals[t]
        if np.isnan(residual):
            continue
        b = actions[t] if n_blocks > 1 else 0
        row = rows[t if many else 0, actions[t] if own_row else 0]
        for i in range(n_features):
            weighted = residual * residual * row[i]
            for j in range(n_features):
                spread[b, i, j] += weighted * row[j]
    return spread
