"""Off-policy estimates of a policy's value: IPS, SNIPS, DM and DR, with standard errors and normal intervals."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from seachange.errors import ParameterError, SeachangeWarning
from seachange.log.bandit_log import BanditLog, require_propensities, require_rewards, warn_of_estimates
from seachange.params import require
from seachange.policies.per_state import PolicySet
from seachange.policies.rewards import fit_rewards
from seachange.protocols import Floats, Policy
from seachange.states.labels import StateLabels

# Pseudo-rounds that pull the reward model to the mean reward.
RIDGE = 1.0
# Fewer rounds than this have no spread to make an interval of.
LEAST_EFFECTIVE = 2.0


@dataclass(frozen=True)
class ValueEstimate:
    """Mean reward a round that a policy would earn, as one estimator sees it."""

    estimator: str
    value: float
    std_error: float
    low: float
    high: float
    effective_samples: float  # (Σ w)² / Σ w²: rounds of the log that speak for the policy
    max_weight: float  # largest weight, after clipping


class _Terms(NamedTuple):
    """All that an estimator may need of a log and a policy."""

    weights: Floats  # (n,) min{M, π(a_t | x_t) / p_t}
    rewards: Floats  # (n,)
    modelled: Floats  # (n,) r̂(x_t, a_t)
    direct: Floats  # (n,) Σ_a π(a | x_t) r̂(x_t, a)
    direct_error: float  # variance of mean(direct) that comes from fitting r̂


def evaluate(
    log: BanditLog,
    policy: Policy | PolicySet,
    estimators: Sequence[str] = ("ips", "snips", "dm", "dr"),
    *,
    clip: float = np.inf,
    confidence: float = 0.95,
    labels: StateLabels | None = None,
) -> list[ValueEstimate]:
    """Estimate what ``policy`` would have earned a round on ``log``.

    ips    mean of min{M, π(a_t | x_t) / p_t} r_t
    snips  Σ w r / Σ w, w the weights of ips
    dm     mean of Σ_a π(a | x_t) r̂(x_t, a), r̂ by least squares on this log
    dr     dm + mean of w (r - r̂)

    ``clip`` is M: ``inf`` is unbiased; lower values trade bias for variance. A ``PolicySet`` needs ``labels``: round t
    is judged by the policy of its state (the paper's latent estimator; with states smoothed from the rewards it weighs
    it is biased upwards). Then r̂ is fitted state by state.
    """
    unknown = [name for name in estimators if name not in ESTIMATORS]
    require(not unknown, f"estimators are {', '.join(ESTIMATORS)}; there is no {unknown[0] if unknown else ''!r}.")
    require(clip > 0, f"clip must be positive; got {clip}.")
    require(0 < confidence < 1, f"confidence must be between 0 and 1; got {confidence}.")
    require_rewards(log, "evaluating a policy")
    require_propensities(log, "evaluating a policy")
    warn_of_estimates(log, "evaluating a policy")
    terms = _terms(log, policy, clip, labels)
    if problem := _lack_of_support(terms.weights, clip):
        warnings.warn(problem, SeachangeWarning, stacklevel=2)
    return [_with_interval(name, *ESTIMATORS[name](terms), terms.weights, confidence) for name in estimators]


def evaluate_logging(log: BanditLog, confidence: float = 0.95) -> ValueEstimate:
    """The value of the policy that made the log, which needs no weights: its mean reward."""
    require(0 < confidence < 1, f"confidence must be between 0 and 1; got {confidence}.")
    require_rewards(log, "evaluating the logging policy")
    return _with_interval("mean", *_mean(log.arrays.rewards), np.ones(len(log)), confidence)


def evaluate_states(
    log: BanditLog,
    policies: PolicySet,
    labels: StateLabels,
    estimator: str = "dr",
    *,
    clip: float = np.inf,
    confidence: float = 0.95,
) -> list[ValueEstimate | None]:
    """What each state's policy would have earned in the rounds of its state; None where there are fewer than 2."""
    results: list[ValueEstimate | None] = []
    for state, policy in enumerate(policies):
        rounds = np.flatnonzero(labels.states == state)
        if len(rounds) < LEAST_EFFECTIVE:
            results.append(None)
        else:
            results += evaluate(log.take(rounds), policy, (estimator,), clip=clip, confidence=confidence)
    return results


def _with_interval(name: str, value: float, error: float, weights: Floats, confidence: float) -> ValueEstimate:
    reach = float(norm.ppf(0.5 + confidence / 2))
    effective = _effective_samples(weights)
    if min(effective, float(weights.sum())) < LEAST_EFFECTIVE:
        error = np.inf
    return ValueEstimate(
        estimator=name,
        value=value,
        std_error=error,
        low=value - reach * error,
        high=value + reach * error,
        effective_samples=effective,
        max_weight=float(weights.max()),
    )


