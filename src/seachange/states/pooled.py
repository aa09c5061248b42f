"""What one regression of the whole log explains: the centre that the ridge draws states to.

Without it states would be drawn to 0 and not to each other: a mean reward of 100 would pass for noise.
"""

from __future__ import annotations

import numpy as np

from seachange.kernels.emission import round_scores
from seachange.kernels.regression import logistic_sums, regression_sums, solve_ridge
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats
from seachange.states.shrinkage import evidence_ridge

# As much ridge as keeps collinear or separable features from blowing up, whatever the evidence; in rounds.
STABLE_RIDGE = 1e-6
STABLE_CLICK_RIDGE = 1e-3
MOST_NEWTON_STEPS = 50
MOST_RIDGE_STEPS = 10


def pooled_fit(log: BanditLog, scales: Floats) -> Floats:
    """(B, D) coefficients of the whole log, by ridge regression; ``scales`` (D,) are the units of the features."""
    n_blocks, n_features = log.joint.shape
    grams, moments = np.zeros((1, n_blocks, n_features, n_features)), np.zeros((1, n_blocks, n_features))
    level = float(np.nanmean(log.arrays.rewards)) if log.joint.kind != "per action" else 0.0
    squares = 0.0
    for chunk in log.chunks():
        arrays = chunk.arrays
        ones = np.ones((len(chunk), 1))
        sums = regression_sums(arrays.rows, arrays.actions, arrays.rewards - level, ones, n_blocks)
        grams += sums[0]
        moments += sums[1]
        squares += float(sums[2][0, 0])
    rounds, ridge = max(int(np.isfinite(log.arrays.rewards).sum()), 1), 0.0
    for _ in range(MOST_RIDGE_STEPS):
        penalties = _penalties(log, scales, ridge, STABLE_RIDGE)
        coefs = solve_ridge(grams, moments, penalties)
        fitted = np.einsum("zbij,zbj->zbi", grams, coefs)
        unexplained = squares - float(np.sum(coefs * (2 * moments - fitted)))
        noise = max(unexplained / rounds, 1e-12 * squares / rounds, 1e-300)
        before, ridge = ridge, _evident(log, grams, moments, noise, scales)
        if abs(ridge - before) <= 0.01 * ridge:
            break
    if log.joint.kind != "per action":
        coefs[..., -1] += level
    return np.asarray(coefs[0])


def pooled_click_fit(log: BanditLog, scales: Floats) -> Floats:
    """(B, D) coefficients of the whole log where rewards are clicks, by logistic regression with a ridge."""
    coefs, ridge = np.zeros((1, *log.joint.shape)), 0.0
    for _ in range(MOST_RIDGE_STEPS):
        coefs, grams = _click_fit(log, coefs, _penalties(log, scales, ridge, STABLE_CLICK_RIDGE))
        linear = np.einsum("zbij,zbj->zbi", grams, coefs) + _penalties(log, scales, ridge, STABLE_CLICK_RIDGE) * coefs
        before, ridge = ridge, _evident(log, grams, linear, 1.0, scales)
        if abs(ridge - before) <= 0.05 * ridge:
            break
    return np.asarray(coefs[0])


def _penalties(log: BanditLog, scales: Floats, ridge: float, least: float) -> Floats:
    """(D,) the ridge in the features' units; the intercept, where there is one, is left alone."""
    penalties = max(ridge, least) * np.square(scales)
    if log.joint.kind != "per action":
        penalties[-1] = least
    return penalties


def _evident(log: BanditLog, grams: Floats, linear: Floats, noise: float, scales: Floats) -> float:
    noises = np.full(grams.shape[:2], noise)
    return evidence_ridge(grams, linear, noises, scales, intercept=log.joint.kind != "per action")[0]


def _click_fit(log: BanditLog, coefs: Floats, penalties: Floats) -> tuple[Floats, Floats]:
    """Logistic regression by Newton's method from ``coefs`` (1, B, D) on; the coefficients, and the curvature there."""
    best, step = -np.inf, np.zeros_like(coefs)
    for _ in range(MOST_NEWTON_STEPS):
        value, grams, moments = _click_sums(log, coefs + step)
        value -= 0.5 * float(np.sum(penalties * np.square(coefs + step)))
        if value < best:
            step *= 0.5
            continue
        gain, best, coefs = value - best, value, coefs + step
        curvature = grams
        if gain <= 1e-9 * abs(value):
            break
        step = solve_ridge(grams, moments - penalties * coefs, penalties)
    return coefs, curvature


def _click_sums(log: BanditLog, coefs: Floats) -> tuple[float, Floats, Floats]:
    """Log-likelihood, curvature and slope of clicks under ``coefs`` (1, B, D)."""
    n_blocks, n_features = log.joint.shape
    grams, moments = np.zeros((1, n_blocks, n_features, n_features)), np.zeros((1, n_blocks, n_features))
    likelihood = 0.0
    for chunk in log.chunks():
        arrays, scores = chunk.arrays, np.empty((len(chunk), 1))
        round_scores(arrays.rows, arrays.actions, coefs, scores)
        sums = logistic_sums(arrays.rows, arrays.actions, arrays.rewards, np.ones((len(chunk), 1)), scores, n_blocks)
        grams += sums[0]
        moments += sums[1]
        signed = np.where(arrays.rewards > 0.5, scores[:, 0], -scores[:, 0])
        likelihood -= float(np.sum(np.logaddexp(0.0, -signed), where=np.isfinite(arrays.rewards)))
    return likelihood, grams, moments


def residual_log(log: BanditLog, coefs: Floats) -> BanditLog:
    """The log with r_t - c · f(x_t, a_t) for rewards."""
    scores = np.empty((len(log), 1))
    round_scores(log.arrays.rows, log.arrays.actions, np.asarray(coefs)[None], scores)
    return log.with_rewards(log.arrays.rewards - scores[:, 0])
