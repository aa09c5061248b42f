"""What a policy that learns while it is deployed would have earned: replay, and the doubly robust evaluator DR-ns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import t as student

from seachange.deploy.belief import BeliefDeployer
from seachange.errors import ParameterError
from seachange.evaluation.cross_fitting import FOLDS, fit_across
from seachange.evaluation.deployment_support import Offer, deployment_diagnostics, readier
from seachange.evaluation.diagnostics import require_sound
from seachange.evaluation.following import adaptive_acceptance, fixed_acceptance, follow, in_sequence, ratio_bounds
from seachange.evaluation.support import effective_samples
from seachange.evaluation.value_estimate import FEWEST, ValueEstimate
from seachange.kernels.adaptive import Followed
from seachange.log.bandit_log import BanditLog, require_propensities, require_rewards
from seachange.log.clusters import Clusters
from seachange.params import Auto, require, require_count
from seachange.protocols import Deployer, Floats

# The bound on ratios that is offered where the surest one leaves hardly a round: so many keep to it.
COMMON = 0.999
# How many times larger the surest bound must be for the other to be offered.
WORTH_BOUNDING = 3.0
# Ratios that exceed their bound by less do not.
ROUNDING = 1e-9
# Share of a policy that may be missing from its history without a word.
WORTH_SAYING = 0.01

Method = Literal["replay", "dr-ns"]


@dataclass(frozen=True, kw_only=True, repr=False)
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
    force: bool = False,
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
            ``quantile`` (q) of the p / π of earlier rounds: a higher q makes longer histories that are less exact.
            "auto" is the c that a first walk from c_max = 1 ends with; without it the first rounds, before ratios are
            known, are accepted too readily. r̂ is fitted on other blocks of time.

    The log is walked ``repeats`` times with other random numbers, and the values are averaged. The standard error is
    that of the log's rewards, given the beliefs, plus the spread of values between walks that rewards do not explain.
    Where the log has sequences each is a deployment of its own, which starts anew, and its rounds count together.

    Raises ``RefusedError`` where fewer than 30 rounds were accepted or the log cannot support what the deployment would
    do; ``force`` answers all the same, with a warning, of at least 2.
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
    require_propensities(log, "evaluating a deployment")
    if not isinstance(deployer, Deployer):
        raise ParameterError(
            f"evaluate_online judges a deployer, with init, act and update; got a {type(deployer).__name__}. "
            "A policy becomes one with SinglePolicy(policy), a model with model.deployer()."
        )
    log, seeds = in_sequence(log), np.random.SeedSequence(seed).generate_state(repeats + 1).tolist()
    if method == "replay":
        return _replay(log, deployer, seeds[1:], bound, confidence, force)
    return _dr_ns(log, deployer, seeds, quantile, highest_rate, confidence, force)


def _replay(
    log: BanditLog, deployer: Deployer, seeds: list[int], bound: float | Auto, confidence: float, force: bool
) -> OnlineEstimate:
    ratios = ratio_bounds(log, deployer)
    # No mean of two ratios: one of them may be the one in a thousand.
    common = max(float(np.quantile(ratios, COMMON, method="lower")), 1.0)
    largest = max(float(ratios.max()), 1.0)
    used = largest if bound == "auto" else bound
    walks, _ = follow(log, deployer, [fixed_acceptance(1 / used) for _ in seeds], seeds)
    lower = [Offer(f"bound={common:.3g}, which {COMMON:.1%} of π / p keep to", 1 / common)] if common < used else []
    require_sound(deployment_diagnostics(log, walks, lower), force)
    counts = [np.where(w.accepted, np.maximum(w.chosen / (used * log.propensities), 1.0), 0.0) for w in walks]
    notes = _notes(walks, deployer)
    if bound == "auto" and used > WORTH_BOUNDING * common:
        notes.append(
            f"few rounds are accepted because a few π / p are large: up to {largest:.3g}, while {COMMON:.1%} are below "
            f"{common:.3g}. bound={common:.3g} accepts more, at the price of approximate beliefs."
        )
    exceeded = sum(int((count > 1 + ROUNDING).sum()) for count in counts) / sum(int(w.accepted.sum()) for w in walks)
    if exceeded > 0:
        notes.append(
            f"{exceeded:.2%} of the accepted rounds had π / p above bound={used:.3g}: they count more, and the beliefs "
            "they led to are approximate."
        )
    return _estimate("replay", log, [log.rewards] * len(walks), counts, counts, walks, notes, confidence)


def _dr_ns(
    log: BanditLog, deployer: Deployer, seeds: list[int], quantile: float, highest_rate: float | Auto,
    confidence: float, force: bool,
) -> OnlineEstimate:  # fmt: skip
    given = np.inf if highest_rate == "auto" else highest_rate
    if highest_rate == "auto":
        first = adaptive_acceptance(1.0, quantile, len(log))
        follow(log, deployer, [first], seeds[:1])
        highest_rate = float(first.rate[0])
    acceptances = [adaptive_acceptance(highest_rate, quantile, len(log)) for _ in seeds[1:]]
    models = fit_across(log, np.ones((len(log), 1)), Clusters(log).folds(FOLDS))
    walks, modelled = follow(log, deployer, acceptances, seeds[1:], models)
    weights = [walk.chosen / log.propensities for walk in walks]
    require_sound(deployment_diagnostics(log, walks, readier(weights, quantile, given)), force)
    terms = [walk.direct + w * (log.rewards - modelled) for walk, w in zip(walks, weights, strict=True)]
    rates = [walk.rates for walk in walks]
    notes = _notes(walks, deployer)
    lost = np.mean([np.maximum(c * w - 1, 0).sum() / c.sum() for c, w in zip(rates, weights, strict=True)])
    if lost > WORTH_SAYING:
        notes.append(
            f"{lost:.1%} of what the deployment would do is missing from its history, in actions that the log hardly "
            "took: its beliefs are approximate. quantile=0 keeps them exact, with fewer accepted rounds."
        )
    return _estimate("dr-ns", log, terms, rates, weights, walks, notes, confidence)


def _estimate(
    name: str, log: BanditLog, terms: list[Floats], counts: list[Floats], weights: list[Floats],
    walks: list[Followed], notes: list[str], confidence: float,
) -> OnlineEstimate:  # fmt: skip
    """The mean over walks of Σ_t count_t term_t / Σ_t count_t.

    One round moves walk i by e_ti = count_ti (term_ti - V_i) / Σ_t count_ti, and their mean by ē_t: the error that
    comes of rewards is √Σ ē_t². Walks that differed by rewards alone would have a variance of
    Σ_ti (e_ti - ē_t)² / (walks - 1); what they have more comes of beliefs. At worst both errors go the same way.
    """
    clusters, together, squares = Clusters(log), np.zeros(len(log)), 0.0
    values = np.array([count @ term / count.sum() for count, term in zip(counts, terms, strict=True)])
    for count, term, value in zip(counts, terms, values, strict=True):
        moves = count * (term - value) / count.sum()
        together += moves / len(walks)
        squares += float(moves @ moves)
    of_beliefs = 0.0
    if len(walks) > 1:
        explained = (squares - len(walks) * float(together @ together)) / (len(walks) - 1)
        of_beliefs = max(float(values.var(ddof=1)) - explained, 0.0)
    taken = float(np.mean([walk.accepted.sum() for walk in walks]))
    # One sequence cannot be compared with others: its rounds are taken as they are in a log without sequences.
    sums = clusters.sums(together) if len(clusters.sizes) > 1 else together
    degrees = min(len(sums), taken) - 1
    of_rewards = float(sums @ sums) * (degrees + 1) / degrees
    value, effective = float(values.mean()), effective_samples(np.mean(weights, axis=0))
    error = float(np.sqrt(of_rewards) + np.sqrt(of_beliefs)) if effective >= FEWEST else np.inf
    reach = float(student.ppf(0.5 + confidence / 2, degrees)) * error
    return OnlineEstimate(
        estimator=name,
        value=value,
        std_error=error,
        low=value - reach,
        high=value + reach,
        effective_samples=effective,
        max_weight=float(max(weight.max() for weight in weights)),
        confidence=confidence,
        acceptance_rate=taken / len(log),
        n_accepted=round(taken),
        notes=tuple(notes),
    )


def _notes(walks: list[Followed], deployer: Deployer) -> list[str]:
    """What is true of any estimate by accepted rounds."""
    notes, share = [], float(np.mean([walk.accepted.mean() for walk in walks]))
    if not isinstance(deployer, BeliefDeployer):
        name = type(deployer).__name__
        notes.append(f"{name} was asked round by round, in Python: only deployers that hold a belief are compiled.")
    if not (isinstance(deployer, BeliefDeployer) and len(deployer.initial_belief) == 1):
        notes.append(
            f"{share:.1%} of the rounds were accepted: the deployment lived through a thinned log, in which the world "
            f"changes {1 / share:.3g} times as fast for it. Where the world changes, this is what a deployment that "
            f"decides in one of {1 / share:.3g} rounds would earn; one that decides in all has more time to adapt."
        )
    if len(walks) == 1:
        notes.append("one walk does not tell how values differ with beliefs: the interval wants repeats=2 or more.")
    return notes
