"""The change-point detectors' scans over a log whose chains stand one after the other."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled


@compiled
def mean_shifts(rewards, window, begins, ends):
    """|μ⁺_t - μ⁻_t| for t = w … n - w of every chain: mean reward of the w rounds from t on against the w before t."""
    shifts = np.zeros(rewards.size + 1)
    for c in range(begins.size):
        first, last = begins[c] + window, ends[c] - window
        difference = 0.0
        for t in range(first, last + 1):
            # The running sum is started afresh every window so that rounding cannot pile up.
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
    """Walk ``candidates`` (best first), keep each that is more than ``reach`` rounds from all kept before."""
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

    Bin i holds the rounds from ``begins[i]`` on and before ``ends[i]``; those without a reward are left out.
    """
    n_blocks, n_features = whitening.shape[0], whitening.shape[1]
    many, own_row = rows.shape[0] > 1, rows.shape[1] > 1
    score = np.empty(n_features)
    for i in range(begins.size):
        for t in range(begins[i], ends[i]):
            residual = residuals[t]
            if np.isnan(residual):
                continue
            b = actions[t] if n_blocks > 1 else 0
            counts[i, b] += 1.0
            if n_features == 1 and not many:
                # The scale of a single feature cancels in every statistic.
                scores[i, b, 0] += residual
                squares[i, b] += residual * residual
                continue
            row = rows[t if many else 0, actions[t] if own_row else 0]
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
    """How much the mean scores of ``width`` bins before and from each bin on differ, as normal deviates (bins,).

    Q = Σ_b ν_b |ū⁺_b - ū⁻_b|² / (v⁺_b / n⁺_b + v⁻_b / n⁻_b), about χ² with Σ_b ν_b degrees of freedom, which the cube
    root of Wilson and Hilferty turns into a normal deviate. v± is the mean of |u - ū|² on that side, ū over both, or
    over both sides where that is larger: a side of few rounds, or of zeros only, cannot vouch for its own variance.
    Blocks with fewer than ``least`` rounds on a side are left out. ``freedom`` (B,) bounds ν_b.
    """
    n_bins, n_blocks, n_features = scores.shape
    deviates = np.full(n_bins, -np.inf)
    # Left and right sums of Σ u, Σ |u|², Σ 1 for every block.
    sides = np.zeros((2, n_blocks, n_features + 2))
    for c in range(begins.size):
        for i in range(begins[c] + width, ends[c] - width + 1):
            afresh = i == begins[c] + width or (i - begins[c]) % width == 0
            for side in range(2):
                # The bins from i - width on are on the left, those from i on are on the right.
                first = i + (side - 1) * width
                if afresh:
                    for b in range(n_blocks):
                        for j in range(n_features + 2):
                            sides[side, b, j] = 0.0
                else:
                    _add(sides[side], scores, squares, counts, first - 1, -1.0)
                for k in range(first if afresh else first + width - 1, first + width):
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
                # Sums of squares of a block that never varied leave rounding behind.
                if spread > 1e-12 * (sides[0, b, n_features] + sides[1, b, n_features]) / (n * n):
                    statistic += own * gap / spread
            if degrees > 0.0:
                unit = 2.0 / (9.0 * degrees)
                deviates[i] = ((statistic / degrees) ** (1.0 / 3.0) - 1.0 + unit) / np.sqrt(unit)
    return deviates


@compiled
def _add(side, scores, squares, counts, i, sign):
    """Add bin ``i`` to one side's sums, or take it away."""
    n_blocks, n_features = scores.shape[1], scores.shape[2]
    for b in range(n_blocks):
        if counts[i, b] > 0.0:
            for j in range(n_features):
                side[b, j] += sign * scores[i, b, j]
            side[b, n_features] += sign * squares[i, b]
            side[b, n_features + 1] += sign * counts[i, b]
