"""What the ground is like that the values stand on: a verdict on each part of it, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from seachange.evaluation.diagnostics import DOMINANT, LEAST_EFFECTIVE, MOST_MISSING, SURPRISING, Diagnostics
from seachange.report.findings import SURE, Findings
from seachange.report.page.wording import MINUS, share_told
from seachange.report.tables import count_of

Mark = Literal["sound", "with care", "not sound"]
# So many times the least number of effective rounds are plenty: the standard error is known to one in twenty-five.
PLENTY = 10
# Shares of choices that two policies have in common: much, and hardly any.
COMMON, RARE = 0.2, 0.05
# Share of rounds whose state is clear where states are clear on the whole.
CLEAR = 0.8
# More standard errors than these are no number that anybody reads.
FAR = 100


@dataclass(frozen=True)
class Verdict:
    """What one figure says of the ground."""

    mark: Mark
    name: str
    told: str


def verdicts_of(findings: Findings) -> list[Verdict]:
    """All verdicts, in the order in which one would ask."""
    found = None if findings.answer is None else findings.answer.diagnostics
    return [
        *(_weights(found, findings.judging.first_round) if found is not None else []),
        *_of_log(findings),
        *_of_states(findings),
    ]


def _weights(found: Diagnostics, first_round: int) -> list[Verdict]:
    row, weight = found.largest_weights[0]
    heaviest = weight / max(found.n_rounds * found.mean_weight, 1e-300)
    dominates = "no round dominates" if heaviest <= DOMINANT else "the estimate hangs on it"
    largest = f"It is {weight:,.3g}, of round {first_round + row:,}, and {share_told(heaviest, 1)} of all weight"
    missing = max(found.unsupported_mass or 0.0, found.unseen_mass)
    off = abs(found.mean_weight - 1)
    explained = abs(found.mean_weight_z) <= SURPRISING
    errors = f"{found.mean_weight_z:+.1f}".replace("-", MINUS) if abs(found.mean_weight_z) < FAR else f"over {FAR}"
    return [
        Verdict(
            _mark(found.effective_samples >= PLENTY * LEAST_EFFECTIVE, found.effective_samples >= LEAST_EFFECTIVE),
            "Effective sample size",
            f"Of {count_of(found.n_rounds, 'round')}, {found.effective_samples:,.0f} in effect speak for this policy "
            f"({share_told(found.effective_share, 1)}); no value is given below {LEAST_EFFECTIVE:.0f}.",
        ),
        Verdict(
            _mark(found.overlap >= COMMON, found.overlap >= RARE),
            "Overlap",
            f"The policy and the one that logged make the same choice in {share_told(found.overlap)} of rounds.",
        ),
        Verdict(
            _mark(0 < heaviest <= DOMINANT, 0 < heaviest <= 0.5),
            "Largest weight",
            f"{largest}: {dominates}." if weight > 0 else "It is 0: no round speaks for this policy.",
        ),
        Verdict(
            _mark(explained, off <= MOST_MISSING),
            "Mean weight",
            f"Weights average {found.mean_weight:.3f}, {errors} standard errors from 1: "
            f"{'the propensities agree with what the log took' if explained else 'chance does not explain it'}.",
        ),
        Verdict(
            _mark(missing == 0, missing <= MOST_MISSING),
            "Support",
            "The log took every action that the policy would."
            if missing == 0
            else f"In {share_told(missing, 1)} of rounds the policy would take what the log never or could not take.",
        ),
    ]


def _of_log(findings: Findings) -> list[Verdict]:
    origin = findings.origin
    told: dict[str, tuple[Mark, str]] = {
        "logged": ("sound", "The log says how likely each of its choices was."),
        "estimated": (
            "with care",
            "Nobody wrote them down: they are estimates. Values are as right as they are, and no interval counts that.",
        ),
        "unknown": ("not sound", "The log has none, and no value can be had without them: --estimate-propensities."),
    }
    mark, sentence = told[origin.propensity_source]
    found = [Verdict(mark, "Propensities", sentence)]
    if origin.n_dropped:
        rows = count_of(origin.n_dropped, "row")
        found.append(Verdict("with care", "Rows left out", f"{rows} broke a rule of logs and were left out."))
    return found


def _of_states(findings: Findings) -> list[Verdict]:
    share = findings.sure_share
    if share is None or findings.states.n_states == 1:
        return []
    told = f"The likeliest state has a probability of {SURE:.0%} or more in {share_told(share, 1)} of the rounds."
    return [Verdict(_mark(share >= CLEAR, share >= 0.5), "Clear states", told)]


def _mark(sound: bool, usable: bool) -> Mark:
    return "sound" if sound else "with care" if usable else "not sound"
