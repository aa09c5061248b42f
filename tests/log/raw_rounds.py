"""Raw rounds to encode."""

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from seachange.log.feature_fitting import fit_features
from seachange.log.raw import RawRounds


@dataclass
class ListLog:
    """A raw log of given parts."""

    given: list = field(default_factory=list)
    contexts: tuple | None = None  # the columns that a user named
    format: str = "json-lines"
    columns: dict = field(default_factory=lambda: {"action": "action", "reward": "reward"})

    def parts(self, rows=0):
        return iter(self.given)


def rounds_of(frame, first_line=1, **more):
    """Rounds with the features of ``frame``, actions a and b in turn."""
    n = len(frame)
    given = {
        "action": pl.Series(["a", "b"] * n)[:n],
        "reward": pl.Series(np.arange(n) % 3 / 2),
        "propensity": pl.Series(np.full(n, 0.5)),
    }
    return RawRounds(source="clicks.jsonl", lines=np.arange(first_line, first_line + n), features=frame, **given | more)


def fitted(frame, **options):
    return fit_features(ListLog(contexts=()), [rounds_of(frame)], **options)
