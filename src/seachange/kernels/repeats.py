"""Tables of 64-bit hashes with open addressing, for what was seen before. An empty place has key 0."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled

NEW, OTHER, SAME, LEFT_OUT = 0, 1, 2, 3


@compiled
def _place(key, table_keys):
    """Where a key is in a table, or would be."""
    mask = np.uint64(table_keys.size - 1)
    place = key & mask
    while table_keys[place] != 0 and table_keys[place] != key:
        place = (place + np.uint64(1)) & mask
    return place


@compiled
def _barrier(level):
    """The largest key whose ``level`` highest bits are 0."""
    return np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(level)


@compiled
def note_repeats(keys, values, table_keys, table_values, level, free):
    """For every key: NEW, seen with an OTHER value or with the SAME; then the table holds the value.

    Keys whose ``level`` highest bits are not 0 are LEFT_OUT. Ends before a new key that ``free`` places do not suffice
    for; returns what was found and how many keys were taken up.
    """
    found = np.empty(keys.size, dtype=np.uint8)
    barrier = _barrier(level)
    n_new = 0
    for i in range(keys.size):
        key = max(keys[i], np.uint64(1))
        if key > barrier:
            found[i] = LEFT_OUT
            continue
        place = _place(key, table_keys)
        if table_keys[place] == 0:
            if n_new == free:
                return found[:i], n_new
            n_new += 1
            table_keys[place] = key
            found[i] = NEW
        else:
            found[i] = SAME if table_values[place] == values[i] else OTHER
        table_values[place] = values[i]
    return found, n_new


@compiled
def move_entries(from_keys, from_values, keys, values, level):
    """Copy the entries with keys within ``level`` to another table; returns how many."""
    barrier = _barrier(level)
    count = 0
    for i in range(from_keys.size):
        key = from_keys[i]
        if key == 0 or key > barrier:
            continue
        place = _place(key, keys)
        keys[place] = key
        values[place] = from_values[i]
        count += 1
    return count


@compiled
def last_values(keys, values, table_keys, table_values, level, free):
    """Like ``note_repeats``, but returns each key's value before; NaN where there is none. NaN values are no values."""
    found = np.full(keys.size, np.nan)
    barrier = _barrier(level)
    n_new = 0
    for i in range(keys.size):
        key = max(keys[i], np.uint64(1))
        if key > barrier or np.isnan(values[i]):
            continue
        place = _place(key, table_keys)
        if table_keys[place] == 0:
            if n_new == free:
                return found[:i], n_new
            n_new += 1
            table_keys[place] = key
        else:
            found[i] = table_values[place]
        table_values[place] = values[i]
    return found, n_new
