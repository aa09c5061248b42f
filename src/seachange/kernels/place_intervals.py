"""How far the place of a change may lie from where it was found: both fits made anew at every place that is tried."""

from __future__ import annotations

import math

import numpy as np

from seachange.kernels.compiler import compiled


@compiled
def refit(inverse, coefs, row, reward, sign, leverage):
    """A round enters (``sign`` 1) or leaves (-1) a fit c = P Σ f r with P = (Σ f f')⁻¹, both changed in place.

    P' = P ∓ P f f' P / (1 ± f' P f). Returns the round's error about the fit without it, and 1 + f' P f there.
    ``leverage`` is room for P f.
    """
    error, own = reward, 0.0
    for i in range(row.size):
        total = 0.0
        for j in range(row.size):
            total += inverse[i, j] * row[j]
        leverage[i] = total
        own += total * row[i]
        error -= coefs[i] * row[i]
    # Rounding must not turn the fit around where a round stands nearly alone.
    stretch = max(1.0 + sign * own, 1e-9)
    for i in range(row.size):
        step = sign * leverage[i] / stretch
        coefs[i] += step * error
        for j in range(row.size):
            inverse[i, j] -= step * leverage[j]
    return (error, stretch) if sign > 0 else (error / stretch, 1.0 / stretch)


@compiled
def log_predictive(reward, error, stretch, variance, clip):
    """log p(r) as a fit without the round foresees it: of a click where ``clip`` is positive, else normal.

    The normal one lacks -log √(2πv).
    """
    if clip > 0.0:
        rate = min(max(reward - error, clip), 1.0 - clip)
        return math.log(rate) if reward > 0.5 else math.log(1.0 - rate)
    return -0.5 * (math.log(stretch) + error * error / (stretch * variance))


@compiled
def trace(rows, actions, rewards, residuals, place, edge, coefs, inverses, variances, clip, deep, evidence, origin):
    """log p(rewards; τ) - log p(rewards; ``place``) for the places τ on the way to ``edge``.

    The fits (2, B, D) and (2, B, D, D) are integrated out: every round that changes sides leaves one fit, enters the
    other, and counts as each foresees it. They are used up. Written to ``evidence`` from ``origin`` on; ends early
    where it is ``deep`` below the best.
    """
    n_blocks = coefs.shape[1]
    many, own_row = rows.shape[0] > 1, rows.shape[1] > 1
    leverage = np.empty(rows.shape[2])
    step = 1 if edge > place else -1
    new = 0 if step > 0 else 1
    total, best = 0.0, 0.0
    for i in range(abs(edge - place)):
        t = place + i if step > 0 else place - 1 - i
        reward = rewards[t]
        if not np.isnan(reward):
            b = actions[t] if n_blocks > 1 else 0
            row = rows[t if many else 0, actions[t] if own_row else 0]
            for side in range(2):
                sign = 1.0 if side == new else -1.0
                error, stretch = refit(inverses[side, b], coefs[side, b], row, residuals[t], sign, leverage)
                total += sign * log_predictive(reward, error, stretch, variances[b], clip)
        evidence[origin + step * (i + 1)] = total
        best = max(best, total)
        if total < best - deep:
            break


@compiled
def walk_spreads(rows, actions, residuals, begins, places, ends, coefs, variances):
    """(C, 2) how the log-likelihood scatters as a place moves into either side, beside what the variances say.

    Σ g² e² / v² over Σ g² / v, with g what the two fits differ by in a round and e the error of its own.
    """
    found = np.ones((places.size, 2))
    n_blocks, n_features = coefs.shape[2], coefs.shape[3]
    many, own_row = rows.shape[0] > 1, rows.shape[1] > 1
    for c in range(places.size):
        for side in range(2):
            scatter, drift = 0.0, 0.0
            for t in range(places[c] if side else begins[c], ends[c] if side else places[c]):
                if np.isnan(residuals[t]):
                    continue
                b = actions[t] if n_blocks > 1 else 0
                row = rows[t if many else 0, actions[t] if own_row else 0]
                gap, error = 0.0, residuals[t]
                for j in range(n_features):
                    gap += (coefs[c, 1, b, j] - coefs[c, 0, b, j]) * row[j]
                    error -= coefs[c, side, b, j] * row[j]
                drift += gap * gap / variances[c, b]
                scatter += np.square(gap * error / variances[c, b])
            if drift > 0.0:
                found[c, side] = scatter / drift
    return found


def place_intervals(
    rows, actions, rewards, residuals, places, spans, coefs, inverses, variances, drops, clip, patience
):
    """(C, 2) first and last place of change c whose evidence is less than the best by no more than ``drops`` (C, 2).

    ``drops[c, 0]`` is for places before the best, ``drops[c, 1]`` for those after. The search begins at ``places`` and
    ends at ``spans``, or where the evidence has fallen ``patience`` times as far.
    """
    found = np.empty((places.size, 2), dtype=np.int64)
    for c, (place, (first, last)) in enumerate(zip(places, spans, strict=True)):
        evidence = np.full(last - first + 1, -np.inf)
        evidence[place - first] = 0.0
        for edge in (first, last):
            trace(
                rows, actions, rewards, residuals, place, edge, coefs[c].copy(), inverses[c].copy(), variances[c],
                clip, patience * drops[c].max(), evidence, place - first,
            )  # fmt: skip
        short = evidence.max() - evidence
        low, high = np.flatnonzero(short <= drops[c, 0])[0], np.flatnonzero(short <= drops[c, 1])[-1]
        found[c] = min(first + low, place), max(first + high, place)
    return found
