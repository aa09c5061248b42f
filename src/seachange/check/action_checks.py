"""Actions: how often each was taken, what it earned, and when it was available."""

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars

from seachange.check.counters import Slices
from seachange.check.log_check import ActionCheck, Check, Finding, share_finding
from seachange.check.numeric_rounds import Rounds
from seachange.log.raw import coded
from seachange.protocols import Bools, Floats, Ints

if TYPE_CHECKING:
    from seachange.check.tally import Tally

MOST_ACTIONS, FOLLOWED = 100_000, 2_000  # actions that are counted individually, and those followed over time
WIDTH = 12  # columns of the totals of each action
(
    COUNT, REWARDED, EARNED, SQUARES, WEIGHED, INVERSE, INVERSE_SQUARES, WEIGHED_EARNED, INVERSE_REWARDED,
    LARGEST_INVERSE, FIRST, LAST,
) = range(WIDTH)  # fmt: skip
LISTED = 200  # actions that a record lists
FEWEST_EACH, MOST_DISTINCT = 5, 0.5  # rounds per action that are needed, and actions per round that are hopeless
MOST_NAMES = 1_000  # if there are more names than this, they are codes, in which case may matter
RARITY = 25.0  # an action was unavailable if chance would leave it out with a probability of less than e^-25


class Presence(NamedTuple):
    """When the actions that are followed over time were available."""

    available: Bools  # (K, S) slices throughout which an action was available
    late: Ints  # actions that were added after the beginning
    gone: Ints  # actions that were removed before the end
    lasts: Ints  # (K,) the last slice in which each was taken


