"""The decision log of a deployment, written as it decides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np

from seachange.errors import LogError, OutputError
from seachange.log.decision_lines import DecisionLine, broken_rule


class DecisionLog:
    """A file that decisions and rewards are added to, a line each, whole as soon as the call returns.

    Several processes may add to one file: a line is one write to its end. What a crash left unfinished at the end stays
    a broken line of its own, which the reader names and passes over.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._file = self.path.open("ab", buffering=0)
            unfinished = self._file.tell() > 0 and self._last_byte() != b"\n"
        except OSError as error:
            raise OutputError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
        if unfinished:
            self._add(b"\n")

    def decision(
        self,
        record: Mapping[str, Any],
        action: str,
        propensity: float,
        time: datetime | None,
        id: str,
        *,
        actions: Sequence[str] | None = None,
        features: Sequence[Mapping[str, Any]] | None = None,
        probs: Sequence[float] | None = None,
        model: str | None = None,
    ) -> None:
        """Write down what was decided on ``record``; ``actions`` where not all could be chosen."""
        if not 0 < _finite("propensity", propensity) <= 1:
            raise LogError(f"propensity must be in (0, 1]; got {propensity}.")
        self._write(
            DecisionLine(
                decision=str(id),
                time=_in_utc(time),
                context=dict(record),
                action=str(action),
                propensity=float(propensity),
                actions=None if actions is None else [str(each) for each in actions],
                features=None if features is None else [dict(each) for each in features],
                probs=None if probs is None else [_finite("probs", each) for each in probs],
                model=model,
            )
        )

    def reward(self, id: str, reward: float, time: datetime | None) -> None:
        """Write down what the decision ``id`` earned."""
        self._write(DecisionLine(decision=str(id), time=_in_utc(time), reward=_finite("reward", reward)))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, line: DecisionLine) -> None:
        if rule := broken_rule(line):
            raise LogError(f"decision {line.decision!r} cannot be written: {rule}.")
        try:
            self._add(msgspec.json.encode(line, enc_hook=_plain) + b"\n")
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise LogError(f"decision {line.decision!r} cannot be written as JSON: {error}.") from error

    def _add(self, content: bytes) -> None:
        try:
            written = self._file.write(content)
        except OSError as error:
            raise OutputError(f"{str(self.path)!r} cannot be written: {error.strerror}.") from error
        if written != len(content):
            raise OutputError(f"{str(self.path)!r} took {written} of {len(content)} bytes; is there room on the disk?")

    def _last_byte(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(-1, 2)
            return file.read(1)


def _finite(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise LogError(f"{name} must be a finite number; got {value!r}.")
    return number


def _in_utc(time: Any) -> datetime | None:
    """A time whose zone is written down; one without a zone is taken for UTC."""
    if time is None:
        return None
    if not isinstance(time, datetime):
        raise LogError(f"time must be a datetime; got {time!r}.")
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy as JSON has them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON")
