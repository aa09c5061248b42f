"""Scans for change points: shifts of means and scores, segment sums, autocovariances, and intervals of positions."""

import math

import numpy as np

from seachange.kernels.compiler import compiled
from seachange.kernels.lanes import own_row


@compiled
def mean_shifts(rewards, window, begins, ends):
    """|μ⁺_t - μ⁻_t| for t = w … n - w of each chain: mean rewards of the w rounds from t on and the w before t."""
    shifts = np.zeros(rewards.size + 1)
    for c in range(begins.size):
        first, last = begins[c] + window, ends[c] - window
        difference = 0.0
        for t in range(first, last + 1):
            # Restart the running sum once per window so that rounding errors do not accumulate.
            if t == first or t % window == 0:
                difference = 0.0
                for i in range(window):
                    difference += rewards[t + i] - rewards[t - window + i]
            else:
                difference += rewards[t + window - 1] - 2.0 * rewards[t - 1] + rewards[t - window - 1]
            shifts[t] = abs(difference) / window
    return shifts


@compiled
def pick_peaks(candidates, n, reach):
    """Go through ``candidates``, best first, and keep each that is more than ``reach`` rounds from all kept so far."""
    blocked = np.zeros(n + 1, dtype=np.bool_)
    kept = np.zeros(candidates.size, dtype=np.bool_)
    for i in range(candidates.size):
        t = candidates[i]
        if not blocked[t]:
            kept[i] = True
            for near in range(max(0, t - reach), min(n, t + reach) + 1):
                blocked[near] = True
    return candidates[kept]


@compiled
def bin_scores(rows, actions, residuals, whitening, begins, ends, scores, squares, counts):
    """Sums of the whitened scores u_t = e_t W_b f_t over bins: Σ u (bins, B, D), Σ |u|² and Σ 1 (bins, B).

    Bin i holds the rounds from ``begins[i]`` to before ``ends[i]``; rounds without a reward are skipped.
    """
    n_blocks, n_features = whitening.shape[0], whitening.shape[1]
    score = np.empty(n_features)
    for i in range(begins.size):
        for t in range(begins[i], ends[i]):
            residual = residuals[t]
            if np.isnan(residual):
                continue
            b = actions[t] if n_blocks > 1 else 0
            counts[i, b] += 1.0
            row = own_row(rows, t, actions[t])
            total = 0.0
            for j in range(n_features):
                entry = 0.0
                for k in range(n_features):
                    entry += whitening[b, j, k] * row[k]
                score[j] = entry * residual
                total += score[j] * score[j]
            for j in range(n_features):
                scores[i, b, j] += score[j]
            squares[i, b] += total


@compiled
def score_shifts(scores, squares, counts, begins, ends, width, freedom, least):
    """Difference of mean scores between the ``width`` bins before each bin and those from it on, as normal deviates.

    Q = Σ_b ν_b |ū⁺_b - ū⁻_b|² / (v⁺_b / n⁺_b + v⁻_b / n⁻_b) is approximately χ² with Σ_b ν_b degrees of freedom; the
    Wilson-Hilferty cube root turns it into a normal deviate. v± is the mean of |u - ū|² on that side, with ū over both
    sides, or the mean over both sides if that is larger: a side with few rounds, or only zeros, underestimates its
    variance. Blocks with fewer than ``least`` rounds on a side are skipped. ``freedom`` (B,) bounds ν_b.
    """
    n_bins, n_blocks, n_features = scores.shape
    deviates = np.full(n_bins, -np.inf)
    # Σ u, Σ |u|² and Σ 1 of each block, left and right.
    sides = np.zeros((2, n_blocks, n_features + 2))
    for c in range(begins.size):
        for i in range(begins[c] + width, ends[c] - width + 1):
            restart = i == begins[c] + width or (i - begins[c]) % width == 0
            for side in range(2):
                # The left side starts at bin i - width, the right side at bin i.
                first = i + (side - 1) * width
                if restart:
                    for b in range(n_blocks):
                        for j in range(n_features + 2):
                            sides[side, b, j] = 0.0
                else:
                    _add(sides[side], scores, squares, counts, first - 1, -1.0)
                for k in range(first if restart else first + width - 1, first + width):
                    _add(sides[side], scores, squares, counts, k, 1.0)
            statistic, degrees = 0.0, 0.0
            for b in range(n_blocks):
                before, after = sides[0, b, n_features + 1], sides[1, b, n_features + 1]
                n = before + after
                if before < least or after < least:
                    continue
                gap, left, right = 0.0, sides[0, b, n_features], sides[1, b, n_features]
                for j in range(n_features):
                    mean = (sides[0, b, j] + sides[1, b, j]) / n
                    gap += (sides[0, b, j] / before - sides[1, b, j] / after) ** 2
                    left += mean * (before * mean - 2.0 * sides[0, b, j])
                    right += mean * (after * mean - 2.0 * sides[1, b, j])
                left, right = max(left, 0.0), max(right, 0.0)
                both = (left + right) / (n - 1.0)
                spread = max(left / before, both) / before + max(right / after, both) / after
                own = freedom[b] * n / (n + freedom[b])
                degrees += own
                # If a block has no variance, its sums of squares contain only rounding errors.
                if spread > 1e-12 * (sides[0, b, n_features] + sides[1, b, n_features]) / (n * n):
                    statistic += own * gap / spread
            if degrees > 0.0:
                unit = 2.0 / (9.0 * degrees)
                deviates[i] = ((statistic / degrees) ** (1.0 / 3.0) - 1.0 + unit) / np.sqrt(unit)
    return deviates


