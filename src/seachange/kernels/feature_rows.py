"""Moments of raw columns, rows of features made from them, and documents drawn from pools."""

import numpy as np

from seachange.kernels.compiler import compiled, reordered

# Rows filled at a time, few enough to stay in the cache while all columns are written.
BLOCK = 256


@reordered
def column_moments(column, largest):
    """Moments of a column: the number of entries that are not NaN, and of those that are usable (at most ``largest``
    in size); and for the usable ones their mean, their sum of squared deviations, the first, how many differ from it,
    and how many are neither 0 nor 1.
    """
    first = np.nan
    for t in range(column.size):
        if abs(float(column[t])) <= largest:
            first = float(column[t])
            break
    # Counts are floats like the rest, so that the loop vectorizes.
    seen, usable, total, differing, others = 0.0, 0.0, 0.0, 0.0, 0.0
    for t in range(column.size):
        x = float(column[t])
        fits = abs(x) <= largest
        seen += 1.0 if x == x else 0.0
        usable += 1.0 if fits else 0.0
        total += x if fits else 0.0
        differing += 1.0 if fits & (x != first) else 0.0
        others += 1.0 if fits & (x != 0.0) & (x != 1.0) else 0.0
    mean = total / usable if usable > 0 else 0.0
    squares = 0.0
    for t in range(column.size):
        x = float(column[t])
        squares += (x - mean) * (x - mean) if abs(x) <= largest else 0.0
    return seen, usable, mean, squares, first, differing, others


@compiled
def standardize(columns, means, scales, places, marks, largest, rows):
    """rows[t, places[j]] = (columns[j, t] - means[j]) / scales[j], or 0 if that is NaN, and then 1 in place marks[j].

    marks[j] is -1 for columns without a mark. Returns the number of entries larger than ``largest``.
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
    """rows[t, first + codes[t]] = 1, the other ``width`` places 0; negative codes set none."""
    for t in range(codes.size):
        for j in range(first, first + width):
            rows[t, j] = 0.0
        if codes[t] >= 0:
            rows[t, first + codes[t]] = 1.0


@compiled
def cross(own, shared, owners, places, rows):
    """rows[t, k] = [own[i], shared[t] ⊗ own[i]] for round t = owners[i] and place k = places[i].

    Places past the end of ``rows`` are skipped.
    """
    n_own, n_shared = own.shape[1], shared.shape[1]
    for i in range(owners.size):
        t, k = owners[i], places[i]
        if k < rows.shape[1]:
            for a in range(n_own):
                rows[t, k, a] = own[i, a]
                for x in range(n_shared):
                    rows[t, k, n_own + x * n_own + a] = shared[t, x] * own[i, a]


@compiled
def draw_documents(pool_documents, pools, shown, uniforms, documents, actions):
    """Fill documents[t] with random documents of visit t's pool, in random order, with shown[t] at actions[t].

    A pool ends at its first -1 and has at least as many documents as are drawn. ``uniforms`` (n, drawn) are the draws.
    """
    n_drawn = documents.shape[1]
    pool = np.empty(pool_documents.shape[1], pool_documents.dtype)
    for t in range(pools.size):
        size = 0
        for document in pool_documents[pools[t]]:
            if document < 0:
                break
            pool[size] = document
            if document == shown[t]:
                pool[0], pool[size] = pool[size], pool[0]
            size += 1
        for i in range(1, n_drawn):
            j = i + int(uniforms[t, i] * (size - i))
            pool[i], pool[j] = pool[j], pool[i]
        slot = int(uniforms[t, 0] * n_drawn)
        pool[0], pool[slot] = pool[slot], pool[0]
        documents[t] = pool[:n_drawn]
        actions[t] = slot
