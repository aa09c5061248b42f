"""Lines of JSON that have the same keys in the same order, found without parsing them.

Parsers differ on duplicate keys, and they ignore keys that nobody asked for. So one line of every structure is
examined, and the others are trusted. Two lines have the same structure if their keys, braces and brackets are the same
bytes in the same order; these are compared by a hash with random weights.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from seachange.protocols import Bools, Ints

Hashes = npt.NDArray[np.uint64]
QUOTE, BACKSLASH, COLON, SPACE = (mark[0] for mark in (b'"', b"\\", b":", b" "))
BRACKETS = np.isin(np.arange(256), np.frombuffer(b"{}[]", dtype=np.uint8))
WHITESPACE = np.isin(np.arange(256), np.frombuffer(b" \t\r\v\f", dtype=np.uint8))
HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
# A line with more keys or brackets, or with a longer key, is always looked at closely.
MOST_MARKS, LONGEST_KEY = 1 << 12, 128
WORD = 8  # bytes of a key that are hashed at a time
MASKS = np.array([(1 << 8 * n) - 1 for n in range(WORD + 1)], dtype=np.uint64)


class LineStructures:
    """Compares the structures of lines; hashes of one instance can be compared with each other."""

    def __init__(self) -> None:
        random = np.random.default_rng()
        self._keys, self._brackets, self._keys_before = random.integers(1 << 64, size=(3, MOST_MARKS), dtype=np.uint64)
        self._words = random.integers(1 << 64, size=LONGEST_KEY // WORD, dtype=np.uint64)

    def of(self, text: bytes, starts: Ints, ends: Ints) -> tuple[Hashes, Bools]:
        """(n,) the hash of each line's structure, and whether the line has to be looked at closely in any case.

        Σ_i key_i u_i + Σ_j bracket_j v_j w_k(j), with random u, v, w and k(j) keys before bracket j.
        """
        codes = np.frombuffer(text, dtype=np.uint8)
        quotes = np.flatnonzero(codes == QUOTE)
        if b"\\" in text:
            quotes = quotes[~_escaped(codes)[quotes]]
        n_quotes = np.searchsorted(quotes, ends) - np.searchsorted(quotes, starts)
        unclear: Bools = n_quotes % 2 == 1
        if unclear.any():
            quotes = quotes[np.repeat(~unclear, n_quotes)]
        opening, closing = quotes[::2], quotes[1::2]
        after = codes[closing + 1]
        if (spaced := WHITESPACE[after]).any():
            after = np.where(after == SPACE, codes[closing + 1 + spaced], after)
            unclear[np.searchsorted(ends, closing[WHITESPACE[after]])] = True
        keys = after == COLON
        keys, key_ends = opening[keys] + 1, closing[keys]
        key_starts = np.searchsorted(keys, starts)
        brackets = np.flatnonzero((codes | 0x26) == 0x7F)  # these and a few letters
        brackets = brackets[BRACKETS[codes[brackets]]]
        brackets = brackets[np.searchsorted(quotes, brackets) % 2 == 0]
        before = np.searchsorted(keys, brackets) - key_starts[np.searchsorted(ends, brackets)]
        key_hashes, long = self._hashed(text, keys, key_ends - keys)
        unclear[np.searchsorted(ends, keys[long])] = True
        hashes = _sums(key_hashes, keys, self._keys, starts, ends, unclear)
        weighted = codes[brackets] * self._keys_before[np.minimum(before, MOST_MARKS - 1)]
        hashes += _sums(weighted, brackets, self._brackets, starts, ends, unclear)
        if b"\\" in text:
            marked = np.array([match.start() for match in HALF_CHARACTER.finditer(text)], dtype=np.int64)
            places = np.flatnonzero(codes == BACKSLASH)
            in_keys = np.searchsorted(keys, places, side="right") > np.searchsorted(key_ends, places, side="right")
            unclear[np.searchsorted(ends, np.concatenate([marked, places[in_keys]]))] = True
        return hashes, unclear

    def _hashed(self, text: bytes, keys: Ints, lengths: Ints) -> tuple[Hashes, Bools]:
        """(keys,) the hash of each key, and whether it is too long for one."""
        padded = text + bytes(WORD)
        words = np.ndarray(len(text), dtype=np.uint64, buffer=padded, strides=(1,))  # the bytes from each place on
        long: Bools = lengths > LONGEST_KEY
        hashes = lengths.astype(np.uint64)
        for i in range(min(int(lengths.max(initial=0)), LONGEST_KEY) // WORD + 1):
            left = np.clip(lengths - i * WORD, 0, WORD)
            if i < len(self._words):
                part = words[np.minimum(keys + i * WORD, len(text) - 1)] & MASKS[left]
                hashes += part * self._words[i]
        return hashes, long


def _sums(values: Hashes, places: Ints, weights: Hashes, starts: Ints, ends: Ints, unclear: Bools) -> Hashes:
    """(lines,) Σ_i values_i weights_i over the places in each line; lines with too many become unclear."""
    first, beyond = np.searchsorted(places, starts), np.searchsorted(places, ends)
    unclear |= beyond - first > MOST_MARKS
    ranks = np.arange(len(places)) - np.repeat(first, beyond - first)
    products = values * weights[np.minimum(ranks, MOST_MARKS - 1)]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(products)])
    return np.asarray(sums[beyond] - sums[first])


def blank_lines(text: bytes, starts: Ints, ends: Ints) -> Bools:
    """(n,) whether a line has nothing but whitespace."""
    codes = np.frombuffer(text, dtype=np.uint8)
    blank: Bools = starts == ends
    for i in np.flatnonzero(WHITESPACE[codes[starts]]):
        blank[i] = not text[starts[i] : ends[i]].strip()
    return blank


def _escaped(codes: npt.NDArray[np.uint8]) -> Bools:
    """(n,) whether a byte follows a backslash that is not itself escaped."""
    places = np.flatnonzero(codes == BACKSLASH)
    begins = np.diff(places, prepend=-2) != 1
    run_starts = places[np.maximum.accumulate(np.where(begins, np.arange(len(places)), 0))]
    escaped = np.zeros(len(codes) + 1, dtype=bool)
    escaped[places[(places - run_starts) % 2 == 0] + 1] = True
    return escaped