@compiled
def _add(side, scores, squares, counts, i, sign):
    """Add bin ``i`` to one side's sums (``sign`` 1) or subtract it (-1)."""
    n_blocks, n_features = scores.shape[1], scores.shape[2]
    for b in range(n_blocks):
        if counts[i, b] > 0.0:
            for j in range(n_features):
                side[b, j] += sign * scores[i, b, j]
            side[b, n_features] += sign * squares[i, b]
            side[b, n_features + 1] += sign * counts[i, b]


@compiled
def segment_sums(rows, actions, rewards, begins, ends, n_blocks):
    """Σ [f f', f r, r², 1] by block over the rounds of each segment; rounds without a reward are skipped.

    Segments may overlap. Returns (S, B, D, D), (S, B, D), (S, B) and (S, B).
    """
    n_segments, n_features = begins.size, rows.shape[2]
    grams = np.zeros((n_segments, n_blocks, n_features, n_features))
    moments = np.zeros((n_segments, n_blocks, n_features))
    squares, counts = np.zeros((n_segments, n_blocks)), np.zeros((n_segments, n_blocks))
    for p in range(n_segments):
        for t in range(begins[p], ends[p]):
            reward = rewards[t]
            if np.isnan(reward):
                continue
            b = actions[t] if n_blocks > 1 else 0
            counts[p, b] += 1.0
            squares[p, b] += reward * reward
            row = own_row(rows, t, actions[t])
            for i in range(n_features):
                moments[p, b, i] += row[i] * reward
                for j in range(i + 1):
                    grams[p, b, i, j] += row[i] * row[j]
        for b in range(n_blocks):
            for i in range(n_features):
                for j in range(i):
                    grams[p, b, j, i] = grams[p, b, i, j]
    return grams, moments, squares, counts


@compiled
def segment_residuals(rows, actions, residuals, begins, ends, coefs):
    """(n,) e_t - c · f_t, with c the ``coefs`` (S, B, D) of the round's segment; 0 if it has no reward."""
    found = np.zeros(residuals.size)
    n_blocks, n_features = coefs.shape[1], coefs.shape[2]
    for p in range(begins.size):
        for t in range(begins[p], ends[p]):
            if not np.isnan(residuals[t]):
                b = actions[t] if n_blocks > 1 else 0
                row = own_row(rows, t, actions[t])
                found[t] = residuals[t]
                for j in range(n_features):
                    found[t] -= coefs[p, b, j] * row[j]
    return found


@compiled
def autocovariances(values, begins, ends, n_lags):
    """(n_lags + 1,) Σ_t e_t e_t+k for k = 0, 1, …, over rounds of the same chain."""
    sums = np.zeros(n_lags + 1)
    for c in range(begins.size):
        for t in range(begins[c], ends[c]):
            for k in range(min(n_lags, ends[c] - 1 - t) + 1):
                sums[k] += values[t] * values[t + k]
    return sums


@compiled
def best_positions(rows, actions, rewards, spans, coefs, variances, clip):
    """(C,) most likely position of each change within ``spans`` (C, 2), given the fits on both sides.

    Position τ has log-likelihood Σ_{t<τ} log p(r_t; β_left) + Σ_{t≥τ} log p(r_t; β_right), with ``coefs`` (C, 2, B, D).
    Rewards are normal with ``variances`` (C, B), or, if ``clip`` is positive, clicks whose probability is kept at least
    that far from 0 and 1.
    """
    found = np.empty(spans.shape[0], dtype=np.int64)
    n_blocks, n_features = coefs.shape[2], coefs.shape[3]
    for c in range(spans.shape[0]):
        total, best, found[c] = 0.0, 0.0, spans[c, 0]
        for t in range(spans[c, 0], spans[c, 1]):
            reward = rewards[t]
            if np.isnan(reward):
                continue
            b = actions[t] if n_blocks > 1 else 0
            row = own_row(rows, t, actions[t])
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
def refit(inverse, coefs, row, reward, sign, leverage):
    """Add a round to a fit (``sign`` 1) or remove it (-1), in place: c = P Σ f r with P = (Σ f f')⁻¹.

    P' = P ∓ P f f' P / (1 ± f' P f). Returns the round's error under the fit without it, and 1 + f' P f of that fit.
    ``leverage`` is a buffer for P f.
    """
    error, own = reward, 0.0
    for i in range(row.size):
        total = 0.0
        for j in range(row.size):
            total += inverse[i, j] * row[j]
        leverage[i] = total
        own += total * row[i]
        error -= coefs[i] * row[i]
    # If a round is nearly alone in its fit, rounding must not flip the sign.
    stretch = max(1.0 + sign * own, 1e-9)
    for i in range(row.size):
        step = sign * leverage[i] / stretch
        coefs[i] += step * error
        for j in range(row.size):
            inverse[i, j] -= step * leverage[j]
    return (error, stretch) if sign > 0 else (error / stretch, 1.0 / stretch)


