"""Off-policy estimates of a policy's value, with intervals, or a refusal."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from seachange.engine import one_thread
from seachange.errors import RefusedError, SeachangeWarning
from seachange.evaluation.diagnostics import diagnostics_of, require_sound
from seachange.evaluation.formulas import ESTIMATORS, Parts
from seachange.evaluation.sequences import Watched
from seachange.evaluation.support import Judged, Support, distribution_of, membership_of
from seachange.evaluation.terms import Need, Terms, terms_of
from seachange.evaluation.value_estimate import IntervalKind as IntervalKind
from seachange.evaluation.value_estimate import ValueEstimate as ValueEstimate
from seachange.evaluation.value_estimate import Wanted, wanted_interval
from seachange.log.bandit_log import BanditLog, require_propensities, warn_of_estimates
from seachange.params import Auto, require
from seachange.policies.per_state import PolicySet
from seachange.states.labels import StateLabels


def evaluate(
    log: BanditLog,
    policy: Judged,
    estimators: Sequence[str] = ("ips", "snips", "dm", "dr"),
    *,
    clip: float = np.inf,
    confidence: float = 0.95,
    labels: StateLabels | None = None,
    soft: bool = False,
    interval: IntervalKind = "normal",
    reward_range: tuple[float, float] | None = None,
    modelled: npt.ArrayLike | None = None,
    switch: float | Auto = "auto",
    shrinkage: float | Auto = "auto",
    force: bool = False,
    seed: int = 0,
) -> list[ValueEstimate]:
    """Estimate what ``policy`` would have earned a round on ``log``.

    ips        mean of w r,  w = min{M, π(a_t | x_t) / p_t}
    snips      Σ w r / Σ w
    dm         mean of d = Σ_a π(a | x_t) r̂(x_t, a)
    dr         mean of d + w (r - r̂)
    sndr       mean of d, plus Σ w (r - r̂) / Σ w
    switch-dr  dr with w 1{w ≤ τ}
    dr-os      dr with w λ / (w² + λ)
    mrdr       dr, r̂ fitted with the weights π(a_t | x_t) (1 - p_t) / p_t²

    ``policy`` is anything with ``predict_proba``, or its probabilities (n, K), or a ``PolicySet`` with ``labels``:
    round t is judged by the policy of its state, or where ``soft`` by Σ_z q_t(z) π_z. With states that were found with
    the help of the rewards this is the paper's latent estimator, biased upwards, and its estimates say so.

    ``clip`` is M: ``inf`` is unbiased; lower values trade bias for variance, as do ``switch`` (τ) and ``shrinkage``
    (λ), which "auto" chooses by estimated mean squared error. r̂ is least squares on other blocks of time (state by
    state with labels), unless ``modelled`` (n, K) gives it.

    ``interval`` is "normal", "bootstrap", "bernstein" or "sequence", which stays valid while watching;
    docs/evaluation.md says what each guarantees. The last two need ``reward_range``, which is (0, 1) where all rewards
    are 0 or 1. Where the log has sequences, they are what is independent. ``seed`` is the bootstrap's.

    Raises ``RefusedError`` where the log cannot support an answer; ``force`` gives it all the same, with a warning.
    """
    names = _names(estimators)
    warn_of_estimates(log, "evaluating a policy")
    wanted = wanted_interval(log, interval, confidence, reward_range, seed)
    for name in names:
        wanted.require_possible(name, (switch if name == "switch-dr" else shrinkage) == "auto")
    terms, support = _terms(log, policy, names, wanted, clip, labels, soft, modelled, switch, shrinkage, force)
    bound = min(clip, support.weight_bound)
    latent = isinstance(policy, PolicySet) and labels is not None and labels.from_rewards
    with one_thread():
        return [
            wanted.answer(name, ESTIMATORS[name].parts(terms, switch, shrinkage), terms.weights, bound, latent)
            for name in names
        ]


def watch(
    log: BanditLog,
    policy: Judged,
    estimator: str = "ips",
    *,
    clip: float = np.inf,
    confidence: float = 0.95,
    labels: StateLabels | None = None,
    soft: bool = False,
    reward_range: tuple[float, float] | None = None,
    modelled: npt.ArrayLike | None = None,
    switch: float | Auto = "auto",
    shrinkage: float | Auto = "auto",
    force: bool = False,
) -> Watched:
    """The estimate and its confidence sequence as they stood after each round, or each sequence where there are any.

    With probability ``confidence`` all of the intervals hold at once, so that one may stop at any of them. What the
    log gains later changes none of them: a log that is watched anew as it grows is one sequence. The words mean what
    they mean to ``evaluate``, whose interval="sequence" is the last of these.
    """
    (name,) = _names(estimator)
    wanted = wanted_interval(log, "sequence", confidence, reward_range, 0)
    wanted.require_possible(name, (switch if name == "switch-dr" else shrinkage) == "auto")
    terms, support = _terms(log, policy, (name,), wanted, clip, labels, soft, modelled, switch, shrinkage, force)
    bounds = np.minimum(clip, wanted.clusters.largest_so_far(support.round_bounds(log.arrays.propensities)))
    return wanted.running(name, ESTIMATORS[name].parts(terms, switch, shrinkage), bounds)


def _terms(
    log: BanditLog,
    policy: Judged,
    names: Sequence[str],
    wanted: Wanted,
    clip: float,
    labels: StateLabels | None,
    soft: bool,
    modelled: npt.ArrayLike | None,
    switch: float | Auto,
    shrinkage: float | Auto,
    force: bool,
) -> tuple[Terms, Support]:
    """The terms of these estimators and how the log bears on the policy, unless it cannot support them."""
    require(clip > 0, f"clip must be positive; got {clip}.")
    require_propensities(log, "evaluating a policy")
    for word, setting in (("switch", switch), ("shrinkage", shrinkage)):
        sound = setting == "auto" or (not isinstance(setting, str) and setting >= 0)
        require(sound, f'{word} must be at least 0, or "auto"; got {setting!r}.')
    needs: frozenset[Need] = frozenset().union(*(ESTIMATORS[name].needs for name in names))
    # Whole weights make up for the noise of the fits.
    whole = not {"dm", "switch-dr", "dr-os"} & set(names)
    with one_thread():
        terms, support = terms_of(
            log,
            distribution_of(log, policy, labels, soft),
            membership_of(log, labels, soft),
            clip,
            needs - {"fit error"} if wanted.bounded or (whole and np.isinf(clip)) else needs,
            modelled,
            limits=wanted.reward_range if wanted.bounded else None,
            forward=wanted.kind == "sequence",
        )
    require_sound(diagnostics_of(log, support, clip), force)
    return terms, support


def evaluate_logging(
    log: BanditLog,
    confidence: float = 0.95,
    *,
    interval: IntervalKind = "normal",
    reward_range: tuple[float, float] | None = None,
    seed: int = 0,
) -> ValueEstimate:
    """The value of the policy that made the log, which needs no weights: its mean reward."""
    wanted = wanted_interval(log, interval, confidence, reward_range, seed)
    return wanted.answer("mean", Parts(log.arrays.rewards), np.ones(len(log)), 1.0, latent=False)


def evaluate_states(
    log: BanditLog,
    policies: PolicySet,
    labels: StateLabels,
    estimator: str = "dr",
    *,
    clip: float = np.inf,
    confidence: float = 0.95,
    interval: IntervalKind = "normal",
    reward_range: tuple[float, float] | None = None,
    force: bool = False,
    seed: int = 0,
) -> list[ValueEstimate | None]:
    """What each state's policy would have earned in the rounds of its state; None, and a warning, where refused."""
    results: list[ValueEstimate | None] = []
    for state in range(len(policies)):
        rounds = np.flatnonzero(labels.states == state)
        if len(rounds) == 0:
            results.append(None)
            continue
        part = replace(labels, states=labels.states[rounds], state_probs=None)
        asked: dict[str, Any] = {
            "clip": clip, "confidence": confidence, "interval": interval, "reward_range": reward_range, "seed": seed,
        }  # fmt: skip
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", SeachangeWarning)
            try:
                results += evaluate(log.take(rounds), policies, (estimator,), labels=part, force=force, **asked)
            except RefusedError as refusal:
                warnings.warn(str(refusal), SeachangeWarning, stacklevel=1)
                results.append(None)
        for each in said:
            warnings.warn(f"state {state}: {each.message}", SeachangeWarning, stacklevel=2)
    return results


def _names(estimators: Sequence[str]) -> tuple[str, ...]:
    names = (estimators,) if isinstance(estimators, str) else tuple(estimators)
    unknown = [name for name in names if name not in ESTIMATORS]
    require(not unknown, f"estimators are {', '.join(ESTIMATORS)}; there is no {unknown[0] if unknown else ''!r}.")
    require(bool(names), f"name at least one estimator: {', '.join(ESTIMATORS)}.")
    return names
