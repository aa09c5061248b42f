"""Lines of Yahoo!'s click logs, read where they stand in a block of bytes.

R6A  time id click |user i:v … (six) |id i:v … (six) |id …       i in 1 … 6, v with decimals
R6B  time id-n click |user i … (at least one) |id-n |id-n …      i in 1 … 136
"""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled

SPACE, TAB, LINE_END, RETURN, BAR, COLON, POINT, MINUS, ZERO = 32, 9, 10, 13, 124, 58, 46, 45, 48
USER = np.frombuffer(b"|user", dtype=np.uint8)
PREFIX = np.frombuffer(b"id-", dtype=np.uint8)
# Whole numbers of so many digits fit into 64 bits; decimals of so many are divided without a second rounding.
WHOLE_DIGITS, DECIMAL_DIGITS = 18, 15
POWERS_OF_TEN = 10.0 ** np.arange(DECIMAL_DIGITS + 1)
N_VALUES = 6
N_USER_FEATURES = 136
# Longer lists are sorted to find twins, shorter ones compared pair by pair.
SHORT_LIST = 64

# What is wrong with a line.
TIME, SHOWN, CLICK, NO_USER, PAIR, VALUE, INDEX, TWICE, MISSING, ARTICLE, EMPTY_POOL, TWINS, NOT_IN_POOL = range(1, 14)


@compiled
def stretch(text, begin, n_lines):
    """Where the first ``n_lines`` lines from ``begin`` on end, how many they are, and how many bars they hold."""
    at, lines, bars = begin, 0, 0
    while at < text.size and lines < n_lines:
        if text[at] == BAR:
            bars += 1
        elif text[at] == LINE_END:
            lines += 1
        at += 1
    if at == text.size and at > begin and text[at - 1] != LINE_END:
        lines += 1
    return at, lines, bars


@compiled
def r6a_rounds(text, begin, end, line, times, places, clicks, lines, user, offsets, ids, articles, bad):
    """Rounds of the lines in ``text[begin:end]``, the first of which is number ``line``: how many, how many bad lines.

    ``user`` (6, lines) and ``articles`` (6, bars) have a row an index; ``bad`` (lines, 4) gets number, begin, end and
    fault of every line that is none. Lines of white space alone are passed over.
    """
    n, n_bad, at = 0, 0, begin
    offsets[0] = 0
    while at < end:
        stop, following = _line(text, at, end)
        if not _blank(text, at, stop):
            first = offsets[n]
            fault, time, shown, click, after = _head(text, at, stop, False)
            if fault == 0:
                fault, after = _pairs(text, after, stop, user, n)
            last = first
            while fault == 0 and not _blank(text, after, stop):
                here, word = _word(text, after, stop)
                number = _whole(text, here + 1, word) if text[here] == BAR else -1
                if number < 0:
                    fault = ARTICLE
                else:
                    ids[last] = number
                    fault, after = _pairs(text, word, stop, articles, last)
                    last += 1
            if fault == 0:
                fault, places[n] = _place(ids[first:last], shown)
            if fault == 0:
                times[n], clicks[n], lines[n], offsets[n + 1] = time, click, line, last
                n += 1
            else:
                _note(bad, n_bad, line, at, stop, fault)
                n_bad += 1
        at = following
        line += 1
    return n, n_bad


@compiled
def r6b_rounds(text, begin, end, line, times, places, clicks, lines, user, offsets, ids, bad):
    """The same of R6B; ``user`` (136, lines) is zero before."""
    n, n_bad, at = 0, 0, begin
    offsets[0] = 0
    while at < end:
        stop, following = _line(text, at, end)
        if not _blank(text, at, stop):
            first = offsets[n]
            fault, time, shown, click, after = _head(text, at, stop, True)
            here, word = _word(text, after, stop)
            while fault == 0 and here < stop and text[here] != BAR:
                index = _whole(text, here, word)
                if index < 1 or index > N_USER_FEATURES:
                    fault = INDEX
                elif user[index - 1, n] == 1:
                    fault = TWICE
                else:
                    user[index - 1, n] = 1
                here, word = _word(text, word, stop)
            if fault == 0 and user[0, n] == 0:
                fault = MISSING
            last = first
            while fault == 0 and here < stop:
                number = _numbered(text, here + 1, word) if text[here] == BAR else -1
                if number < 0:
                    fault = ARTICLE
                else:
                    ids[last] = number
                    last += 1
                    here, word = _word(text, word, stop)
            if fault == 0:
                fault, places[n] = _place(ids[first:last], shown)
            if fault == 0:
                times[n], clicks[n], lines[n], offsets[n + 1] = time, click, line, last
                n += 1
            else:
                user[:, n] = 0
                _note(bad, n_bad, line, at, stop, fault)
                n_bad += 1
        at = following
        line += 1
    return n, n_bad