@compiled
def log_predictive(reward, error, stretch, variance, clip):
    """log p(r) predicted by a fit without the round: Bernoulli if ``clip`` > 0, else normal up to -log √(2πv)."""
    if clip > 0.0:
        rate = min(max(reward - error, clip), 1.0 - clip)
        return math.log(rate) if reward > 0.5 else math.log(1.0 - rate)
    return -0.5 * (math.log(stretch) + error * error / (stretch * variance))


@compiled
def trace_evidence(
    rows, actions, rewards, residuals, position, edge, coefs, inverses, variances, clip, max_drop, evidence, origin
):
    """log p(rewards; τ) - log p(rewards; ``position``) for each τ from ``position`` to ``edge``.

    The fits (2, B, D) and (2, B, D, D) are integrated out: each round that changes sides is removed from one fit, added
    to the other, and scored by the predictions of both; the fits are overwritten. Results go to ``evidence``, starting
    at ``origin``. Stops once the evidence is ``max_drop`` below the best.
    """
    n_blocks = coefs.shape[1]
    leverage = np.empty(rows.shape[2])
    step = 1 if edge > position else -1
    new = 0 if step > 0 else 1
    total, best = 0.0, 0.0
    for i in range(abs(edge - position)):
        t = position + i if step > 0 else position - 1 - i
        reward = rewards[t]
        if not np.isnan(reward):
            b = actions[t] if n_blocks > 1 else 0
            row = own_row(rows, t, actions[t])
            for side in range(2):
                sign = 1.0 if side == new else -1.0
                error, stretch = refit(inverses[side, b], coefs[side, b], row, residuals[t], sign, leverage)
                total += sign * log_predictive(reward, error, stretch, variances[b], clip)
        evidence[origin + step * (i + 1)] = total
        best = max(best, total)
        if total < best - max_drop:
            break


@compiled
def likelihood_spreads(rows, actions, residuals, begins, positions, ends, coefs, variances):
    """(C, 2) variance of the log-likelihood as a change moves into either side, relative to what ``variances`` imply.

    Σ g² e² / v² over Σ g² / v, with g the difference of the two fits in a round and e the residual of its own side.
    """
    found = np.ones((positions.size, 2))
    n_blocks, n_features = coefs.shape[2], coefs.shape[3]
    for c in range(positions.size):
        for side in range(2):
            scatter, drift = 0.0, 0.0
            for t in range(positions[c] if side else begins[c], ends[c] if side else positions[c]):
                if np.isnan(residuals[t]):
                    continue
                b = actions[t] if n_blocks > 1 else 0
                row = own_row(rows, t, actions[t])
                gap, error = 0.0, residuals[t]
                for j in range(n_features):
                    gap += (coefs[c, 1, b, j] - coefs[c, 0, b, j]) * row[j]
                    error -= coefs[c, side, b, j] * row[j]
                drift += gap * gap / variances[c, b]
                scatter += np.square(gap * error / variances[c, b])
            if drift > 0.0:
                found[c, side] = scatter / drift
    return found


def position_intervals(
    rows, actions, rewards, residuals, positions, spans, coefs, inverses, variances, drops, clip, patience
):
    """(C, 2) first and last position of each change whose evidence is within ``drops`` (C, 2) of the best.

    ``drops[c, 0]`` applies before the best position, ``drops[c, 1]`` after it. The search starts at ``positions`` and
    ends at the limits in ``spans``, or once the evidence has dropped ``patience`` times as far.
    """
    found = np.empty((positions.size, 2), dtype=np.int64)
    for c, (position, (first, last)) in enumerate(zip(positions, spans, strict=True)):
        evidence = np.full(last - first + 1, -np.inf)
        evidence[position - first] = 0.0
        for edge in (first, last):
            trace_evidence(
                rows, actions, rewards, residuals, position, edge, coefs[c].copy(), inverses[c].copy(), variances[c],
                clip, patience * drops[c].max(), evidence, position - first,
            )  # fmt: skip
        short = evidence.max() - evidence
        low, high = np.flatnonzero(short <= drops[c, 0])[0], np.flatnonzero(short <= drops[c, 1])[-1]
        found[c] = min(first + low, position), max(first + high, position)
    return found
