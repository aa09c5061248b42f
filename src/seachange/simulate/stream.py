"""A labeled stream as a bandit: the reward is 1 if the action is the label."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import polars
from scipy.special import softmax

from seachange.errors import LogError
from seachange.log.bandit_log import BanditLog
from seachange.params import require
from seachange.protocols import Floats, Ints
from seachange.simulate.rollout import Rounds

UNIFORM_SHARE = 0.25  # of the logging policy
LABELS_SEEN = 200  # rounds that the logging policy is learned from: it is weak


@dataclass(frozen=True, kw_only=True, eq=False)
class Stream:
    """Logs are of the first part of the stream, and deployments run on the rest.

    The logging policy is 0.75 times the softmax of a linear model of 200 labels, plus 0.25 times uniform.
    """

    features: Floats  # (n, d)
    labels: npt.ArrayLike  # (n,) from 0
    regimes: npt.ArrayLike | None = None  # (n,) from 0, where they are known
    split: float = 0.5  # share of the first part

    def __post_init__(self) -> None:
        n = len(self.features)
        lengths = {n, len(self._labels), len(self._regimes)}
        require(len(lengths) == 1, f"features, labels, and regimes must have the same length; got {sorted(lengths)}.")
        require(LABELS_SEEN <= self.first < n, f"both parts need rounds, and the first at least {LABELS_SEEN}.")

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """A Parquet file with columns f0, f1, …, next to one named …_truth with columns label and regime."""
        path = Path(path)
        truth = path.with_name(f"{path.stem}_truth.parquet")
        if not path.is_file() or not truth.is_file():
            raise LogError(f"a stream needs the files {str(path)!r} and {str(truth)!r}.")
        columns = polars.read_parquet(truth)
        features = polars.read_parquet(path).select(polars.col("^f[0-9]+$")).to_numpy().astype(np.float64)
        return cls(features=features, labels=columns["label"].to_numpy(), regimes=columns["regime"].to_numpy())

    @cached_property
    def _labels(self) -> Ints:
        return np.asarray(self.labels, dtype=np.int64)

    @cached_property
    def _regimes(self) -> Ints:
        return np.zeros(len(self.features), np.int64) if self.regimes is None else np.asarray(self.regimes, np.int64)

    @property
    def first(self) -> int:
        """The number of rounds of the first part."""
        return int(self.split * len(self.features))

    @property
    def n_actions(self) -> int:
        """K: the number of labels."""
        return int(self._labels.max()) + 1

    @property
    def horizon(self) -> int:
        """T: the rounds of the second part."""
        return len(self.features) - self.first

    @cached_property
    def _scales(self) -> tuple[Floats, Floats]:
        first = self.features[: self.first]
        spread = first.std(axis=0)
        return first.mean(axis=0), np.where(spread > 0, spread, 1.0)

    def _rounds(self, start: int, end: int) -> Rounds:
        """Features are standardized as in the first part."""
        mean, spread = self._scales
        rewards = np.eye(self.n_actions)[self._labels[start:end]]
        return Rounds((self.features[start:end] - mean) / spread, rewards, rewards, self._regimes[start:end])

    def log(self, seed: int) -> BanditLog:
        """A log of the first part."""
        generator, rounds = np.random.default_rng([seed, 2]), self._rounds(0, self.first)
        rows = np.column_stack([rounds.contexts, np.ones(self.first)])
        seen = generator.choice(self.first, LABELS_SEEN, replace=False)
        gram = rows[seen].T @ rows[seen] + 10 * np.eye(rows.shape[1])
        scores = rows @ np.linalg.solve(gram, rows[seen].T @ rounds.rewards[seen])
        uniform = UNIFORM_SHARE / self.n_actions
        return rounds.logged_by((1 - UNIFORM_SHARE) * softmax(scores, axis=1) + uniform, generator.random(self.first))

    def log_states(self, seed: int) -> Ints:
        """(first,) the regimes of the first part, which are not in the log."""
        return self._regimes[: self.first]

    def rounds(self, seed: int, chunk: int) -> Iterator[Rounds]:
        """The second part; every run has the same rounds."""
        n = len(self.features)
        for start in range(self.first, n, chunk):
            yield self._rounds(start, min(start + chunk, n))