@compiled
def _note(bad, n_bad, line, at, stop, fault):
    bad[n_bad, 0], bad[n_bad, 1], bad[n_bad, 2], bad[n_bad, 3] = line, at, stop, fault


@compiled
def _line(text, at, end):
    """Where the line's own text ends, and where the next line begins."""
    stop = at
    while stop < end and text[stop] != LINE_END:
        stop += 1
    following = stop + 1
    if stop > at and text[stop - 1] == RETURN:
        stop -= 1
    return stop, following


@compiled
def _blank(text, at, stop):
    while at < stop and (text[at] == SPACE or text[at] == TAB):
        at += 1
    return at >= stop


@compiled
def _word(text, at, stop):
    """Begin and end of the next word; both are ``stop`` where there is none."""
    while at < stop and (text[at] == SPACE or text[at] == TAB):
        at += 1
    end = at
    while end < stop and text[end] != SPACE and text[end] != TAB:
        end += 1
    return at, end


@compiled
def _whole(text, at, end):
    """The digits as a number, -1 where they are none."""
    if at >= end or end - at > WHOLE_DIGITS:
        return np.int64(-1)
    number = np.int64(0)
    for i in range(at, end):
        digit = np.int64(text[i]) - ZERO
        if digit < 0 or digit > 9:
            return np.int64(-1)
        number = 10 * number + digit
    return number


@compiled
def _numbered(text, at, end):
    """n of id-n, -1 where it is something else."""
    if end - at <= PREFIX.size:
        return np.int64(-1)
    for i in range(PREFIX.size):
        if text[at + i] != PREFIX[i]:
            return np.int64(-1)
    return _whole(text, at + PREFIX.size, end)


@compiled
def _decimal(text, at, end):
    """Digits with a point among them as the nearest double, NaN where they are something else.

    Digits as a whole number and powers of ten up to 10^15 are exact, so that their quotient is rounded once.
    """
    negative = at < end and text[at] == MINUS
    if negative:
        at += 1
    mantissa, digits, decimals, pointed = np.int64(0), 0, 0, False
    for i in range(at, end):
        digit = np.int64(text[i]) - ZERO
        if 0 <= digit <= 9:
            mantissa = 10 * mantissa + digit
            digits += 1
            if pointed:
                decimals += 1
            if digits > DECIMAL_DIGITS:
                return np.nan
        elif text[i] == POINT and not pointed:
            pointed = True
        else:
            return np.nan
    if digits == 0:
        return np.nan
    value = mantissa / POWERS_OF_TEN[decimals]
    return -value if negative else value


@compiled
def _head(text, at, stop, prefixed):
    """What is wrong, the time, the article shown, the click, and the place behind |user."""
    at, end = _word(text, at, stop)
    time = _whole(text, at, end)
    at, end = _word(text, end, stop)
    shown = _numbered(text, at, end) if prefixed else _whole(text, at, end)
    at, end = _word(text, end, stop)
    click = _whole(text, at, end) if end - at == 1 else np.int64(-1)
    at, end = _word(text, end, stop)
    fault = 0
    if end - at != USER.size:
        fault = NO_USER
    else:
        for i in range(USER.size):
            if text[at + i] != USER[i]:
                fault = NO_USER
    if click < 0 or click > 1:
        fault = CLICK
    if shown < 0:
        fault = SHOWN
    if time < 0:
        fault = TIME
    return fault, time, shown, click, end


@compiled
def _pairs(text, at, stop, values, column):
    """Six pairs of index and value into ``values[:, column]``: what is wrong, and the place behind them."""
    seen = 0
    for _ in range(N_VALUES):
        here, end = _word(text, at, stop)
        if here >= stop or text[here] == BAR:
            return MISSING, at
        colon = here
        while colon < end and text[colon] != COLON:
            colon += 1
        if colon == end:
            return PAIR, at
        index = _whole(text, here, colon)
        if index < 1 or index > N_VALUES:
            return INDEX, at
        if seen & (1 << index):
            return TWICE, at
        seen |= 1 << index
        value = _decimal(text, colon + 1, end)
        if np.isnan(value):
            return VALUE, at
        values[index - 1, column] = value
        at = end
    return 0, at


@compiled
def _place(ids, shown):
    """What is wrong with a pool, and where in it the article shown is."""
    if ids.size == 0:
        return EMPTY_POOL, -1
    place = -1
    for i in range(ids.size):
        if ids[i] == shown:
            place = i
    if ids.size <= SHORT_LIST:
        for i in range(ids.size):
            for j in range(i):
                if ids[i] == ids[j]:
                    return TWINS, place
    else:
        order = np.sort(ids)
        for i in range(1, order.size):
            if order[i] == order[i - 1]:
                return TWINS, place
    return (0 if place >= 0 else NOT_IN_POOL), place
