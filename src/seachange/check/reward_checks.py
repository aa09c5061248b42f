"""Rewards: constant, outlying, or not there yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from seachange.check.action_checks import EARNED, REWARDED, ActionChecks
from seachange.check.counters import Slices
from seachange.check.log_check import MOST_PLACES, Check, Finding, Place, RewardCheck, share_text
from seachange.check.numeric_rounds import Rounds

if TYPE_CHECKING:
    from seachange.check.tally import Tally

# Powers of two that a reward may have; smaller ones count as 0.
POWERS, LEAST_POWER = 800, -400
# A few rewards that are larger than all others by this power of two are outliers; money varies more than clicks.
APART, APART_CLICKS = 10, 3
FEW = 0.01
# Rewards are still to come if the last part of the log earns less than this share of the worst part before it, with a
# probability of less than e^-CHANCE.
FAR_LESS, CHANCE = 0.2, 20.0
WAIT = "Learn only from rounds whose rewards had time to arrive: remove the last {rounds:,} rounds."
OUTLIERS = "If they are codes for errors or missing answers, remove those rounds; otherwise they dominate all others."


class RewardChecks(Check):
    """Moments, magnitudes and extremes of rewards."""

    def __init__(self, slices: Slices, actions: ActionChecks) -> None:
        self.actions = actions
        self.count = self.zeros = self.ones = self.negative = 0
        self.total = 0.0
        self.lowest, self.highest = np.inf, -np.inf
        self.sizes = np.zeros(POWERS, dtype=np.int64)  # how many have |r| in [2^(i-1), 2^i)
        self.largest: list[tuple[float, Place]] = []
        self.below_zero: list[Place] = []
        self.observed, self.rewarded, self.sums = slices.sums(), slices.sums(), slices.sums()
        # Products of consecutive rewards minus the means of their actions.
        self.products = self.product_squares = 0.0
        self._last: float = np.nan

    @property
    def clicks(self) -> bool:
        """Whether all rewards are 0 or 1."""
        return self.zeros + self.ones == self.count

    def add(self, rounds: Rounds) -> None:
        """Count the rewards of a part; its actions must have been counted before."""
        rewards = rounds.rewards
        finite = np.isfinite(rewards)
        seen = rewards[finite]
        self.observed.add(rounds.slices[finite])
        self.rewarded.add(rounds.slices[finite & (rewards != 0)])
        self.sums.add(rounds.slices[finite], seen)
        if rounds.raw.sequence is None:  # neighbors of different sequences have nothing in common
            self._add_products(rounds)
        if not len(seen):
            return
        self.count += len(seen)
        self.zeros += int((seen == 0).sum())
        self.ones += int((seen == 1).sum())
        self.negative += int((seen < 0).sum())
        self.total += float(seen.sum())
        self.lowest, self.highest = min(self.lowest, float(seen.min())), max(self.highest, float(seen.max()))
        powers = np.frexp(seen[seen != 0])[1]
        self.sizes += np.bincount(np.clip(powers - LEAST_POWER, 0, POWERS - 1), minlength=POWERS)
        sizes = np.abs(np.nan_to_num(rewards))
        top = np.argsort(-sizes, kind="stable")[:MOST_PLACES]
        lines, source = rounds.raw.lines, rounds.raw.source
        self.largest += [(float(sizes[i]), Place(source, int(lines[i]))) for i in top]
        self.largest = sorted(self.largest, key=lambda each: -each[0])[:MOST_PLACES]
        free = MOST_PLACES - len(self.below_zero)
        self.below_zero += [Place(source, int(lines[i])) for i in np.flatnonzero(finite & (rewards < 0))[:free]]

    def _add_products(self, rounds: Rounds) -> None:
        totals, codes = self.actions.totals, rounds.codes
        means = totals[:, EARNED] / np.maximum(totals[:, REWARDED], 1)
        residuals = rounds.rewards - np.where(codes >= 0, means[codes], np.nan)
        pairs = residuals * np.concatenate([[self._last], residuals[:-1]])
        pairs = pairs[np.isfinite(pairs)]
        self.products += float(pairs.sum())
        self.product_squares += float(np.square(pairs).sum())
        self._last = float(residuals[-1])

    def summary(self) -> RewardCheck | None:
        """The rewards that are numbers."""
        if not self.count:
            return None
        return RewardCheck(
            kind="clicks" if self.clicks else "numbers",
            n_rewarded=self.count - self.zeros,
            share_of_zeros=self.zeros / self.count,
            mean=self.total / self.count,
            lowest=self.lowest,
            highest=self.highest,
        )

    def findings(self, tally: Tally) -> Iterator[Finding]:
        """Constant, outlying and late rewards."""
        if self.count and self.lowest == self.highest:
            yield Finding(
                "reward-constant", "error", "All rewards are the same",
                f"All {self.count:,} rewards are {self.lowest:g}, so every policy earns the same.",
                "Log what each action earned. If rounds without a reward were removed, add them with a reward of 0.",
                self.count, numbers={"count": self.count, "reward": self.lowest},
            )  # fmt: skip
            return
        yield from self._outliers()
        yield from self._late(tally)

    def _outliers(self) -> Iterator[Finding]:
        nearly_clicks = self.zeros + self.ones >= (1 - FEW) * self.count
        used = np.flatnonzero(self.sizes)
        beyond = np.cumsum(self.sizes[used][::-1])[::-1]  # rewards of this size or larger
        apart = APART_CLICKS if nearly_clicks else APART
        cuts = [i + 1 for i, gap in enumerate(np.diff(used)) if gap >= apart and beyond[i + 1] <= FEW * self.count]
        # Only rewards far above 1: small ones besides clicks are money or time.
        cuts = [i for i in cuts if not nearly_clicks or used[i] + LEAST_POWER > 1]
        if cuts:
            count, largest = int(beyond[cuts[0]]), self.largest[0][0]
            usual = 2.0 ** float(used[cuts[0] - 1] + LEAST_POWER)
            places = sorted((place for _, place in self.largest[:count]), key=lambda each: (each.source, each.line))
            verb = "is" if count == 1 else "are"
            evidence = f"{share_text(count, self.count, 'reward')} {verb} as large as {largest:g}; all others are "
            numbers = {"count": count, "total": self.count, "largest": largest, "usual": usual}
            yield Finding(
                "reward-outliers", "warning", "Rewards have outliers", f"{evidence}below {usual:g}.", OUTLIERS, count,
                tuple(places), numbers=numbers,
            )  # fmt: skip
        elif nearly_clicks and 0 < self.negative <= FEW * self.count:
            verb = "is" if self.negative == 1 else "are"
            evidence = f"{share_text(self.negative, self.count, 'reward')} {verb} negative (the lowest is "
            yield Finding(
                "reward-outliers", "warning", "Rewards have outliers",
                f"{evidence}{self.lowest:g}); nearly all others are 0 or 1.", OUTLIERS, self.negative,
                tuple(self.below_zero),
                numbers={"count": self.negative, "total": self.count, "lowest": self.lowest},
            )  # fmt: skip

    def _late(self, tally: Tally) -> Iterator[Finding]:
        title = "The last rewards have not arrived yet"
        if tally.rounds.rewards_pending(tally):
            missing = tally.broken.counts["reward-missing"]
            yield Finding(
                "rewards-late", "warning", title,
                f"{share_text(missing, tally.n_rounds, 'round')} have no reward, all of them at the end of the log.",
                "Drop them: `seachange learn LOG --drop-bad-rows`.", missing, tally.broken.first("reward-missing"),
                numbers={"count": missing, "total": tally.n_rounds},
            )  # fmt: skip
            return
        count, lengths = tally.slices.count, tally.slices.lengths
        if count < 10:
            return
        observed = np.maximum(self.observed.values[0, :count], 1)
        rewarded = self.rewarded.values[0, :count]
        rates = rewarded / observed
        for tail in range(1, count // 3 + 1):
            start = count - tail
            # The slice in which rewards begin to fail may be half and half.
            expected = float(rates[: start - 1].min()) * observed[start:].sum()
            seen = rewarded[start:].sum()
            if expected - seen > CHANCE and seen < FAR_LESS * expected and _poisson_rarity(seen, expected) > CHANCE:
                rounds = int(lengths[start:].sum())
                yield Finding(
                    "rewards-late", "warning", title,
                    f"The last {rounds:,} rounds have {seen:,.0f} rewards; at the lowest rate before, there would be "
                    f"{expected:,.0f}.", f"{WAIT.format(rounds=rounds)} If behavior really changed, ignore this.",
                    rounds, numbers={"rounds": rounds, "rewards": float(seen), "expected": float(expected)},
                )  # fmt: skip
                return


def _poisson_rarity(seen: float, expected: float) -> float:
    """-log of a bound on the probability of so few events if ``expected`` are expected (Chernoff)."""
    return float(expected - seen + (seen * np.log(seen / expected) if seen else 0.0))
