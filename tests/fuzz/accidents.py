"""Damaged files through a reader: no error but ours, and nothing read that is not there."""

from __future__ import annotations

import datetime as dt
import math
import re
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fuzz.mutations import mutations
from seachange.errors import SeachangeError, SeachangeWarning
from seachange.log.raw import RawLog, RawRounds

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
FLAGS = ("true", "yes", "false", "no")
MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "-", "--", "?", "\\n", "."}

# Holds what was read against the bytes; the values of features in rounds that are not of their column's kind.
Check = Callable[[bytes, Any, list[RawRounds]], int]
TOLD = re.compile(r"([0-9,]+) values? (?:does|do) not match the column's type")


def survive(content: bytes, seeds: Iterable[int], path: Path, read: Callable[[Path], RawLog], check: Check) -> int:
    """Put ``content`` through accidents and ``check`` what is read of it; the number of files that were readable."""
    readable = 0
    for seed in seeds:
        damaged = mutations(content, seed)
        path.write_bytes(damaged)
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always", SeachangeWarning)
                log = read(path)
                parts = list(log.parts())
        except SeachangeError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error} of {damaged!r}") from error
        try:
            told = [int(found[1]) for each in warned if (found := TOLD.match(str(each.message)))]
            odd = check(damaged, log, parts)
            assert odd == sum(told), f"{odd} values are odd, {told} were told"
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r} of {damaged!r}") from error
        readable += 1
    return readable


def is_missing(text: str) -> bool:
    """Whether a text is a usual word for a missing number."""
    return text.strip().lower() in MISSING


def is_number(text: str, comma: bool = False) -> bool:
    """Whether a text stands for a number or a flag."""
    bare = text.strip().lower()
    plain = bare if not comma else "two signs" if "." in bare else bare.replace(",", ".")
    if bare in FLAGS or re.fullmatch(r"[+-]?inf(inity)?", bare):
        return True
    return NUMBER.fullmatch(plain) is not None and math.isfinite(float(plain))


def same(text: str, value: Any) -> bool:
    """Whether ``value`` is what ``text`` stands for."""
    bare = text.strip()
    if value is None:
        return is_missing(text)
    if isinstance(value, str):
        return value == text
    if isinstance(value, bool):
        return bare.lower() in (("true", "yes") if value else ("false", "no"))
    if isinstance(value, dt.datetime):
        return value == _moment(bare)
    if bare.lower() in FLAGS:
        return value == (bare.lower() in ("true", "yes"))
    if isinstance(value, int):
        return re.fullmatch(r"[+-]?[0-9]+", bare) is not None and int(bare) == value
    if math.isinf(value):
        return re.fullmatch(r"\+?inf(inity)?" if value > 0 else "-inf(inity)?", bare.lower()) is not None
    plain = bare.replace(",", ".") if "." not in bare else bare
    return NUMBER.fullmatch(plain) is not None and float(plain) == value


def _moment(text: str) -> dt.datetime:
    """The moment in UTC that a text in ISO 8601 or a large number tells."""
    if NUMBER.fullmatch(text):
        if re.fullmatch(r"(19|20)\d{6}", text):
            return dt.datetime.strptime(text, "%Y%m%d")
        scale = next(scale for least, scale in ((1e17, 1e9), (1e14, 1e6), (0, 1e3)) if abs(float(text)) >= least)
        return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=float(text) / scale)
    moment = dt.datetime.fromisoformat(re.sub(r"\s*(UTC|GMT|[zZ])$", "+00:00", text))
    return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)
