"""exp() in a form that compilers can vectorize."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import fused

LOG2_E = 1.4426950408889634
# ln 2 in two parts; multiples of the first are exact because it has few digits (Cody and Waite).
LN2_HIGH, LN2_LOW = 6.93145751953125e-1, 1.42860682030941723212e-6
# Adding this rounds a number to an integer and leaves the integer in the lowest bits.
ROUNDER = 6755399441055744.0
LOWEST = -700.0
# The same constants in single precision.
LN2_HIGH_SINGLE, LN2_LOW_SINGLE = np.float32(0.693359375), np.float32(-2.12194440e-4)
ROUNDER_SINGLE, LOWEST_SINGLE = np.float32(12582912.0), np.float32(-87.0)


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
