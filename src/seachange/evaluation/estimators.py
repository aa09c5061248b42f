"""Off-policy estimates of a policy's value, with intervals."""

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from seachange.engine import one_thread
from seachange.errors import SeachangeWarning
from seachange.evaluation.boosted_rewards import boosted_rewards
from seachange.evaluation.diagnostics import (
    EstimateWarning,
    NoEstimateError,
    Reason,
    diagnostics_of,
    miscalibration,
    require_sound,
    weight_limit,
)
from seachange.evaluation.formulas import ESTIMATORS, Parts, Setting
from seachange.evaluation.terms import Need, PolicyLike, Range, Support, Terms, membership_of, terms_of
from seachange.evaluation.value_estimate import ConfidenceSequence, IntervalRequest, interval_request
from seachange.evaluation.value_estimate import IntervalKind as IntervalKind
from seachange.evaluation.value_estimate import ValueEstimate as ValueEstimate
from seachange.log.bandit_log import BanditLog, require_log, require_propensities, warn_of_estimates
from seachange.params import require
from seachange.policies.per_state import PolicySet
from seachange.protocols import Floats
from seachange.states.labels import StateLabels

# Standard errors of propensities, in distances between estimates with different reward models; see decision 19.
MARGIN = 2.0


def evaluate(
    log: BanditLog,
    policy: PolicyLike,
    estimators: Sequence[str] = ("ips", "snips", "dm", "dr"),
    *,
    clip: float | None = None,
    confidence: float = 0.95,
    labels: StateLabels | None = None,
    soft: bool | None = None,
    interval: IntervalKind = "normal",
    reward_range: Range | None = None,
    predicted_rewards: npt.ArrayLike | None = None,
    switch: Setting = "auto",
    shrinkage: Setting = "auto",
    force: bool = False,
    seed: int = 0,
) -> list[ValueEstimate]:
    """Estimate what ``policy`` would have earned per round on ``log``.

    ips        mean of w r,  w = min{M, π(a_t | x_t) / p_t}
    snips      Σ w r / Σ w
    dm         mean of d = Σ_a π(a | x_t) r̂(x_t, a)
    dr         mean of d + w (r - r̂)
    sndr       mean of d, plus Σ w (r - r̂) / Σ w
    switch-dr  dr with w 1{w ≤ τ}
    dr-os      dr with w λ / (w² + λ)
    mrdr       dr, r̂ fitted with the weights π(a_t | x_t) (1 - p_t) / p_t²

    ``policy`` is anything with ``predict_proba``, an array of probabilities (n, K), or a ``PolicySet`` with ``labels``:
    round t uses the policy of its state or, if ``soft``, Σ_z q_t(z) π_z; by default, the latter if the labels were
    known before the rewards (``model.label_ahead``). If the states were found using the rewards, this is the paper's
    latent estimator, which is biased upward; the estimates are marked ``latent``.

    ``clip`` is M: ``inf`` is unbiased; lower values trade bias for variance, as do ``switch`` (τ) and ``shrinkage``
    (λ), which "auto" chooses by estimated mean squared error. r̂ is least squares fitted on other blocks of time (per
    state with labels), unless ``predicted_rewards`` (n, K) gives it. If propensities are estimated, the default clip is
    √n, r̂ gets boosted trees, and intervals include a margin for their error; otherwise nothing is clipped by default.

    ``interval`` is "normal", "bootstrap", "bernstein" or "sequence", which stays valid under continuous monitoring;
    docs/evaluation.md lists what each guarantees. The last two need ``reward_range`` unless all rewards are 0 or 1. If
    the log has sequences, they are the independent units. ``seed`` is for the bootstrap.

    Raises ``RefusedError`` if the log cannot support an estimate; ``force`` returns it anyway, with a warning.
    """
    names, settings = _names(estimators), {"switch": switch, "shrinkage": shrinkage}
    require_log(log, "evaluating a policy")
    warn_of_estimates(log, "evaluating a policy")
    request = interval_request(log, interval, confidence, reward_range, seed)
    clip = weight_limit(log, clip)
    terms, support, others = _terms(log, policy, names, request, clip, labels, soft, predicted_rewards, settings, force)
    bound = min(clip, support.weight_bound)
    latent = isinstance(policy, PolicySet) and labels is not None and labels.from_rewards
    with one_thread():
        found = [request.estimate(name, _parts(name, terms, settings), terms.weights, bound, latent) for name in names]
    return [each.widened(MARGIN * float(np.linalg.norm(each.value - others))) for each in found]


