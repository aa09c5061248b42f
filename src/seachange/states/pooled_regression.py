"""One regression of the whole log, linear or logistic, and the choice of its ridge by marginal likelihood.

In the log's ``Units``, coefficients have the prior N(center, σ² / ridge); integrating them out gives the marginal
likelihood of the ridge (empirical Bayes). The ridge hardly matters if the log determines every coefficient, and matters
most if there are more coefficients than the log can determine. Sums passed to functions on the ridge are in units.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from seachange.kernels.emission import round_scores
from seachange.kernels.regression import regression_sums, solve_ridge
from seachange.log.bandit_log import BanditLog
from seachange.log.column_statistics import moments_of
from seachange.log.units import Units
from seachange.protocols import Floats, Ints

Chunks = Iterator[tuple[Floats, Ints, Floats, Floats]]  # rows, actions, rewards and weights

# Range of the ridge, in rounds, and steps of the search: on a logarithmic grid, then within its best cell.
MIN_RIDGE, MAX_RIDGE, STEPS = 1e-4, 1e8, 49
# Ridges that stabilize fits with collinear features, and logistic fits of separable clicks.
STABLE_RIDGE, STABLE_CLICK_RIDGE = 1e-6, 1e-3
# Alternations between ridge and noise, or ridge and fit, until the ridge changes by less than this share.
MAX_TURNS, SAME_RIDGE = 10, 0.05
# Newton steps, until the log-likelihood changes by less than this share.
MAX_NEWTON_STEPS, SAME_VALUE = 50, 1e-9
# If a smaller share of rounds has weight, the others are dropped before passing over the log.
FEW = 0.5


def best_ridge(grams: Floats, linear: Floats, noises: Floats | float) -> float:
    """The ridge with the highest marginal likelihood.

    ``grams`` (..., D, D) and ``linear`` (..., D) are the negative Hessian G of the log-likelihood and G d̂ at its
    maximum d̂, a deviation from the center, both times ``noises`` (...).
    """
    values, vectors = np.linalg.eigh(grams)
    values = np.maximum(values, 0.0)
    squares = np.square(np.einsum("...ij,...i->...j", vectors, linear)) / np.asarray(noises)[..., None]

    def evidence(ridges: Floats) -> Floats:
        penalized = values[..., None] + ridges
        terms = np.log(ridges) - np.log(penalized) + squares[..., None] / penalized
        return np.asarray(terms.reshape(-1, len(ridges)).sum(axis=0))

    grid = np.geomspace(MIN_RIDGE, MAX_RIDGE, STEPS)
    best = int(np.argmax(evidence(grid)))
    fine = np.geomspace(grid[max(best - 1, 0)], grid[min(best + 1, STEPS - 1)], STEPS)
    return float(fine[np.argmax(evidence(fine))])


def marginal_ridge(grams: Floats, moments: Floats, squares: float, rounds: float) -> float:
    """The ridge of a linear regression by marginal likelihood, estimated in turns with the noise variance.

    ``grams`` Σ f f' (..., D, D), ``moments`` Σ f d (..., D) and ``squares`` Σ d² are sums over ``rounds`` deviations d.
    """
    ridge = STABLE_RIDGE
    for _ in range(MAX_TURNS):
        coefs = solve_ridge(grams, moments, ridge)
        fitted = np.einsum("...ij,...j->...i", grams, coefs)
        unexplained = max(squares - float(np.sum(coefs * (2 * moments - fitted))), 1e-12 * squares, 1e-300)
        noise = unexplained / max(rounds - effective_coefs(grams, ridge), 0.1 * rounds, 1e-300)
        before, ridge = ridge, best_ridge(grams, moments, noise)
        if abs(ridge - before) <= SAME_RIDGE * ridge:
            break
    return ridge


def bounding_ridge(grams: Floats, most: float) -> float:
    """The smallest ridge of at least 1 with at most ``most`` effective coefficients."""
    ridges = np.geomspace(1.0, MAX_RIDGE, STEPS)
    return float(next((ridge for ridge in ridges if effective_coefs(grams, ridge) <= most), MAX_RIDGE))


def coefficient_cost(grams: Floats, ridge: float, rounds: float) -> float:
    """Cost of the coefficients in BIC: Σ log(1 + g / ridge), or log n each without a ridge.

    It is twice the loss of log marginal likelihood because the prior is wider than the posterior.
    """
    values = _eigenvalues(grams)
    return float(np.log1p(values / ridge).sum()) if ridge > 0 else values.size * float(np.log(max(rounds, 1.0)))


def effective_coefs(grams: Floats, ridge: float) -> float:
    """Effective number of coefficients: Σ g / (g + ridge) over the eigenvalues g of the Gram matrix."""
    values = _eigenvalues(grams)
    return float(np.sum(values / (values + max(ridge, 1e-300))))


def _eigenvalues(grams: Floats) -> Floats:
    return np.asarray(np.maximum(np.linalg.eigvalsh(grams), 0.0))


class PooledFit(NamedTuple):
    """One regression of a log."""

    coefs: Floats  # (B, D)
    grams: Floats  # (1, B, D, D) negative Hessian of the log-likelihood, times the noise variance, in units
    ridge: float  # in rounds
    rounds: float  # sum of the weights

    @property
    def cost(self) -> float:
        """Cost of the coefficients in BIC."""
        return coefficient_cost(self.grams, self.ridge, self.rounds)


def linear_fits(
    log: BanditLog, weights: Floats, ridge: float | None = None, center: Floats | None = None
) -> list[PooledFit]:
    """Ridge regressions of the rewards, one per column of ``weights`` (n, L), shrunk toward ``center`` (B, D).

    ``ridge`` is in rounds; None chooses it by marginal likelihood. The default center predicts the mean reward.
    """
    units, shape, n_fits = log.units, log.joint.shape, weights.shape[1]
    grams, moments, totals = np.zeros((n_fits, *shape, shape[1])), np.zeros((n_fits, *shape)), np.zeros((n_fits, 2))
    # Sums of squares relative to the mean do not cancel.
    level = moments_of(log.arrays.rewards).mean
    for rounds in log.chunk_slices():
        chunk = log[rounds]
        rows, _, actions, rewards, _ = chunk.with_rewards(chunk.arrays.rewards - level).arrays
        sums = regression_sums(rows, actions, rewards, weights[rounds], shape[0])
        grams, moments, totals = grams + sums[0], moments + sums[1], totals + sums[2]
    centers = np.zeros(moments.shape) if center is None else np.tile(center, (n_fits, 1, 1))
    if center is None:
        centers[..., -1] = moments[..., -1].sum(axis=1, keepdims=True) / np.maximum(totals[:, 1:], 1e-300) + level
    centers[..., -1] -= level
    # Sums of the rewards minus the center's predictions.
    explained = np.einsum("zbij,zbj->zbi", grams, centers)
    squares = np.maximum(totals[:, 0] - np.einsum("zbi,zbi->z", centers, 2 * moments - explained), 0.0)
    grams, moments = units.grams(grams), units.moments(moments - explained)
    centers[..., -1] += level
    fits = []
    for z, rounds_seen in enumerate(totals[:, 1]):
        used = marginal_ridge(grams[z], moments[z], squares[z], rounds_seen) if ridge is None else ridge
        coefs = centers[z] + units.raw_coefs(solve_ridge(grams[z], moments[z], used))
        fits.append(PooledFit(coefs, grams[z : z + 1], used, rounds_seen))
    return fits


def click_fit(
    log: BanditLog, weights: Floats, center: Floats, ridge: float | None = None, start: Floats | None = None
) -> PooledFit:
    """Logistic regression of clicks with weights (n,), shrunk toward ``center`` (B, D).

    ``ridge`` is in rounds; None chooses it by marginal likelihood. The search begins at ``start``, or at the center.
    """
    chunks = partial(_weighted_chunks, log, weights)
    if log.disk is None:
        chunks = partial(iter, list(chunks()))
    coefs, used = (center if start is None else start)[None], STABLE_CLICK_RIDGE if ridge is None else ridge
    for _ in range(MAX_TURNS if ridge is None else 1):
        coefs, grams = _newton_fit(chunks, coefs, center, used, log.units)
        if ridge is not None:
            break
        # At the maximum, the gradient of the likelihood equals that of the penalty.
        deviations = log.units.coefs(coefs - center)
        linear = np.einsum("zbij,zbj->zbi", grams, deviations) + used * deviations
        before, used = used, max(best_ridge(grams, linear, 1.0), STABLE_CLICK_RIDGE)
        if abs(used - before) <= SAME_RIDGE * used:
            break
    seen = float(np.sum(weights, where=np.isfinite(log.arrays.rewards)))
    return PooledFit(np.asarray(coefs[0]), grams, used, seen)


def click_center(log: BanditLog, weights: Floats) -> Floats:
    """(B, D) coefficients that predict the overall click rate."""
    center, rewards = np.zeros(log.joint.shape), log.arrays.rewards
    seen = float(np.sum(weights, where=np.isfinite(rewards)))
    clicks = float(np.sum(weights * rewards, where=np.isfinite(rewards)))
    # Half a click keeps the rate away from 0 and 1.
    least = 0.5 / max(seen, 1.0)
    rate = min(max(clicks / max(seen, 1e-300), least), 1 - least)
    center[:, -1] = np.log(rate / (1 - rate))
    return center


def _newton_fit(
    chunks: Callable[[], Chunks], coefs: Floats, center: Floats, ridge: float, units: Units
) -> tuple[Floats, Floats]:
    """Logistic regression by Newton's method, from ``coefs`` (1, B, D); and its negative Hessian in ``units``."""
    best, step = -np.inf, np.zeros_like(coefs)
    for _ in range(MAX_NEWTON_STEPS):
        value, grams, moments = _click_sums(chunks(), coefs + step)
        value -= 0.5 * ridge * float(np.sum(np.square(units.coefs(coefs + step - center))))
        gain = value - best
        if gain < -SAME_VALUE * abs(value):
            step *= 0.5
            continue
        best, coefs, curvature = value, coefs + step, units.grams(grams)
        # A decrease this small is rounding.
        if gain <= SAME_VALUE * abs(value):
            break
        slopes = units.moments(moments) - ridge * units.coefs(coefs - center)
        step = units.raw_coefs(solve_ridge(curvature, slopes, ridge))
    return coefs, curvature


