"""Piecewise-stationary Bernoulli arms, and the published problems of this kind."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from seachange.log.bandit_log import BanditLog
from seachange.params import require
from seachange.protocols import Floats, Ints
from seachange.simulate.rollout import Rounds

# Problems of Besson's thesis, in segments of equal length; click rates of the third are from Yahoo! (Cao et al. 2019).
# Its published regrets are of 100,000 rounds: in 20,000, even random actions lose less than sliding-window klUCB does.
PUBLISHED_MEANS = {
    "Pb1": ((0.3, 0.5, 0.9), (0.3, 0.2, 0.9), (0.3, 0.2, 0.1), (0.7, 0.2, 0.1), (0.7, 0.5, 0.1)),
    "Pb2": ((0.4, 0.5, 0.9), (0.5, 0.4, 0.7), (0.6, 0.3, 0.5), (0.7, 0.2, 0.3), (0.8, 0.1, 0.1)),
    "Pb3": (
        (0.071, 0.041, 0.032, 0.03, 0.02, 0.011), (0.055, 0.053, 0.032, 0.03, 0.008, 0.011),
        (0.04, 0.063, 0.032, 0.03, 0.008, 0.011), (0.04, 0.042, 0.043, 0.03, 0.008, 0.011),
        (0.03, 0.032, 0.055, 0.03, 0.008, 0.011), (0.03, 0.032, 0.02, 0.03, 0.008, 0.021),
        (0.02, 0.022, 0.02, 0.045, 0.008, 0.021), (0.02, 0.022, 0.02, 0.057, 0.008, 0.011),
        (0.02, 0.022, 0.034, 0.057, 0.022, 0.011),
    ),
}  # fmt: skip
PUBLISHED_HORIZONS = {"Pb1": 5_000, "Pb2": 5_000, "Pb3": 100_000}


@dataclass(frozen=True, kw_only=True, eq=False)
class PiecewiseBernoulli:
    """P(reward 1) = segment_means(s, a) in segment s; segments have equal length. A log has uniform random actions."""

    segment_means: npt.ArrayLike  # (S, K)
    horizon: int  # T

    def __post_init__(self) -> None:
        means = self.means
        require(means.ndim == 2 and means.min() >= 0 and means.max() <= 1, "segment_means must be (S, K) in [0, 1].")
        require(self.horizon >= len(means), "every segment needs a round.")

    @classmethod
    def published(cls, name: str) -> "PiecewiseBernoulli":
        """One of ``PUBLISHED_MEANS``."""
        return cls(segment_means=PUBLISHED_MEANS[name], horizon=PUBLISHED_HORIZONS[name])

    @cached_property
    def means(self) -> Floats:
        """(S, K)."""
        return np.asarray(self.segment_means, dtype=np.float64)

    @property
    def n_actions(self) -> int:
        """K."""
        return int(self.means.shape[1])

    @cached_property
    def state_sequence(self) -> Ints:
        """(T,) the segment of each round."""
        return np.arange(self.horizon) * len(self.means) // self.horizon

    @property
    def change_points(self) -> tuple[int, ...]:
        """The first round of every segment but the first."""
        return tuple((np.flatnonzero(np.diff(self.state_sequence)) + 1).tolist())

    def log(self, seed: int) -> BanditLog:
        """A log of uniform random actions."""
        generator = np.random.default_rng([seed, 2])
        rounds = self._rounds(self.state_sequence, generator)
        return rounds.logged_by(np.full(rounds.rewards.shape, 1 / self.n_actions), generator.random(self.horizon))

    def rounds(self, seed: int, chunk: int) -> Iterator[Rounds]:
        """The rounds of a deployment, in chunks."""
        generator = np.random.default_rng([seed, 3])
        for start in range(0, self.horizon, chunk):
            yield self._rounds(self.state_sequence[start : start + chunk], generator)

    def _rounds(self, states: Ints, generator: np.random.Generator) -> Rounds:
        return Rounds.with_clicks(np.empty((len(states), 0)), self.means[states], generator, states)
