"""Rules about raw features."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from seachange.check.context_tally import ContextTally
from seachange.check.record import ContextCheck, Finding, Severity
from seachange.check.repeat_tally import EVENT_IDS
from seachange.check.tally import Tally
from seachange.log.feature_fitting import MOST_DISTINCT, ROUNDS_OF_A_VALUE
from seachange.log.readers.places import ROW_NUMBERS
from seachange.protocols import Floats

# A context that tells this share of the variance of the reward is the reward in another form.
LEAK_CLICKS, LEAK_NUMBERS = 0.95, 0.9995
# Rounds on each side that it takes to say so, and rounds for each value it has.
FEWEST_EVENTS, FEWEST_A_VALUE = 20, 20
MOSTLY_MISSING = 0.5
# Text of which most rounds have one of their own; whole numbers, too, where the name says so or they number the rounds.
IDENTIFIES, FEWEST_ROUNDS = 0.5, 200
IDENTIFIER_NAMES = re.compile(r"(.*[\W_])?(id|ids|uuid|guid|key|hash)|.*[a-z](Id|Uuid|Guid|Key|Hash)|.*ID")
# A column moved if chance explains it less often than this many standard deviations say, and by this much.
SURE, WORTH_TELLING = 8.0, 0.01
LEAVE_OUT = "Leave it out of the contexts (--columns contexts=…), or out of the log."


def context_checks(tally: Tally) -> tuple[ContextCheck, ...]:
    """Every column."""
    return tuple(_check(each, tally) for each in _columns(tally))


def _columns(tally: Tally) -> list[ContextTally]:
    return [each for name, each in tally.contexts.items() if not ROW_NUMBERS.fullmatch(name)]


def _check(context: ContextTally, tally: Tally) -> ContextCheck:
    numeric = context.shift is not None
    return ContextCheck(
        name=context.name,
        kind=context.kind or "nothing",
        n_distinct=min(context.distinct.count, tally.n_rounds),
        distinct_exact=context.distinct.exact,
        n_missing=missing(context, tally),
        lowest=context.lowest if numeric else None,
        highest=context.highest if numeric else None,
        mean=context.mean,
        moved=_moved(context, tally),
    )


def missing(context: ContextTally, tally: Tally) -> int:
    """Rounds without it; parts of a log that do not have the column lack it, too."""
    return context.n_missing + tally.n_rounds - context.n_rounds


def _moved(context: ContextTally, tally: Tally) -> float | None:
    """The share of variance between slices, where it is more than chance gives."""
    counts = context.counts.values[0, : tally.slices.count]
    used = counts > 0
    if context.shift is None or used.sum() < 2:
        return None
    n, sums, squares = counts[used], context.values.values[0][: len(counts)][used], context.squares.values[0]
    means, grand = sums / n, sums.sum() / n.sum()
    total = squares.sum() - n.sum() * grand**2
    between = float((n * np.square(means - grand)).sum())
    if not total > 0 or n.sum() <= len(n):
        return None
    degrees = len(n) - 1
    statistic = between / max((total - between) / (n.sum() - len(n)), 1e-300)
    moved = float(between / total)
    return moved if (statistic - degrees) / np.sqrt(2 * degrees) > SURE and moved > WORTH_TELLING else None


def judge_contexts(tally: Tally) -> Iterator[Finding]:
    """Columns that say nothing, too much, or who it was."""
    columns = _columns(tally)
    leaking = [each for each in columns if _leaks(each, tally)]
    empty = [each for each in columns if missing(each, tally) == tally.n_rounds]
    constant = [each for each in columns if each not in empty and _constant(each, tally)]
    ones = [each for each in constant if each.single in (1, True)]
    sparse = [
        each
        for each in columns
        if each not in empty and each not in leaking and missing(each, tally) > MOSTLY_MISSING * tally.n_rounds
    ]
    naming = [each for each in columns if each not in leaking and _identifies(each, tally)]
    events = [each for each in naming if EVENT_IDS.fullmatch(each.name)]
    yield from _said(
        "reward-leak",
        "warning",
        leaking,
        ("tells the reward all but exactly: it was known only after it", "tell the reward all but exactly"),
        "A policy would learn to look at what it cannot see when it decides. " + LEAVE_OUT,
    )
    if told := tuple(tally.told_by_action.names()):
        yield Finding(
            "action-leak",
            "warning",
            f"Every action has one value of {', '.join(map(repr, told[:8]))}.",
            "That describes what was shown, and is not known before the choice: learn makes no features of it, unless "
            "it is named as a context.",
            len(told),
            names=told,
        )
    yield from _said("column-empty", "warning", empty, ("is empty", "are empty"), LEAVE_OUT)
    yield from _said(
        "column-constant",
        "warning",
        [each for each in constant if each not in ones],
        ("always has the same value", "always have the same value"),
        "They say nothing. If they should vary, look at what writes the log; if not, leave them out.",
    )
    yield from _said(
        "column-of-ones",
        "note",
        ones,
        ("is 1 throughout", "are 1 throughout"),
        "Models have an intercept of their own.",
    )
    yield from _said(
        "column-mostly-missing",
        "warning",
        sparse,
        ("is missing in most rounds", "are missing in most rounds"),
        "Find out why. What is missing for a reason says something; what is missing by accident does not.",
    )
    what = ("has a value of its own in most rounds", "have a value of their own in most rounds")
    cure = "Nothing that is learned about one value helps with the next. " + LEAVE_OUT
    yield from _said("identifier", "warning", [each for each in naming if each not in events], what, cure)
    yield from _said("event-id", "note", events, what, cure)
    what = (f"has values that come fewer than {ROUNDS_OF_A_VALUE} times each on average",) * 2
    rare = [each for each in columns if each not in naming and each not in leaking and _hardly_again(each, tally)]
    yield from _said("identifier-text", "note", rare, what, "learn makes no features of it, unless it is named.")
    if tally.columns_beyond:
        names = tuple(sorted(tally.columns_beyond))
        yield Finding(
            "many-columns",
            "note",
            f"{len(names):,} columns past the first {len(tally.contexts):,} were not looked at.",
            "Leave out what no policy needs.",
            len(names),
            names=names[:20],
        )


def _said(
    rule: str, severity: Severity, columns: Iterable[ContextTally], what: tuple[str, str], cure: str
) -> Iterator[Finding]:
    """A finding about columns, where there are any; ``what`` of one and of several."""
    names = tuple(each.name for each in columns)
    if names:
        shown = ", ".join(repr(name) for name in names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        told = f"Column {shown} {what[0]}." if len(names) == 1 else f"Columns {shown} {what[1]}."
        yield Finding(rule, severity, told, cure, len(names), names=names)


def _constant(context: ContextTally, tally: Tally) -> bool:
    return context.distinct.count == 1 and missing(context, tally) == 0 and tally.n_rounds > 1


def _hardly_again(context: ContextTally, tally: Tally) -> bool:
    """Whether ``learn`` takes a text for an identifier."""
    seen, distinct = tally.n_rounds - missing(context, tally), context.distinct.count
    return context.kind == "text" and distinct > MOST_DISTINCT and seen < ROUNDS_OF_A_VALUE * distinct


def _identifies(context: ContextTally, tally: Tally) -> bool:
    known = tally.n_rounds - missing(context, tally)
    if known < FEWEST_ROUNDS or context.distinct.count <= IDENTIFIES * known:
        return False
    numbers_rounds = context.highest - context.lowest + 1 == tally.n_rounds == known
    named = IDENTIFIER_NAMES.fullmatch(context.name) is not None
    return context.kind == "text" or (context.kind == "whole number" and (named or numbers_rounds))


def _leaks(context: ContextTally, tally: Tally) -> bool:
    rewards = tally.rewards
    rarer = min(rewards.zeros, rewards.count - rewards.zeros) if rewards.zeros else rewards.count
    if rarer < FEWEST_EVENTS:
        return False
    clicks = rewards.zeros + rewards.ones == rewards.count
    limit = LEAK_CLICKS if clicks else LEAK_NUMBERS
    by_values = context.told_by_values if context.n_values * FEWEST_A_VALUE <= rewards.count else 0.0
    numbers_enough = context.sums[0] > 0.5 * rewards.count
    return bool(max(context.told_by_numbers if numbers_enough else 0.0, by_values, _by_absence(context)) > limit)


def _by_absence(context: ContextTally) -> float:
    """R² of the reward by whether the column is missing."""
    without, lost, lost_squares = context.sums_of_missing
    known: Floats = context.sums_of_known
    if not without or not known[0]:
        return 0.0
    n, total, squares = known[0] + without, known[1] + lost, known[2] + lost_squares
    noise = squares - total**2 / n
    left = known[2] - known[1] ** 2 / known[0] + lost_squares - lost**2 / without
    return 0.0 if not noise > 0 else float(1 - left / noise)