def _effective_samples(weights: Floats) -> float:
    squares = float(np.square(weights).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def _lack_of_support(weights: Floats, clip: float) -> str | None:
    """What is wrong where a log says too little of a policy: weights average 1 if it took all the policy's actions."""
    if min(_effective_samples(weights), float(weights.sum())) < LEAST_EFFECTIVE:
        return (
            "the log hardly ever took the actions of this policy: fewer than 2 effective rounds. Its value is unknown."
        )
    mean, error = _mean(weights)
    if np.isinf(clip) and mean < 1 - max(4.5 * error, 0.05):
        return (
            f"the weights of this policy average {mean:.2f}, not 1: it would take actions that the log never or hardly "
            "ever took, and what those earn is not in these estimates."
        )
    return None


def _terms(log: BanditLog, policy: Policy | PolicySet, clip: float, labels: StateLabels | None) -> _Terms:
    n = len(log)
    contexts, mask = log.contexts, log.action_mask
    if isinstance(policy, PolicySet):
        if labels is None:
            raise ParameterError("a PolicySet needs labels: which round belongs to which state.")
        require(len(labels.states) == n, f"labels must have one entry a round; they have {len(labels.states)} for {n}.")
        require(
            labels.n_states <= len(policy), f"{labels.n_states} states need as many policies; there are {len(policy)}."
        )
        probs = policy.advice(contexts, mask)[np.arange(n), labels.states]
        membership = np.ascontiguousarray(labels.weights(soft=False).T)
        states = labels.states
    elif not isinstance(policy, Policy):
        raise ParameterError(
            "a policy must have predict_proba(contexts, action_mask); "
            "for a model: evaluate(log, model.policies, labels=model.label_ahead(log))."
        )
    else:
        probs = policy.predict_proba(contexts, mask)
        membership, states = np.ones((n, 1)), np.zeros(n, dtype=np.int64)
    if probs.shape != (n, log.n_actions):
        raise ParameterError(f"the policy must give probabilities ({n}, {log.n_actions}); it gave {probs.shape}.")

    everyone, actions, rewards = np.arange(n), log.arrays.actions, log.arrays.rewards
    models = fit_rewards(log, membership, RIDGE)
    predicted = np.empty((n, log.n_actions))
    for state, model in enumerate(models):
        predicted[states == state] = np.broadcast_to(model.predict(log), (n, log.n_actions))[states == state]
    modelled = predicted[everyone, actions]
    direct = np.einsum("ta,ta->t", probs, predicted)
    weights = np.minimum(clip, probs[everyone, actions] / log.arrays.propensities)
    direct_error = sum(
        _fit_variance(log, probs, membership[:, state], rewards - modelled, model.inverse_gram)
        for state, model in enumerate(models)
    )
    return _Terms(weights, rewards, modelled, direct, direct_error)


def _fit_variance(log: BanditLog, probs: Floats, members: Floats, residuals: Floats, inverse_gram: Floats) -> float:
    """Variance of mean(direct) from the coefficients: g' Cov(c) g, with the sandwich covariance.

    g is the mean over all rounds of Σ_a π(a | x_t) f(x_t, a), members only; one round moves the mean by
    g' G⁻¹ f(x_t, a_t) (r_t - r̂_t).
    """
    rows, n = log.arrays.rows, len(log)
    share = members[:, None] * probs / n
    if log.joint.kind == "per action":
        target = np.einsum("ta,tad->d", share, rows)[None]
        leverage = rows[np.arange(n), log.arrays.actions] @ (inverse_gram[0] @ target[0])
    else:
        shared = np.broadcast_to(rows[:, 0], (n, rows.shape[2]))
        target = share.T @ shared
        influence = np.einsum("bij,bj->bi", inverse_gram, target)
        leverage = np.einsum("td,td->t", influence[log.arrays.actions], shared)
    return float(np.sum(np.square(leverage * members * residuals)))


def _mean(values: Floats) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.inf


def _ips(terms: _Terms) -> tuple[float, float]:
    return _mean(terms.weights * terms.rewards)


def _snips(terms: _Terms) -> tuple[float, float]:
    total = terms.weights.sum()
    if total == 0:
        return 0.0, np.inf
    value = float(terms.weights @ terms.rewards / total)
    return value, float(np.sqrt(np.sum(np.square(terms.weights * (terms.rewards - value)))) / total)


def _dm(terms: _Terms) -> tuple[float, float]:
    value, sampling_error = _mean(terms.direct)
    return value, float(np.sqrt(sampling_error**2 + terms.direct_error))


def _dr(terms: _Terms) -> tuple[float, float]:
    return _mean(terms.direct + terms.weights * (terms.rewards - terms.modelled))


ESTIMATORS: dict[str, Callable[[_Terms], tuple[float, float]]] = {"ips": _ips, "snips": _snips, "dm": _dm, "dr": _dr}
