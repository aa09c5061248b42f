"""Letters of a text by its address in memory, one or eight at a time.

An address is handed from function to function at no cost, where an array is counted in and out. Whoever reads eight at
the end of a text must have ``PADDING`` behind it.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from seachange.kernels.compiler import inlined

PADDING = bytes(8)
ONES, HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
QUOTES, BACKSLASHES, SPACES = ONES * np.uint64(ord('"')), ONES * np.uint64(ord("\\")), ONES * np.uint64(ord(" "))
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd, and its bits are mixed: products with it differ where they can
ALL = ~np.uint64(0)
EIGHT = np.uint64(8)


def address_of(letters):
    """Where an array is in memory; it must outlive whoever is told."""
    return np.uint64(letters.ctypes.data)


@intrinsic
def letter(typingctx, text, place):
    """The letter at ``place`` of the text at an address."""
    return types.uint8(types.uint64, types.uint64), _loading(8)


@intrinsic
def eight(typingctx, text, place):
    """The eight letters from ``place`` on as one number, the first in its lowest bits."""
    return types.uint64(types.uint64, types.uint64), _loading(64)


def _loading(bits):
    def generate(context, builder, signature, arguments):
        place = builder.add(arguments[0], arguments[1])
        return builder.load(builder.inttoptr(place, ir.IntType(bits).as_pointer()), align=1)

    return generate


@intrinsic
def low_zeros(typingctx, word):
    """How many of the lowest bits are 0; ``word`` is not."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@inlined
def first_letters(size):
    """The bits of the first ``size`` letters of eight; of all where there are more."""
    return ALL if size >= EIGHT else (np.uint64(1) << (size * EIGHT)) - np.uint64(1)


@inlined
def ends_of_run(word):
    """The high bit of the first letter of eight that is a quote, a backslash or below a space; later ones may err."""
    quotes, slashes = word ^ QUOTES, word ^ BACKSLASHES
    found = ((quotes - ONES) & ~quotes) | ((slashes - ONES) & ~slashes) | ((word - SPACES) & ~word)
    return found & HIGH


@inlined
def same(one, start, other, begin, size):
    """Whether ``size`` letters are the same in two texts."""
    start, begin, left = np.uint64(start), np.uint64(begin), np.uint64(size)
    while left > EIGHT:
        if eight(one, start) != eight(other, begin):
            return False
        start += EIGHT
        begin += EIGHT
        left -= EIGHT
    return (eight(one, start) ^ eight(other, begin)) & first_letters(left) == np.uint64(0)
