"""Rules that single rounds break."""

from __future__ import annotations

from collections.abc import Iterator

from seachange.check.record import Finding
from seachange.check.tally import UNREADABLE, Tally
from seachange.log.validation import LARGEST, LEAST_PROPENSITY

DROP = "learn leaves such rounds out with --drop-bad-rows; --fix OUT writes the log without them, and them apart."
BIAS = "Rounds that are left out for what was chosen or earned in them bend what is learned: find out why they are so."
# What each rule says, and what to do.
RULES = {
    "reward-missing": ("have no reward", f"{DROP} If no reward means 0, write 0. {BIAS}"),
    "reward-text": ("have a reward that is no number", f"Rewards are numbers: write 1 and 0 for yes and no. {DROP}"),
    "reward-infinite": (f"have a reward that is infinite or beyond {LARGEST:g}", f"{DROP} {BIAS}"),
    "action-missing": ("have no action", f"{DROP} {BIAS}"),
    "action-outside-pool": ("took an action that is not among those they could choose from", f"{DROP} {BIAS}"),
    "propensity-missing": ("have no propensity, or one that is no number", f"{DROP} {BIAS}"),
    "propensity-zero": ("have the propensity 0, yet the action was taken", f"Log what actions are chosen with. {DROP}"),
    "propensity-negative": ("have a propensity below 0", f"Log probabilities, not scores or their logarithms. {DROP}"),
    "propensity-above-one": ("have a propensity above 1", f"Log probabilities, not scores or odds. {DROP}"),
    "propensity-tiny": (
        f"have a propensity below {LEAST_PROPENSITY:g}",
        f"Nothing so unlikely is ever logged: it stands for something else. {DROP}",
    ),
    "propensity-mismatch": (
        "have a propensity that is not what their logging distribution gives the action taken",
        f"Log the probability of the action that was taken, not of another one. {DROP}",
    ),
    "distribution-sum": ("have a logging distribution that does not sum to 1", DROP),
    "time-missing": ("have no time, or one that cannot be read", DROP),
    "sequence-missing": ("belong to no sequence", DROP),
    "context-infinite": ("have an infinite number among their contexts", DROP),
}
# A log with more bad rounds than this says little, however it is cleaned.
MOST_BAD = 0.5


def judge_rounds(tally: Tally) -> Iterator[Finding]:
    """Rules that single rounds break, and lines that hold none."""
    n, counts = tally.n_rounds + tally.n_unreadable, tally.places.counts
    if count := counts[UNREADABLE]:
        reasons = "; ".join(tally.quoted)
        yield Finding(
            UNREADABLE,
            "error" if count > MOST_BAD * n else "warning",
            f"{share_told(count, n, 'line')} cannot be read: {reasons}.",
            f"If they are most of the file, it may be of another format (--format). {DROP}",
            count,
            tally.places.first(UNREADABLE),
        )
    explained, found = set(explained_rules(tally)), False
    for rule, (what, cure) in RULES.items():
        if counts[rule] and rule not in explained:
            hopeless = counts[rule] > MOST_BAD * n
            found |= hopeless
            told = f"{share_told(counts[rule], n, 'round')} {what}."
            yield Finding(rule, "error" if hopeless else "warning", told, cure, counts[rule], tally.places.first(rule))
    if tally.n_bad > MOST_BAD * n and not found and not explained:
        yield Finding(
            "mostly-bad",
            "error",
            f"{share_told(tally.n_bad, n, 'round')} break a rule of logs.",
            "What is left is no fair sample of what happened. Repair the log where it is written.",
            tally.n_bad,
        )


def explained_rules(tally: Tally) -> Iterator[str]:
    """Row rules that something else, which concerns the whole column, explains."""
    if percents(tally):
        yield "propensity-above-one"
    if rewards_not_arrived(tally):
        yield "reward-missing"


def percents(tally: Tally) -> bool:
    """Whether the propensities are percents."""
    return tally.n_percent > 0.5 * max(tally.n_stated, 1) and tally.places.counts["propensity-negative"] == 0


def rewards_not_arrived(tally: Tally) -> bool:
    """Whether rewards are missing at the end of the log, and next to nowhere else."""
    missing = tally.places.counts["reward-missing"]
    count = tally.slices.count
    if missing < 20 or count < 10:
        return False
    lost = tally.missing_rewards.values[0, :count] / tally.slices.lengths
    late = lost > 0.5
    start = int(late.argmax())
    # From some slice of the last third on nearly all are missing, and before it nearly none.
    return bool(late.any() and start >= 2 * count / 3 and late[start:].all() and lost[: max(start - 1, 1)].max() < 0.01)


def share_told(count: int, total: int, thing: str) -> str:
    """So many of so many."""
    if count == total:
        return f"All {total:,} {thing}s"
    share = count / max(total, 1)
    told = f"{share:.1%}" if 0.001 <= share <= 0.999 else f"{share:.2g}" if share < 0.0001 else f"{share:.2%}"
    return f"{count:,} of {total:,} {thing}s ({told})"
