"""Rules about the rewards of a whole log."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seachange.check.judging_rounds import rewards_not_arrived, share_told
from seachange.check.record import Finding, RewardCheck
from seachange.check.reward_tally import LEAST_POWER
from seachange.check.tally import Tally

# Rewards of a few rounds that are larger than all others by this power of two are no rewards. Money is spread widely,
# clicks are not.
APART, APART_CLICKS = 10, 3
FEW = 0.01
# A last stretch that earns less than this share of the worst stretch before it has rewards to come, if chance would
# make it so less often than e^-CHANCE.
FAR_LESS, CHANCE = 0.2, 20.0


def reward_check(tally: Tally) -> RewardCheck | None:
    """What rewards there are."""
    rewards = tally.rewards
    if not rewards.count:
        return None
    return RewardCheck(
        kind="clicks" if rewards.zeros + rewards.ones == rewards.count else "numbers",
        n_rewarded=rewards.count - rewards.zeros,
        share_of_zeros=rewards.zeros / rewards.count,
        mean=rewards.total / rewards.count,
        lowest=rewards.lowest,
        highest=rewards.highest,
    )


def judge_rewards(tally: Tally) -> Iterator[Finding]:
    """Constant, outlying, and late rewards."""
    rewards = tally.rewards
    if rewards.count and rewards.lowest == rewards.highest:
        yield Finding(
            "reward-constant",
            "error",
            f"All rewards are {rewards.lowest:g}: every policy earns the same.",
            "Log what the actions earned. If rounds without a reward were left out of the log, put them back.",
            rewards.count,
        )
        return
    yield from _outliers(tally)
    yield from _late(tally)


def _outliers(tally: Tally) -> Iterator[Finding]:
    rewards = tally.rewards
    nearly_clicks = rewards.zeros + rewards.ones >= (1 - FEW) * rewards.count
    used = np.flatnonzero(rewards.sizes)
    gaps = np.diff(used)
    beyond = np.cumsum(rewards.sizes[used][::-1])[::-1]  # rewards of this size or larger
    apart = APART_CLICKS if nearly_clicks else APART
    cuts = [i + 1 for i, gap in enumerate(gaps) if gap >= apart and beyond[i + 1] <= FEW * rewards.count]
    # Rewards far above 1: small ones beside clicks are money or time.
    cuts = [i for i in cuts if not nearly_clicks or used[i] + LEAST_POWER > 1]
    if cuts:
        count = int(beyond[cuts[0]])
        usual = 2.0 ** float(used[cuts[0] - 1] + LEAST_POWER)
        places = tuple(
            sorted((place for _, place in rewards.largest[:count]), key=lambda each: (each.source, each.line))
        )
        yield Finding(
            "reward-outliers",
            "warning",
            f"{share_told(count, rewards.count, 'reward')} {'is' if count == 1 else 'are'} as large as "
            f"{rewards.largest[0][0]:g}, all others below {usual:g}.",
            "If they stand for something else (no answer, an error), take those rounds out; they outweigh all others.",
            count,
            places,
        )
    elif nearly_clicks and 0 < rewards.negative <= FEW * rewards.count:
        yield Finding(
            "reward-outliers",
            "warning",
            f"{share_told(rewards.negative, rewards.count, 'reward')} {'is' if rewards.negative == 1 else 'are'} below "
            f"0 (the least {rewards.lowest:g}), nearly all others 0 or 1.",
            "If they stand for something else (no answer, an error), take those rounds out.",
            rewards.negative,
            tuple(rewards.below_zero),
        )


def _late(tally: Tally) -> Iterator[Finding]:
    cure = (
        "Learn from the rounds whose rewards had time to arrive: leave the last stretch out. If the world did change "
        "there, nothing is wrong."
    )
    if rewards_not_arrived(tally):
        missing = tally.places.counts["reward-missing"]
        yield Finding(
            "rewards-late",
            "warning",
            f"{share_told(missing, tally.n_rounds, 'round')} have no reward, and they are the last: not come yet.",
            f"{cure} --fix OUT leaves them out.",
            missing,
            tally.places.first("reward-missing"),
        )
        return
    count, lengths = tally.slices.count, tally.slices.lengths
    if count < 10:
        return
    observed = np.maximum(tally.rewards.observed.values[0, :count], 1)
    rewarded = tally.rewards.rewarded.values[0, :count]
    rates = rewarded / observed
    for tail in range(1, count // 3 + 1):
        start = count - tail
        # The slice in which rewards begin to fail may be half and half.
        worst = float(rates[: start - 1].min())
        expected = worst * observed[start:].sum()
        seen = rewarded[start:].sum()
        if expected - seen > CHANCE and seen < FAR_LESS * expected and _poisson_rarity(seen, expected) > CHANCE:
            rounds = int(lengths[start:].sum())
            yield Finding(
                "rewards-late",
                "warning",
                f"The last {rounds:,} rounds have {seen:,.0f} rewards; the worst stretch before would give "
                f"{expected:,.0f}: they may not have come yet.",
                cure,
                rounds,
            )
            return


def _poisson_rarity(seen: float, expected: float) -> float:
    """-log of a bound on the probability that so few come where so many are expected (Chernoff)."""
    return float(expected - seen + (seen * np.log(seen / expected) if seen else 0.0))
