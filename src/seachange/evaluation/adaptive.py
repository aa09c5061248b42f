"""What a policy that learns while it is deployed would have earned: replay, and the doubly robust evaluator DR-ns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import norm

from seachange.deploy.belief import BeliefDeployer
from seachange.errors import ParameterError
from seachange.evaluation.estimators import ValueEstimate
from seachange.evaluation.following import (
    Course,
    adaptive_acceptance,
    course_of,
    fixed_acceptance,
    follow,
    ratio_bounds,
)
from seachange.evaluation.time_blocks import fit_blocked_rewards
from seachange.kernels.adaptive import Followed
from seachange.log.bandit_log import BanditLog, require_rewards
from seachange.params import Auto, require, require_count
from seachange.protocols import Deployer, Floats

# Fewer accepted rounds than this make no deployment.
LEAST_ACCEPTED = 2
# The bound on ratios that is offered where the surest one leaves hardly a round: so many keep to it.
COMMON = 0.999
# How many times larger the surest bound must be for the other to be offered.
WORTH_BOUNDING = 3.0
# Share of a policy that may be missing from its history without a word.
WORTH_SAYING = 0.01

Method = Literal["replay", "dr-ns"]


@dataclass(frozen=True, kw_only=True)
class OnlineEstimate(ValueEstimate):
    """Mean reward a round that a deployment would earn which learns from its rewards."""

    acceptance_rate: float  # share of the log's rounds that the deployment lived through
    n_accepted: int  # how many those are: the length of the deployment that was judged
    notes: tuple[str, ...] = ()  # what to know before believing the value


def evaluate_online(
    log: BanditLog,
    deployer: Deployer,
    method: Method = "replay",
    *,
    bound: float | Auto = "auto",
    quantile: float = 0.001,
    highest_rate: float | Auto = "auto",
    repeats: int = 5,
    confidence: float = 0.95,
    seed: int = 0,
) -> OnlineEstimate:
    """Estimate what ``deployer`` would have earned a round, had it decided in the world of ``log``.

    Round t is accepted with probability min{1, c π_t(a_t | x_t) / p_t}, π_t the deployer's distribution after the
    rounds accepted so far; it is updated with accepted rounds only.

    replay  c = 1 / M; the mean reward of accepted rounds. ``bound`` is M: "auto" is the largest π / p that any belief
            could give on this log, so that accepted rounds are distributed as the deployment's own. A lower bound
            accepts more: rounds above it count π / (M p) times, and the beliefs they lead to are approximate.
    dr-ns   Σ_t c_t R_t / Σ_t c_t with R_t = Σ_a π_t(a | x_t) r̂(x_t, a) + π_t(a_t | x_t) / p_t (r_t - r̂(x_t, a_t)), over
            all rounds (Dudík, Erhan, Langford, Li 2012). c_t is the smaller of ``highest_rate`` (c_max) and the
            ``quantile`` (q) of the p / π seen so far, set anew after each accepted round: a higher q makes longer
            histories that are less exact. "auto" is the c that a first walk from c_max = 1 ends with; without it the
            first rounds, before ratios are known, are accepted too readily. r̂ is fitted on other blocks of time.

    The log is walked ``repeats`` times with other random numbers, and the values are averaged. The standard error is
    that of the log's rewards, given the beliefs, plus the spread of values between walks that rewards do not explain.
    Where the log has sequences each is a deployment of its own, which starts anew, and its rounds count together.
    """
    require(method in ("replay", "dr-ns"), f'method must be "replay" or "dr-ns"; got {method!r}.')
    require(bound == "auto" or 1 <= bound < np.inf, f'bound must be "auto" or a number from 1 on; got {bound}.')
    require(0 <= quantile < 1, f"quantile must be in [0, 1); got {quantile}.")
    require(
        highest_rate == "auto" or 0 < highest_rate < np.inf, f'highest_rate must be "auto" or positive: {highest_rate}.'
    )
    require_count("repeats", repeats)
    require(0 < confidence < 1, f"confidence must be between 0 and 1; got {confidence}.")
    require_rewards(log, "evaluating a deployment")
    if not isinstance(deployer, Deployer):
        raise ParameterError(
            f"evaluate_online judges a deployer, with init, act and update; got a {type(deployer).__name__}. "
            "A policy becomes one with SinglePolicy(policy), a model with model.deployer()."
        )
    course, seeds = course_of(log), np.random.SeedSequence(seed).generate_state(repeats + 1).tolist()
    if method == "replay":
        return _replay(log, deployer, course, seeds, bound, confidence)
    return _dr_ns(log, deployer, course, seeds, quantile, highest_rate, confidence)


def _replay(
    log: BanditLog, deployer: Deployer, course: Course, seeds: list[int], bound: float | Auto, confidence: float
) -> OnlineEstimate:
    ratios = ratio_bounds(log, deployer, course) if isinstance(deployer, BeliefDeployer) else 1 / log.propensities
    largest, common = max(float(ratios.max()), 1.0), max(float(np.quantile(ratios, COMMON)), 1.0)
    used = largest if bound == "auto" else bound
    walks, _ = follow(log, deployer, course, [fixed_acceptance(1 / used) for _ in seeds[1:]], seeds[1:])
    _require_accepted(
        walks, f"π / p may be as large as {used:.3g}; give bound={common:.3g}, which {COMMON:.1%} keep to"
    )
    propensities = course.along(log.propensities)
    counts = [walk.accepted * np.maximum(walk.chosen / (used * propensities), 1.0) for walk in walks]
    notes = _notes(log, walks, deployer)
    if bound == "auto" and used > WORTH_BOUNDING * common:
        notes.append(
            f"few rounds are accepted because a few π / p are large: up to {largest:.3g}, while {COMMON:.1%} are below "
            f"{common:.3g}. bound={common:.3g} accepts more, at the price of approximate beliefs."
        )
    if exceeded := float(
        np.mean([(count > 1 + 1e-9).sum() / walk.accepted.sum() for count, walk in zip(counts, walks, strict=True)])
    ):
        notes.append(
            f"{exceeded:.2%} of the accepted rounds had π / p above bound={used:.3g}: they count more, and the beliefs "
            "they led to are approximate."
        )
    terms = [course.along(log.rewards)] * len(walks)
    return _estimate("replay", terms, counts, counts, course, walks, notes, confidence)


def _dr_ns(
    log: BanditLog, deployer: Deployer, course: Course, seeds: list[int], quantile: float,
    highest_rate: float | Auto, confidence: float,
) -> OnlineEstimate:  # fmt: skip
    n, models = len(log), fit_blocked_rewards(log)
    if highest_rate == "auto":
        first = adaptive_acceptance(1.0, quantile, n)
        follow(log, deployer, course, [first], seeds[:1])
        highest_rate = float(first.rate[0])
    acceptances = [adaptive_acceptance(highest_rate, quantile, n) for _ in seeds[1:]]
    walks, modelled = follow(log, deployer, course, acceptances, seeds[1:], models)
    _require_accepted(walks, "raise quantile, which lets a few rounds count less than they should")
    weights = [walk.chosen / course.along(log.propensities) for walk in walks]
    surprises = course.along(log.rewards) - modelled
    terms = [walk.direct + weight * surprises for walk, weight in zip(walks, weights, strict=True)]
    rates = [walk.rates for walk in walks]
    notes = _notes(log, walks, deployer)
    lost = np.mean([np.maximum(c * w - 1, 0).sum() / c.sum() for c, w in zip(rates, weights, strict=True)])
    if lost > WORTH_SAYING:
        notes.append(
            f"{lost:.1%} of what the deployment would do is missing from its history, in actions that the log hardly "
            "took: its beliefs are approximate. quantile=0 keeps them exact, with fewer accepted rounds."
        )
    counted = [c * w for c, w in zip(rates, weights, strict=True)]
    return _estimate("dr-ns", terms, rates, counted, course, walks, notes, confidence)


def _estimate(
    name: str, terms: list[Floats], counts: list[Floats], weights: list[Floats], course: Course,
    walks: list[Followed], notes: list[str], confidence: float,
) -> OnlineEstimate:  # fmt: skip
    """The mean over walks of Σ_t count_t term_t / Σ_t count_t.

    One round moves walk i by e_ti = count_ti (term_ti - V_i) / Σ_t count_ti, and their mean by ē_t: the error that
    comes of rewards is √Σ ē_t². Walks that differed by rewards alone would have a variance of
    Σ_ti (e_ti - ē_t)² / (walks - 1); what they have more comes of beliefs. At worst both errors go the same way.
    """
    values = np.array([count @ term / count.sum() for count, term in zip(counts, terms, strict=True)])
    moves = np.stack([
        count * (term - value) / count.sum() for count, term, value in zip(counts, terms, values, strict=True)
    ])  # fmt: skip
    together = moves.mean(axis=0)
    of_rewards = np.sum(np.square(np.bincount(course.chains, together) if course.chains[-1] > 0 else together))
    of_beliefs = 0.0
    if len(walks) > 1:
        between, explained = values.var(ddof=1), np.sum(np.square(moves - together)) / (len(walks) - 1)
        of_beliefs = max(float(between - explained), 0.0)
    value, error = float(values.mean()), float(np.sqrt(of_rewards) + np.sqrt(of_beliefs))
    reach = float(norm.ppf(0.5 + confidence / 2))
    average = np.mean(weights, axis=0)
    taken = float(np.mean([walk.accepted.sum() for walk in walks]))
    return OnlineEstimate(
        estimator=name, value=value, std_error=error, low=value - reach * error, high=value + reach * error,
        effective_samples=float(average.sum() ** 2 / np.square(average).sum()),
        max_weight=float(max(weight.max() for weight in weights)), acceptance_rate=taken / len(terms[0]),
        n_accepted=round(taken), notes=tuple(notes),
    )  # fmt: skip


def _notes(log: BanditLog, walks: list[Followed], deployer: Deployer) -> list[str]:
    """What is true of any estimate by accepted rounds."""
    notes = []
    share = float(np.mean([walk.accepted.mean() for walk in walks]))
    if not isinstance(deployer, BeliefDeployer):
        notes.append(
            f"{type(deployer).__name__} was asked round by round, in Python: only deployers of ours are compiled."
        )
    if not (isinstance(deployer, BeliefDeployer) and len(deployer.initial_belief) == 1):
        notes.append(
            f"{share:.1%} of the rounds were accepted: the deployment lived through a thinned log, in which the world "
            f"changes {1 / share:.3g} times as fast for it. Where the world changes this is what a deployment with one "
            f"decision in {1 / share:.3g} rounds would earn, and a full one likely more."
        )
    if len(walks) == 1:
        notes.append("one walk says nothing of how much values differ with the beliefs: give repeats=2 or more.")
    return notes


def _require_accepted(walks: list[Followed], cure: str) -> None:
    fewest = min(int(walk.accepted.sum()) for walk in walks)
    if fewest < LEAST_ACCEPTED:
        raise ParameterError(
            f"a deployment needs at least {LEAST_ACCEPTED} accepted rounds of the log; it got {fewest} of "
            f"{len(walks[0].accepted)}: {cure}."
        )
