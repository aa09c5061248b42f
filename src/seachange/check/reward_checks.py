"""Rewards: constant, outlying, late, drifting, or too few to learn from.

Each state has its own reward model, which needs at least as many rewarded rounds as it has coefficients (with fewer, it
would memorize them), and ten per action.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from seachange.check.action_checks import COUNT, EARNED, FOLLOWED, REWARDED, ActionChecks
from seachange.check.context_checks import ContextTally
from seachange.check.counters import SLICES, Largest, RuleCounts, Slices
from seachange.check.log_check import USELESS, Check, Drift, Finding, Learnability, RewardCheck, share_finding
from seachange.check.numeric_rounds import Rounds
from seachange.protocols import Floats
from seachange.states.state_count import FEWEST_BLOCKS, MOST_STATES

if TYPE_CHECKING:
    from seachange.check.tally import Tally

POWERS, LEAST_POWER = 800, -400  # powers of two that a reward may have; smaller ones count as 0
APART, APART_CLICKS = 10, 3  # outliers exceed all others by this power of two; money varies more than clicks
FEW = 0.01
# Rewards are still to come if the last part of the log earns less than this share of the worst part before it, with a
# probability of less than e^-CHANCE.
FAR_LESS, CHANCE = 0.2, 20.0
WAIT = "Learn only from rounds whose rewards had time to arrive: remove the last {rounds:,} rounds."
NEGATIVE = "reward-negative"  # negative rewards are counted like a broken rule, although they may be fine
OUTLIERS = "If they are codes for errors or missing answers, remove those rounds; otherwise they dominate all others."
FEWEST = 5  # rounds of an action in a slice that its mean there needs
FEWEST_SLICES = 5
SURE = 4.0  # standard deviations beyond chance: one false alarm in ten thousand logs
MERGED = 8  # slices that are merged to find small, slow changes
SHOWN = 6  # actions whose share is shown
EVENTS_PER_ACTION = 10
MOST_VALUES = 50  # text with more values than this does not get a coefficient for each
FEWEST_ROUNDS = 2 * FEWEST_BLOCKS  # shorter logs have too few blocks to compare states
# Findings that make counting rewards pointless.
NOTHING_TO_LEARN = {"no-rounds", "single-action", "many-actions", "reward-constant", "reward-missing", "reward-text"}


class RewardChecks(Check):
    """Moments, magnitudes and extremes of rewards."""

    def __init__(self, slices: Slices, actions: ActionChecks) -> None:
        self.actions = actions
        self.count = self.zeros = self.ones = 0
        self.total = 0.0
        self.lowest, self.highest = np.inf, -np.inf
        self.sizes = np.zeros(POWERS, dtype=np.int64)  # how many have |r| in [2^(i-1), 2^i)
        self.largest = Largest()
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
        self.total += float(seen.sum())
        self.lowest, self.highest = min(self.lowest, float(seen.min())), max(self.highest, float(seen.max()))
        powers = np.frexp(seen[seen != 0])[1]
        self.sizes += np.bincount(np.clip(powers - LEAST_POWER, 0, POWERS - 1), minlength=POWERS)
        self.largest.add(np.abs(rewards), rounds.raw.source, rounds.raw.lines)
        rounds.report(NEGATIVE, rewards < 0)

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

    def findings(self, tally: "Tally") -> Iterator[Finding]:
        """Constant, outlying and late rewards."""
        if self.count and self.lowest == self.highest:
            yield Finding(
                "reward-constant", "error", "All rewards are the same",
                f"All {self.count:,} rewards are {self.lowest:g}, so every policy earns the same.",
                "Log what each action earned. If rounds without a reward were removed, add them with a reward of 0.",
                self.count, numbers={"count": self.count, "reward": self.lowest},
            )  # fmt: skip
            return
        yield from self._outliers(tally.broken)
        yield from self._late(tally)

    def _outliers(self, broken: RuleCounts) -> Iterator[Finding]:
        nearly_clicks = self.zeros + self.ones >= (1 - FEW) * self.count
        used = np.flatnonzero(self.sizes)
        beyond = np.cumsum(self.sizes[used][::-1])[::-1]  # rewards of this size or larger
        apart = APART_CLICKS if nearly_clicks else APART
        cuts = [i + 1 for i, gap in enumerate(np.diff(used)) if gap >= apart and beyond[i + 1] <= FEW * self.count]
        # Only rewards far above 1: small ones besides clicks are money or time.
        cuts = [i for i in cuts if not nearly_clicks or used[i] + LEAST_POWER > 1]
        negative, numbers = broken.counts[NEGATIVE], {"lowest": self.lowest}
        if cuts:
            count, largest = int(beyond[cuts[0]]), self.largest.values[0]
            usual = 2.0 ** float(used[cuts[0] - 1] + LEAST_POWER)
            evidence = f"as large as {largest:g}; all others are below {usual:g}"
            numbers = {"largest": largest, "usual": usual}
            places = self.largest.places(count)
        elif nearly_clicks and 0 < negative <= FEW * self.count:
            count, places = negative, broken.first(NEGATIVE)
            evidence = f"negative (the lowest is {self.lowest:g}); nearly all others are 0 or 1"
        else:
            return
        yield share_finding(
            "reward-outliers", "warning", "Rewards have outliers", count, self.count, "reward",
            f"are {evidence}", OUTLIERS, places, (), **numbers,
        )  # fmt: skip

    def _late(self, tally: "Tally") -> Iterator[Finding]:
        title = "The last rewards have not arrived yet"
        if tally.rounds.rewards_pending(tally):
            missing = tally.broken.counts["reward-missing"]
            yield share_finding(
                "rewards-late", "warning", title, missing, tally.n_rounds, "round",
                "have no reward, almost all of them at the end of the log",
                "Drop them: `seachange learn LOG --drop-bad-rows`.", tally.broken.first("reward-missing"),
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
            # -log of a bound on the probability of that few rewards by chance (Chernoff).
            rarity = expected - seen + (seen * np.log(seen / max(expected, 1e-9)) if seen else 0.0)
            if expected - seen > CHANCE and seen < FAR_LESS * expected and rarity > CHANCE:
                rounds = int(lengths[start:].sum())
                yield Finding(
                    "rewards-late", "warning", title,
                    f"The last {rounds:,} rounds have {seen:,.0f} rewards; at the lowest rate before, there would be "
                    f"{expected:,.0f}.", f"{WAIT.format(rounds=rounds)} If behavior really changed, ignore this.",
                    rounds, numbers={"rounds": rounds, "rewards": float(seen), "expected": float(expected)},
                )  # fmt: skip
                return


def drift_of(tally: "Tally") -> Drift | None:
    """The log in slices of time; None if it is too short."""
    count, lengths, rewards = tally.slices.count, tally.slices.lengths, tally.rewards
    if count < FEWEST_SLICES or not rewards.count:
        return None
    # A short last slice is merged into the one before.
    starts = np.arange(count - (count > 1 and lengths[-1] < lengths[0] / 2))

    def by_slice(values: Floats) -> Floats:
        return np.asarray(np.add.reduceat(values[..., :count], starts, axis=-1))

    observed, sums = by_slice(rewards.observed.values[0]), by_slice(rewards.sums.values[0])
    means = np.divide(sums, observed, out=np.full(len(sums), np.nan), where=observed > 0)
    followed = min(tally.actions.count, FOLLOWED)
    order = np.argsort(-tally.actions.totals[:followed, COUNT], kind="stable")[:SHOWN]
    shares = by_slice(tally.actions.taken.part(followed, SLICES)[order]) / by_slice(lengths)
    names = tally.actions.names
    reward_z = max(_between_slices(tally, 1), _between_slices(tally, MERGED))
    # Consecutive rewards are correlated, beyond the means of their actions.
    enough = rewards.count >= 200 and rewards.product_squares > 0
    neighbour_z = float(rewards.products / np.sqrt(rewards.product_squares)) if enough else 0.0
    return Drift(
        slice_rounds=tally.slices.size,
        mean_rewards=tuple(float(mean) if np.isfinite(mean) else None for mean in means),
        actions=tuple(names[a] for a in order),
        shares=tuple(tuple(float(share) for share in row) for row in shares),
        reward_z=reward_z,
        neighbour_z=neighbour_z,
        changes=max(reward_z, neighbour_z) > SURE,
    )


def _between_slices(tally: "Tally", merged: int) -> float:
    """Do actions earn the same in all slices? A χ² of their means, as a z-score (Wilson, Hilferty)."""
    actions, followed = tally.actions, min(tally.actions.count, FOLLOWED)
    n, sums, squares = (
        each.part(followed, SLICES).reshape(followed, -1, merged).sum(axis=2)
        for each in (actions.rewarded, actions.earned, actions.squares)
    )
    totals = n.sum(axis=1, keepdims=True)
    grand = sums.sum(axis=1, keepdims=True) / np.maximum(totals, 1)
    spread = np.maximum(squares.sum(axis=1, keepdims=True) - totals * grand**2, 0) / np.maximum(totals - 1, 1)
    # If a slice expects only a few rewards, its mean is far from normal.
    expects = np.abs(sums.sum(axis=1, keepdims=True)) / np.maximum(totals, 1) * n
    used = (n >= FEWEST) & (spread > 0) & ((expects >= FEWEST) | (tally.rewards.lowest < 0))
    gaps = np.divide(n * np.square(sums / np.maximum(n, 1) - grand), spread, out=np.zeros_like(n), where=used)
    degrees = int((used.sum(axis=1) - 1).clip(min=0).sum())
    if degrees < 3:
        return 0.0
    ratio = float(gaps.sum()) / degrees
    return float((np.cbrt(ratio) - (1 - 2 / (9 * degrees))) / np.sqrt(2 / (9 * degrees)))


def learnability_of(tally: "Tally") -> Learnability:
    """The rewarded rounds in the log, and how many each state needs."""
    contexts, rewards = tally.contexts, tally.rewards
    unused = {name for each in tally.findings if each.rule in USELESS for name in each.names}
    width = sum(_coefs(each) for name, each in contexts.shared.items() if name not in unused)
    of_actions = sum(_coefs(each) for each in contexts.of_actions.values())
    n_actions = contexts.pool[1] if contexts.pool is not None and not contexts.pool_named else tally.actions.count
    n_coefs = of_actions + width if of_actions else n_actions * (width + 1)
    rewarded = rewards.count - rewards.zeros
    events = min(rewarded, rewards.zeros) if rewards.clicks else rewarded
    needed = max(n_coefs, EVENTS_PER_ACTION * (1 if of_actions else n_actions), 1)
    return Learnability(n_coefs, events, needed, min(events // needed, MOST_STATES))


def _coefs(context: ContextTally) -> int:
    one = context.kind in ("number", "integer", "boolean", "date")
    return (1 if one else min(context.distinct.count, MOST_VALUES)) + (context.n_missing > 0)


class LearnabilityChecks(Check):
    """Too few rounds or rewards."""

    def findings(self, tally: "Tally") -> Iterator[Finding]:
        """Too few rounds, or too few rewards for one state."""
        if any(each.severity == "error" and each.rule in NOTHING_TO_LEARN for each in tally.findings):
            return
        found = learnability_of(tally)
        if tally.n_rounds < FEWEST_ROUNDS:
            yield Finding(
                "few-rounds", "error", "The log is too short",
                f"The log has {tally.n_rounds:,} rounds; at least {FEWEST_ROUNDS} are needed.", "Log longer.",
                tally.n_rounds, numbers={"rounds": tally.n_rounds, "needed": FEWEST_ROUNDS},
            )  # fmt: skip
        elif found.most_states < 1:
            yield Finding(
                "few-rewards", "warning", "The log has too few rewards",
                f"The log has {found.n_events:,} rewarded rounds, but a single state needs {found.needed:,} for its "
                f"{found.n_coefs:,} coefficients.",
                "Learn a single policy with --oracle none, use fewer contexts or actions, or log longer.",
                found.n_events, numbers={"events": found.n_events, "needed": found.needed, "coefs": found.n_coefs},
            )  # fmt: skip
