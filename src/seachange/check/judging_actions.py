"""Rules about the actions of a whole log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from seachange.check.action_tally import COUNT, EARNED, FIRST, LARGEST_INVERSE, LAST, MOST_ACTIONS, REWARDED
from seachange.check.judging_propensities import all_but_certain, effective_rounds, inverse_means
from seachange.check.judging_rounds import share_told
from seachange.check.presence import RARITY, Presence
from seachange.check.record import ActionCheck, Finding
from seachange.check.tally import Tally

# Actions that a record lists.
LISTED = 200
# Rounds an action below which most actions are hardly ever taken, and names that are none.
FEWEST_EACH, NO_NAMES = 5, 0.5
# More names than this are codes, in which capitals may mean something.
MOST_NAMES = 1_000


def action_checks(tally: Tally, presence: Presence) -> tuple[ActionCheck, ...]:
    """The most frequent actions."""
    names, totals = tally.actions.names, tally.actions.totals[: tally.actions.count]
    effective = effective_rounds(totals)
    means, errors, _ = inverse_means(tally, presence)
    order = np.argsort(-totals[:, COUNT], kind="stable")[:LISTED]
    checks = []
    for a in order:
        row, known = totals[a], a < len(means) and tally.n_propensities > 0 and bool(np.isfinite(means[a]))
        checks.append(
            ActionCheck(
                action=names[a],
                n_rounds=int(row[COUNT]),
                share=float(row[COUNT] / max(tally.n_rounds, 1)),
                mean_reward=float(row[EARNED] / row[REWARDED]) if row[REWARDED] else None,
                least_propensity=float(1 / row[LARGEST_INVERSE]) if row[LARGEST_INVERSE] else None,
                inverse_mean=float(means[a]) if known else None,
                inverse_error=float(errors[a]) if known else None,
                effective_rounds=float(effective[a]),
                first_round=int(row[FIRST]) if row[COUNT] else -1,
                last_round=int(row[LAST]) if row[COUNT] else -1,
            )
        )
    return tuple(checks)


def judge_actions(tally: Tally, presence: Presence) -> Iterator[Finding]:
    """One action, no end of them, one under several names, some that come and go."""
    n, taken = tally.n_rounds, tally.actions.totals[: tally.actions.count, COUNT]
    n_taken = int((taken > 0).sum())
    unnamed_places = tally.pool is not None and not tally.pool_named
    if n_taken == 1 and not unnamed_places:  # which place an action had in its list says nothing
        yield Finding(
            "single-action",
            "error",
            f"Every round took the same action, {tally.actions.names[int(taken.argmax())]!r}.",
            "There is nothing to choose. Check which column holds the action (--columns action=…).",
            n,
        )
        return
    if tally.actions.n_beyond or (n_taken > FEWEST_EACH and n_taken * FEWEST_EACH > n and not unnamed_places):
        hopeless = n_taken > NO_NAMES * n
        more = f"more than {MOST_ACTIONS:,}" if tally.actions.n_beyond else f"{n_taken:,}"
        yield Finding(
            "many-actions",
            "error" if hopeless else "warning",
            f"There are {more} actions in {n:,} rounds.",
            "Most were taken too seldom to learn from. If the column holds identifiers or measures, group them into "
            "actions; only the first 100,000 are counted each by itself.",
            n_taken,
        )
        return
    yield from _spelling(tally)
    if not all_but_certain(tally):
        yield from _comings(tally, presence)


def _spelling(tally: Tally) -> Iterator[Finding]:
    names = tally.actions.names
    if len(names) > MOST_NAMES:
        return
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        plain = " ".join(name.split()).casefold()
        groups[plain.removesuffix(".0") if plain.removesuffix(".0").isdecimal() else plain].append(name)
    # Single letters may differ in case alone and be different all the same.
    twins = [
        group
        for plain, group in groups.items()
        if len(group) > 1 and (len(plain) > 2 or len({each.strip() for each in group}) == 1 or plain.isdecimal())
    ]
    if twins:
        told = "; ".join(" and ".join(repr(name) for name in group[:3]) for group in twins[:4])
        yield Finding(
            "action-spelling",
            "warning",
            f"Actions that differ only in how they are written: {told}.",
            "If they are the same, write them the same: each is learned by itself.",
            len(twins),
            names=tuple(name for group in twins for name in group),
        )


def _comings(tally: Tally, presence: Presence) -> Iterator[Finding]:
    names, size, n = tally.actions.names, tally.slices.size, tally.n_rounds
    concerned = np.union1d(presence.late, presence.gone)
    firsts, lasts, inverse = tally.actions.totals[concerned][:, [FIRST, LAST, LARGEST_INVERSE]].T
    # A policy that switches may hardly take an action for long, yet with the least propensity that was logged for it.
    concerned = concerned[np.maximum(firsts, n - 1 - lasts) > RARITY * np.maximum(inverse, 1)]
    if not len(concerned):
        return
    counts = tally.actions.totals[concerned, COUNT]
    parts = []
    for a in concerned[np.argsort(-counts, kind="stable")][:4]:
        first, last = tally.actions.totals[a, [FIRST, LAST]].astype(int)
        parts.append(f"{names[a]!r} only in rounds {first + 1:,} to {last + 1:,}")
    told = "; ".join(parts) + (f"; and {len(concerned) - 4} more" if len(concerned) > 4 else "")
    absent = [names[a] for a in presence.gone if (presence.lasts[a] + 1) * size <= 2 * n / 3]
    end = f" {len(absent)} of them never in the last third." if absent else ""
    yield Finding(
        "action-comes-and-goes",
        "warning",
        f"{share_told(len(concerned), len(names), 'action')} {'was' if len(concerned) == 1 else 'were'} taken in a "
        f"part of the time: {told}.{end}",
        "If the pool changed, say which actions each round could choose among; else a policy may choose what is gone, "
        "and propensities cannot be held against all rounds.",
        len(concerned),
        names=tuple(names[a] for a in concerned),
    )
