"""What every estimator is made of: one pass over a log, in parts, that asks the policy and the reward models."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from seachange.evaluation.cross_fitting import FOLDS, CrossFit, fit_across
from seachange.evaluation.support import Distribution, Support, SupportSums, parts_of, support_of
from seachange.kernels.weights import expect
from seachange.log.bandit_log import BanditLog
from seachange.log.clusters import Clusters
from seachange.params import require
from seachange.policies.rewards import robust_weights
from seachange.protocols import Floats

# r̂; what fitting it costs where weights do not make up for it; the r̂ of MRDR.
Need = Literal["model", "fit error", "robust model"]


@dataclass(frozen=True, eq=False)
class Terms:
    """All that an estimator may need of a log and a policy; what no estimator asked for is 0."""

    weights: Floats  # (n,) w_t = min{M, π(a_t | x_t) / p_t}
    clipped: bool  # whether M cut any of them
    rewards: Floats  # (n,)
    modelled: Floats  # (n,) r̂(x_t, a_t)
    direct: Floats  # (n,) Σ_a π(a | x_t) r̂(x_t, a)
    fit_errors: Callable[[Floats], Floats]  # of weights w: (n,) what noise put into Σ direct + w (r - r̂) by the fits
    robust_modelled: Floats  # (n,) the same two of the r̂ of MRDR
    robust_direct: Floats


class Predictions:
    """A reward model along the log."""

    def __init__(self, log: BanditLog, predict: Callable[[slice], Floats]) -> None:
        self.log, self.predict = log, predict
        self.modelled, self.direct = np.empty(len(log)), np.empty(len(log))

    def add(self, rounds: slice, probs: Floats) -> None:
        """Predict ``rounds``, for which the policy has the probabilities ``probs``."""
        predicted, actions = self.predict(rounds), self.log.arrays.actions[rounds]
        expect(probs, predicted, actions, self.direct[rounds], self.modelled[rounds])


def terms_of(
    log: BanditLog,
    probs_of: Distribution,
    membership: Floats,
    clip: float,
    needs: Set[Need],
    modelled: npt.ArrayLike | None = None,
    limits: tuple[float, float] | None = None,
    *,
    forward: bool = False,
) -> tuple[Terms, Support]:
    """The terms that ``needs`` names, and how the log bears on the policy.

    ``modelled`` (n, K) stands in for our r̂, which is otherwise fitted to other folds (where ``forward``, to those
    before, of folds that do not change as the log grows) and, with ``limits``, held between them. The r̂ of MRDR is
    least squares with ``robust_weights`` (Farajtabar et al. 2018).
    """
    sums, zero = SupportSums(log), np.broadcast_to(0.0, len(log))
    plain = robust = fit = targets = None
    if modelled is not None:
        plain = robust = Predictions(log, _given(log, modelled, limits))
    elif needs:
        folds = Clusters(log).growing_folds() if forward else Clusters(log).folds(FOLDS)
        if "model" in needs:
            fit = fit_across(log, membership, folds, forward=forward)
            plain = Predictions(log, _within(fit, limits))
            targets = np.zeros_like(fit.coefs) if "fit error" in needs else None
        if "robust model" in needs:
            p = log.arrays.propensities
            importance = robust_weights(support_of(log, probs_of).weights * p, p)
            robust = Predictions(log, _within(fit_across(log, membership, folds, importance, forward=forward), limits))
    for rounds in parts_of(log):
        probs = probs_of(rounds)
        sums.add(rounds, probs)
        if plain is not None:
            plain.add(rounds, probs)
        if robust is not None and robust is not plain:
            robust.add(rounds, probs)
        if fit is not None and targets is not None:
            fit.add_targets(targets, rounds, probs)
    support, rewards = sums.total(), log.arrays.rewards

    def fit_errors(weights: Floats) -> Floats:
        if fit is None or plain is None or targets is None:
            return zero
        return fit.fit_errors(targets, weights, rewards - plain.modelled)

    terms = Terms(
        weights=np.minimum(clip, support.weights),
        clipped=bool(support.weights.max() > clip),
        rewards=rewards,
        modelled=plain.modelled if plain else zero,
        direct=plain.direct if plain else zero,
        fit_errors=fit_errors,
        robust_modelled=robust.modelled if robust else zero,
        robust_direct=robust.direct if robust else zero,
    )
    return terms, support


def _given(log: BanditLog, modelled: npt.ArrayLike, limits: tuple[float, float] | None) -> Callable[[slice], Floats]:
    predicted: Floats = np.asarray(modelled, dtype=np.float64)
    wanted = (len(log), log.n_actions)
    require(predicted.shape == wanted, f"modelled must have shape {wanted}; it has {predicted.shape}.")
    low, high = float(predicted.min()), float(predicted.max())
    require(np.isfinite(low) and np.isfinite(high), "modelled must hold finite numbers.")
    if limits is not None:
        inside = limits[0] <= low and high <= limits[1]
        require(inside, f"modelled must stay in reward_range={limits} for this interval; it goes from {low} to {high}.")
    return lambda rounds: np.ascontiguousarray(predicted[rounds])


def _within(fit: CrossFit, limits: tuple[float, float] | None) -> Callable[[slice], Floats]:
    if limits is None:
        return fit.predict
    low, high = limits
    return lambda rounds: np.clip(fit.predict(rounds), low, high)
