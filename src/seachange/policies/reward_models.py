"""Reward models r̂(x, a) for the direct and doubly robust methods."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import expit

from seachange.kernels.regression import modeled_rewards
from seachange.log.bandit_log import BanditLog, reward_distribution
from seachange.log.clusters import Clusters
from seachange.params import Auto, Brief, require
from seachange.protocols import Bools, Floats
from seachange.states.pooled_regression import PooledFit, click_center, click_fit, linear_fits

RewardKind = Literal["gaussian", "bernoulli"]


@dataclass(frozen=True, eq=False, repr=False)
class RewardModel(Brief):
    """r̂(x, a) = c · f(x, a) by weighted ridge regression; for clicks 1 / (1 + exp(-c · f(x, a)))."""

    coefs: Floats  # (B, D)
    kind: RewardKind = "gaussian"

    def predict(self, log: BanditLog, rounds: Bools | slice = slice(None)) -> Floats:
        """r̂(x_t, a) of all ``rounds`` and actions: (n, K), or (1, K) for a log without contexts."""
        scores = np.ascontiguousarray(modeled_rewards(log.arrays.rows[rounds], self.coefs), dtype=np.float64)
        return np.asarray(expit(scores)) if self.kind == "bernoulli" else scores


def reward_kind(log: BanditLog, wanted: RewardKind | Auto) -> RewardKind:
    """How to model the rewards of ``log``; "auto": Bernoulli if all are 0 or 1, else Gaussian."""
    known = wanted in ("auto", "gaussian", "bernoulli")
    require(known, f'rewards must be "auto", "gaussian" or "bernoulli"; got {wanted!r}.')
    return reward_distribution(log, wanted)  # type: ignore[no-any-return]


def fit_rewards(
    log: BanditLog, weights: Floats, ridge: float | Auto, kind: RewardKind = "gaussian", center: Floats | None = None
) -> list[RewardModel]:
    """One reward model per column of ``weights`` (n, L).

    ``ridge`` is in rounds; "auto" maximizes the marginal likelihood of the rewards. Coefficients shrink toward
    ``center`` (B, D); by default toward the mean reward.
    """
    if kind == "bernoulli":
        return [RewardModel(_fit_clicks(log, column, ridge, center).coefs, "bernoulli") for column in weights.T]
    fits = linear_fits(log, weights, None if ridge == "auto" else ridge, center)
    return [RewardModel(fit.coefs) for fit in fits]


def _fit_clicks(log: BanditLog, weights: Floats, ridge: float | Auto, center: Floats | None = None) -> PooledFit:
    weights = np.ascontiguousarray(weights)
    center = click_center(log, weights) if center is None else center
    return click_fit(log, weights, center, None if ridge == "auto" else ridge)


def robust_weights(probs: Floats, propensities: Floats) -> Floats:
    """(n,) π(a_t | x_t) (1 - p_t) / p_t²: the variance that squared model errors add to the doubly robust value."""
    return np.asarray(probs * (1 - propensities) / np.square(propensities))


class Fold(NamedTuple):
    """Rounds that are held out together."""

    span: slice  # from the first round to the last
    inside: Bools  # which rounds of the span belong to the fold

    def without(self, weights: Floats) -> Floats:
        """(n, …) ``weights``, 0 inside the fold."""
        others = weights.copy()
        others[self.span][self.inside] = 0.0
        return others


def folds_of(log: BanditLog, weights: Floats, n_folds: int) -> list[Fold]:
    """Blocks of time of about equal weight (n,); no sequence is split."""
    fold_of, folds = Clusters(log).folds(n_folds, weights), []
    for fold in range(int(fold_of.max()) + 1):
        rounds = np.flatnonzero(fold_of == fold)
        span = slice(int(rounds[0]), int(rounds[-1]) + 1)
        folds.append(Fold(span, fold_of[span] == fold))
    return folds


def cross_fitted(
    log: BanditLog,
    weights: Floats,
    ridge: float | Auto,
    kind: RewardKind = "gaussian",
    n_folds: int = 5,
    needed: Bools | None = None,
) -> Floats:
    """(n, K) r̂(x_t, a) from models fitted without the block of time that contains t; one fold means no cross-fitting.

    Logistic models use the ridge of the whole log and start from its fit, so each needs only a few steps. Rounds
    outside ``needed`` may be 0.
    """
    predicted = np.zeros((len(log), log.n_actions))
    if kind == "bernoulli":
        whole = _fit_clicks(log, weights, ridge)
    for fold in folds_of(log, weights, n_folds):
        seen, held_out = weights if n_folds == 1 else fold.without(weights), log[fold.span]
        inside = fold.inside if needed is None else fold.inside & needed[fold.span]
        if kind == "bernoulli":
            coefs = click_fit(log, seen, click_center(log, seen), whole.ridge, start=whole.coefs).coefs
            model = RewardModel(coefs, "bernoulli")
        else:
            (model,) = fit_rewards(log, seen[:, None], ridge)
        rounds = slice(None) if inside.all() or len(held_out.arrays.rows) == 1 else inside
        predicted[fold.span][inside] = model.predict(held_out, rounds)
    return predicted
