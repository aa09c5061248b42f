"""exp() of many numbers at once, in a form that compilers turn into vector instructions."""

from __future__ import annotations

import numpy as np
from numba import njit

LOG2_E = 1.4426950408889634
# ln 2 in two parts: the first has few enough digits for its multiples to be exact (Cody and Waite).
LN2_HIGH, LN2_LOW = 6.93145751953125e-1, 1.42860682030941723212e-6
# Adding this to a number rounds it to a whole one and leaves that in the lowest bits.
ROUNDER = 6755399441055744.0
LOWEST = -700.0
BLOCK = 256


@njit(cache=True, nogil=True, fastmath={"contract"})
def exp_in_place(values):
    """values ← exp(values) for values ≤ 0, to two units in the last place; e^-700 stands for all that is smaller.

    exp(v) = 2^k exp(r) with k = round(v / ln 2) and |r| ≤ ln 2 / 2, where 13 terms of the series are enough.
    """
    powers = np.empty(min(BLOCK, values.size))
    bits = powers.view(np.int64)
    for start in range(0, values.size, BLOCK):
        block = values[start : min(start + BLOCK, values.size)]
        for i in range(block.size):
            v = max(block[i], LOWEST)
            rounded = v * LOG2_E + ROUNDER
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
            block[i] = series * r + 1.0
            powers[i] = rounded
        for i in range(block.size):
            bits[i] = (bits[i] + 1023) << 52
        for i in range(block.size):
            block[i] *= powers[i]
