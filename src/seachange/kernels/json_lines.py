"""Lines of JSON, flattened: every number, string and truth value that is wanted, with the path that leads to it.

A path is a number: that of the object it is in, and a key. Elements of an array have the array's path. What a path is
wanted for is its ``mode``. The grammar is that of RFC 8259, and a key may not stand twice in an object.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seachange.kernels.compiler import compiled
from seachange.kernels.decimals import MOST_DIGITS, nearest_double

MOST_PATHS = 4096
MOST_DEPTH = 64
KEY_BYTES = 1 << 18
SKIPPED = -1  # the path of all that is not wanted
# What becomes of a path's children: unknown ones are not wanted, or are features; or the path itself may not be there.
KNOWN, FEATURES, FORBIDDEN, UNWANTED = 0, 1, 2, 3
# Kinds of leaves. Some numbers are left to be read by the caller.
NUMBER, LONG_NUMBER, STRING, TRUE, FALSE = 0, 1, 2, 3, 4
ONE = np.uint64(1)
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # spreads codes over the places of a table
IN_ARRAY = 8  # added to the kind of a leaf inside an array
# What may be wrong with a line.
SOUND, SYNTAX, NO_OBJECT, TWICE, TOO_DEEP, NESTED_ARRAYS, NOT_ALLOWED, TOO_LARGE, ESCAPED_KEY, TOO_MANY = range(10)

QUOTE, COMMA, COLON, BACKSLASH, UNDERSCORE, MINUS, PLUS, POINT, ZERO, NINE = (ord(c) for c in '",:\\_-+.09')
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY = (ord(c) for c in "{}[]")
SMALL_E, LARGE_E, SMALL_T, SMALL_F, SMALL_N, SMALL_U, SPACE = (ord(c) for c in "eEtfnu ")


class Paths(NamedTuple):
    """The paths known so far; ``counts`` holds their number, the bytes of keys, and objects seen."""

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
    """Leaves in the order of the text."""

    paths: np.ndarray
    rows: np.ndarray  # the line, or below the list of items the item, from 0 on
    kinds: np.ndarray
    numbers: np.ndarray  # strings: the place in the list of different strings
    starts: np.ndarray
    stops: np.ndarray


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
        np.zeros(3, np.int64),
    )
    paths.counts[0] = 1
    return paths


def room_for(text):
    """Leaves that a text may have: each is followed by one of these."""
    n = sum(int(np.count_nonzero(text == mark)) for mark in (COMMA, CLOSE_OBJECT, CLOSE_ARRAY))
    whole = (np.empty(n, kind) for kind in (np.int32, np.int32, np.int8, np.float64, np.int32, np.int32))
    return Leaves(*whole)


@compiled
def enter(paths, parent, text, start, stop, mode):
    """The path of a key in an object, made where it is new; -1 where there is no room."""
    code = np.uint64(parent)
    for i in range(start, stop):
        code = code * np.uint64(31) + np.uint64(text[i])
    slot = np.int64((code * SPREAD) >> np.uint64(32)) & (paths.slots.size - 1)
    size = stop - start
    while paths.slots[slot] >= 0:
        path = paths.slots[slot]
        if paths.parents[path] == parent and paths.sizes[path] == size:
            begin, same = paths.starts[path], True
            for i in range(size):
                if paths.keys[begin + i] != text[start + i]:
                    same = False
                    break
            if same:
                return path
        slot = (slot + 1) & (paths.slots.size - 1)
    path = paths.counts[0]
    if path == paths.parents.size or paths.counts[1] + size > paths.keys.size:
        return -1
    paths.slots[slot] = path
    paths.parents[path], paths.starts[path], paths.sizes[path] = parent, paths.counts[1], size
    paths.modes[path] = mode
    for i in range(size):
        paths.keys[paths.counts[1] + i] = text[start + i]
    paths.counts[0] += 1
    paths.counts[1] += size
    return path


@compiled
def expected(paths, guess, text, start):
    """Whether the key at ``start`` is that of the path ``guess``."""
    begin, size = np.uint64(paths.starts[guess]), np.uint64(paths.sizes[guess])
    start = np.uint64(start)
    for i in range(size):
        if paths.keys[begin + i] != text[start + i]:
            return False
    return text[start + size] == QUOTE


@compiled
def is_word(text, start, word):
    """Whether ``word`` stands at ``start``."""
    for i in range(word.size):
        if text[start + i] != word[i]:
            return False
    return True


@compiled
def mode_of(paths, parent, text, start, stop, taken, forbidden):
    """What an unknown key below ``parent`` is: of those that begin with an underscore, most are not wanted."""
    if paths.modes[parent] != FEATURES:
        return UNWANTED
    if text[start] != UNDERSCORE:
        return FEATURES
    for word in taken:
        if word.size == stop - start and is_word(text, start, word):
            return FEATURES
    for word in forbidden:
        if is_word(text, start, word):
            return FORBIDDEN
    return UNWANTED


@compiled
def end_of_string(text, begin):
    """After the string that begins at ``begin`` behind its quote, a code of what is in it, and whether it has escapes."""
    i, code, escaped = np.uint64(begin), np.uint64(0), False
    while True:
        c = text[i]
        if c == QUOTE:
            return np.int64(i + ONE), code, escaped
        if c < SPACE:
            return -1, code, escaped
        if c == BACKSLASH:
            escaped = True
            i += ONE
            c = text[i]
            if c == SMALL_U:
                for _ in range(4):
                    i += ONE
                    c = text[i]
                    if not (ZERO <= c <= NINE or 97 <= c <= 102 or 65 <= c <= 70):
                        return -1, code, escaped
                    code = code * np.uint64(31) + np.uint64(c)
            elif c not in (QUOTE, BACKSLASH, 47, 98, SMALL_F, SMALL_N, 114, SMALL_T):
                return -1, code, escaped
        code = code * np.uint64(31) + np.uint64(c)
        i += ONE


@compiled
def end_of_skipped(text, begin):
    """After the string that begins at ``begin`` behind its quote, where what is in it does not matter."""
    i = np.uint64(begin)
    while True:
        c = text[i]
        if c == QUOTE:
            return np.int64(i + ONE)
        if c < SPACE or c == BACKSLASH:
            return end_of_string(text, np.int64(i))[0]
        i += ONE


@compiled
def end_of_digits(text, i, w):
    """After the digits that begin at ``i``, and the number that they end."""
    i = np.uint64(i)
    c = text[i] - np.uint8(ZERO)
    while c < np.uint8(10):
        w = w * np.uint64(10) + np.uint64(c)
        i += ONE
        c = text[i] - np.uint8(ZERO)
    return np.int64(i), w


@compiled
def read_number(text, i, powers, bits, numbers):
    """After the number that begins at ``i``, its value, and its kind; -1 where there is none."""
    negative = text[i] == MINUS
    if negative:
        i += 1
    first, q = i, 0
    i, w = end_of_digits(text, first, np.uint64(0))
    digits = i - first
    if digits == 0 or (digits > 1 and text[first] == ZERO):
        return -1, 0.0, NUMBER
    if text[i] == POINT:
        point = i + 1
        i, w = end_of_digits(text, point, w)
        q = point - i
        if q == 0:
            return -1, 0.0, NUMBER
        digits -= q
        if digits > MOST_DIGITS:
            k = first
            while text[k] == ZERO or text[k] == POINT:  # they are not among the digits that count
                k += 1
            digits = i - k - (1 if k < point - 1 else 0)
    if text[i] == SMALL_E or text[i] == LARGE_E:
        i += 1
        minus = text[i] == MINUS
        if minus or text[i] == PLUS:
            i += 1
        begin = i
        i, power = end_of_digits(text, begin, np.uint64(0))
        if i == begin:
            return -1, 0.0, NUMBER
        if i - begin > 6:
            return i, 0.0, LONG_NUMBER
        q += -np.int64(power) if minus else np.int64(power)
    if digits > MOST_DIGITS:
        return i, 0.0, LONG_NUMBER
    value, sure = nearest_double(w, q, powers, bits, numbers)
    return i, (-value if negative else value), (NUMBER if sure else LONG_NUMBER)


@compiled
def same_text(text, one, other, size):
    """Whether two stretches of text are the same."""
    one, other = np.uint64(one), np.uint64(other)
    for i in range(np.uint64(size)):
        if text[one + i] != text[other + i]:
            return False
    return True


@compiled
def flatten(text, starts, paths, root, items, leaves, strings, slots, taken, forbidden, powers):
    """Flatten the objects that begin at ``starts``, each a line that ends with a line feed.

    Below the array with the path ``items`` every object is a row of its own. Says of each line what is wrong with it,
    where, and how many items it has; and how many leaves and different strings there are. ``strings`` are the places
    of those: where they begin and end, and whether they have escapes.
    """
    n_lines = starts.size
    faults, places, n_items = np.zeros(n_lines, np.int8), np.zeros(n_lines, np.int64), np.zeros(n_lines, np.int64)
    path_at, last_at = np.zeros(MOST_DEPTH, np.int64), np.zeros(MOST_DEPTH, np.int64)
    object_at, array_at = np.zeros(MOST_DEPTH, np.int64), np.zeros(MOST_DEPTH, np.int8)
    bits = np.zeros(1, np.uint64)
    numbers = bits.view(np.float64)
    true, false, null = np.array([116, 114, 117, 101]), np.array([102, 97, 108, 115, 101]), np.array([110, 117, 108, 108])
    n_leaves, n_strings, n_rows = 0, 0, 0
    for line in range(n_lines):
        i, fault = starts[line], SOUND
        leaves_before, rows_before = n_leaves, n_rows
        path, row, depth, inside, waiting = root, line, 0, 0, True  # waiting for a value, or else just after one
        while fault == SOUND:
            while text[i] == SPACE or text[i] == 9 or text[i] == 13:
                i += 1
            c = text[i]
            if waiting:
                waiting = False
                if c == OPEN_OBJECT or c == OPEN_ARRAY:
                    is_array = c == OPEN_ARRAY
                    if depth == MOST_DEPTH:
                        fault = TOO_DEEP
                        break
                    if path >= 0:
                        if is_array and (inside or path == root):
                            fault = NESTED_ARRAYS if inside else NO_OBJECT
                            break
                        if not is_array and path == items:
                            if depth == 0 or array_at[depth - 1] != 1 or path_at[depth - 1] != items:
                                fault = NO_OBJECT
                                break
                            row = n_rows
                            n_rows += 1
                    path_at[depth], last_at[depth] = path, -1
                    array_at[depth] = 1 if is_array else 0
                    paths.counts[2] += 1
                    object_at[depth] = paths.counts[2]
                    depth += 1
                    if is_array and path >= 0 and path != items:
                        inside += 1
                    i += 1
                    while text[i] == SPACE or text[i] == 9 or text[i] == 13:
                        i += 1
                    if text[i] == (CLOSE_ARRAY if is_array else CLOSE_OBJECT):
                        c = text[i]  # empty: the end of it is dealt with below
                    elif is_array:
                        waiting = True
                        continue
                    else:
                        c = COMMA  # its first key is read like any other
                        i -= 1
                else:
                    if depth == 0 or path == items:
                        fault, c = NO_OBJECT, np.uint8(0)
                        break
                    begin, kind, value = i, -1, 0.0
                    if c == QUOTE and path < 0:
                        i = end_of_skipped(text, i + 1)
                        if i < 0:
                            fault, i = SYNTAX, begin
                            break
                    elif c == QUOTE:
                        i, code, escaped = end_of_string(text, i + 1)
                        if i < 0:
                            fault, i = SYNTAX, begin
                            break
                        kind, size = STRING, i - begin
                        slot = np.int64((code * SPREAD) >> np.uint64(32)) & (slots.size - 1)
                        while slots[slot] >= 0:
                            k = slots[slot]
                            if strings[k, 1] - strings[k, 0] == size and same_text(text, strings[k, 0], begin, size):
                                break
                            slot = (slot + 1) & (slots.size - 1)
                        if slots[slot] < 0:
                            slots[slot] = n_strings
                            strings[n_strings, 0], strings[n_strings, 1] = begin, i
                            strings[n_strings, 2] = 1 if escaped else 0
                            n_strings += 1
                        value = np.float64(slots[slot])
                    elif c == SMALL_T and is_word(text, i, true):
                        i, kind, value = i + 4, TRUE, 1.0
                    elif c == SMALL_F and is_word(text, i, false):
                        i, kind = i + 5, FALSE
                    elif c == SMALL_N and is_word(text, i, null):
                        i += 4
                    else:
                        i, value, kind = read_number(text, i, powers, bits, numbers)
                        if i < 0:
                            fault, i = SYNTAX, begin
                            break
                    if path >= 0 and kind >= 0:
                        leaves.paths[n_leaves], leaves.rows[n_leaves] = path, row
                        leaves.kinds[n_leaves] = kind + (IN_ARRAY if inside else 0)
                        leaves.numbers[n_leaves] = value
                        leaves.starts[n_leaves], leaves.stops[n_leaves] = begin, i
                        n_leaves += 1
                    continue
            # After a value, or at the beginning of an object: what follows belongs to the innermost array or object.
            top = depth - 1
            if c == COMMA:
                i += 1
                path = path_at[top]
                if array_at[top] == 1:
                    waiting = True
                    continue
                while text[i] == SPACE or text[i] == 9 or text[i] == 13:
                    i += 1
                if text[i] != QUOTE:
                    fault = SYNTAX
                    break
                begin = i + 1
                if path < 0:
                    i = end_of_skipped(text, begin)
                    if i < 0:
                        fault, i = SYNTAX, begin
                        break
                else:
                    last = last_at[top]
                    guess = paths.follow[path, 0] if last < 0 else paths.follow[last, 1]
                    if guess >= 0 and expected(paths, guess, text, begin):
                        child = np.int64(guess)
                        i = begin + paths.sizes[guess] + 1
                    else:
                        i, code, escaped = end_of_string(text, begin)
                        if i < 0:
                            fault, i = SYNTAX, begin
                            break
                        if escaped and has_escaped_ascii(text, begin, i):
                            fault = ESCAPED_KEY
                            break
                        mode = mode_of(paths, path, text, begin, i - 1, taken, forbidden)
                        child = np.int64(enter(paths, path, text, begin, i - 1, mode))
                        if child < 0:
                            fault = TOO_MANY
                            break
                        if last < 0:
                            paths.follow[path, 0] = child
                        else:
                            paths.follow[last, 1] = child
                    if paths.seen[child] == object_at[top]:
                        fault = TWICE
                        break
                    paths.seen[child] = object_at[top]
                    if paths.modes[child] == FORBIDDEN:
                        fault, i = NOT_ALLOWED, begin
                        break
                    last_at[top] = child
                    path = child if paths.modes[child] != UNWANTED else SKIPPED
                while text[i] == SPACE or text[i] == 9 or text[i] == 13:
                    i += 1
                if text[i] != COLON:
                    fault = SYNTAX
                    break
                i += 1
                waiting = True
            elif c == (CLOSE_ARRAY if array_at[top] == 1 else CLOSE_OBJECT):
                i += 1
                depth = top
                path = path_at[top]
                if path >= 0 and path != items and array_at[top] == 1:
                    inside -= 1
                if path == items and array_at[top] == 0:
                    row = line
                if depth == 0:
                    while text[i] == SPACE or text[i] == 9 or text[i] == 13:
                        i += 1
                    if text[i] != 10:
                        fault = SYNTAX
                    break
            else:
                fault = SYNTAX
        if fault == SOUND:
            n_items[line] = n_rows - rows_before
        else:
            faults[line], places[line] = fault, i - starts[line]
            n_leaves, n_rows = leaves_before, rows_before
            if fault == TOO_MANY:
                break
    return faults, places, n_items, n_leaves, n_strings


@compiled
def has_escaped_ascii(text, start, stop):
    """Whether a key has letters such as \\u005f, which may be another key than it seems."""
    for i in range(start, stop - 5):
        if text[i] == BACKSLASH and text[i + 1] == SMALL_U and text[i + 2] == ZERO and text[i + 3] == ZERO:
            return True
    return False


@compiled
def by_path(leaves, n_leaves, n_paths):
    """Leaves path by path: where each path begins and the last ends, then rows, kinds, numbers and places in the tape."""
    bounds = np.zeros(n_paths + 1, np.int64)
    for k in range(n_leaves):
        bounds[leaves.paths[k] + 1] += 1
    for path in range(n_paths):
        bounds[path + 1] += bounds[path]
    place = bounds.copy()
    rows, kinds = np.empty(n_leaves, np.int64), np.empty(n_leaves, np.int8)
    numbers, spots = np.empty(n_leaves), np.empty(n_leaves, np.int32)
    for k in range(n_leaves):
        to = place[leaves.paths[k]]
        place[leaves.paths[k]] += 1
        rows[to], kinds[to], numbers[to], spots[to] = leaves.rows[k], leaves.kinds[k], leaves.numbers[k], k
    return bounds, rows, kinds, numbers, spots
