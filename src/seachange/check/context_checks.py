"""Contexts: columns that carry no information, reveal the reward, or identify rounds."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars

from seachange.check.counters import Slices
from seachange.check.log_check import Check, ContextCheck, Finding, Severity
from seachange.check.numeric_rounds import Rounds, hashes_of, numbers_of
from seachange.check.round_checks import EVENT_IDS
from seachange.formats.column_roles import ROW_NUMBERS
from seachange.log.column_statistics import Distinct, variance_between
from seachange.log.feature_fitting import MOST_DISTINCT, ROUNDS_OF_A_VALUE, ActionColumns
from seachange.log.raw import raw_columns
from seachange.protocols import Floats, Ints

if TYPE_CHECKING:
    from seachange.check.tally import Tally

MOST_COLUMNS, MOST_VALUES = 2_000, 200  # columns that are checked, and values of each whose rewards are summed
LEAK_CLICKS, LEAK_NUMBERS = 0.95, 0.9995  # a context that explains this share of the variance is the reward itself
FEWEST_EVENTS, FEWEST_PER_VALUE = 20, 20  # rounds of each outcome that this takes, and rounds per value
MOSTLY_MISSING = 0.5
IDENTIFIES, FEWEST_ROUNDS = 0.5, 200  # identifiers have a larger share of distinct values, in at least this many rounds
IDENTIFIER_NAMES = re.compile(r"(.*[\W_])?(id|ids|uuid|guid|key|hash)|.*[a-z](Id|Uuid|Guid|Key|Hash)|.*ID")
SURE, WORTH_TELLING = 8.0, 0.01  # it moved by this many standard deviations, and by this share of its variance
REMOVE = "Remove it from the contexts: `--columns contexts=A+B`."
IGNORED = "`learn` ignores it unless you name it: `--columns contexts=A+B`."


class ContextTally:
    """One raw feature."""

    def __init__(self, name: str, slices: Slices) -> None:
        self.name, self.kind = name, ""
        self.n_rounds = self.n_missing = 0
        self.distinct = Distinct()
        self.lowest, self.highest = np.inf, -np.inf
        self.shift: float | None = None  # sums are of x - shift, which keeps them accurate
        self.sums = np.zeros(6)  # 1, x, x², r, r², xr of the rounds that have both
        self.by_absence = np.zeros((3, 2))  # 1, r, r² of the rounds that have a value, and of those that do not
        self.counts, self.values, self.squares = slices.sums(), slices.sums(), slices.sums()
        self.all_ones = self.few_values = True
        self.hashes: npt.NDArray[np.uint64] = np.empty(0, dtype=np.uint64)  # of its values, while there are few
        self.by_value = np.zeros((3, 0))  # 1, r, r² of each

    def add(self, column: polars.Series, rewards: Floats, slices: Ints) -> None:
        """Count a part."""
        kind = _kind_of(column.dtype)
        if kind and kind != self.kind:
            mixed = "number" if {self.kind, kind} == {"integer", "number"} else "text"
            self.kind = mixed if self.kind else kind
        missing = column.is_null().to_numpy()
        if column.dtype.is_float():
            missing = missing | column.is_nan().fill_null(False).to_numpy()
        self.n_rounds += len(column)
        self.n_missing += int(missing.sum())
        seen = np.isfinite(rewards)
        moments = np.stack([np.ones(int(seen.sum())), rewards[seen], np.square(rewards[seen])])
        self.by_absence += _sums(moments, missing[seen].astype(np.int64), 2)
        hashes = hashes_of(column.to_frame())
        self.distinct.add(hashes[~missing])
        numeric = kind in ("boolean", "integer", "number")
        self.all_ones = self.all_ones and numeric and bool((column.cast(float) == 1).all())
        if numeric:
            self._add_numbers(numbers_of(column)[0], rewards, slices)
        hashes = np.where(missing, np.uint64(0), hashes)
        # A look at the first values spares long columns of identifiers the sorting.
        self.few_values = self.few_values and len(np.unique(hashes[: 10 * MOST_VALUES])) <= MOST_VALUES
        if self.few_values:
            values, places = np.unique(np.concatenate([self.hashes, hashes[seen]]), return_inverse=True)
            self.few_values = len(values) <= MOST_VALUES
            self.by_value = _sums(np.concatenate([self.by_value, moments], axis=1), places, len(values))
            self.hashes = values

    def _add_numbers(self, values: Floats, rewards: Floats, slices: Ints) -> None:
        finite = np.isfinite(values)
        if not finite.any():
            return
        x, r = values[finite], rewards[finite]
        if self.shift is None:
            self.shift = float(x.mean())
        self.lowest, self.highest = min(self.lowest, float(x.min())), max(self.highest, float(x.max()))
        x = x - self.shift
        for sums, weights in ((self.counts, None), (self.values, x), (self.squares, x * x)):
            sums.add(slices[finite], weights)
        both = np.isfinite(r)
        x, r = x[both], r[both]
        self.sums += (len(x), x.sum(), (x * x).sum(), r.sum(), (r * r).sum(), (x * r).sum())

    def missing(self, tally: "Tally") -> int:
        """Rounds without a value, including parts of the log without the column."""
        return self.n_missing + tally.n_rounds - self.n_rounds

    def summary(self, tally: "Tally") -> ContextCheck:
        """The column, for the result of the check."""
        numeric = self.shift is not None
        mean = self.shift + self.values.values.sum() / self.counts.values.sum() if self.shift is not None else None
        return ContextCheck(
            name=self.name,
            kind=self.kind or "empty",
            n_distinct=min(self.distinct.count, tally.n_rounds),
            distinct_exact=self.distinct.exact,
            n_missing=self.missing(tally),
            lowest=self.lowest if numeric else None,
            highest=self.highest if numeric else None,
            mean=None if mean is None else float(mean),
            moved=self._moved(tally),
        )

    def _moved(self, tally: "Tally") -> float | None:
        """The share of variance between slices, if it is more than chance explains."""
        counts = self.counts.values[0, : tally.slices.count]
        used = counts > 0
        sums, squares = (each.values[0, : len(counts)][used] for each in (self.values, self.squares))
        moved, beyond_chance = variance_between(counts[used], sums, squares)
        return moved if beyond_chance > SURE and moved > WORTH_TELLING else None

    def constant(self, tally: "Tally") -> bool:
        """Whether it has the same value in every round."""
        return self.distinct.count == 1 and self.missing(tally) == 0 and tally.n_rounds > 1

    def rarely_repeats(self, tally: "Tally") -> bool:
        """Whether ``learn`` takes a text column for identifiers."""
        seen, distinct = tally.n_rounds - self.missing(tally), self.distinct.count
        return self.kind == "text" and distinct > MOST_DISTINCT and seen < ROUNDS_OF_A_VALUE * distinct

    def identifies(self, tally: "Tally") -> bool:
        """Whether most rounds have a value of their own."""
        known = tally.n_rounds - self.missing(tally)
        if known < FEWEST_ROUNDS or self.distinct.count <= IDENTIFIES * known:
            return False
        numbers_rounds = self.highest - self.lowest + 1 == tally.n_rounds == known
        named = IDENTIFIER_NAMES.fullmatch(self.name) is not None
        return self.kind == "text" or (self.kind == "integer" and (named or numbers_rounds))

    def leaks(self, tally: "Tally") -> bool:
        """Whether it all but determines the reward."""
        rewards = tally.rewards
        rarer = min(rewards.zeros, rewards.count - rewards.zeros) if rewards.zeros else rewards.count
        if rarer < FEWEST_EVENTS:
            return False
        shares = [variance_between(*self.by_absence)[0] if self.by_absence[0].all() else 0.0]
        if self.few_values and len(self.hashes) * FEWEST_PER_VALUE <= rewards.count:
            shares.append(variance_between(*self.by_value)[0])
        if self.sums[0] > 0.5 * rewards.count:
            shares.append(self._explained_by_number())
        return max(shares) > (LEAK_CLICKS if rewards.clicks else LEAK_NUMBERS)

    def _explained_by_number(self) -> float:
        """R² of the reward as a linear function of the number."""
        n, x, xx, r, rr, xr = self.sums
        spread, noise = xx - x * x / n, rr - r * r / n
        return float((xr - x * r / n) ** 2 / (spread * noise)) if n > 1 and spread > 0 and noise > 0 else 0.0


def _sums(rows: Floats, places: Ints, count: int) -> Floats:
    """(rows, count) the sums of each row by place."""
    return np.stack([np.bincount(places, row, count) for row in rows])


def _kind_of(dtype: Any) -> str:
    kinds = (
        ("boolean", dtype == polars.Boolean),
        ("integer", dtype.is_integer()),
        ("number", dtype.is_numeric()),
        ("date", dtype.is_temporal()),
        ("record", dtype == polars.Struct),
        ("list", dtype.is_nested()),
        ("", dtype == polars.Null),
        ("text", True),
    )
    return next(kind for kind, holds in kinds if holds)


class ContextChecks(Check):
    """All raw features: those that the actions of a round share, and those of the actions."""

    def __init__(self, slices: Slices) -> None:
        self.slices = slices
        self.shared: dict[str, ContextTally] = {}
        self.of_actions: dict[str, ContextTally] = {}
        self.columns_beyond: set[str] = set()
        self.pool: tuple[int, int] | None = None  # fewest and most actions per round
        self.pool_named = False
        self.by_action = ActionColumns()

    @property
    def unnamed_pools(self) -> bool:
        """Whether rounds list their actions without names."""
        return self.pool is not None and not self.pool_named

    def add(self, rounds: Rounds) -> None:
        """Count the features of a part."""
        raw = rounds.raw
        self._add(self.shared, rounds.columns, rounds.rewards, rounds.slices)
        pool = raw.pool
        if pool is None:
            self.by_action.merge(ActionColumns.of(raw))
            return
        low, high = int(pool.lengths.min()), int(pool.lengths.max())
        self.pool = (low, high) if self.pool is None else (min(low, self.pool[0]), max(high, self.pool[1]))
        self.pool_named |= pool.names is not None
        own = {name: column.values for name, column in raw_columns(pool.features).items()}
        nothing = np.full(int(pool.offsets[-1]), np.nan)
        self._add(self.of_actions, own, nothing, np.repeat(rounds.slices, pool.lengths))

    def _add(
        self, known: dict[str, ContextTally], columns: Mapping[str, polars.Series], rewards: Floats, slices: Ints
    ) -> None:
        for name, column in columns.items():
            if name not in known and len(known) < MOST_COLUMNS:
                known[name] = ContextTally(name, self.slices)
            if name in known:
                known[name].add(column, rewards, slices)
            elif len(self.columns_beyond) < MOST_COLUMNS:
                self.columns_beyond.add(name)

    @property
    def columns(self) -> list[ContextTally]:
        """The shared features, without row numbers."""
        return [each for name, each in self.shared.items() if not ROW_NUMBERS.fullmatch(name)]

    def findings(self, tally: "Tally") -> Iterator[Finding]:
        """Leaks, empty and constant columns, identifiers."""
        n, columns = tally.n_rounds, self.columns
        leaking = [each for each in columns if each.leaks(tally)]
        empty = [each for each in columns if each.missing(tally) == n]
        constant = [each for each in columns if each not in empty and each.constant(tally)]
        sparse = [each for each in columns if n > each.missing(tally) > MOSTLY_MISSING * n and each not in leaking]
        naming = [each for each in columns if each not in leaking and each.identifies(tally)]
        rare = [each for each in columns if each not in naming + leaking and each.rarely_repeats(tally)]
        events = [each for each in naming if EVENT_IDS.fullmatch(each.name)]
        unnamed = {name for each in tally.findings if each.rule == "propensity-unnamed" for name in each.names}
        unique = "nearly every round has a different value, so there is nothing to learn from it"
        groups: tuple[tuple[str, Severity, str, list[ContextTally], str, str], ...] = (
            ("reward-leak", "warning", "A context reveals the reward", leaking,
             "the value all but determines the reward, so it was only known afterwards", REMOVE),
            ("action-leak", "warning", "A context is determined by the action",
             [self.shared[name] for name in self.by_action.names() if name in self.shared and name not in unnamed],
             "it has one value per action, so it describes the action rather than the context", IGNORED),
            ("column-empty", "warning", "A context is empty", empty, f"all {n:,} rounds lack it", REMOVE),
            ("column-constant", "warning", "A context is constant", [each for each in constant if not each.all_ones],
             f"all {n:,} rounds have the same value",
             f"{REMOVE} If it should vary, check the code that writes the log."),
            ("column-of-ones", "note", "A context is always 1", [each for each in constant if each.all_ones],
             f"all {n:,} rounds have a 1", "Nothing to do: models have their own intercept."),
            ("column-mostly-missing", "warning", "A context is mostly missing", sparse,
             f"more than {MOSTLY_MISSING:.0%} of the rounds lack it",
             "Find out why. If it is missing at random, remove it from the contexts: `--columns contexts=A+B`."),
            ("identifier", "warning", "A context looks like an identifier",
             [each for each in naming if each not in events],
             unique, REMOVE),
            ("event-id", "note", "A column identifies events", events, unique, REMOVE),
            ("identifier-text", "note", "A context is text that rarely repeats", rare,
             f"values occur fewer than {ROUNDS_OF_A_VALUE} times on average", IGNORED),
        )  # fmt: skip
        for rule, severity, title, tallies, why, fix in groups:
            if count := len(tallies):
                names = tuple(each.name for each in tallies)
                listed = ", ".join(map(repr, names[:6])) + (f" and {count - 6} more" if count > 6 else "")
                evidence = f"{'Column' if count == 1 else f'{count} columns:'} {listed}: {why}."
                yield Finding(rule, severity, title, evidence, fix, count, names=names, numbers={"columns": count})
        if beyond := tuple(sorted(self.columns_beyond)):
            yield Finding(
                "many-columns", "note", "Some columns were not checked",
                f"{len(beyond):,} columns beyond the first {len(self.shared):,} were not checked.",
                "Remove columns that no policy needs.", len(beyond), names=beyond[:20],
                numbers={"count": len(beyond), "checked": len(self.shared)},
            )  # fmt: skip
