"""Actions, counted one part of a log after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seachange.check.rounds import Rounds
from seachange.check.slices import Slices
from seachange.protocols import Floats, Ints

if TYPE_CHECKING:
    import polars

# Actions that are counted each by itself, and those of them that are followed over time.
MOST_ACTIONS, FOLLOWED = 100_000, 2_000
# Totals of an action.
WIDTH = 12
(
    COUNT, REWARDED, EARNED, SQUARES, WEIGHED, INVERSE, INVERSE_SQUARES, WEIGHED_EARNED, INVERSE_REWARDED,
    LARGEST_INVERSE, FIRST, LAST,
) = range(WIDTH)  # fmt: skip


class ActionTally:
    """What every action was taken for, in the order in which they appear."""

    def __init__(self, slices: Slices) -> None:
        self.totals: Floats = self._blank(64)
        self.n_seen = 0  # rounds so far
        self.n_beyond = 0  # rounds with an action past the limit
        self.taken, self.rewarded = slices.sums(64), slices.sums(64)
        self.earned, self.squares = slices.sums(64), slices.sums(64)
        self.weighed, self.inverse, self.inverse_squares = slices.sums(64), slices.sums(64), slices.sums(64)
        self.shown = slices.sums(64)  # rounds that could take it, where the log says
        self._known: polars.DataFrame | None = None

    @staticmethod
    def _blank(rows: int) -> Floats:
        totals = np.zeros((rows, WIDTH))
        totals[:, FIRST] = np.inf
        return totals

    @property
    def largest_inverse(self) -> Floats:
        """(K,) the largest 1 / p of each action."""
        return self.totals[:, LARGEST_INVERSE]

    @property
    def count(self) -> int:
        """Actions that are counted."""
        return 0 if self._known is None else self._known.height

    @property
    def names(self) -> list[str]:
        """By code."""
        return [] if self._known is None else self._known["name"].to_list()

    def code(self, names: polars.Series) -> Ints:
        """(n,) the number of each action; -1 where there is none, or too many came before it."""
        import polars

        frame = polars.DataFrame({"name": names})
        if self._known is None:
            self._known = polars.DataFrame(schema={"name": polars.String, "code": polars.Int64})
        fresh = frame.unique(maintain_order=True).drop_nulls().join(self._known, on="name", how="anti")
        fresh = fresh.head(MOST_ACTIONS - self._known.height)
        if fresh.height:
            numbers = polars.int_range(self._known.height, self._known.height + fresh.height, eager=True)
            self._known = self._known.vstack(fresh.with_columns(numbers.alias("code")))
            if self.count > len(self.totals):
                more = self._blank(2 * self.count)
                more[: len(self.totals)] = self.totals
                self.totals = more
        coded = frame.join(self._known, on="name", how="left", maintain_order="left")["code"]
        return np.asarray(coded.fill_null(-1).to_numpy(), dtype=np.int64)

    def add(self, rounds: Rounds, codes: Ints, members: Ints) -> None:
        """Take up a part."""
        self.n_beyond += int(((codes < 0) & rounds.names.is_not_null().to_numpy()).sum())
        places = self.n_seen + np.arange(len(codes), dtype=np.float64)
        self.n_seen += len(codes)
        rewards = rounds.rewards
        has_reward = (codes >= 0) & np.isfinite(rewards)
        weights = np.zeros(len(codes)) if rounds.propensities is None else np.nan_to_num(1 / rounds.propensities)
        self._add(codes, codes >= 0, {COUNT: None})
        earned = {REWARDED: None, EARNED: rewards, SQUARES: rewards**2}
        self._add(codes, has_reward, {**earned, WEIGHED_EARNED: weights * rewards, INVERSE_REWARDED: weights})
        self._add(codes, (codes >= 0) & (weights > 0), {WEIGHED: None, INVERSE: weights, INVERSE_SQUARES: weights**2})
        known = codes >= 0
        np.maximum.at(self.totals[:, LARGEST_INVERSE], codes[known], weights[known])
        np.minimum.at(self.totals[:, FIRST], codes[known], places[known])
        np.maximum.at(self.totals[:, LAST], codes[known], places[known])
        self._add_slices(rounds, codes, members, weights, has_reward)

    def _add(self, codes: Ints, rows: np.ndarray, sums: dict[int, Floats | None]) -> None:
        for column, weights in sums.items():
            added = np.bincount(codes[rows], None if weights is None else weights[rows], len(self.totals))
            self.totals[:, column] += added

    def _add_slices(self, rounds: Rounds, codes: Ints, members: Ints, weights: Floats, has_reward: np.ndarray) -> None:
        followed = (codes >= 0) & (codes < FOLLOWED)
        here = followed & has_reward
        self.taken.add(members[followed], None, codes[followed])
        self.rewarded.add(members[here], None, codes[here])
        self.earned.add(members[here], rounds.rewards[here], codes[here])
        self.squares.add(members[here], rounds.rewards[here] ** 2, codes[here])
        here = followed & (weights > 0)
        self.weighed.add(members[here], None, codes[here])
        self.inverse.add(members[here], weights[here], codes[here])
        self.inverse_squares.add(members[here], weights[here] ** 2, codes[here])
        pool = rounds.raw.pool
        if pool is not None and pool.names is not None:
            import polars

            shown = self.code(pool.names.cast(polars.String))
            members_shown = np.repeat(members, pool.lengths)
            here = (shown >= 0) & (shown < FOLLOWED)
            self.shown.add(members_shown[here], None, shown[here])
