"""Lines of JSON that readers understand differently, found before any of them reads."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled

FINE, BLANK, NEW_KEY, DOUBTFUL = 0, 1, 2, 3
# Keys are told apart by numbers of 37 bits, so that their product with the factor has no more than 63.
BITS, FACTOR = (1 << 37) - 1, 16777619
DEEPEST = 64
MOST_KEYS = 1024  # of a line, all its objects together

# The characters that matter outside of texts: " { }
MARKS = np.zeros(256, dtype=np.bool_)
MARKS[[34, 123, 125]] = True

_QUOTE, _BACKSLASH, _COLON, _OPEN, _CLOSE, _U = 34, 92, 58, 123, 125, 117


@compiled
def key_number(codes, begin, end, around):
    """The number of the key codes[begin:end] in an object whose own key has the number ``around``."""
    number = around + 1
    for i in range(begin, end):
        number = ((number ^ np.int64(codes[i])) * FACTOR) & BITS
    return number


@compiled
def doubtful_lines(codes, begins, ends, known):
    """(n,) of every line: nothing in it, keys that are not in ``known`` (sorted), or a key twice, an escape in a key
    or half a character, about which readers differ."""
    found = np.zeros(begins.size, dtype=np.int8)
    numbers = np.zeros(2 * MOST_KEYS, dtype=np.int64)  # open addressing: what a slot holds, and for which line
    objects = np.zeros(2 * MOST_KEYS, dtype=np.int64)
    lines = np.full(2 * MOST_KEYS, -1, dtype=np.int64)
    around = np.zeros(DEEPEST, dtype=np.int64)
    which = np.zeros(DEEPEST, dtype=np.int64)
    for t in range(begins.size):
        depth, n_objects, n_keys, last_key = -1, 0, 0, 0
        i, end = begins[t], ends[t]
        while i < end and codes[i] <= 32:
            i += 1
        if i == end:
            found[t] = BLANK
        while found[t] != DOUBTFUL:
            while i < end and not MARKS[codes[i]]:
                i += 1
            if i >= end:
                break
            code = codes[i]
            if code == _OPEN:
                depth += 1
                if depth >= DEEPEST:
                    found[t] = DOUBTFUL
                    break
                around[depth], which[depth] = last_key, n_objects
                n_objects += 1
            elif code == _CLOSE:
                depth -= 1
                if depth >= 0:
                    last_key = around[depth + 1]
            else:
                begin, escaped = i + 1, False
                i += 1
                while i < end and codes[i] != _QUOTE:
                    if codes[i] == _BACKSLASH:
                        escaped = True
                        if i + 1 < end and codes[i + 1] == _U:
                            if _half_a_character(codes, i, end):
                                found[t] = DOUBTFUL
                            elif _surrogate(codes, i, end) == 1:
                                i += 6
                        i += 1
                    i += 1
                after = i + 1
                while after < end and codes[after] <= 32:
                    after += 1
                if after < end and codes[after] == _COLON and depth >= 0:
                    last_key = key_number(codes, begin, i, around[depth])
                    n_keys += 1
                    slot = (last_key * 31 + which[depth]) % numbers.size
                    while lines[slot] == t and not (numbers[slot] == last_key and objects[slot] == which[depth]):
                        slot = (slot + 1) % numbers.size
                    if escaped or lines[slot] == t or n_keys >= MOST_KEYS:
                        found[t] = DOUBTFUL
                    numbers[slot], objects[slot], lines[slot] = last_key, which[depth], t
                    place = np.searchsorted(known, last_key)
                    if found[t] == FINE and (place == known.size or known[place] != last_key):
                        found[t] = NEW_KEY
                    i = after
            i += 1
    return found


@compiled
def _surrogate(codes, i, end):
    r"""1 and 2 for the first and second half of a character at the escape \uXXXX at ``i``; 0 for a whole one."""
    if i + 5 >= end or (codes[i + 2] | 32) != 100:
        return 0
    digit = codes[i + 3] | 32
    if digit == 56 or digit == 57 or digit == 97 or digit == 98:
        return 1
    return 2 if 99 <= digit <= 102 else 0


@compiled
def _half_a_character(codes, i, end):
    half = _surrogate(codes, i, end)
    if half == 1:
        return not (
            i + 11 < end and codes[i + 6] == _BACKSLASH and codes[i + 7] == _U and _surrogate(codes, i + 6, end) == 2
        )
    return half == 2
