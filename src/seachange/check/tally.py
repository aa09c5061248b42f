"""One pass over a log: everything that is counted, in memory that does not grow with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from seachange.check.action_tally import EARNED, REWARDED, ActionTally
from seachange.check.context_tally import ContextTally
from seachange.check.places import Places
from seachange.check.record import Place
from seachange.check.repeat_tally import RepeatTally
from seachange.check.reward_tally import RewardTally
from seachange.check.rounds import Rounds, numbers_of, rounds_of
from seachange.check.slices import Slices
from seachange.check.time_tally import TimeTally
from seachange.log.action_columns import ToldByAction
from seachange.log.propensity_signature import InverseSums
from seachange.log.raw import RawLog, RawRounds
from seachange.log.raw_columns import distinct_texts, raw_columns
from seachange.protocols import Floats, Ints

if TYPE_CHECKING:
    import polars

# Propensities from which on a choice was as good as certain.
SURE = 0.95
# Files that are named, columns that are looked at, unreadable lines that are quoted.
MOST_FILES, MOST_COLUMNS, MOST_QUOTED = 100, 2_000, 3
# Columns among which propensities are looked for.
MOST_INVERSES = 500
# Propensities are 1 throughout if more than this share of them is.
ALL_ONES = 0.99
UNREADABLE = "unreadable-lines"
# Readers of tables reject rows with a reward that is no number and the like: "the reward 'yes' is no number".
NO_VALUE = re.compile(r"the (\w+) '.*' is no ", re.DOTALL)
RULE_OF_WORD = {"reward": "reward-text", "propensity": "propensity-missing", "time": "time-missing"}


class Tally:
    """What a pass has seen so far."""

    def __init__(self) -> None:
        self.places, self.slices = Places(), Slices()
        self.actions, self.rewards = ActionTally(self.slices), RewardTally(self.slices)
        self.times, self.repeats = TimeTally(self.places), RepeatTally(self.places)
        self.contexts: dict[str, ContextTally] = {}
        self.columns_beyond: set[str] = set()
        self.pool_contexts: dict[str, ContextTally] = {}
        self.files: list[str] = []
        self.n_files = self.n_bad = self.n_unreadable = 0
        self.quoted: list[str] = []  # why lines could not be read
        self.missing_rewards = self.slices.sums()
        self.pool: tuple[int, int] | None = None
        self.pool_named = False
        self.told_by_action = ToldByAction()
        self.inverses: dict[str, InverseSums] = {}  # contexts that may be propensities
        # Of all propensities: how many, least, most, Σ 1/p, Σ w² and Σ w of w = 1 / (k p), how many are 1, above 1.
        self.n_propensities = self.n_ones = self.n_sure = self.n_percent = self.n_stated = 0
        self.least, self.most = np.inf, -np.inf
        self.inverse = self.weights = self.weight_squares = 0.0
        self.weighed, self.ones = self.slices.sums(), self.slices.sums()  # rounds with a propensity, and with 1
        self.choices = 0.0  # actions that these rounds could choose among, in all; and how far 1 / p was from that
        self.choice_squares = 0.0
        self.has_propensities = False
        self.has_sequences = False
        self._file = ""

    @property
    def n_rounds(self) -> int:
        """Rounds so far."""
        return self.slices.n_rounds

    def add(self, raw: RawRounds) -> None:
        """Take up a part."""
        self._note_source(raw)
        if not len(raw):
            return
        rounds, members = rounds_of(raw), self.slices.extend(len(raw))
        for rule, rows in rounds.broken.items():
            self.places.add(rule, raw, rows)
        self.n_bad += int(rounds.bad.sum())
        lost = np.isnan(rounds.rewards)
        self.missing_rewards.add(members[lost])
        codes = self.actions.code(rounds.names)
        self.actions.add(rounds, codes, members)
        self.rewards.add(rounds, members)
        self.has_sequences |= raw.sequence is not None
        if raw.sequence is None:
            totals = self.actions.totals
            means = totals[:, EARNED] / np.maximum(totals[:, REWARDED], 1)
            self.rewards.add_neighbours(rounds, np.where(codes >= 0, means[codes], np.nan))
        self.times.add(rounds)
        self.repeats.add(rounds)
        self._add_propensities(rounds, members)
        columns = {name: column.values for name, column in raw_columns(raw.features).items()}
        self._add_contexts(self.contexts, columns, rounds.rewards, members)
        if raw.pool is not None:
            self._add_pool(rounds, members)
        else:
            self.told_by_action.merge(ToldByAction.of(raw.action, distinct_texts(raw.action), columns.items()))
            self._add_inverses(columns, codes)

    def _add_contexts(
        self, known: dict[str, ContextTally], columns: Mapping[str, polars.Series], rewards: Floats, members: Ints
    ) -> None:
        for name, column in columns.items():
            if name not in known and len(known) < MOST_COLUMNS:
                known[name] = ContextTally(name, self.slices)
            if name in known:
                known[name].add(column, rewards, members)
            elif len(self.columns_beyond) < MOST_COLUMNS:
                self.columns_beyond.add(name)

    def _add_inverses(self, columns: Mapping[str, polars.Series], codes: Ints) -> None:
        """Look for propensities among the contexts, as long as there are no others."""
        if self.has_propensities and self.n_ones <= ALL_ONES * self.n_propensities:
            self.inverses.clear()
            return
        for name, column in columns.items():
            if name not in self.inverses and len(self.inverses) < MOST_INVERSES:
                self.inverses[name] = InverseSums()
            if name in self.inverses:
                numbers = numbers_of(column)[0] if column.dtype.is_numeric() else np.full(len(column), np.nan)
                self.inverses[name].add(numbers, codes)

    def _note_source(self, raw: RawRounds) -> None:
        if raw.source != self._file:
            self._file = raw.source
            if raw.source not in self.files:
                self.n_files += 1
                if len(self.files) < MOST_FILES:
                    self.files.append(raw.source)
        for each in raw.rejected:
            self.n_unreadable += 1
            said = NO_VALUE.match(each.reason)
            rule = RULE_OF_WORD.get(said[1], UNREADABLE) if said else UNREADABLE
            self.places.add_place(rule, Place(each.source, each.line))
            if rule == UNREADABLE and len(self.quoted) < MOST_QUOTED and each.reason not in self.quoted:
                self.quoted.append(each.reason)

    def _add_propensities(self, rounds: Rounds, members: Ints) -> None:
        if rounds.propensities is None or rounds.stated is None:
            return
        self.has_propensities = True
        self.n_stated += int(np.isfinite(rounds.stated).sum())
        with np.errstate(invalid="ignore"):
            self.n_percent += int(((rounds.stated > 1) & (rounds.stated <= 100)).sum())
        known = np.isfinite(rounds.propensities)
        if not known.any():
            return
        p = rounds.propensities[known]
        choices = rounds.could_choose
        weights = 1 / p if choices is None else 1 / (p * np.maximum(choices[known], 1))
        if choices is not None:
            self.choices += float(choices[known].sum())
            self.choice_squares += float(np.square(1 / p - choices[known]).sum())
        self.weighed.add(members[known])
        self.ones.add(members[known], (p == 1).astype(np.float64))
        self.n_propensities += len(p)
        self.n_ones += int((p == 1).sum())
        self.n_sure += int((p >= SURE).sum())
        self.least, self.most = min(self.least, float(p.min())), max(self.most, float(p.max()))
        self.inverse += float((1 / p).sum())
        self.weights += float(weights.sum())
        self.weight_squares += float(np.square(weights).sum())

    def _add_pool(self, rounds: Rounds, members: Ints) -> None:
        pool = rounds.raw.pool
        if pool is None or not len(pool.lengths):
            return
        low, high = int(pool.lengths.min()), int(pool.lengths.max())
        self.pool = (low, high) if self.pool is None else (min(low, self.pool[0]), max(high, self.pool[1]))
        self.pool_named |= pool.names is not None
        nothing = np.full(int(pool.offsets[-1]), np.nan)
        columns = {name: column.values for name, column in raw_columns(pool.features).items()}
        self._add_contexts(self.pool_contexts, columns, nothing, np.repeat(members, pool.lengths))


def tally_of(raw: RawLog) -> Tally:
    """The whole log, a part at a time."""
    tally = Tally()
    for part in raw.parts():
        tally.add(part)
    return tally
