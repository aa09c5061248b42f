"""Rounds as they come, cut anew into parts of one size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seachange.log.raw import RawRounds


def even_parts(waiting: Sequence[RawRounds], rows: int) -> list[RawRounds]:
    """The same rounds of one file in parts of ``rows``, the last one of what is left."""
    import polars

    if not waiting:
        return []
    if len(waiting) == 1 and len(waiting[0]) <= rows:
        return list(waiting)

    def joined(get: Callable[[RawRounds], Any]) -> Any:
        pieces = [get(part) for part in waiting]
        if pieces[0] is None:
            return None
        frames = [piece if isinstance(piece, polars.DataFrame) else piece.to_frame() for piece in pieces]
        if frames[0].width == 0:
            return polars.DataFrame()
        whole = polars.concat(frames, how="vertical_relaxed")
        return whole if isinstance(pieces[0], polars.DataFrame) else whole.to_series()

    lines = np.concatenate([part.lines for part in waiting])
    rejected = [one for part in waiting for one in part.rejected]
    columns = {
        name: joined(lambda part, name=name: getattr(part, name))  # type: ignore[misc]
        for name in ("features", "action", "reward", "propensity", "time", "sequence")
    }
    parts = []
    for start in range(0, max(len(lines), 1), rows):
        end = start + rows
        here = [one for one in rejected if end >= len(lines) or one.line < lines[end]]
        rejected = rejected[len(here) :]
        pieces: dict[str, Any] = {
            name: None if column is None else column[start:end] for name, column in columns.items()
        }
        parts.append(RawRounds(waiting[0].source, lines[start:end], rejected=tuple(here), **pieces))
    return parts
