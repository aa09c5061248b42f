"""Lines of Vowpal Wabbit's text, taken apart: label words, tags and features as leaves, as in ``json_lines``.

    label words 'tag|namespace:scale name name=text name:number name:text |namespace …

A feature is at the path of its namespace and name. A bare name is an element of its namespace's list of words.
"""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled, inlined
from seachange.kernels.decimals import MOST_DIGITS, exact_double, is_exact, nearest_double
from seachange.kernels.json_lines import FEATURES, IN_ARRAY, SOUND, STRING, enter
from seachange.kernels.json_tokens import (
    COLON,
    LARGE_E,
    LINE_FEED,
    LONG_NUMBER,
    MINUS,
    NINE,
    NUMBER,
    ONE,
    PLUS,
    POINT,
    SMALL_E,
    SPACE,
    ZERO,
    end_of_digits,
    is_word,
)  # fmt: skip
from seachange.kernels.letters import EIGHT, SPREAD, eight, first_letters, letter, same

BAR, QUOTE_MARK, EQUALS, TAB, RETURN = (ord(c) for c in "|'=\t\r")
# Paths that are there from the start; below the last two are namespaces.
LABEL, TAG, SHARED, ITEMS = 1, 2, 3, 4
BLANK, SHARED_LINE, ACTION_LINE = 0, 1, 2
# What may be wrong with a line, beside what may be wrong with one of JSON.
ONLY_BLANKS, AFTER_BLANKS, NAMELESS_SCALE, BAD_SCALE, NAMELESS_FEATURE, NO_VALUE, BAD_VALUE, SCALED = range(20, 28)
SHARED_WORD = np.frombuffer(b"shared", np.uint8)
NAN_WORD, INFINITE_WORD = np.frombuffer(b"nan", np.uint8), np.frombuffer(b"inf", np.uint8)


@inlined
def ends_word(c):
    """Whether a letter ends a feature or the name of a namespace."""
    return c in (SPACE, BAR, LINE_FEED, TAB, RETURN)


@inlined
def read_decimal(text, i):
    """After the number that begins at ``i``, its digits, power and sign, and its kind; at ``i`` where there is none."""
    begin = i
    negative = letter(text, i) == MINUS
    if negative or letter(text, i) == PLUS:
        i += ONE
    first, q = i, 0
    i, w = end_of_digits(text, i, np.uint64(0))
    digits = np.int64(i - first)
    if letter(text, i) == POINT:
        point = i + ONE
        i, w = end_of_digits(text, point, w)
        q = -np.int64(i - point)
        digits -= q
    if digits == 0:
        return begin, w, q, negative, NUMBER
    if letter(text, i) == SMALL_E or letter(text, i) == LARGE_E:
        k = i + ONE
        minus = letter(text, k) == MINUS
        if minus or letter(text, k) == PLUS:
            k += ONE
        end, power = end_of_digits(text, k, np.uint64(0))
        if end == k:
            return begin, w, q, negative, NUMBER
        i = end
        if end - k > np.uint64(6):
            return i, w, q, negative, LONG_NUMBER
        q += -np.int64(power) if minus else np.int64(power)
    return i, w, q, negative, (LONG_NUMBER if digits > MOST_DIGITS else NUMBER)


@inlined
def is_text(text, i, end):
    """Whether a value that is no number is a text: it begins with a letter, has no colon, and is no odd number."""
    c = letter(text, i)
    if c in (MINUS, PLUS, POINT) or ZERO <= c <= NINE:
        return False
    for word in (NAN_WORD, INFINITE_WORD):
        k = np.uint64(0)
        while k < np.uint64(3) and i + k < end and letter(text, i + k) | 32 == word[k]:
            k += ONE
        if k == np.uint64(3):
            return False
    while i < end:
        if letter(text, i) == COLON:
            return False
        i += ONE
    return True


@compiled
def counted(text):
    """Lines of a text, and words it may have at most."""
    lines, words = 0, 1
    for c in text:
        lines += c == LINE_FEED
        words += (c == LINE_FEED) | (c == SPACE) | (c == BAR) | (c == TAB) | (c == RETURN)
    return lines, words


@compiled
def number_of(text, begin, end, spans, slots, n_strings):
    """The place of a word in the list of different ones; a new one is put at its end."""
    code, i, left = np.uint64(0), begin, end - begin
    while left > np.uint64(0):
        code = (code ^ (eight(text, i) & first_letters(left))) * SPREAD
        code ^= code >> np.uint64(32)
        step = min(left, EIGHT)
        i += step
        left -= step
    size, slot = np.int64(end - begin), np.int64(code & np.uint64(slots.size - 1))
    while slots[slot] >= 0:
        start = spans[slots[slot], 0] + 1
        if spans[slots[slot], 1] - 1 - start == size and same(text, start, text, begin, size):
            return slots[slot]
        slot = (slot + 1) & (slots.size - 1)
    slots[slot] = n_strings
    # As if there were quotes around it, as around those of JSON.
    spans[n_strings, 0], spans[n_strings, 1], spans[n_strings, 2] = np.int64(begin) - 1, np.int64(end) + 1, 0
    return slots[slot]


