"""Raw columns: their moments, and their place in rows of features."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled, reordered

# Rows that are filled at a time: they should stay in the fastest memory while every column is written into them.
BLOCK = 256


@reordered
def column_moments(column, largest):
    """How many entries are numbers, how many of them at most ``largest`` in size, and of these the mean, the squared
    deviations from it, the least and the most, and whether all are 0 or 1.
    """
    seen, usable, total, low, high, odd = 0, 0, 0.0, np.inf, -np.inf, 0
    for t in range(column.size):
        x = float(column[t])
        fits = abs(x) <= largest
        seen += x == x
        usable += fits
        total += x if fits else 0.0
        low = min(low, x) if fits else low
        high = max(high, x) if fits else high
        odd += fits and x != 0.0 and x != 1.0
    mean = total / usable if usable else 0.0
    squares = 0.0
    for t in range(column.size):
        x = float(column[t])
        squares += (x - mean) * (x - mean) if abs(x) <= largest else 0.0
    return seen, usable, mean, squares, low, high, odd == 0


@compiled
def standardise(columns, means, scales, places, marks, largest, rows):
    """rows[t, places[j]] = (columns[j, t] - means[j]) / scales[j], 0 where that is NaN, with 1 in place marks[j].

    Columns without a mark have -1 there. Returns how many entries are larger than ``largest``.
    """
    n_large = 0
    for start in range(0, columns.shape[1], BLOCK):
        end = min(start + BLOCK, columns.shape[1])
        for j in range(columns.shape[0]):
            place, mark, mean, scale = places[j], marks[j], means[j], scales[j]
            for t in range(start, end):
                x = columns[j, t]
                n_large += abs(x) > largest
                rows[t, place] = (x - mean) / scale if x == x else 0.0
                if mark >= 0:
                    rows[t, mark] = 1.0 if x != x else 0.0
    return n_large


@compiled
def one_hot(codes, first, width, rows):
    """1 in place first + codes[t] of rows[t], 0 in the other ``width`` places; negative codes stand for none."""
    for t in range(codes.size):
        for j in range(first, first + width):
            rows[t, j] = 0.0
        if codes[t] >= 0:
            rows[t, first + codes[t]] = 1.0


@compiled
def cross(own, shared, owners, places, rows):
    """rows[t, k] = [own[i], shared[t] ⊗ own[i]] where row i is of round t = owners[i] and place k = places[i] in it.

    Places past the end of ``rows`` are left out.
    """
    n_own, n_shared = own.shape[1], shared.shape[1]
    for i in range(owners.size):
        t, k = owners[i], places[i]
        if k < rows.shape[1]:
            for a in range(n_own):
                rows[t, k, a] = own[i, a]
                for x in range(n_shared):
                    rows[t, k, n_own + x * n_own + a] = shared[t, x] * own[i, a]
