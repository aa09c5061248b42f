"""Words of JSON: blanks, strings, numbers, moments. A text is its address; it ends with a line feed and padding."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled, inlined
from seachange.kernels.decimals import MOST_DIGITS
from seachange.kernels.letters import EIGHT, SPREAD, eight, ends_of_run, first_letters, letter, low_zeros

QUOTE, COMMA, COLON, BACKSLASH, UNDERSCORE, MINUS, PLUS, POINT, ZERO, NINE = (ord(c) for c in '",:\\_-+.09')
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY = (ord(c) for c in "{}[]")
LINE_FEED, SPACE = 10, 32
SMALL_E, LARGE_E, SMALL_T, SMALL_F, SMALL_N, SMALL_U, LARGE_T, LARGE_Z, EIGHT_DIGIT = (ord(c) for c in "eEtfnuTZ8")
ESCAPES = (QUOTE, BACKSLASH, *(ord(c) for c in "/bfnrt"))
ESCAPED_ASCII = np.frombuffer(b"\\u00", np.uint8)
ONE = np.uint64(1)
NOWHERE = np.uint64(0)  # where a word ends that is none
NUMBER, LONG_NUMBER = 0, 1  # kinds: some numbers are left to be read by the caller
NO_MOMENT = np.iinfo(np.int64).min  # which numpy takes for no time


@inlined
def after_blanks(text, i):
    """The first place from ``i`` on that is not blank."""
    while letter(text, i) <= SPACE and (letter(text, i) == SPACE or letter(text, i) == 9 or letter(text, i) == 13):
        i += ONE
    return i


@inlined
def is_word(text, i, word):
    """Whether ``word`` stands at ``i``."""
    for c in word:
        if letter(text, i) != c:
            return False
        i += ONE
    return True


@inlined
def end_of_string(text, i):
    """After the string that begins at ``i`` behind its quote, a code of what is in it, and whether it has escapes."""
    code, escaped = np.uint64(0), False
    while True:
        word = eight(text, i)
        found = ends_of_run(word)
        if found == NOWHERE:
            code = (code ^ word) * SPREAD
            i += EIGHT
            continue
        size = low_zeros(found) >> np.uint64(3)
        code = (code ^ (word & first_letters(size))) * SPREAD
        code ^= code >> np.uint64(32)
        i += size
        if letter(text, i) == QUOTE:
            return i + ONE, code, escaped
        if letter(text, i) != BACKSLASH:
            return NOWHERE, code, escaped
        escaped = True
        i += ONE
        if letter(text, i) == SMALL_U:
            for _ in range(4):
                i += ONE
                c = letter(text, i)
                if not (ZERO <= c <= NINE or 97 <= c <= 102 or 65 <= c <= 70):
                    return NOWHERE, code, escaped
        elif letter(text, i) not in ESCAPES:
            return NOWHERE, code, escaped
        i += ONE


@compiled
def has_escaped_ascii(text, start, stop):
    """Whether a key has letters such as \\u005f, which may be another key than it seems."""
    for i in range(start, stop - np.uint64(5)):
        if is_word(text, i, ESCAPED_ASCII) and letter(text, i + np.uint64(4)) < EIGHT_DIGIT:
            return True
    return False


@inlined
def end_of_digits(text, i, w):
    """After the digits that begin at ``i``, and the number that they end."""
    while ZERO <= letter(text, i) <= NINE:
        w = w * np.uint64(10) + np.uint64(letter(text, i) - ZERO)
        i += ONE
    return i, w


@inlined
def read_number(text, i):
    """After the number that begins at ``i``, its digits, power and sign, and whether those are all."""
    negative = letter(text, i) == MINUS
    if negative:
        i += ONE
    first, q = i, 0
    i, w = end_of_digits(text, first, np.uint64(0))
    digits = np.int64(i - first)
    if digits == 0 or (digits > 1 and letter(text, first) == ZERO):
        return NOWHERE, w, q, negative, NUMBER
    if letter(text, i) == POINT:
        point = i + ONE
        i, w = end_of_digits(text, point, w)
        q = -np.int64(i - point)
        if q == 0:
            return NOWHERE, w, q, negative, NUMBER
        digits -= q
        if digits > MOST_DIGITS and letter(text, first) == ZERO:
            digits -= 1
            while letter(text, point) == ZERO:  # they are not among the digits that count
                point += ONE
                digits -= 1
    if letter(text, i) == SMALL_E or letter(text, i) == LARGE_E:
        i += ONE
        minus = letter(text, i) == MINUS
        if minus or letter(text, i) == PLUS:
            i += ONE
        begin = i
        i, power = end_of_digits(text, begin, np.uint64(0))
        if i == begin:
            return NOWHERE, w, q, negative, NUMBER
        if i - begin > np.uint64(6):
            return i, w, q, negative, LONG_NUMBER
        q += -np.int64(power) if minus else np.int64(power)
    if digits > MOST_DIGITS:
        return i, w, q, negative, LONG_NUMBER
    return i, w, q, negative, NUMBER


@compiled
def moments(text, places):
    """Strings like "2026-01-31T23:59:59.5Z" at these places as microseconds since 1970."""
    found = np.empty(places.size, np.int64)
    for k in range(places.size):
        found[k] = moment(text, np.uint64(places[k]) + ONE)
    return found


@inlined
def digits_before(text, i, count, mark):
    """The number that so many digits make, and after the mark behind them; -1000000 and ``i`` where it is not so."""
    value = 0
    for k in range(np.uint64(count)):
        c = letter(text, i + k)
        if not ZERO <= c <= NINE:
            return -1_000_000, i
        value = value * 10 + np.int64(c - ZERO)
    return (value, i + np.uint64(count) + ONE) if letter(text, i + np.uint64(count)) == mark else (-1_000_000, i)


@inlined
def moment(text, i):
    """Microseconds since 1970 of the time that begins at ``i``; without a zone it is in UTC."""
    year, i = digits_before(text, i, 4, MINUS)
    month, i = digits_before(text, i, 2, MINUS)
    day, i = digits_before(text, i, 2, LARGE_T)
    hour, i = digits_before(text, i, 2, COLON)
    minute, i = digits_before(text, i, 2, COLON)
    second, i = digits_before(text, i, 2, letter(text, i + np.uint64(2)))
    i -= ONE
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = 30 + (month + month // 8) % 2 if month != 2 else 28 + leap
    of_day = 0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60
    if not (of_day and year >= 1 and 1 <= month <= 12 and 1 <= day <= days):
        return NO_MOMENT
    fraction, unit = 0, 100_000
    if letter(text, i) == POINT:
        begin = i + ONE
        i = begin
        while ZERO <= letter(text, i) <= NINE:
            fraction += unit * np.int64(letter(text, i) - ZERO)
            unit //= 10
            i += ONE
        if i == begin:
            return NO_MOMENT
    ahead = 0  # of UTC, in minutes
    if letter(text, i) == LARGE_Z:
        i += ONE
    elif letter(text, i) == PLUS or letter(text, i) == MINUS:
        hours, k = digits_before(text, i + ONE, 2, COLON)
        minutes, k = digits_before(text, k, 2, QUOTE)
        if not (0 <= hours < 24 and 0 <= minutes < 60):
            return NO_MOMENT
        ahead = (hours * 60 + minutes) * (-1 if letter(text, i) == MINUS else 1)
        i = k - ONE
    if letter(text, i) != QUOTE:
        return NO_MOMENT
    # Years begin in March, so that the day that comes every four years is the last of one.
    year -= month <= 2
    of_year = (153 * (month + (9 if month <= 2 else -3)) + 2) // 5 + day - 1
    since = 365 * year + year // 4 - year // 100 + year // 400 + of_year - 719468
    return (((since * 24 + hour) * 60 + minute - ahead) * 60 + second) * 1_000_000 + fraction