def _weighted_chunks(log: BanditLog, weights: Floats) -> Chunks:
    """Rows, actions, rewards and weights of chunks; without rounds of weight 0 if these are many."""
    for part in log.chunk_slices():
        arrays, counts = log[part].arrays, weights[part]
        rows, actions, rewards = arrays.rows, arrays.actions, arrays.rewards
        used = counts > 0
        if used.mean() < FEW:
            rows = rows[used] if len(rows) > 1 else rows
            actions, rewards, counts = actions[used], rewards[used], counts[used]
            for array in (rows, actions, rewards):
                array.setflags(write=False)  # like a log's columns, so that kernels are not compiled again
        yield rows, actions, rewards, counts


def _click_sums(chunks: Chunks, coefs: Floats) -> tuple[float, Floats, Floats]:
    """Log-likelihood of clicks under ``coefs`` (1, B, D), its negative Hessian and its gradient."""
    likelihood, grams, moments = 0.0, np.zeros((*coefs.shape, coefs.shape[2])), np.zeros(coefs.shape)
    for rows, actions, rewards, counts in chunks:
        scores = np.empty((len(actions), 1))
        round_scores(rows, actions, coefs, scores)
        sums = regression_sums(rows, actions, rewards, counts[:, None], coefs.shape[1], scores)
        grams += sums[0]
        moments += sums[1]
        signed = np.where(rewards > 0.5, scores[:, 0], -scores[:, 0])
        likelihood -= float(np.sum(counts * np.logaddexp(0.0, -signed), where=np.isfinite(rewards)))
    return likelihood, grams, moments


def residual_log(log: BanditLog, coefs: Floats, clicks: bool = False) -> BanditLog:
    """The log with its rewards replaced by residuals of a regression, linear or (``clicks``) logistic."""
    residuals = log.new_array(len(log))
    for rounds in log.chunk_slices():
        arrays, scores = log[rounds].arrays, np.empty((rounds.stop - rounds.start, 1))
        round_scores(arrays.rows, arrays.actions, np.asarray(coefs)[None], scores)
        expected = expit(scores[:, 0]) if clicks else scores[:, 0]
        np.subtract(arrays.rewards, expected, out=residuals[rounds])
    return log.with_rewards(residuals)
