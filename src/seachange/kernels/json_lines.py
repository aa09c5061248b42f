"""Lines of JSON, flattened: every number, string and truth value that is wanted, with the path that leads to it.

A path is a number: that of the object it is in, and a key. Elements of an array have the array's path. What a path is
wanted for is its ``mode``. The grammar is that of RFC 8259, and a key may not stand twice in an object.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seachange.kernels.compiler import compiled
from seachange.kernels.decimals import exact_double, is_exact, nearest_double
from seachange.kernels.json_tokens import (
    CLOSE_ARRAY,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    LINE_FEED,
    LONG_NUMBER,
    NOWHERE,
    NUMBER,
    ONE,
    OPEN_ARRAY,
    OPEN_OBJECT,
    QUOTE,
    SMALL_F,
    SMALL_N,
    SMALL_T,
    UNDERSCORE,
    after_blanks,
    end_of_string,
    has_escaped_ascii,
    is_word,
    read_number,
)  # fmt: skip
from seachange.kernels.letters import PADDING, SPREAD, letter, same

MOST_PATHS = 4096
MOST_DEPTH = 64
KEY_BYTES = 1 << 18
SKIPPED = -1  # the path of all that is not wanted
# Modes: unknown keys below it are not wanted, or are features; it has one value, or a list of values; it may not be
# there; it is not wanted itself.
KNOWN, FEATURES, VALUE, LIST, FORBIDDEN, UNWANTED = range(6)
# Kinds of leaves, beside NUMBER and LONG_NUMBER.
STRING, TRUE, FALSE, NULL = 2, 3, 4, 5
IN_ARRAY = 8  # added to the kind of a leaf that is an element of an array
TWICE_IN_ROW = 32  # a bit of its own: a path with two leaves in a row
# What may be wrong with a line.
SOUND, SYNTAX, NO_OBJECT, TWICE, TOO_DEEP, NESTED_ARRAYS, NOT_ALLOWED, TOO_LARGE, ESCAPED_KEY, NO_VALUE = range(10)
TRUE_WORD, FALSE_WORD, NULL_WORD = (np.frombuffer(word, np.uint8) for word in (b"true", b"false", b"null"))


class Paths(NamedTuple):
    """The paths known so far; ``counts``: how many, bytes of keys, objects seen, keys for which there was no room."""

    parents: np.ndarray
    starts: np.ndarray  # where the key begins in ``keys``
    sizes: np.ndarray
    modes: np.ndarray
    follow: np.ndarray  # (paths, 2): the key that last came first in this object, or next after this key
    seen: np.ndarray  # the object in which the path was seen last
    keys: np.ndarray
    slots: np.ndarray
    counts: np.ndarray


class Leaves(NamedTuple):
    """Leaves, in the order of the text or path by path."""

    paths: np.ndarray
    rows: np.ndarray  # the line, or below the list of items the item, from 0 on
    kinds: np.ndarray
    numbers: np.ndarray  # of a string below the features: its place in the list of different strings
    starts: np.ndarray  # in the text


class Strings(NamedTuple):
    """Different strings: where they begin and end, and whether they have escapes; and a table to find them."""

    spans: np.ndarray
    slots: np.ndarray


def no_paths():
    """Room for paths; the first is the whole line."""
    integers = (np.zeros(MOST_PATHS, np.int32) for _ in range(3))
    paths = Paths(
        *integers,
        np.zeros(MOST_PATHS, np.int8),
        np.full((MOST_PATHS, 2), -1, np.int32),
        np.zeros(MOST_PATHS, np.int64),
        np.zeros(KEY_BYTES, np.uint8),
        np.full(4 * MOST_PATHS, -1, np.int32),
        np.zeros(4, np.int64),
    )
    paths.counts[0] = 1
    return paths


def room_for(n_leaves):
    """Leaves to be filled in."""
    return Leaves(*(np.empty(n_leaves, kind) for kind in (np.int32, np.int32, np.int8, np.float64, np.int32)))


@compiled
def counted(text):
    """Lines of a text, leaves it may have at most, and strings."""
    lines, leaves, quotes = 0, 1, 0  # a line that breaks off may have a leaf at its end
    for c in text:
        lines += c == LINE_FEED
        leaves += (c == COMMA) | (c == CLOSE_OBJECT) | (c == CLOSE_ARRAY)  # one of these follows each
        quotes += c == QUOTE
    return lines, leaves, quotes // 2 + 1


@compiled
def enter(paths, parent, text, start, size, mode):
    """The path of a key in an object, made where it is new; -1 where there is no room."""
    code = np.uint64(parent)
    for i in range(size):
        code = code * np.uint64(31) + np.uint64(letter(text, start + np.uint64(i)))
    slot = np.int64((code * SPREAD) >> np.uint64(32)) & (paths.slots.size - 1)
    keys = np.uint64(paths.keys.ctypes.data)
    while paths.slots[slot] >= 0:
        path = paths.slots[slot]
        alike = paths.parents[path] == parent and paths.sizes[path] == size
        if alike and same(keys, paths.starts[path], text, start, size):
            return path
        slot = (slot + 1) & (paths.slots.size - 1)
    path = paths.counts[0]
    if path == paths.parents.size or paths.counts[1] + size + len(PADDING) > paths.keys.size:
        paths.counts[3] += 1
        return -1
    paths.slots[slot] = path
    paths.parents[path], paths.starts[path], paths.sizes[path] = parent, paths.counts[1], size
    paths.modes[path] = mode
    for i in range(size):
        paths.keys[paths.counts[1] + i] = letter(text, start + np.uint64(i))
    paths.counts[0] += 1
    paths.counts[1] += size
    return path


@compiled
def mode_of(paths, parent, text, start, size, taken, forbidden):
    """What an unknown key below ``parent`` is: of those that begin with an underscore, most are not wanted."""
    if paths.modes[parent] != FEATURES:
        return UNWANTED
    if letter(text, start) != UNDERSCORE:
        return FEATURES
    for word in taken:
        if word.size == size and is_word(text, start, word):
            return FEATURES
    for word in forbidden:
        if is_word(text, start, word):
            return FORBIDDEN
    return UNWANTED


@compiled
def read_key(paths, path, last, text, begin, taken, forbidden):
    """After the key that begins at ``begin`` in the object of ``path`` behind ``last``, its path, and what is wrong."""
    end, _, escaped = end_of_string(text, begin)
    if end == NOWHERE:
        return begin, -1, SYNTAX
    if escaped and has_escaped_ascii(text, begin, end):
        return begin, -1, ESCAPED_KEY
    size = np.int64(end - begin) - 1
    mode = mode_of(paths, path, text, begin, size, taken, forbidden)
    child = np.int64(enter(paths, path, text, begin, size, mode))
    if child >= 0 and last < 0:
        paths.follow[path, 0] = child
    elif child >= 0:
        paths.follow[last, 1] = child
    return end, child, SOUND


@compiled
def flatten(text, n_lines, paths, items, leaves, strings, taken, forbidden, powers):
    """Flatten the objects in the lines of ``text``.

    Below the array with the path ``items`` every object is a row of its own. Says where lines begin, what is wrong with
    each, where, and how many items it has; and how many leaves and different strings there are.
    """
    modes, follow, seen, counts = paths.modes, paths.follow, paths.seen, paths.counts
    key_starts, key_sizes, keys = paths.starts, paths.sizes, np.uint64(paths.keys.ctypes.data)
    leaf_paths, leaf_rows, leaf_kinds, leaf_numbers, leaf_starts = leaves
    spans, slots = strings
    starts, faults, places = np.zeros(n_lines + 1, np.int64), np.zeros(n_lines, np.int8), np.zeros(n_lines, np.int64)
    n_items = np.zeros(n_lines, np.int64)
    path_at, last_at = np.zeros(MOST_DEPTH, np.int64), np.zeros(MOST_DEPTH, np.int64)
    object_at, array_at = np.zeros(MOST_DEPTH, np.int64), np.zeros(MOST_DEPTH, np.bool_)
    bits = np.zeros(1, np.uint64)
    numbers = bits.view(np.float64)
    slots[:] = -1
    n_leaves, n_strings, n_rows = 0, 0, 0
    i = np.uint64(0)
    for line in range(n_lines):
        start, fault = i, SOUND
        leaves_before, rows_before = n_leaves, n_rows
        path, row, top, waiting = 0, line, -1, True  # waiting for a value, or else just after one
        while True:
            i = after_blanks(text, i)
            c = letter(text, i)
            if waiting and c != OPEN_OBJECT and c != OPEN_ARRAY:
                waiting = False
                if top < 0 or path == items:
                    fault = NO_OBJECT
                    break
                end, kind, value = i, NULL, 0.0
                if c == QUOTE:
                    end, code, escaped = end_of_string(text, i + ONE)
                    kind = STRING
                    if path >= 0 and modes[path] == FEATURES and end != NOWHERE:
                        size, slot = np.int64(end - i), np.int64(code & np.uint64(slots.size - 1))
                        while slots[slot] >= 0:
                            begin = spans[slots[slot], 0]
                            if spans[slots[slot], 1] - begin == size and same(text, begin, text, i, size):
                                break
                            slot = (slot + 1) & (slots.size - 1)
                        if slots[slot] < 0:
                            slots[slot] = n_strings
                            spans[n_strings, 0], spans[n_strings, 1], spans[n_strings, 2] = i, end, escaped
                            n_strings += 1
                        value = np.float64(slots[slot])
                elif c == SMALL_T and is_word(text, i, TRUE_WORD):
                    end, kind = i + np.uint64(4), TRUE
                elif c == SMALL_F and is_word(text, i, FALSE_WORD):
                    end, kind = i + np.uint64(5), FALSE
                elif c == SMALL_N and is_word(text, i, NULL_WORD):
                    end = i + np.uint64(4)
                else:
                    end, w, q, negative, kind = read_number(text, i)
                    if is_exact(w, q):
                        value = exact_double(w, q)
                    elif kind == NUMBER:
                        value, sure = nearest_double(w, q, powers, bits, numbers)
                        kind = NUMBER if sure else LONG_NUMBER
                    value = -value if negative else value
                if end == NOWHERE:
                    fault = SYNTAX
                    break
                if path >= 0 and kind != NULL:
                    leaf_paths[n_leaves], leaf_rows[n_leaves] = path, row
                    leaf_kinds[n_leaves] = kind + (IN_ARRAY if array_at[top] else 0)
                    leaf_numbers[n_leaves], leaf_starts[n_leaves] = value, i
                    n_leaves += 1
                i = end
                continue
            if waiting:
                waiting = False
                is_array = c == OPEN_ARRAY
                if top + 1 == MOST_DEPTH:
                    fault = TOO_DEEP
                    break
                if path >= 0 and path != items and is_array and top >= 0 and array_at[top]:
                    fault = NESTED_ARRAYS
                    break
                if path >= 0 and (modes[path] == VALUE or (modes[path] == LIST and not is_array)):
                    fault = NO_VALUE
                    break
                if is_array and (path == 0 or (path == items and path_at[top] == items)):
                    fault = NO_OBJECT
                    break
                if path == items and not is_array:
                    if not array_at[top] or path_at[top] != items:
                        fault = NO_OBJECT
                        break
                    row = n_rows
                    n_rows += 1
                top += 1
                counts[2] += 1
                path_at[top], last_at[top], object_at[top], array_at[top] = path, -1, counts[2], is_array
                i = after_blanks(text, i + ONE)
                c = letter(text, i)
                if c != (CLOSE_ARRAY if is_array else CLOSE_OBJECT):
                    if is_array:
                        waiting = True
                        continue
                    c = np.uint8(COMMA)  # the first key is read like any other
                    i -= ONE
            # After a value, or at the beginning of an object: what follows belongs to the innermost array or object.
            if c == COMMA:
                i += ONE
                path = path_at[top]
                if array_at[top]:
                    waiting = True
                    continue
                i = after_blanks(text, i)
                if letter(text, i) != QUOTE:
                    fault = SYNTAX
                    break
                if path < 0:
                    end, _, _ = end_of_string(text, i + ONE)
                    if end == NOWHERE:
                        fault = SYNTAX
                        break
                else:
                    last = last_at[top]
                    child = np.int64(follow[path, 0] if last < 0 else follow[last, 1])  # the key that was here before
                    size = np.int64(key_sizes[child])
                    end = i + np.uint64(size) + ONE
                    # Letters first: behind them there may be no text.
                    if child >= 0 and same(keys, key_starts[child], text, i + ONE, size) and letter(text, end) == QUOTE:
                        end += ONE
                    else:
                        end, child, fault = read_key(paths, path, last, text, i + ONE, taken, forbidden)
                    if child >= 0 and seen[child] == object_at[top]:
                        fault = TWICE
                    elif child >= 0 and modes[child] == FORBIDDEN:
                        fault = NOT_ALLOWED
                    if fault != SOUND:
                        break
                    path = SKIPPED
                    if child >= 0:
                        seen[child] = object_at[top]
                        last_at[top] = child
                        path = child if modes[child] != UNWANTED else SKIPPED
                i = after_blanks(text, end)
                if letter(text, i) != COLON:
                    fault = SYNTAX
                    break
                i += ONE
                waiting = True
            elif c == (CLOSE_ARRAY if array_at[top] else CLOSE_OBJECT):
                i += ONE
                path = path_at[top]
                if path == items and not array_at[top]:
                    row = line
                top -= 1
                if top < 0:
                    i = after_blanks(text, i)
                    if letter(text, i) != LINE_FEED:
                        fault = SYNTAX
                    break
            else:
                fault = SYNTAX
                break
        if fault == SOUND:
            n_items[line] = n_rows - rows_before
        else:
            faults[line], places[line] = fault, np.int64(i - start)
            n_leaves, n_rows = leaves_before, rows_before
            while letter(text, i) != LINE_FEED:
                i += ONE
        i += ONE
        starts[line + 1] = i
    return starts, faults, places, n_items, n_leaves, n_strings


@compiled
def by_path(leaves, n_leaves, n_paths):
    """Leaves path by path: where each path begins and the last ends, the kinds it has (a bit each), and the leaves."""
    paths, all_rows, all_kinds, all_numbers, all_starts = leaves
    bounds, kinds_of, last = np.zeros(n_paths + 1, np.int64), np.zeros(n_paths, np.int64), np.full(n_paths, -1)
    for k in range(n_leaves):
        bounds[paths[k] + 1] += 1
    for path in range(n_paths):
        bounds[path + 1] += bounds[path]
    place = bounds.copy()
    rows, kinds = np.empty(n_leaves, np.int32), np.empty(n_leaves, np.int8)
    numbers, starts = np.empty(n_leaves), np.empty(n_leaves, np.int32)
    for k in range(n_leaves):
        path, row, kind = paths[k], all_rows[k], all_kinds[k]
        to = place[path]
        place[path] += 1
        rows[to], kinds[to], numbers[to], starts[to] = row, kind, all_numbers[k], all_starts[k]
        kinds_of[path] |= 1 << np.int64(kind) | np.int64(last[path] == row) << TWICE_IN_ROW
        last[path] = row
    return bounds, kinds_of, (rows, kinds, numbers, starts)


@compiled
def copied(text, spans):
    """Strings without their quotes, each followed by a line feed, which none can have inside."""
    size = 0
    for k in range(spans.shape[0]):
        size += spans[k, 1] - spans[k, 0] - 1
    letters, to = np.empty(size, np.uint8), 0
    for k in range(spans.shape[0]):
        for i in range(spans[k, 0] + 1, spans[k, 1] - 1):
            letters[to] = text[i]
            to += 1
        letters[to] = LINE_FEED
        to += 1
    return letters
