"""Raw columns: their moments, and their place in rows of features."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled, reordered

# Rows that are filled at a time: they should stay in the fastest memory while every column is written into them.
BLOCK = 256


@reordered
def column_moments(column, largest):
    """Of a column's entries: how many are numbers, how many of these are usable, and the usable ones' mean, squared
    deviations from it, first, how many differ from that, and how many are neither 0 nor 1. Usable are those of at most
    ``largest`` in size.
    """
    first = np.nan
    for t in range(column.size):
        if abs(float(column[t])) <= largest:
            first = float(column[t])
            break
    # Counts are floats like the rest: only then are several entries looked at together.
    seen, usable, total, differing, odd = 0.0, 0.0, 0.0, 0.0, 0.0
    for t in range(column.size):
        x = float(column[t])
        fits = abs(x) <= largest
        seen += 1.0 if x == x else 0.0
        usable += 1.0 if fits else 0.0
        total += x if fits else 0.0
        differing += 1.0 if fits & (x != first) else 0.0
        odd += 1.0 if fits & (x != 0.0) & (x != 1.0) else 0.0
    mean = total / usable if usable > 0 else 0.0
    squares = 0.0
    for t in range(column.size):
        x = float(column[t])
        squares += (x - mean) * (x - mean) if abs(x) <= largest else 0.0
    return seen, usable, mean, squares, first, differing, odd


@compiled
def lay_out(numbers, starts, places, rows):
    """rows[t, places[j]] = numbers[starts[j] + t], row by row: memory is written from its start to its end."""
    for t in range(len(rows)):
        for j in range(places.size):
            rows[t, places[j]] = numbers[starts[j] + t]


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
def standardise_rows(places, means, scales, marks, rows):
    """rows[t, places[j]] becomes (that - means[j]) / scales[j], 0 where that is NaN; with a mark, 1 in the place after
    it there, else 0. What is after all features becomes 1.
    """
    width = rows.shape[1]
    if places.size == width - 1 and not marks.any():
        for t in range(len(rows)):
            for j in range(width - 1):
                x = rows[t, j]
                rows[t, j] = (x - means[j]) / scales[j] if x == x else 0.0
            rows[t, width - 1] = 1.0
        return
    for t in range(len(rows)):
        for j in range(places.size):
            x = rows[t, places[j]]
            rows[t, places[j]] = (x - means[j]) / scales[j] if x == x else 0.0
            if marks[j]:
                rows[t, places[j] + 1] = 1.0 if x != x else 0.0
        rows[t, width - 1] = 1.0


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