def watch(
    log: BanditLog,
    policy: PolicyLike,
    estimator: str = "ips",
    *,
    clip: float | None = None,
    confidence: float = 0.95,
    labels: StateLabels | None = None,
    soft: bool | None = None,
    reward_range: Range | None = None,
    predicted_rewards: npt.ArrayLike | None = None,
    switch: Setting = "auto",
    shrinkage: Setting = "auto",
    force: bool = False,
) -> ConfidenceSequence:
    """The estimate and its confidence sequence after each round, or after each sequence if the log has sequences.

    With probability ``confidence`` all intervals hold at once, so it is safe to stop at any of them. Rounds added to
    the log later change none of them: watching a growing log gives one sequence. Arguments are those of ``evaluate``,
    whose interval="sequence" is the last of these intervals. (If propensities are estimated, ``evaluate`` adds a margin
    for them; and pass a ``clip``, because its default depends on the length of the log.)
    """
    (name,), settings = _names(estimator), {"switch": switch, "shrinkage": shrinkage}
    request = interval_request(log, "sequence", confidence, reward_range)
    clip = weight_limit(log, clip)
    terms, support, _ = _terms(log, policy, (name,), request, clip, labels, soft, predicted_rewards, settings, force)
    ratios = 1 / log.arrays.propensities if support.largest_ratios is None else support.largest_ratios
    # Rounding can put a weight above its bound.
    bounds = request.clusters.largest_so_far(np.maximum(ratios, support.weights))
    return request.running(name, _parts(name, terms, settings), np.minimum(clip, bounds))


def _parts(name: str, terms: Terms, settings: dict[str, Setting]) -> Parts:
    estimator = ESTIMATORS[name]
    return estimator.parts(terms, "auto" if estimator.setting is None else settings[estimator.setting])


def _terms(
    log: BanditLog, policy: PolicyLike, names: Sequence[str], request: IntervalRequest, clip: float, labels: StateLabels
    | None, soft: bool | None, predicted_rewards: npt.ArrayLike | None, settings: dict[str, Setting], force: bool
) -> tuple[Terms, Support, Floats]:  # fmt: skip
    """The terms of these estimators and the log's support for the policy; raises if the support is too weak.

    If propensities are estimated, also what DR says with different reward models: if the propensities are right, all
    estimates agree up to noise, so their distance measures the error of the propensities.
    """
    chosen = [ESTIMATORS[name] for name in names]
    for name, estimator in zip(names, chosen, strict=True):
        request.require_possible(name, estimator.setting is not None and settings[estimator.setting] == "auto")
    require_propensities(log, "evaluating a policy")
    for word, setting in settings.items():
        valid = setting == "auto" or (not isinstance(setting, str) and setting >= 0)
        require(valid, f'{word} must be at least 0, or "auto"; got {setting!r}.')
    needs: frozenset[Need] = frozenset().union(*(each.needs for each in chosen))
    if request.bounded or (all(each.full_weights for each in chosen) and np.isinf(clip)):
        needs -= {"fit error"}  # full weights cancel the noise of the fits
    limits, forward = request.reward_range if request.bounded else None, request.kind == "sequence"
    needs |= {"model"} if log.propensities_estimated else set()
    others = []
    with one_thread():
        terms, support = terms_of(log, policy, needs, labels, soft, clip, predicted_rewards, limits, forward=forward)
        if log.propensities_estimated:
            others.append(_robust(terms).mean())
            if predicted_rewards is None and not forward:
                predicted_rewards = boosted_rewards(log, membership_of(log, labels, soft), limits)
                if predicted_rewards is not None:
                    terms, support = terms_of(log, policy, needs, labels, soft, clip, predicted_rewards, limits)
                    others.append(_robust(terms).mean())
    measures = diagnostics_of(log, support, clip)
    if log.propensities_estimated:
        wrong = miscalibration(terms.rewards, support.weights, terms.predicted, terms.direct)
        measures = replace(measures, refusals=(*measures.refusals, *wrong))
    require_sound(measures, force)
    return terms, support, np.array(others)


