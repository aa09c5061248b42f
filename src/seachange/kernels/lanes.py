"""Building blocks of vectorized kernels: rounds in columns of ``LANES``, sums over them, and exp()."""

import numpy as np

from seachange.kernels.compiler import compiled, fused, inlined, reordered

# Rounds processed at a time; their features should fit into the fastest cache.
LANES = 128
LOG2_E = 1.4426950408889634
# ln 2 in two parts; multiples of the first are exact because it has few digits (Cody and Waite).
LN2_HIGH, LN2_LOW = 6.93145751953125e-1, 1.42860682030941723212e-6
# Adding this rounds a number to an integer and leaves the integer in the lowest bits.
ROUNDER = 6755399441055744.0
LOWEST = -700.0
# The same constants in single precision.
LN2_HIGH_SINGLE, LN2_LOW_SINGLE = np.float32(0.693359375), np.float32(-2.12194440e-4)
ROUNDER_SINGLE, LOWEST_SINGLE = np.float32(12582912.0), np.float32(-87.0)


@compiled
def without_contexts(rows):
    """Whether there are no contexts: the only feature is a constant, and counting is enough."""
    return rows.shape[0] == 1 and rows.shape[1] == 1 and rows.shape[2] == 1


@inlined
def own_row(rows, t, action):
    """f(x_t, a) without its block; an axis of length 1 stands for all rounds, or for all actions."""
    return rows[t if rows.shape[0] > 1 else 0, action if rows.shape[1] > 1 else 0]


def action_rows(rows, actions, rounds):
    """f(x_t, a_t) of ``rounds``, (m, D)."""
    own = rows[rounds if rows.shape[0] > 1 else 0, actions[rounds] if rows.shape[1] > 1 else 0]
    return own.reshape(-1, rows.shape[2])


def group_by_block(actions, n_blocks):
    """Rounds sorted by block of coefficients, and the (B + 1,) bounds of the blocks."""
    if n_blocks == 1:
        return np.arange(actions.size), np.array([0, actions.size])
    # Integers of one or two bytes are sorted in linear time.
    order = np.argsort(actions.astype(np.min_scalar_type(n_blocks)), kind="stable")
    return order, np.append(0, np.cumsum(np.bincount(actions, minlength=n_blocks)))


@compiled
def column_buffer(n_rows):
    """Buffer for ``LANES`` columns, padded so that rows do not compete for the same cache lines."""
    return np.empty((n_rows, LANES + 8))


@compiled
def gather(rows, actions, rounds, features):
    """Write f(x_t, a_t) of ``rounds`` to the columns of ``features``."""
    for i in range(rounds.size):
        row = own_row(rows, rounds[i], actions[rounds[i]])
        for j in range(features.shape[0]):
            features[j, i] = row[j]


@fused
def weighted_sum(rows, columns, weights, totals):
    """Write Σ_j weights(j) rows(j) of ``columns`` to the start of ``totals``, summed in the order of j."""
    size = columns.stop - columns.start
    for i in range(size):
        totals[i] = 0.0
    fours = weights.size // 4 * 4
    for j in range(0, fours, 4):
        # Four rows at a time, so that each total is loaded once for all of them.
        first, second = rows[j, columns], rows[j + 1, columns]
        third, fourth = rows[j + 2, columns], rows[j + 3, columns]
        a, b, c, d = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
        for i in range(size):
            totals[i] = totals[i] + first[i] * a + second[i] * b + third[i] * c + fourth[i] * d
    for j in range(fours, weights.size):
        row, weight = rows[j, columns], weights[j]
        for i in range(size):
            totals[i] += row[i] * weight


@reordered
def add_dots(rows, columns, weights, totals):
    """Add Σ_i weights(i) rows(j, i) over ``columns`` to totals(j)."""
    size, fours, zero = columns.stop - columns.start, totals.size // 4 * 4, weights.dtype.type(0)
    for j in range(0, fours, 4):
        first, second = rows[j, columns], rows[j + 1, columns]
        third, fourth = rows[j + 2, columns], rows[j + 3, columns]
        a, b, c, d = zero, zero, zero, zero
        for i in range(size):
            a += first[i] * weights[i]
            b += second[i] * weights[i]
            c += third[i] * weights[i]
            d += fourth[i] * weights[i]
        totals[j] += a
        totals[j + 1] += b
        totals[j + 2] += c
        totals[j + 3] += d
    for j in range(fours, totals.size):
        row, a = rows[j, columns], zero
        for i in range(size):
            a += row[i] * weights[i]
        totals[j] += a


@reordered
def sum_of(values, size):
    """Sum of the first ``size`` values; the compiler may reorder it."""
    total = 0.0
    for i in range(size):
        total += values[i]
    return total


@fused
def exp_of(value):
    """exp(value) for values ≤ 0, accurate to two units in the last place; values below -700 give e^-700.

    exp(v) = 2^k exp(r) with k = round(v / ln 2) and |r| ≤ ln 2 / 2, for which 13 terms of the series are enough.
    """
    v = max(value, LOWEST)
    rounded = np.float64(v * LOG2_E + ROUNDER)
    k = rounded - ROUNDER
    r = (v - k * LN2_HIGH) - k * LN2_LOW
    series = 1.0 / 6227020800.0
    series = series * r + 1.0 / 479001600.0
    series = series * r + 1.0 / 39916800.0
    series = series * r + 1.0 / 3628800.0
    series = series * r + 1.0 / 362880.0
    series = series * r + 1.0 / 40320.0
    series = series * r + 1.0 / 5040.0
    series = series * r + 1.0 / 720.0
    series = series * r + 1.0 / 120.0
    series = series * r + 1.0 / 24.0
    series = series * r + 1.0 / 6.0
    series = series * r + 0.5
    series = series * r + 1.0
    # Shift k from the lowest bits to the exponent bits.
    power = np.int64((rounded.view(np.int64) + 1023) << 52).view(np.float64)
    return (series * r + 1.0) * power


@fused
def exp_of_single(value):
    """``exp_of`` in single precision with 7 terms; values below -87 give e^-87."""
    v = max(np.float32(value), LOWEST_SINGLE)
    rounded = np.float32(v * np.float32(LOG2_E) + ROUNDER_SINGLE)
    k = rounded - ROUNDER_SINGLE
    r = (v - k * LN2_HIGH_SINGLE) - k * LN2_LOW_SINGLE
    series = np.float32(1.0 / 720.0)
    series = series * r + np.float32(1.0 / 120.0)
    series = series * r + np.float32(1.0 / 24.0)
    series = series * r + np.float32(1.0 / 6.0)
    series = series * r + np.float32(0.5)
    series = series * r + np.float32(1.0)
    power = np.int32((rounded.view(np.int32) + np.int32(127)) << np.int32(23)).view(np.float32)
    return (series * r + np.float32(1.0)) * power