@compiled
def taken_apart(text, n_lines, with_items, paths, leaves, strings, powers):
    """Take lines apart: where they begin, what is wrong, what each is, in which example; leaves and strings, counted.

    ``with_items``: lines are actions, each a row of features of its own, and what they share is a line before them;
    examples end with an empty line, or with one of blanks, which is a fault of those before and after it. Otherwise a
    line is an example.
    """
    leaf_paths, rows, kinds, numbers, places = leaves
    spans, slots = strings
    slots[:] = -1
    starts, faults, roles = np.zeros(n_lines + 1, np.int64), np.zeros(n_lines, np.int8), np.zeros(n_lines, np.int8)
    examples = np.full(n_lines, -1)
    bits = np.zeros(1, np.uint64)
    doubles = bits.view(np.float64)
    i, n_leaves, n_strings, n_items, n_examples = np.uint64(0), 0, 0, 0, 0
    within = after_blanks = False  # within an example, after a line of blanks
    for line in range(n_lines):
        end = i
        bar = i
        barred = False
        while letter(text, end) != LINE_FEED:
            if not barred and letter(text, end) == BAR:
                bar, barred = end, True
            end += ONE
        starts[line + 1] = np.int64(end) + 1
        stop = end
        while stop > i and letter(text, stop - ONE) == RETURN:
            stop -= ONE
        if not barred:
            bar = stop
        if stop == i:
            n_examples += within or (after_blanks and examples[line - 1] == n_examples)
            within = after_blanks = False
            i = end + ONE
            continue
        examples[line] = n_examples if with_items else line
        # Words before the bar. What touches it, or begins with a quote, is a tag.
        shared, any_word = False, False
        k = i
        while k < bar:
            if letter(text, k) == TAB:
                i = k + ONE
                break
            k += ONE
        while i < bar:
            if letter(text, i) == SPACE:
                i += ONE
                continue
            any_word = True
            word = i
            while i < bar and letter(text, i) != SPACE:
                i += ONE
            k = i
            while k < bar and letter(text, k) == SPACE:
                k += ONE
            is_tag = k == bar and (i == bar or letter(text, word) == QUOTE_MARK)
            if is_tag and letter(text, word) == QUOTE_MARK:
                word += ONE
            if not is_tag and i - word == np.uint64(6):
                shared = shared or is_word(text, word, SHARED_WORD)
            if word == i:  # a quote alone
                continue
            number = number_of(text, word, i, spans, slots, n_strings)
            n_strings += number == n_strings
            leaf_paths[n_leaves], rows[n_leaves], kinds[n_leaves] = (TAG if is_tag else LABEL), line, STRING
            numbers[n_leaves], places[n_leaves] = number, word
            n_leaves += 1
        if not barred and not any_word:
            faults[line] = ONLY_BLANKS
            n_examples += within
            within, after_blanks = False, True
            i = end + ONE
            continue
        if after_blanks and with_items:
            faults[line] = AFTER_BLANKS
        within, after_blanks = True, False
        roles[line] = SHARED_LINE if shared and with_items else ACTION_LINE
        root, row = SHARED, examples[line]
        if with_items and roles[line] == ACTION_LINE:
            root, row = ITEMS, n_items
            n_items += 1
        # Namespaces and their features.
        i = bar
        namespace, scale = root, 1.0
        while i < stop and faults[line] == SOUND:
            c = letter(text, i)
            if c in (SPACE, TAB, RETURN):
                i += ONE
                continue
            is_namespace = c == BAR
            if is_namespace:
                i += ONE
            word, equals = i, i
            while not ends_word(letter(text, i)) and letter(text, i) != COLON:
                if letter(text, i) == EQUALS and equals == word:
                    equals = i
                i += ONE
            size, value, kind = np.int64(i - word), 1.0, NUMBER
            with_value = letter(text, i) == COLON
            if size == 0 and (with_value or not is_namespace):
                faults[line] = NAMELESS_SCALE if is_namespace else NAMELESS_FEATURE
                break
            begin = i + ONE
            if with_value:
                i, w, q, negative, kind = read_decimal(text, begin)
                if is_exact(w, q):
                    value = exact_double(w, q)
                elif kind == NUMBER:
                    value, sure = nearest_double(w, q, powers, bits, doubles)
                    kind = NUMBER if sure else LONG_NUMBER
                value = -value if negative else value
                if i == begin or not ends_word(letter(text, i)):
                    kind = STRING
                    while not ends_word(letter(text, i)):
                        i += ONE
                if is_namespace and kind != NUMBER:
                    faults[line] = BAD_SCALE
                elif i == begin:
                    faults[line] = NO_VALUE
                elif kind == STRING and not is_text(text, begin, i):
                    faults[line] = BAD_VALUE
            if is_namespace and faults[line] == SOUND:
                scale, namespace = value, root
                if size > 0:
                    namespace = np.int64(enter(paths, root, text, word, size, FEATURES))
                continue
            if not with_value and scale == 1.0 and equals > word:
                size, begin, kind = np.int64(equals - word), equals + ONE, STRING
            elif not with_value and scale == 1.0:
                size, begin, kind = 0, word, STRING + IN_ARRAY
            elif scale != 1.0 and kind != NUMBER:
                faults[line] = SCALED
            elif not with_value:
                begin = word
            if faults[line] != SOUND:
                break
            path = np.int64(enter(paths, namespace, text, word, size, FEATURES)) if namespace >= 0 else -1
            if path < 0:
                continue
            value *= scale
            if kind != NUMBER and kind != LONG_NUMBER:
                number = number_of(text, begin, i, spans, slots, n_strings)
                n_strings += number == n_strings
                value = np.float64(number)
            leaf_paths[n_leaves], rows[n_leaves], kinds[n_leaves] = path, row, kind
            numbers[n_leaves], places[n_leaves] = value, begin
            n_leaves += 1
        i = end + ONE
    return starts, faults, roles, examples, n_leaves, n_strings
