"""Do propensities add up? If they are right, Σ 1 / p over the rounds that took an action is, on average, the number of
rounds that could have taken it.

Sums of 1 / p are skewed: a rare round with a small propensity may come or not. An action is said to be off only if

    |Σ 1/p - n| > z √Σ (1/p² - 1/p) + c W

with W the largest 1 / p (of the whole log where the sum is too small: the round that did not come is not there to be
looked at), and by more than a twentieth.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log, pi, sqrt

import numpy as np

from seachange.check.action_tally import (
    COUNT,
    EARNED,
    INVERSE,
    INVERSE_REWARDED,
    INVERSE_SQUARES,
    REWARDED,
    WEIGHED,
    WEIGHED_EARNED,
)
from seachange.check.judging_rounds import percents, share_told
from seachange.check.presence import Presence
from seachange.check.record import Finding, PropensityCheck
from seachange.check.slices import SliceSums
from seachange.check.tally import ALL_ONES, SURE, Tally
from seachange.log.propensity_signature import behaves_like_propensities
from seachange.log.readers.table_log import DIVIDE
from seachange.protocols import Bools, Floats

# How often a sound log of any number of actions may be called off.
FALSE_ALARMS = 1e-6
# What is nearer to 1 than this is right to the digits that were written.
MATERIAL = 0.05
FEWEST_ROUNDS = 100
FEW_ONES = 0.05
# Effective rounds of choices at random below which a long log has next to nothing to say about other policies.
FEWEST_EFFECTIVE = 100.0
# Of the rounds of a log whose choices were mostly certain, the share that must be left of them, in effect; and of what
# choices at random would have taken, the share that must have been seen.
FEWEST_LEFT, LEAST_SEEN = 0.01, 2 / 3
ESTIMATE = "Leave the column out and estimate them (--estimate-propensities), or log what actions are chosen with."


def propensity_check(tally: Tally) -> PropensityCheck | None:
    """What propensities there are."""
    if not tally.n_propensities:
        return None
    best, rounds = best_action(tally)
    return PropensityCheck(
        lowest=tally.least,
        highest=tally.most,
        inverse_sum=tally.inverse / tally.n_propensities,
        uniform_rounds=_effective(tally),
        best_action=best,
        best_rounds=rounds,
    )


def best_action(tally: Tally) -> tuple[str, float]:
    """The action that earns most a round, of those that say so with thirty rounds or more, and what that stands on."""
    totals = tally.actions.totals[: tally.actions.count]
    if not len(totals):
        return "", 0.0
    weighed = totals[:, WEIGHED_EARNED] / np.maximum(totals[:, INVERSE_REWARDED], 1e-300)
    means = np.where(totals[:, INVERSE_REWARDED] > 0, weighed, totals[:, EARNED] / np.maximum(totals[:, REWARDED], 1))
    enough = totals[:, REWARDED] >= min(30, totals[:, REWARDED].max())
    best = int(np.where(enough, means, -np.inf).argmax())
    return tally.actions.names[best], float(effective_rounds(totals)[best])


def effective_rounds(totals: Floats) -> Floats:
    """(K,) (Σ 1/p)² / Σ 1/p² of each action; its rounds where there are no propensities."""
    squares = totals[:, INVERSE_SQUARES]
    return np.where(squares > 0, totals[:, INVERSE] ** 2 / np.maximum(squares, 1e-300), totals[:, COUNT])


def inverse_means(tally: Tally, presence: Presence) -> tuple[Floats, Floats, Floats]:
    """(K,) Σ 1 / p by the rounds that could take an action, its standard error, and these rounds (NaN: not known)."""
    alive, actions = presence.alive, tally.actions

    def summed(sums: SliceSums) -> Floats:
        return np.asarray((sums.part(*alive.shape) * alive).sum(axis=1))

    inverse, squares = summed(actions.inverse), summed(actions.inverse_squares)
    if tally.pool is None:
        rounds = alive @ tally.weighed.values[0, : alive.shape[1]]
    elif tally.pool_named:
        rounds = summed(actions.shown)
    else:
        rounds = np.full(len(alive), np.nan)
    rounds = np.where(rounds > 0, rounds, np.nan)
    return inverse / rounds, np.sqrt(np.maximum(squares - inverse, 0)) / rounds, rounds


def judge_propensities(tally: Tally, presence: Presence, about_actions: list[Finding]) -> Iterator[Finding]:
    """None, filled in, worked out afterwards, or not adding up; what is wrong with actions is not their fault."""
    unnamed = list(_unnamed(tally, presence))
    yield from unnamed
    if not tally.has_propensities and unnamed:
        return
    if not tally.has_propensities:
        yield Finding(
            "no-propensities",
            "warning",
            "There are no propensities: how likely each action was when it was taken.",
            "If the log has them under another name: --columns propensity=…. Else learn estimates them with "
            "--estimate-propensities, which is right only if the contexts say all that the choice depended on.",
        )
        return
    if percents(tally):
        yield Finding(
            "propensity-percent",
            "error",
            f"{share_told(tally.n_percent, tally.n_stated, 'propensity').replace('propensitys', 'propensities')} "
            "are between 1 and 100: percents.",
            DIVIDE,
            tally.n_percent,
        )
        return
    if not tally.n_propensities or tally.actions.count < 2:
        return
    if (found := _ones(tally) or _frequencies(tally)) is not None:
        yield found
        return
    if all_but_certain(tally):
        yield _certainty(tally)
        return
    if not any(each.rule == "many-actions" for each in about_actions):
        twins = {name for each in about_actions if each.rule == "action-spelling" for name in each.names}
        yield from _calibration(tally, presence, twins)
    effective = _effective(tally)
    if tally.n_rounds >= 10 * FEWEST_EFFECTIVE > 10 * effective:
        yield Finding(
            "weak-support",
            "warning",
            f"Of {tally.n_rounds:,} rounds {effective:,.0f} are left, in effect, to judge choices at random: a few "
            f"with small propensities (the least {tally.least:.2g}) outweigh all others.",
            "Estimates for policies unlike the logging policy will be wide. Explore more, or log longer.",
        )


def _unnamed(tally: Tally, presence: Presence) -> Iterator[Finding]:
    """Contexts that look like propensities which nobody named."""
    throughout = np.asarray(presence.alive.all(axis=1))
    names = tuple(
        name
        for name, column in tally.inverses.items()
        if column.n_rounds == tally.n_rounds and behaves_like_propensities(column, name, throughout)
    )
    if names:
        columns = f"Column{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"
        yield Finding(
            "propensity-unnamed",
            "warning",
            f"{columns} behave{'s' * (len(names) == 1)} like the probability of the action taken: the mean of 1/p is "
            "about 1 for every action.",
            f"If it is that, say so: --columns propensity={names[0]}. If not, leave it out of the contexts: it may not "
            "be known before the choice.",
            len(names),
            names=names,
        )


def _effective(tally: Tally) -> float:
    """What is known of choices at random, in rounds."""
    return tally.weights**2 / tally.weight_squares


def all_but_certain(tally: Tally) -> bool:
    """Whether the choice left so little to chance that other actions are hardly in the log.

    Then neither the mean of 1 / p, whose weight lies in rounds that did not come, nor the times at which an action was
    taken say anything of mistakes.
    """
    n = tally.n_propensities
    if n < FEWEST_ROUNDS or 2 * tally.n_sure < n or tally.least == tally.most:
        return False
    seen = tally.weights / (n if tally.pool is not None else n * tally.actions.count)
    return _effective(tally) < FEWEST_LEFT * n or seen < LEAST_SEEN


def _certainty(tally: Tally) -> Finding:
    left = min(_effective(tally), tally.n_propensities - tally.n_sure)
    return Finding(
        "weak-support",
        "warning",
        f"{share_told(tally.n_sure, tally.n_propensities, 'round')} took an action that was all but certain, of "
        f"propensity {SURE:g} or more; {left:,.0f} rounds are left, in effect, to judge other choices.",
        "What other actions earn can hardly be learned from this log, and with it what tells states apart. If a model "
        "chose, keep the model it is from, and deploy that with model.deployer(exploration=0.05) for a log to learn "
        "from. If the choice was less certain than that, the propensities are wrong.",
        tally.n_sure,
    )


def _ones(tally: Tally) -> Finding | None:
    """The signature of propensities that were set to 1, throughout or in a stretch of time."""
    count = tally.slices.count
    weighed, ones = tally.weighed.values[0, :count], tally.ones.values[0, :count]
    shares = ones / np.maximum(weighed, 1)
    stretch = shares > ALL_ONES
    between = (shares > FEW_ONES) & ~stretch
    mixed = (tally.actions.taken.values[:, :count] > 0).sum(axis=0) > 1
    if tally.n_ones > ALL_ONES * tally.n_propensities:
        where, rounds = "All propensities are 1" if tally.n_ones == tally.n_propensities else "Propensities are 1", ""
    elif (stretch & mixed).any() and between.sum() <= 2:  # the slices in which the stretch begins and ends
        first = int(stretch.argmax())
        where, rounds = "Propensities are 1 in a stretch of time", f", from round {first * tally.slices.size:,} on"
    else:
        return None
    return Finding(
        "propensity-one",
        "warning",
        f"{where} ({tally.n_ones:,} of {tally.n_propensities:,}{rounds}), yet {tally.actions.count:,} actions were "
        "taken: they look filled in.",
        f"{ESTIMATE} If there was no chance in the choice, no other policy can be judged.",
        tally.n_ones,
    )


def _frequencies(tally: Tally) -> Finding | None:
    """The signature of propensities that are how often each action was taken."""
    totals = tally.actions.totals[: tally.actions.count]
    counts, inverse, squares = totals[:, WEIGHED], totals[:, INVERSE], totals[:, INVERSE_SQUARES]
    if tally.pool is not None or tally.actions.n_beyond or (counts == 0).any():
        return None
    if (np.abs(squares * counts / inverse**2 - 1) > 1e-6).any():  # not the same throughout for an action
        return None
    n, probs = tally.n_propensities, counts / inverse
    if np.ptp(probs) < 1e-9 or not np.isclose(probs.sum(), 1, atol=1e-3):
        return None
    allowed = max(0.5, 1e-6 * n)
    if (np.abs(counts - n * probs) > allowed).any():
        return None
    # How likely right propensities are to come that near to the counts of all actions but one.
    spreads = np.sort(np.sqrt(2 * pi * n * probs * (1 - probs)))[1:]
    if exp(np.minimum(0.0, np.log(2 * allowed / spreads)).sum()) > 1e-5:
        return None
    return Finding(
        "propensity-frequency",
        "warning",
        "Propensities are how often each action was taken, to the last digit: they were worked out afterwards.",
        "That is right only if nothing but chance chose: not the context, not the time. Else log what actions are "
        "chosen with, or leave the column out and estimate them (--estimate-propensities).",
        n,
    )


def _calibration(tally: Tally, presence: Presence, twins: set[str]) -> Iterator[Finding]:
    means, errors, rounds = inverse_means(tally, presence)
    off = off_actions(tally, means, errors, rounds)
    off &= ~np.isin(np.array(tally.actions.names[: len(off)]), list(twins))
    if off.any():
        worst = np.flatnonzero(off)[np.argsort(-np.abs(np.log(np.maximum(means[off], 1e-9))))]
        names = tuple(tally.actions.names[a] for a in worst)
        told = "; ".join(f"{tally.actions.names[a]!r} {means[a]:.3g} ± {errors[a]:.2g}" for a in worst[:3])
        if tally.least == tally.most:
            what = (
                f"All propensities are {tally.least:.4g}, but actions were not taken equally often: the mean of 1/p "
                f"should be 1 for each, and is {told}."
            )
            yield Finding("propensity-constant", "warning", what, ESTIMATE, int(off.sum()), names=names)
            return
        what = (
            f"The mean of 1/p, 1 if propensities are right, is off for {int(off.sum())} of "
            f"{tally.actions.count:,} actions: {told}."
        )
        cure = (
            "Where it is above 1, actions were taken more often than their propensities say; below 1, less often, or "
            "they could not be taken in some contexts. Log the probability of the action taken, as it was then."
        )
        yield Finding("propensity-calibration", "warning", what, cure, int(off.sum()), names=names)
    elif tally.pool is not None and not tally.pool_named and _pools_off(tally):
        yield Finding(
            "propensity-calibration",
            "warning",
            f"The mean of 1/p is {tally.inverse / tally.n_propensities:.4g}; by the actions that rounds could choose "
            f"among it should be {tally.choices / tally.n_propensities:.4g}.",
            "Log the probability of the action taken, as it was then.",
            tally.n_propensities,
        )


def off_actions(tally: Tally, means: Floats, errors: Floats, rounds: Floats) -> Bools:
    """(K,) actions whose propensities cannot be right."""
    from scipy.stats import norm

    n_actions = max(len(means), 1)
    reach, skew = norm.isf(FALSE_ALARMS / n_actions), log(n_actions / FALSE_ALARMS)
    largest = tally.actions.largest_inverse[: len(means)]
    with np.errstate(invalid="ignore"):
        excess = means - 1
        high = excess > reach * errors + skew * largest / 3 / rounds
        low = -excess > reach * errors + skew / tally.least / rounds
        return np.asarray((high | low) & (np.abs(excess) > MATERIAL) & (rounds >= FEWEST_ROUNDS) & (means > 0))


def _pools_off(tally: Tally) -> bool:
    """Whether Σ 1 / p is not the number of actions that rounds could choose among."""
    excess = tally.inverse - tally.choices
    reach = 6 * sqrt(tally.choice_squares) + 14 / tally.least
    return abs(excess) > max(reach, MATERIAL * tally.choices)
