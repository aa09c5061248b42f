"""The value of a deployment that learns, estimated by replaying it on a log (replay, DR-ns)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from scipy.stats import t as student

from seachange.deploy.belief_deployer import BeliefDeployer
from seachange.errors import ParameterError
from seachange.evaluation.diagnostics import (
    LEAST_EFFECTIVE,
    Diagnostics,
    NoEstimateError,
    Reason,
    diagnostics_of,
    require_sound,
)
from seachange.evaluation.log_replay import adaptive_acceptance, fixed_acceptance, follow, in_sequence, ratio_bounds
from seachange.evaluation.support import Support, effective_samples
from seachange.evaluation.terms import FOLDS, fit_across
from seachange.evaluation.value_estimate import FEWEST, ValueEstimate
from seachange.kernels.replay_steps import Followed
from seachange.log.bandit_log import BanditLog, require_propensities, require_rewards
from seachange.log.clusters import Clusters
from seachange.params import Auto, require, require_count
from seachange.protocols import Deployer, Floats

# The smallest number of accepted rounds, as for effective rounds.
LEAST_ACCEPTED = int(LEAST_EFFECTIVE)
# Quantiles to suggest if too few rounds are accepted.
QUANTILES = (0.001, 0.01, 0.05, 0.1)
# A suggested setting must be expected to accept this many times the minimum, because replays vary.
MARGIN = 1.5
# Actions listed in a message, at most.
MOST_LISTED = 5
# The bound on ratios to suggest if the strict one accepts few rounds: this share of ratios is below it.
COMMON = 0.999
# How many times larger the strict bound must be for the other to be suggested.
WORTH_BOUNDING = 3.0
# Ratios that exceed their bound by less than this count as equal.
ROUNDING = 1e-9
# Share of a policy that may be missing from its history without a note.
NOTABLE_LOSS = 0.01

Method = Literal["replay", "dr-ns"]


@dataclass(frozen=True, kw_only=True, repr=False)
class OnlineEstimate(ValueEstimate):
    """Mean reward per round of a deployment that learns from its rewards."""

    acceptance_rate: float  # share of the log's rounds that the deployment was updated with
    n_accepted: int  # how many those are: the length of the deployment that was evaluated
    notes: tuple[str, ...] = ()  # caveats


class Setting(NamedTuple):
    """A setting that would accept more rounds, and the c it leads to."""

    text: str
    rate: float


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
    """Estimate what ``deployer`` would have earned per round, had it made the decisions in ``log``.

    Round t is accepted with probability min{1, c π_t(a_t | x_t) / p_t}, where π_t is the deployer's distribution after
    the rounds accepted so far. Only accepted rounds update the deployer.

    replay  c = 1 / M; the mean reward of accepted rounds. ``bound`` is M: "auto" is the largest π / p under any belief,
            so that accepted rounds are distributed exactly as in a deployment. A lower bound accepts more: rounds above
            it count π / (M p) times, and the beliefs they lead to are approximate.
    dr-ns   Σ_t c_t R_t / Σ_t c_t with R_t = Σ_a π_t(a | x_t) r̂(x_t, a) + π_t(a_t | x_t) / p_t (r_t - r̂(x_t, a_t)), over
            all rounds (Dudík, Erhan, Langford, Li 2012). c_t is the smaller of ``highest_rate`` (c_max) and the
            ``quantile`` (q) of p / π in earlier rounds: a higher q gives longer but less exact histories. "auto" is the
            final c of a first replay with c_max = 1; without it, the first rounds, before any ratios are known, are
            accepted too often. r̂ is fitted on other blocks of time.

    The log is replayed ``repeats`` times with different random numbers, and the values are averaged. The standard error
    combines the noise of the rewards, given the beliefs, with the spread between replays that rewards do not explain.
    If the log has sequences, each is a separate deployment and a cluster of rounds.

    Raises ``RefusedError`` if fewer than 30 rounds are accepted or the log cannot support the deployment's decisions;
    ``force`` returns an estimate anyway, with a warning, if at least 2 rounds are accepted.
    """
    require(method in ("replay", "dr-ns"), f'method must be "replay" or "dr-ns"; got {method!r}.')
    require(bound == "auto" or 1 <= bound < np.inf, f'bound must be "auto" or a number of at least 1; got {bound}.')
    require(0 <= quantile < 1, f"quantile must be in [0, 1); got {quantile}.")
    require(
        highest_rate == "auto" or 0 < highest_rate < np.inf,
        f'highest_rate must be "auto" or positive; got {highest_rate}.',
    )
    require_count("repeats", repeats)
    require(0 < confidence < 1, f"confidence must be between 0 and 1; got {confidence}.")
    require_rewards(log, "evaluating a deployment")
    require_propensities(log, "evaluating a deployment")
    if not isinstance(deployer, Deployer):
        raise ParameterError(
            f"evaluate_online needs a deployer with init, act and update; got a {type(deployer).__name__}. "
            "Wrap a policy in SinglePolicy(policy), or call model.deployer()."
        )
    log, seeds = in_sequence(log), np.random.SeedSequence(seed).generate_state(repeats + 1).tolist()
    if method == "replay":
        return _replay(log, deployer, seeds[1:], bound, confidence, force)
    return _dr_ns(log, deployer, seeds, quantile, highest_rate, confidence, force)


def _replay(
    log: BanditLog, deployer: Deployer, seeds: list[int], bound: float | Auto, confidence: float, force: bool
) -> OnlineEstimate:
    ratios = ratio_bounds(log, deployer)
    # An observed ratio, not an interpolation, which might mix in an extreme one.
    common = max(float(np.quantile(ratios, COMMON, method="lower")), 1.0)
    largest = max(float(ratios.max()), 1.0)
    used = largest if bound == "auto" else bound
    replays, _ = follow(log, deployer, [fixed_acceptance(1 / used) for _ in seeds], seeds)
    text = f"pass bound={common:.3g} ({COMMON:.1%} of π / p are below it)"
    lower = [Setting(text, 1 / common)] if common < used else []
    require_sound(_diagnostics(log, replays, lower), force)
    counts = [np.where(r.accepted, np.maximum(r.chosen / (used * log.propensities), 1.0), 0.0) for r in replays]
    notes = _notes(replays, deployer)
    if bound == "auto" and used > WORTH_BOUNDING * common:
        notes.append(
            f"Few rounds are accepted because a few π / p are large: up to {largest:.3g}, while {COMMON:.1%} are below "
            f"{common:.3g}. bound={common:.3g} accepts more rounds, but makes beliefs approximate."
        )
    exceeded = sum(int((count > 1 + ROUNDING).sum()) for count in counts) / sum(int(r.accepted.sum()) for r in replays)
    if exceeded > 0:
        notes.append(
            f"{exceeded:.2%} of the accepted rounds have π / p above bound={used:.3g}; they count more than once, and "
            "the beliefs after them are approximate."
        )
    return _estimate("replay", log, [log.rewards] * len(replays), counts, counts, replays, notes, confidence)


def _dr_ns(
    log: BanditLog, deployer: Deployer, seeds: list[int], quantile: float, highest_rate: float | Auto,
    confidence: float, force: bool,
) -> OnlineEstimate:  # fmt: skip
    limit = np.inf if highest_rate == "auto" else highest_rate
    if highest_rate == "auto":
        first = adaptive_acceptance(1.0, quantile, len(log))
        follow(log, deployer, [first], seeds[:1])
        highest_rate = float(first.rate[0])
    acceptances = [adaptive_acceptance(highest_rate, quantile, len(log)) for _ in seeds[1:]]
    models = fit_across(log, np.ones((len(log), 1)), Clusters(log).folds(FOLDS))
    replays, predicted = follow(log, deployer, acceptances, seeds[1:], models)
    weights = [replay.chosen / log.propensities for replay in replays]
    require_sound(_diagnostics(log, replays, _looser_settings(weights, quantile, limit)), force)
    terms = [replay.direct + w * (log.rewards - predicted) for replay, w in zip(replays, weights, strict=True)]
    rates = [replay.rates for replay in replays]
    notes = _notes(replays, deployer)
    lost = np.mean([np.maximum(c * w - 1, 0).sum() / c.sum() for c, w in zip(rates, weights, strict=True)])
    if lost > NOTABLE_LOSS:
        notes.append(
            f"{lost:.1%} of the deployment's decisions are missing from its history, because the log rarely took those "
            "actions, so its beliefs are approximate. quantile=0 keeps them exact but accepts fewer rounds."
        )
    return _estimate("dr-ns", log, terms, rates, weights, replays, notes, confidence)


def _diagnostics(log: BanditLog, replays: list[Followed], settings: Sequence[Setting]) -> Diagnostics:
    """How well the log supports the deployment that was replayed on it.

    Its weights are c_t w_t over the mean of c, which average 1 if the log took all of the deployment's actions. If too
    few rounds are accepted, the refusal suggests the first of ``settings`` that helps, unless a few rounds have all of
    the weight. Raises if too few rounds are accepted even for ``force``.
    """
    weights = [replay.chosen / log.propensities for replay in replays]
    rate = float(np.mean([replay.rates.mean() for replay in replays]))
    counted = np.mean([replay.rates * w for replay, w in zip(replays, weights, strict=True)], axis=0) / rate
    beyond = float(np.mean([replay.beyond.mean() for replay in replays]))
    support = Support(counted, float(counted.max()), beyond, None if log.logging_probs is None else beyond)
    found = diagnostics_of(log, support, np.inf, clips=False)
    fewest = min(int(replay.accepted.sum()) for replay in replays)
    if fewest >= LEAST_ACCEPTED:
        return found
    few = Reason(
        "accepted rounds",
        f"Only {fewest} of {len(log):,} rounds are accepted for the deployment; at least {LEAST_ACCEPTED} are needed.",
        _fixes(log, replays, weights, settings if found.effective_samples >= LEAST_EFFECTIVE else ()),
        {"accepted": fewest, "needed": LEAST_ACCEPTED},
    )
    reasons = (few, *found.refusals)
    if fewest < FEWEST:
        raise NoEstimateError(reasons, can_force=False)
    return replace(found, refusals=reasons)


def _looser_settings(weights: list[Floats], quantile: float, highest_rate: float) -> list[Setting]:
    """Settings of DR-ns that accept more rounds than the current ones."""
    ratios, settings = 1 / np.maximum(np.concatenate(weights), 1e-300), []
    for higher in (quantile, *(each for each in QUANTILES if each > quantile)):
        rate = min(float(np.quantile(ratios, higher, method="inverted_cdf")), 1.0)
        changes = ['highest_rate="auto"'] if rate > highest_rate else []
        changes += [f"quantile={higher:g} (beliefs become less exact)"] if higher > quantile else []
        settings += [Setting(f"pass {' and '.join(changes)}", rate)] if changes else []
    return settings


def _fixes(
    log: BanditLog, replays: list[Followed], weights: list[Floats], settings: Sequence[Setting]
) -> tuple[str, ...]:
    """What would get enough rounds accepted."""
    enough = MARGIN * LEAST_ACCEPTED
    taken = float(np.mean([replay.accepted.sum() for replay in replays]))
    fixes = [
        each.text for each in settings if np.mean([np.minimum(each.rate * w, 1).sum() for w in weights]) >= enough
    ][:1]
    if taken > 0:
        fixes.append(f"use a log of about {enough / taken * len(log):,.0f} such rounds")
    never = np.flatnonzero(np.bincount(log.arrays.actions, minlength=log.n_actions) == 0)
    more = f" and {len(never) - MOST_LISTED} more" if len(never) > MOST_LISTED else ""
    listed = f" (it never took {', '.join(log.action_names[i] for i in never[:MOST_LISTED])}{more})"
    return tuple(fixes) or (f"use a deployment whose actions the log took{listed if len(never) else ''}",)


def _estimate(
    name: str, log: BanditLog, terms: list[Floats], counts: list[Floats], weights: list[Floats],
    replays: list[Followed], notes: list[str], confidence: float,
) -> OnlineEstimate:  # fmt: skip
    """The mean over replays of Σ_t count_t term_t / Σ_t count_t.

    Round t contributes e_ti = count_ti (term_ti - V_i) / Σ_t count_ti to the error of replay i, and ē_t to the error of
    the mean, so the standard error from rewards is √Σ ē_t². If replays differed only by their rewards, their variance
    would be Σ_ti (e_ti - ē_t)² / (replays - 1); any excess comes from their beliefs. In the worst case both errors have
    the same sign, so they are added.
    """
    clusters, mean_errors, squares = Clusters(log), np.zeros(len(log)), 0.0
    values = np.array([count @ term / count.sum() for count, term in zip(counts, terms, strict=True)])
    for count, term, value in zip(counts, terms, values, strict=True):
        errors = count * (term - value) / count.sum()
        mean_errors += errors / len(replays)
        squares += float(errors @ errors)
    of_beliefs = 0.0
    if len(replays) > 1:
        explained = (squares - len(replays) * float(mean_errors @ mean_errors)) / (len(replays) - 1)
        of_beliefs = max(float(values.var(ddof=1)) - explained, 0.0)
    taken = float(np.mean([replay.accepted.sum() for replay in replays]))
    # A single sequence has nothing to be compared with: its rounds are treated as independent.
    sums = clusters.sums(mean_errors) if len(clusters.sizes) > 1 else mean_errors
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


def _notes(replays: list[Followed], deployer: Deployer) -> list[str]:
    """Caveats that apply to both methods."""
    notes, share = [], float(np.mean([replay.accepted.mean() for replay in replays]))
    if not isinstance(deployer, BeliefDeployer):
        name = type(deployer).__name__
        notes.append(f"{name} ran round by round in Python; only deployers that hold a belief are compiled.")
    if not (isinstance(deployer, BeliefDeployer) and len(deployer.initial_belief) == 1):
        notes.append(
            f"{share:.1%} of the rounds were accepted, so the deployment saw a thinned log in which changes come "
            f"{1 / share:.3g} times as fast. If the world changes, this is the value of a deployment that decides in "
            f"one of every {1 / share:.3g} rounds; one that decides in all rounds has more time to adapt."
        )
    if len(replays) == 1:
        notes.append("With one replay, the interval ignores how values vary with beliefs; use repeats=2 or more.")
    return notes
