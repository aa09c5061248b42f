"""Files as accidents leave them: the same damage from the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable

MOST_CHANGES = 4
# What breaks readers: other spellings of numbers, missing words, quotes, separators, escapes, odd characters.
TROUBLE = (
    b"", b" ", b"\t", b",", b";", b"|", b":", b'"', b"'", b'""', b"\\", b"\\n", b"\\u0000", b"\\ud800", b"\n", b"\r",
    b"\r\n", b"\n\n", b"\x00", b"\xef\xbb\xbf", b"\xff", b"\xc3", b"\xe2\x80\xa8", b"0", b"-1", b"1e5", b"1e999",
    b"-1e-999", b"0x10", b"1_000", b"007", b"1,5", b"+1", b".5", b"5.", b"9007199254740993", b"18446744073709551616",
    b"123456789012345678901234567890", b"NaN", b"nan", b"inf", b"-Infinity", b"null", b"None", b"n/a", b"NA", b"-",
    b"true", b"False", b"yes", b"{}", b"{", b"}", b"[]", b"[", b"]", b"[[", b'{"a":', b"#", b"|a", b"=", b"%",
    "\N{ARABIC-INDIC DIGIT ONE}".encode(), "\N{FULLWIDTH DIGIT ONE}".encode(), "\N{MINUS SIGN}1".encode(),
    "\N{NO-BREAK SPACE}1".encode(), "é".encode(), "\N{PILE OF POO}".encode(), b"2026-02-30", b"1970-01-01T00:00:00Z",
)  # fmt: skip


def mutations(content: bytes, seed: int) -> bytes:
    """``content`` with one to four accidents, the same for the same seed."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, MOST_CHANGES)):
        content = chance.choice(ACCIDENTS)(content, chance)
    return content


def _flipped(content: bytes, chance: random.Random) -> bytes:
    if not content:
        return content
    place = chance.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << chance.randrange(8))]) + content[place + 1 :]


def _deleted(content: bytes, chance: random.Random) -> bytes:
    start, end = _stretch(content, chance)
    return content[:start] + content[end:]


def _duplicated(content: bytes, chance: random.Random) -> bytes:
    start, end = _stretch(content, chance)
    return content[:end] + content[start:end] + content[end:]


def _inserted(content: bytes, chance: random.Random) -> bytes:
    place = chance.randint(0, len(content))
    return content[:place] + chance.choice(TROUBLE) + content[place:]


def _random(content: bytes, chance: random.Random) -> bytes:
    start, end = _stretch(content, chance)
    return content[:start] + chance.randbytes(end - start) + content[end:]


def _truncated(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randint(0, len(content))]


def _number_replaced(content: bytes, chance: random.Random) -> bytes:
    """Another value in the place of a run of digits."""
    starts = [i for i in range(len(content)) if content[i : i + 1].isdigit() and not content[i - 1 : i].isdigit()]
    if not starts:
        return content
    start = end = chance.choice(starts)
    while content[end : end + 1].isdigit():
        end += 1
    return content[:start] + chance.choice(TROUBLE) + content[end:]


def _lines_swapped(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if not lines:
        return content
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def _line_repeated(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if not lines:
        return content
    lines.insert(chance.randint(0, len(lines)), chance.choice(lines))
    return b"".join(lines)


def _line_lost(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if not lines:
        return content
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def _stretch(content: bytes, chance: random.Random) -> tuple[int, int]:
    """A short run of bytes."""
    start = chance.randint(0, len(content))
    return start, min(len(content), start + chance.randint(1, 16))


ACCIDENTS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flipped, _deleted, _duplicated, _inserted, _inserted, _random, _truncated, _number_replaced, _number_replaced,
    _lines_swapped, _line_repeated, _line_lost,
)  # fmt: skip
