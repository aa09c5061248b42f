"""What one regression of the whole log explains: the centre that the ridge draws states to.

Without it states would be drawn to 0 and not to each other: a mean reward of 100 would pass for noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from seachange.kernels.emission import round_scores
from seachange.kernels.regression import logistic_sums, regression_sums, solve_ridge
from seachange.log.bandit_log import BanditLog
from seachange.log.moments import moments_of
from seachange.protocols import Floats, Ints
from seachange.states.shrinkage import MOST_TURNS, SAME_RIDGE, evidence_ridge, likeliest_ridge, occam

# As much ridge as keeps separable features from blowing up, whatever the evidence; in rounds.
STABLE_CLICK_RIDGE = 1e-3
SAME_VALUE = 1e-9  # log-likelihoods that differ by less, of their size, are the same
MOST_NEWTON_STEPS = 50
# Where fewer rounds than this share count at all, the others are left out of the passes over a log.
FEW = 0.5


class PooledFit(NamedTuple):
    """One regression of the whole log."""

    coefs: Floats  # (B, D)
    grams: Floats  # (1, B, D, D) curvature of the log-likelihood, times the noise variance
    cost: float  # of its coefficients in BIC
    ridge: float  # in rounds


def pooled_fit(log: BanditLog, scales: Floats) -> PooledFit:
    """Least squares with the likeliest ridge; ``scales`` (D,) are the units of the features."""
    n_blocks, n_features = log.joint.shape
    grams, moments = np.zeros((1, n_blocks, n_features, n_features)), np.zeros((1, n_blocks, n_features))
    centre, squares = np.zeros(log.joint.shape), 0.0
    if log.joint.kind != "per action":
        centre[:, -1] = moments_of(log.arrays.rewards).mean
    for chunk in log.chunks():
        arrays, ones = residual_log(chunk, centre).arrays, np.ones((len(chunk), 1))
        sums = regression_sums(arrays.rows, arrays.actions, arrays.rewards, ones, n_blocks)
        grams += sums[0]
        moments += sums[1]
        squares += float(sums[2][0, 0])
    rounds = moments_of(log.arrays.rewards).n_seen
    ridge = likeliest_ridge(grams, moments, squares, rounds, scales)
    deviations = solve_ridge(grams, moments, ridge * np.square(scales))
    return PooledFit(np.asarray(centre + deviations[0]), grams, occam(grams, ridge, scales, rounds), ridge)


def pooled_click_fit(log: BanditLog, scales: Floats) -> PooledFit:
    """The same where rewards are clicks, by logistic regression."""
    ones = np.ones(len(log))
    return click_fit(log, scales, ones, click_centre(log, ones))


def click_fit(
    log: BanditLog,
    scales: Floats,
    weights: Floats,
    centre: Floats,
    ridge: float | None = None,
    start: Floats | None = None,
) -> PooledFit:
    """Logistic regression of clicks, round t counting ``weights[t]`` times, drawn to ``centre`` (B, D).

    ``ridge`` counts in rounds; without one it is the likeliest. The search begins at ``start``, or at the centre.
    """
    rounds = _Counted(log, weights)
    coefs, used = (centre if start is None else start)[None], STABLE_CLICK_RIDGE if ridge is None else ridge
    for _ in range(MOST_TURNS if ridge is None else 1):
        penalties = used * np.square(scales)
        coefs, grams = _click_fit(rounds, coefs, centre, penalties)
        if ridge is not None:
            break
        # At the maximum the likelihood's slope is what the ridge pulls with.
        linear = np.einsum("zbij,zbj->zbi", grams, coefs - centre) + penalties * (coefs - centre)
        before, used = used, max(evidence_ridge(grams, linear, 1.0, scales), STABLE_CLICK_RIDGE)
        if abs(used - before) <= SAME_RIDGE * used:
            break
    seen = float(np.sum(weights, where=np.isfinite(log.arrays.rewards)))
    return PooledFit(np.asarray(coefs[0]), grams, occam(grams, used, scales, seen), used)


def click_centre(log: BanditLog, weights: Floats) -> Floats:
    """(B, D) the coefficients of clicks of which nothing is known but their rate, where there is an intercept."""
    centre = np.zeros(log.joint.shape)
    if log.joint.kind != "per action":
        rewards = log.arrays.rewards
        seen = float(np.sum(weights, where=np.isfinite(rewards)))
        clicks = float(np.sum(weights * rewards, where=np.isfinite(rewards)))
        # Half a click more and half a click less than there could be keep the rate from 0 and 1.
        least = 0.5 / max(seen, 1.0)
        rate = min(max(clicks / max(seen, 1e-300), least), 1 - least)
        centre[:, -1] = np.log(rate / (1 - rate))
    return centre


def _click_fit(rounds: _Counted, coefs: Floats, centre: Floats, penalties: Floats) -> tuple[Floats, Floats]:
    """Logistic regression by Newton's method from ``coefs`` (1, B, D) on; the coefficients, and the curvature there."""
    best, step = -np.inf, np.zeros_like(coefs)
    for _ in range(MOST_NEWTON_STEPS):
        value, grams, moments = rounds.sums(coefs + step)
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


class _Counted:
    """The rounds of a log that count, a chunk after the other; of one in memory they are laid out once."""

    def __init__(self, log: BanditLog, weights: Floats) -> None:
        self._log, self._weights = log, weights
        self._kept = list(self._chunks()) if log.spool is None else None

    def _chunks(self) -> Iterator[tuple[Floats, Ints, Floats, Floats]]:
        for part in self._log.chunk_slices():
            arrays, counts = self._log[part].arrays, self._weights[part]
            rows, actions, rewards = arrays.rows, arrays.actions, arrays.rewards
            counted = counts > 0
            if counted.mean() < FEW:
                rows = rows[counted] if len(rows) > 1 else rows
                actions, rewards, counts = actions[counted], rewards[counted], counts[counted]
                for array in (rows, actions, rewards):
                    array.setflags(write=False)  # like those of a log: kernels need not be compiled again
            yield rows, actions, rewards, counts

    def sums(self, coefs: Floats) -> tuple[float, Floats, Floats]:
        """Log-likelihood, curvature and slope of clicks under ``coefs`` (1, B, D)."""
        n_blocks, n_features = self._log.joint.shape
        grams, moments = np.zeros((1, n_blocks, n_features, n_features)), np.zeros((1, n_blocks, n_features))
        likelihood = 0.0
        for rows, actions, rewards, counts in self._chunks() if self._kept is None else self._kept:
            scores = np.empty((len(actions), 1))
            round_scores(rows, actions, coefs, scores)
            sums = logistic_sums(rows, actions, rewards, counts[:, None], scores, n_blocks)
            grams += sums[0]
            moments += sums[1]
            signed = np.where(rewards > 0.5, scores[:, 0], -scores[:, 0])
            likelihood -= float(np.sum(counts * np.logaddexp(0.0, -signed), where=np.isfinite(rewards)))
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
