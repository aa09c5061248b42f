"""What the page says, in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from seachange.evaluation.differences import Difference
from seachange.evaluation.value_estimate import ValueEstimate
from seachange.log.bandit_log import PROPENSITY_CURE
from seachange.report.answer import Answer
from seachange.report.findings import SURE, Findings
from seachange.report.tables import count_of

# What only those who call functions can do is not said to those who read a page.
FORCED = re.compile(r"\s*force=True gives the numbers? all the same\.")
# How notes begin that refuse the value of one state.
NO_VALUE = re.compile(r"^(state \d+): no value: ")
MINUS = "−"
MOST_DECIMALS = 6


class Numbers:
    """Numbers with as many decimals as their usual standard error has to its first figure, or second if that is low."""

    def __init__(self, errors: Iterable[float], values: Iterable[float] = ()) -> None:
        sizes = [error for error in errors if 0 < error < np.inf]
        sizes = sizes or [abs(value) / 100 for value in values if value and np.isfinite(value)]

        self.decimals = int(np.clip(-np.floor(np.log10(np.median(sizes) / 3)), 0, MOST_DECIMALS)) if sizes else 3

    def say(self, value: float, sign: bool = False) -> str:
        """A number, with a real minus."""
        if not np.isfinite(value):
            return "∞" if value > 0 else f"{MINUS}∞" if value < 0 else "–"
        return f"{value:{'+' if sign else ''}z,.{self.decimals}f}".replace("-", MINUS)

    def interval(self, found: ValueEstimate | Difference, sign: bool = False) -> str:
        """From low to high, or that there is none."""
        if np.isinf(found.low) and np.isinf(found.high):
            return "no interval"
        return f"{self.say(found.low, sign)} to {self.say(found.high, sign)}"


def numbers_of(answer: Answer) -> Numbers:
    """For all values of an answer."""
    judged = (answer.switching, answer.logging, *answer.singles)
    estimates = [each.estimate for each in judged if each.estimate is not None]
    return Numbers((each.std_error for each in estimates), (each.value for each in estimates))


def share_told(share: float, decimals: int = 0) -> str:
    """A share in percent, which never says none or all where it is not quite."""
    least, rounded = 10.0 ** -(decimals + 2), round(share, decimals + 2)
    if rounded == 0 and share > 0:
        return f"less than {least:.{decimals}%}"
    if rounded == 1 and share < 1:
        return f"more than {1 - least:.{decimals}%}"
    return f"{share:.{decimals}%}"


def headline(findings: Findings) -> list[str]:
    """The answer, in one or two sentences."""
    answer = findings.answer
    if answer is None:
        return ["What this model would earn can't be said from this log."]
    say, estimate = numbers_of(answer), answer.switching.estimate
    n_states = findings.states.n_states
    if estimate is None:
        what = "switching" if n_states > 1 else "this policy"
        return [f"What {what} would earn can't be said from this log."]
    who = f"Switching between {n_states} policies" if n_states > 1 else "This policy"
    interval = f"{estimate.confidence:.0%} interval {say.interval(estimate)}"
    first = f"{who} would earn {say.say(estimate.value)} a round ({interval})."
    over = ((answer.over_logging, "the logging policy earned"), (answer.over_single, "the best single policy would"))
    apart = [_apart(each, than, say) for each, than in over if each is not None and each.told_apart]
    alike = [_alike(each, than, say) for each, than in over if each is not None and not each.told_apart]
    if alike:
        apart.append(f"not clearly more or less than {' or than '.join(alike)}")
    return [first, f"That is {' and '.join(apart)}."] if apart else [first]


def refusal_of(findings: Findings) -> str | None:
    """Why the model has no value, where it has none."""
    refusal = findings.judging.refusal if findings.answer is None else findings.answer.switching.refusal
    return None if refusal is None else refusal_told(refusal)


def refusal_told(refusal: str | None) -> str:
    """A refusal in the words of a page, with its cure."""
    return said_on_page((refusal or "").removeprefix("no value: ").removeprefix("no forecast: "))


def refused_as_well(refusal: str | None, main: str | None) -> str | None:
    """A further refusal; None where it is that of the model itself, which is not said again."""
    told = refusal_told(refusal)
    alike = main is not None and (told == main or all("needs the propensities" in each for each in (told, main)))
    return None if alike or not refusal else told


def said_on_page(text: str) -> str:
    """A message as a sentence of the page, with the options of commands for those of functions."""
    told = NO_VALUE.sub(r"no value in the rounds of \1: ", FORCED.sub("", text).strip())
    told = told.replace(PROPENSITY_CURE, "--columns propensity=…, or estimate them: --estimate-propensities")
    told = told.replace('interval="bootstrap"', "seachange evaluate --interval bootstrap")
    told = told[:1].upper() + told[1:]
    return told if told.endswith(".") else f"{told}."


def moment_told(moment: str) -> str:
    """A time as it is stored, without what says nothing."""
    return re.sub(r"\.0+$", "", re.sub(r"(?<=\d)T(?=\d)", " ", moment))


def state_told(found: Findings) -> str:
    """What states there are, where they change, and how clear that is."""
    states = found.states
    by = {"hmm": ", found by a hidden Markov model", "change-point": ", found by change-points"}.get(states.oracle, "")
    rounds = count_of(states.n_rounds, "round")
    if states.n_states == 1:
        return "The model has one state: it has one policy, and never switches."
    if len(states.in_use) == 1:
        told = f"The model has {states.n_states} states, and this log shows one of them: state {states.in_use[0]}{by}."
    else:
        missing = states.n_states - len(states.in_use)
        some = (
            f"{len(states.in_use)} of the model's {states.n_states} states" if missing else f"{states.n_states} states"
        )
        changes = "" if states.n_chains > 1 else f" and {count_of(len(states.change_points), 'change')}"
        told = f"{some}{changes} in {rounds}{by}."
    if states.clock is not None and states.clock.followed:
        told = f"{told} {states.clock}"
    if found.sure_share is None:
        return told
    share = share_told(found.sure_share) if found.sure_share else "none"
    return f"{told} The state is clear, with a probability of {SURE:.0%} or more, in {share} of the rounds."


def _apart(difference: Difference, than: str, say: Numbers) -> str:
    more, own = "more" if difference.value > 0 else "less", _numbers_for(difference, say)
    return f"{own.say(abs(difference.value))} {more} than {than} ({own.interval(difference, sign=True)})"


def _alike(difference: Difference, than: str, say: Numbers) -> str:
    own = _numbers_for(difference, say)
    return f"{than} ({own.say(difference.value, sign=True)}; {own.interval(difference, sign=True)})"


def _numbers_for(difference: Difference, say: Numbers) -> Numbers:
    """Decimals of a difference: those of the values, and as many more as its nearer end has to differ from nothing."""
    own = Numbers([difference.std_error])
    own.decimals = max(own.decimals, say.decimals)
    nearer = min(abs(difference.low), abs(difference.high))
    while difference.told_apart and own.decimals < MOST_DECIMALS and round(nearer, own.decimals) == 0:
        own.decimals += 1
    return own
