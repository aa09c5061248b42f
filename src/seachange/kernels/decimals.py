"""Decimal numbers as text to the nearest double, as Python reads them.

Digits w and a power q stand for w · 10^q. Small ones are exact in floating point; for the rest the product of w and
5^q is taken to 128 bits, which decides the rounding but for a few that are left to the caller (Lemire 2021, "Number
parsing at a gigabyte per second").
"""

from __future__ import annotations

from functools import cache

import numpy as np

from seachange.kernels.compiler import compiled, inlined

SMALLEST_POWER, LARGEST_POWER = -342, 308
MOST_DIGITS = 19  # that fit into 64 bits
EXACT_POWERS = 10.0 ** np.arange(23)


@cache
def powers_of_five():
    """(651, 2) the 128 leading bits of 5^q, upper half first."""
    rows = []
    for q in range(SMALLEST_POWER, LARGEST_POWER + 1):
        if q < 0:
            power = 5**-q
            bits = (power - 1).bit_length()
            leading = (1 << (bits + 127 if q >= -27 else 2 * bits + 128)) // power + 1
        else:
            leading = 5**q << 128
        leading >>= leading.bit_length() - 128
        rows.append((leading >> 64, leading & (2**64 - 1)))
    return np.array(rows, np.uint64)


@inlined
def product_of(a, b):
    """Upper and lower half of a 128-bit product."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
    cross = a1 * b0 + ((a0 * b0) >> half)
    middle = a0 * b1 + (cross & low)
    return a1 * b1 + (cross >> half) + (middle >> half), a * b


@inlined
def leading_zeros(w):
    """Of a number that is not 0, in 64 bits."""
    count = 0
    for step in (32, 16, 8, 4, 2, 1):
        if w >> np.uint64(64 - step) == np.uint64(0):
            w <<= np.uint64(step)
            count += step
    return count


@inlined
def is_exact(w, q):
    """Whether w and 10^|q| are doubles, so that w · 10^q is rounded once."""
    return w < np.uint64(9007199254740993) and -22 <= q <= 22


@inlined
def exact_double(w, q):
    """w · 10^q where that ``is_exact``."""
    return np.float64(w) / EXACT_POWERS[-q] if q < 0 else np.float64(w) * EXACT_POWERS[q]


@compiled
def nearest_double(w, q, powers, bits, numbers):
    """w · 10^q, and whether that is sure; ``bits`` and ``numbers`` are one place of memory."""
    one = np.uint64(1)
    if w == np.uint64(0):
        return 0.0, True
    if q < SMALLEST_POWER or q > LARGEST_POWER:
        return 0.0, False
    shift = leading_zeros(w)
    w <<= np.uint64(shift)
    upper, lower = product_of(w, powers[q - SMALLEST_POWER, 0])
    if upper & np.uint64(0x1FF) == np.uint64(0x1FF):
        more, _ = product_of(w, powers[q - SMALLEST_POWER, 1])
        lower += more
        if more > lower:
            upper += one
    if lower == np.uint64(0xFFFFFFFFFFFFFFFF) and not -27 <= q <= 55:
        return 0.0, False
    top = upper >> np.uint64(63)
    cut = top + np.uint64(9)
    mantissa = upper >> cut
    exponent = ((217706 * q) >> 16) + 63 + np.int64(top) - shift + 1023
    if exponent <= 0:
        return 0.0, False
    if lower <= one and -4 <= q <= 23 and mantissa & np.uint64(3) == one and mantissa << cut == upper:
        mantissa &= ~one  # halfway between two doubles: to the even one
    mantissa = (mantissa + (mantissa & one)) >> one
    if mantissa >= np.uint64(1 << 53):
        mantissa = np.uint64(1 << 52)
        exponent += 1
    if exponent >= 2047:
        return 0.0, False
    bits[0] = (mantissa & np.uint64((1 << 52) - 1)) | (np.uint64(exponent) << np.uint64(52))
    return numbers[0], True