class ActionChecks(Check):
    """Totals of each action, in order of appearance."""

    def __init__(self, slices: Slices) -> None:
        self.totals: Floats = _blank(64)
        self.n_seen = 0  # rounds so far
        self.n_beyond = 0  # rounds with an action past the limit
        self.taken, self.rewarded = slices.sums(64), slices.sums(64)
        self.earned, self.squares = slices.sums(64), slices.sums(64)
        self.inverse, self.inverse_squares = slices.sums(64), slices.sums(64)
        self.shown = slices.sums(64)  # rounds whose list has the action
        self.codes: dict[str, int] = {}  # by name

    @property
    def count(self) -> int:
        """Actions that are counted."""
        return len(self.codes)

    @property
    def names(self) -> list[str]:
        """By code."""
        return list(self.codes)

    @property
    def counted(self) -> Floats:
        """(K, WIDTH) the totals."""
        return self.totals[: self.count]

    def code(self, names: polars.Series) -> Ints:
        """(n,) the number of each action; -1 if it is missing or past the limit."""
        for name in names.unique(maintain_order=True).drop_nulls().to_list():
            if len(self.codes) < MOST_ACTIONS:
                self.codes.setdefault(name, len(self.codes))
        if self.count > len(self.totals):
            self.totals = np.concatenate([self.totals, _blank(2 * self.count - len(self.totals))])
        return coded(names, lambda name: self.codes.get(name, -1))

    def add(self, rounds: Rounds) -> None:
        """Count the actions of a part."""
        codes, rewards = rounds.codes, rounds.rewards
        self.n_beyond += int(((codes < 0) & rounds.names.is_not_null().to_numpy()).sum())
        places = self.n_seen + np.arange(len(codes), dtype=np.float64)
        self.n_seen += len(codes)
        known, rewarded = codes >= 0, (codes >= 0) & np.isfinite(rewards)
        weights = np.zeros(len(codes)) if rounds.propensities is None else np.nan_to_num(1 / rounds.propensities)
        weighed, followed = known & (weights > 0), codes < FOLLOWED
        np.maximum.at(self.totals[:, LARGEST_INVERSE], codes[known], weights[known])
        np.minimum.at(self.totals[:, FIRST], codes[known], places[known])
        np.maximum.at(self.totals[:, LAST], codes[known], places[known])
        for column, by_slice, rows, values in (
            (COUNT, self.taken, known, None), (REWARDED, self.rewarded, rewarded, None),
            (EARNED, self.earned, rewarded, rewards), (SQUARES, self.squares, rewarded, rewards**2),
            (WEIGHED, None, weighed, None), (INVERSE, self.inverse, weighed, weights),
            (INVERSE_SQUARES, self.inverse_squares, weighed, weights**2),
            (WEIGHED_EARNED, None, rewarded, weights * rewards), (INVERSE_REWARDED, None, rewarded, weights),
        ):  # fmt: skip
            summed = None if values is None else values[rows]
            self.totals[:, column] += np.bincount(codes[rows], summed, len(self.totals))
            if by_slice is not None:
                here = rows & followed
                by_slice.add(rounds.slices[here], None if values is None else values[here], codes[here])
        pool = rounds.raw.pool
        if pool is not None and pool.names is not None:
            shown = self.code(pool.names.cast(polars.String))
            slices = np.repeat(rounds.slices, pool.lengths)
            here = (shown >= 0) & (shown < FOLLOWED)
            self.shown.add(slices[here], None, shown[here])

    def presence(self, slices: Slices) -> Presence:
        """When each action was available, judged by its counts."""
        count, lengths = slices.count, slices.lengths
        taken = self.taken.part(min(self.count, FOLLOWED), count)
        there = taken > 0
        if not there.size:
            nothing = np.empty(0, dtype=np.int64)
            return Presence(there, nothing, nothing, nothing)
        firsts = there.argmax(axis=1)
        lasts = count - 1 - there[:, ::-1].argmax(axis=1)
        # If it was available throughout, all c rounds are within a share h of the log with probability h^c.
        before = np.concatenate([[0.0], np.cumsum(lengths)]) / max(lengths.sum(), 1)
        counts = taken.sum(axis=1)
        late = -counts * np.log1p(-before[firsts]) > RARITY
        gone = -counts * np.log(before[lasts + 1]) > RARITY
        available = np.ones(taken.shape, dtype=bool)
        available[late] &= np.arange(count) > firsts[late, None]
        available[gone] &= np.arange(count) < lasts[gone, None]
        return Presence(available, np.flatnonzero(late), np.flatnonzero(gone), lasts)

    @property
    def effective_samples(self) -> Floats:
        """(K,) (Σ 1/p)² / Σ 1/p² of each action; its rounds if there are no propensities."""
        totals = self.counted
        squares = totals[:, INVERSE_SQUARES]
        return np.where(squares > 0, totals[:, INVERSE] ** 2 / np.maximum(squares, 1e-300), totals[:, COUNT])

    def best(self) -> tuple[str, float]:
        """The action with the highest mean reward, of those with 30 rewards or more, and its effective sample size."""
        totals = self.counted
        if not len(totals):
            return "", 0.0
        rewarded, weights = totals[:, REWARDED], totals[:, INVERSE_REWARDED]
        weighed, plain = totals[:, WEIGHED_EARNED] / np.maximum(weights, 1e-300), totals[:, EARNED]
        means = np.where(weights > 0, weighed, plain / np.maximum(rewarded, 1))
        best = int(np.where(rewarded >= min(30, rewarded.max()), means, -np.inf).argmax())
        return self.names[best], float(self.effective_samples[best])

    def summaries(self, tally: "Tally") -> tuple[ActionCheck, ...]:
        """The most frequent actions."""
        names, totals = self.names, self.counted
        effective = self.effective_samples
        means, errors, _ = tally.propensities.mean_weights(tally)
        checks = []
        for a in np.argsort(-totals[:, COUNT], kind="stable")[:LISTED]:
            row, known = totals[a], a < len(means) and tally.propensities.count > 0 and bool(np.isfinite(means[a]))
            checks.append(
                ActionCheck(
                    action=names[a],
                    n_rounds=int(row[COUNT]),
                    share=float(row[COUNT] / max(tally.n_rounds, 1)),
                    mean_reward=float(row[EARNED] / row[REWARDED]) if row[REWARDED] else None,
                    least_propensity=float(1 / row[LARGEST_INVERSE]) if row[LARGEST_INVERSE] else None,
                    mean_weight=float(means[a]) if known else None,
                    mean_weight_error=float(errors[a]) if known else None,
                    effective_samples=float(effective[a]),
                )
            )
        return tuple(checks)

    def findings(self, tally: "Tally") -> Iterator[Finding]:
        """A single action, too many, several spellings of one, and actions that come and go."""
        n, taken = tally.n_rounds, self.counted[:, COUNT]
        n_taken, unnamed = int((taken > 0).sum()), tally.contexts.unnamed_pools
        if n_taken == 1 and not unnamed:  # indices into lists say nothing about actions
            yield Finding(
                "single-action", "error", "Only one action was taken",
                f"All {n:,} rounds took the same action, {self.names[int(taken.argmax())]!r}.",
                "Check which column holds the action: `--columns action=COLUMN`.", n, numbers={"rounds": n},
            )  # fmt: skip
            return
        if self.n_beyond or (n_taken > FEWEST_EACH and n_taken * FEWEST_EACH > n and not unnamed):
            count = f"more than {MOST_ACTIONS:,}" if self.n_beyond else f"{n_taken:,}"
            yield Finding(
                "many-actions", "error" if n_taken > MOST_DISTINCT * n else "warning", "There are too many actions",
                f"The log has {count} actions in {n:,} rounds, so most are too rare to learn from.",
                "If the column holds identifiers or measurements, group them into fewer actions, or name another "
                "column: `--columns action=COLUMN`.", n_taken, numbers={"actions": n_taken, "rounds": n},
            )  # fmt: skip
            return
        yield from self._spellings()
        if not tally.propensities.nearly_certain(tally):
            yield from self._temporary(tally)

    def _spellings(self) -> Iterator[Finding]:
        names = self.names
        if len(names) > MOST_NAMES:
            return
        groups: dict[str, list[str]] = defaultdict(list)
        for name in names:
            plain = " ".join(name.split()).casefold()
            groups[plain.removesuffix(".0") if plain.removesuffix(".0").isdecimal() else plain].append(name)
        # Single letters may differ only in case and still be different actions.
        twins = [
            group
            for plain, group in groups.items()
            if len(group) > 1 and (len(plain) > 2 or len({each.strip() for each in group}) == 1 or plain.isdecimal())
        ]
        if twins:
            listed = "; ".join(" and ".join(repr(name) for name in group[:3]) for group in twins[:4])
            yield share_finding(
                "action-spelling", "warning", "Actions are spelled in several ways", len(twins), len(groups), "action",
                f"{'has' if len(twins) == 1 else 'have'} several spellings: {listed}",
                "If they are the same action, spell them the same way in the log.",
                names=tuple(name for group in twins for name in group),
            )  # fmt: skip

    def _temporary(self, tally: "Tally") -> Iterator[Finding]:
        names, size, n, presence = self.names, tally.slices.size, tally.n_rounds, self.presence(tally.slices)
        found = np.union1d(presence.late, presence.gone)
        firsts, lasts, inverse = self.totals[found][:, [FIRST, LAST, LARGEST_INVERSE]].T
        # A switching policy may hardly ever take an action for a while, but with at least its smallest propensity.
        found = found[np.maximum(firsts, n - 1 - lasts) > RARITY * np.maximum(inverse, 1)]
        if not len(found):
            return
        parts = []
        for a in found[np.argsort(-self.totals[found, COUNT], kind="stable")][:4]:
            first, last = self.totals[a, [FIRST, LAST]].astype(int)
            parts.append(f"{names[a]!r} in rounds {first + 1:,} to {last + 1:,}")
        listed = "; ".join(parts) + (f"; and {len(found) - 4} more" if len(found) > 4 else "")
        absent = sum((presence.lasts[a] + 1) * size <= 2 * n / 3 for a in presence.gone)
        end = f" ({absent} never in the last third)" if absent else ""
        yield share_finding(
            "action-comes-and-goes", "warning", "Actions come and go", len(found), len(names), "action",
            f"{'was' if len(found) == 1 else 'were'} taken only for part of the time{end}: {listed}",
            "If the available actions changed, log them with each round; otherwise a policy may choose an action that "
            "no longer exists.", names=tuple(names[a] for a in found), gone=absent,
        )  # fmt: skip


def _blank(rows: int) -> Floats:
    totals = np.zeros((rows, WIDTH))
    totals[:, FIRST] = np.inf
    return totals
