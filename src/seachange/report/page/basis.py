"""Which rounds the numbers of a page are of, and whose policies: the model's own, or one learned again."""

from __future__ import annotations

from dataclasses import dataclass

from seachange.report.findings import Findings
from seachange.report.ground import LEARNED_SHARE, LOOKS_BETTER
from seachange.report.tables import count_of


@dataclass(frozen=True)
class Basis:
    """What the numbers of a page stand on."""

    title: str
    told: str
    of_values: str = ""  # for the parts about values, where the model may have seen the log
    of_states: str = ""  # for the parts about states and policies


def basis_of(findings: Findings) -> Basis | None:
    """Held-out rounds, or new ones; None where there is no ground for values."""
    judging, n = findings.judging, findings.origin.n_rounds
    if judging.kind is None:
        return None
    everything = f"Of all {n:,} rounds, with the model itself."
    if judging.kind == "unseen":
        return Basis("New rounds", f"{_unseen(findings)}{_learned_elsewhere(findings)}{_led(findings)}")
    last = f"the last {count_of(judging.n_rounds, 'round')}"
    span = f"Of rounds {judging.first_round:,} to {n - 1:,}, which were held out"
    seen = judging.overlap or "the log begins with the rounds that the model was learned from"
    why = f"{seen[0].upper()}{seen[1:]}, and {LOOKS_BETTER}."
    if judging.kind == "rest":
        told = f"{why} So the values are of {last} alone, which the model has not seen."
        told += f"{_learned_elsewhere(findings)} States, and what each policy does, are told of the whole log."
        return Basis("Held-out rounds", f"{told}{_led(findings)}", f"{span}.", everything)
    told = (
        f"{why} So no value here, neither over time nor in the diagnostics, is of this model's own policies: they are "
        f"of policies learned again, in the same way, from the first {count_of(judging.first_round, 'round')} "
        f"({LEARNED_SHARE:.0%}), and judged on {last}, which they have not seen. The states, and what each policy "
        "does, are this model's own, on the whole log."
    )
    of_values = f"{span}, with policies learned again from those before."
    return Basis("Held-out rounds, policies learned again", f"{told}{_led(findings)}", of_values, everything)


def _unseen(findings: Findings) -> str:
    judging, rounds = findings.judging, count_of(findings.judging.n_rounds, "round")
    if not judging.told:
        return (
            f"Whether the model learned from any of these {rounds} cannot be told: they have no times and are too much "
            "alike. They are taken for new."
        )
    by = "times and contents" if findings.states.axis.timed else "contents"
    which = "this one round" if judging.n_rounds == 1 else f"any of these {rounds}"
    return f"By its {by}, the log is new to the model, which has not learned from {which}."


def _learned_elsewhere(findings: Findings) -> str:
    """How the policy without states came about, where the model has none."""
    answer = findings.answer
    if answer is None or not any(each.estimate and "without states" in each.name for each in answer.singles):
        return ""
    return (
        " Only the single policy without states was learned here: each block of the rounds is judged by one that was "
        "learned from the other blocks."
    )


def _led(findings: Findings) -> str:
    """How switching was judged where its states are not known in time."""
    estimate = None if findings.answer is None else findings.answer.switching.estimate
    if estimate is None or estimate.estimator != "dr-ns":
        return ""
    return (
        " States of this kind are found with the help of rewards, later ones too; so the deployment itself, which has "
        "only earlier ones, was led along the log (by dr-ns)."
    )
