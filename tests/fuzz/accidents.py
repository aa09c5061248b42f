"""Damaged files through a reader: no error but ours, and nothing read that is not there."""

from __future__ import annotations

import datetime as dt
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzz.mutations import mutations
from seachange.errors import SeachangeError, SeachangeWarning
from seachange.log.raw import RawLog, RawRounds

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "-", "--", "?", "\\n", "."}

Check = Callable[[bytes, Any, list[RawRounds]], None]


def survive(content: bytes, seeds: range, path: Path, read: Callable[[Path], RawLog], check: Check) -> int:
    """Put ``content`` through accidents and ``check`` what is read of it; the number of files that were readable."""
    readable = 0
    for seed in seeds:
        damaged = mutations(content, seed)
        path.write_bytes(damaged)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SeachangeWarning)
                log = read(path)
                parts = list(log.parts())
        except SeachangeError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error} of {damaged!r}") from error
        try:
            check(damaged, log, parts)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r} of {damaged!r}") from error
        readable += 1
    return readable


def same(text: str, value: Any, *, feature: bool = False) -> bool:
    """Whether ``value`` is what ``text`` stands for; a feature that is no number may be missing."""
    bare = text.strip()
    if value is None:
        return feature or bare.lower() in MISSING
    if isinstance(value, str):
        return value == text
    if isinstance(value, bool):
        return bare.lower() in (("true", "yes") if value else ("false", "no"))
    if isinstance(value, dt.datetime):
        return value == _moment(bare)
    if bare.lower() in ("true", "yes", "false", "no"):
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
