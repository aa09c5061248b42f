"""What the page says, in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from seachange.evaluation.differences import Difference
from seachange.evaluation.value_estimate import ValueEstimate
from seachange.log.bandit_log import PROPENSITY_CURE
from seachange.report.answer import Answer
from seachange.report.findings import Findings, Judging
from seachange.report.ground import LEARNED_SHARE
from seachange.report.tables import count_of

# What only those who call functions can do is not said to those who read a page.
FORCED = re.compile(r"\s*force=True gives the numbers? all the same\.")
MINUS = "−"


class Numbers:
    """Numbers with as many decimals as their usual standard error has to its first figure, or second if that is low."""

    def __init__(self, errors: Iterable[float], values: Iterable[float] = ()) -> None:
        sizes = [error for error in errors if 0 < error < np.inf]
        sizes = sizes or [abs(value) / 100 for value in values if value and np.isfinite(value)]

        self.decimals = int(np.clip(-np.floor(np.log10(np.median(sizes) / 3)), 0, 6)) if sizes else 3

    def say(self, value: float, sign: bool = False) -> str:
        """A number, with a real minus."""
        if not np.isfinite(value):
            return "∞" if value > 0 else f"{MINUS}∞" if value < 0 else "–"
        return f"{value:{'+' if sign else ''}z,.{self.decimals}f}".replace("-", MINUS)

    def interval(self, found: ValueEstimate | Difference, sign: bool = False) -> str:
        """From low to high."""
        return f"{self.say(found.low, sign)} to {self.say(found.high, sign)}"


def numbers_of(answer: Answer) -> Numbers:
    """For all values of an answer."""
    judged = (answer.switching, answer.logging, *answer.singles)
    estimates = [each.estimate for each in judged if each.estimate is not None]
    return Numbers((each.std_error for each in estimates), (each.value for each in estimates))


def headline(findings: Findings) -> list[str]:
    """The answer, in one or two sentences."""
    answer = findings.answer
    if answer is None:
        return [f"What this model would earn can't be said: {refusal_told(findings.judging.refusal)}"]
    say, estimate = numbers_of(answer), answer.switching.estimate
    n_states = findings.states.n_states
    if estimate is None:
        what = "switching" if n_states > 1 else "this policy"
        return [f"What {what} would earn can't be said from this log."]
    who = f"Switching between {n_states} policies" if n_states > 1 else "This policy"
    interval = f"{estimate.confidence:.0%} interval {say.interval(estimate)}"
    first = f"{who} would earn {say.say(estimate.value)} a round ({interval})."
    parts = []
    if answer.over_logging is not None:
        parts.append(_compared(answer.over_logging, "the logging policy earned", say))
    if answer.over_single is not None:
        parts.append(_compared(answer.over_single, "the best single policy would", say))
    return [first, f"That is {' and '.join(parts)}."] if parts else [first]


def refusal_told(refusal: str | None) -> str:
    """A refusal in the words of a page, with its cure."""
    return said_on_page(FORCED.sub("", refusal or "").removeprefix("no value: ").removeprefix("no forecast: "))


def said_on_page(text: str) -> str:
    """A message as a sentence of the page, with the options of commands for those of functions."""
    told = text.strip().replace(PROPENSITY_CURE, "--columns propensity=…, or estimate them: --estimate-propensities")
    told = told.replace('interval="bootstrap"', "seachange evaluate --interval bootstrap")
    told = told[:1].upper() + told[1:]
    return told if told.endswith(".") else f"{told}."


def ground_told(findings: Findings) -> str:
    """Which rounds the values are of, and how switching was judged where its states are not known in time."""
    told, estimate = _rounds_told(findings.judging), findings.answer.switching.estimate if findings.answer else None
    if estimate is not None and estimate.estimator == "dr-ns":
        told += (
            " States of this kind are found with the help of rewards, later ones too; so the deployment itself, which "
            "has only earlier ones, was led along the log (by dr-ns)."
        )
    return told


def _rounds_told(judging: Judging) -> str:
    rounds = count_of(judging.n_rounds, "round")
    if judging.kind == "held out":
        return (
            f"{_sentence(judging.overlap)}, and nothing should be judged on what it learned from. These are "
            f"the figures of a model learned in the same way from the first {LEARNED_SHARE:.0%} of the rounds, judged "
            f"on the last {rounds}."
        )
    if judging.kind == "rest":
        why = judging.overlap or "the log begins with the rounds that the model was learned from"
        return f"Judged on the last {rounds}, which the model has not seen: {why}."
    if judging.kind == "unseen":
        if not judging.told:
            return (
                f"Judged on all {rounds}. Whether the model learned from any of them cannot be told: they have no "
                "times and are too much alike."
            )
        return f"Judged on all {rounds}; by their times and contents, the model learned from none of them."
    return ""


def _sentence(text: str | None) -> str:
    return text[0].upper() + text[1:] if text else "The model was learned from these rounds"


def _compared(difference: Difference, than: str, say: Numbers) -> str:
    interval = say.interval(difference, sign=True)
    if not difference.told_apart:
        return f"not clearly different from what {than} ({say.say(difference.value, sign=True)}; {interval})"
    more = "more" if difference.value > 0 else "less"
    return f"{say.say(abs(difference.value))} {more} than {than} ({interval})"
