"""What one regression of the whole log explains: the centre that the ridge draws states to.

Without it states would be drawn to 0 and not to each other: a mean reward of 100 would pass for noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from seachange.kernels.emission import round_scores
from seachange.kernels.regression import logistic_sums, regression_sums, solve_ridge
from seachange.log.bandit_log import BanditLog
from seachange.log.moments import moments_of
from seachange.protocols import Floats
from seachange.states.shrinkage import MOST_TURNS, SAME_RIDGE, evidence_ridge, likeliest_ridge, occam

# As much ridge as keeps separable features from blowing up, whatever the evidence; in rounds.
STABLE_CLICK_RIDGE = 1e-3
SAME_VALUE = 1e-9  # log-likelihoods that differ by less, of their size, are the same
MOST_NEWTON_STEPS = 50


class PooledFit(NamedTuple):
    """One regression of the whole log."""

    coefs: Floats  # (B, D)
    grams: Floats  # (1, B, D, D) curvature of the log-likelihood, times the noise variance
    cost: float  # of its coefficients in BIC


def pooled_fit(log: BanditLog, scales: Floats) -> PooledFit:
    """Least squares with the likeliest ridge; ``scales`` (D,) are the units of the features."""
    n_blocks, n_features = log.joint.shape
    grams, moments = np.zeros((1, n_blocks, n_features, n_features)), np.zeros((1, n_blocks, n_features))
    centre, squares = _centre(log, clicks=False), 0.0
    for chunk in log.chunks():
        arrays, ones = residual_log(chunk, centre).arrays, np.ones((len(chunk), 1))
        sums = regression_sums(arrays.rows, arrays.actions, arrays.rewards, ones, n_blocks)
        grams += sums[0]
        moments += sums[1]
        squares += float(sums[2][0, 0])
    rounds = moments_of(log.arrays.rewards).n_seen
    ridge = likeliest_ridge(grams, moments, squares, rounds, scales)
    deviations = solve_ridge(grams, moments, ridge * np.square(scales))
    return PooledFit(np.asarray(centre + deviations[0]), grams, occam(grams, ridge, scales, rounds))


def pooled_click_fit(log: BanditLog, scales: Floats) -> PooledFit:
    """The same where rewards are clicks, by logistic regression."""
    centre = _centre(log, clicks=True)
    coefs, ridge = centre[None], STABLE_CLICK_RIDGE
    for _ in range(MOST_TURNS):
        penalties = ridge * np.square(scales)
        coefs, grams = _click_fit(log, coefs, centre, penalties)
        # At the maximum the likelihood's slope is what the ridge pulls with.
        linear = np.einsum("zbij,zbj->zbi", grams, coefs - centre) + penalties * (coefs - centre)
        before, ridge = ridge, max(evidence_ridge(grams, linear, 1.0, scales), STABLE_CLICK_RIDGE)
        if abs(ridge - before) <= SAME_RIDGE * ridge:
            break
    return PooledFit(np.asarray(coefs[0]), grams, occam(grams, ridge, scales, moments_of(log.arrays.rewards).n_seen))


def _centre(log: BanditLog, clicks: bool) -> Floats:
    """(B, D) the coefficients of a log of which nothing is known but its mean reward, where there is an intercept."""
    centre = np.zeros(log.joint.shape)
    if log.joint.kind != "per action":
        seen, mean, _ = moments_of(log.arrays.rewards)
        rate = min(max(mean, 0.5 / seen), 1 - 0.5 / seen)
        centre[:, -1] = np.log(rate / (1 - rate)) if clicks else mean
    return centre


def _click_fit(log: BanditLog, coefs: Floats, centre: Floats, penalties: Floats) -> tuple[Floats, Floats]:
    """Logistic regression by Newton's method from ``coefs`` (1, B, D) on; the coefficients, and the curvature there."""
    best, step = -np.inf, np.zeros_like(coefs)
    for _ in range(MOST_NEWTON_STEPS):
        value, grams, moments = _click_sums(log, coefs + step)
        value -= 0.5 * float(np.sum(penalties * np.square(coefs + step - centre)))
        gain = value - best
        if gain < -SAME_VALUE * abs(value):
            step *= 0.5
            continue
        best, coefs, curvature = value, coefs + step, grams
        # A fall this small is rounding.
        if gain <= SAME_VALUE * abs(value):
            break
        step = solve_ridge(grams, moments - penalties * (coefs - centre), penalties)
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


def residual_log(log: BanditLog, coefs: Floats, clicks: bool = False) -> BanditLog:
    """The log with r_t - c · f(x_t, a_t) for rewards, or less the probability of a click."""
    residuals = log.room(len(log))
    for rounds in log.chunk_slices():
        arrays, scores = log[rounds].arrays, np.empty((rounds.stop - rounds.start, 1))
        round_scores(arrays.rows, arrays.actions, np.asarray(coefs)[None], scores)
        expected = expit(scores[:, 0]) if clicks else scores[:, 0]
        np.subtract(arrays.rewards, expected, out=residuals[rounds])
    return log.with_rewards(residuals)