def _robust(terms: Terms) -> Floats:
    """(n,) the terms of DR."""
    return terms.direct + terms.weights * (terms.rewards - terms.predicted)


def robust_terms(
    log: BanditLog, policy: PolicyLike, labels: StateLabels | None, force: bool
) -> tuple[Floats, Floats, float]:
    """(n,) the terms of DR, (n,) their weights, and the standard error of their mean if propensities are estimated."""
    request, limit = interval_request(log, "normal", 0.95), weight_limit(log, None)
    terms, _, others = _terms(log, policy, ("dr",), request, limit, labels, None, None, {}, force)
    values = _robust(terms)
    return values, terms.weights, MARGIN * float(np.linalg.norm(values.mean() - others))


def evaluate_logging(
    log: BanditLog,
    confidence: float = 0.95,
    *,
    interval: IntervalKind = "normal",
    reward_range: Range | None = None,
    seed: int = 0,
) -> ValueEstimate:
    """The value of the logging policy: the log's mean reward, which needs no weights."""
    request = interval_request(log, interval, confidence, reward_range, seed)
    return request.estimate("mean", Parts(log.arrays.rewards), np.ones(len(log)), 1.0)


def evaluate_states(
    log: BanditLog,
    policies: PolicySet,
    labels: StateLabels,
    estimator: str = "dr",
    *,
    clip: float | None = None,
    confidence: float = 0.95,
    interval: IntervalKind = "normal",
    reward_range: Range | None = None,
    force: bool = False,
    seed: int = 0,
) -> list[ValueEstimate | None]:
    """What each state's policy would have earned in the rounds of its state; None, with a warning, if refused."""
    results: list[ValueEstimate | None] = [None] * len(policies)
    for state in np.unique(labels.states).tolist():
        rounds = np.flatnonzero(labels.states == state)
        part = replace(labels, states=labels.states[rounds], state_probs=None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", SeachangeWarning)
            try:
                (results[state],) = evaluate(
                    log.take(rounds), policies, (estimator,), labels=part, force=force, clip=clip,
                    confidence=confidence, interval=interval, reward_range=reward_range, seed=seed,
                )  # fmt: skip
            except NoEstimateError as refusal:
                warnings.warn(EstimateWarning(refusal.reasons, intro="No estimate. "), stacklevel=1)
        for each in caught:
            reasons, intro = reasons_of(each.message)
            warnings.warn(EstimateWarning(reasons, state=state, intro=intro), stacklevel=2)
    return results


def reasons_of(warning: Warning | str) -> tuple[tuple[Reason, ...], str]:
    """The reasons in a warning, and what introduces them; a plain warning is one reason."""
    if isinstance(warning, EstimateWarning):
        return warning.reasons, warning.intro
    if isinstance(warning, SeachangeWarning):
        return (Reason("other", warning.problem, hint=warning.fix),), ""
    return (Reason("other", str(warning)),), ""


def _names(estimators: Sequence[str]) -> tuple[str, ...]:
    names = (estimators,) if isinstance(estimators, str) else tuple(estimators)
    for name in names:
        require(name in ESTIMATORS, f"estimators must be among {', '.join(ESTIMATORS)}; got {name!r}.")
    require(bool(names), f"name at least one estimator: {', '.join(ESTIMATORS)}.")
    return names
