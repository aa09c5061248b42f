"""How strongly coefficients should be drawn to their centre: the ridge under which the log is most likely.

Coefficients are taken as drawn from N(centre, σ² / (ridge · unit²)); integrating them out leaves the evidence for the
ridge alone (empirical Bayes). Where the log says much about every coefficient the ridge hardly matters; where there are
more coefficients than the log can tell, it decides everything.
"""

from __future__ import annotations

import numpy as np

from seachange.kernels.regression import solve_ridge
from seachange.protocols import Floats

# The range of ridges, in rounds: from none to so much that nothing is left of a deviation.
LEAST, MOST = 1e-4, 1e8
# As much ridge as keeps collinear features from blowing up, where nothing is known of it yet.
STABLE_RIDGE = 1e-6
# How often ridge and noise take turns, until the ridge stays the same to this share.
MOST_TURNS, SAME_RIDGE = 10, 0.05
# Steps of the search on a logarithmic grid, then within its best cell.
STEPS = 49


def evidence_ridge(grams: Floats, linear: Floats, noises: Floats | float, scales: Floats) -> float:
    """The ridge with the highest evidence.

    ``grams`` (..., D, D) and ``linear`` (..., D) are the likelihood's curvature G and G d̂ at its own maximum d̂, a
    deviation from the centre, both times ``noises`` (...); ``scales`` (D,) are the units of the features.
    """
    grams, linear = grams / np.outer(scales, scales), linear / scales
    values, vectors = np.linalg.eigh(grams)
    values = np.maximum(values, 0.0)
    squares = np.square(np.einsum("...ij,...i->...j", vectors, linear)) / np.asarray(noises)[..., None]

    def evidence(ridges: Floats) -> Floats:
        penalised = values[..., None] + ridges
        terms = np.log(ridges) - np.log(penalised) + squares[..., None] / penalised
        return np.asarray(terms.reshape(-1, len(ridges)).sum(axis=0))

    grid = np.geomspace(LEAST, MOST, STEPS)
    place = int(np.argmax(evidence(grid)))
    fine = np.geomspace(grid[max(place - 1, 0)], grid[min(place + 1, STEPS - 1)], STEPS)
    return float(fine[np.argmax(evidence(fine))])


def likeliest_ridge(grams: Floats, moments: Floats, squares: float, rounds: float, scales: Floats) -> float:
    """The ridge of a linear regression: that and the noise it leaves take turns until the ridge stays.

    ``grams`` Σ f f' (..., D, D), ``moments`` Σ f d (..., D) and ``squares`` Σ d² are those of ``rounds`` deviations d.
    """
    ridge = STABLE_RIDGE
    for _ in range(MOST_TURNS):
        coefs = solve_ridge(grams, moments, ridge * np.square(scales))
        fitted = np.einsum("...ij,...j->...i", grams, coefs)
        unexplained = max(squares - float(np.sum(coefs * (2 * moments - fitted))), 1e-12 * squares, 1e-300)
        noise = unexplained / max(rounds - determined(grams, ridge, scales), 0.1 * rounds, 1e-300)
        before, ridge = ridge, evidence_ridge(grams, moments, noise, scales)
        if abs(ridge - before) <= SAME_RIDGE * ridge:
            break
    return ridge


def bounding_ridge(grams: Floats, most: float, scales: Floats) -> float:
    """The least ridge, from 1 on, under which at most so many coefficients are determined."""
    ridges = np.geomspace(1.0, MOST, STEPS)
    return float(next((ridge for ridge in ridges if determined(grams, ridge, scales) <= most), MOST))


def occam(grams: Floats, ridge: float, scales: Floats, rounds: float) -> float:
    """What coefficients cost in BIC: Σ log(1 + g / ridge), where without a ridge each costs log n.

    That is how much wider the prior is than what the log leaves open; half of it is lost of the log-evidence.
    """
    values = np.maximum(np.linalg.eigvalsh(grams / np.outer(scales, scales)), 0.0)
    return float(np.log1p(values / ridge).sum()) if ridge > 0 else values.size * float(np.log(max(rounds, 1.0)))


def determined(grams: Floats, ridge: float, scales: Floats) -> float:
    """How many coefficients the log determines under a ridge: Σ g / (g + ridge) over the eigenvalues of the Gram."""
    values = np.maximum(np.linalg.eigvalsh(grams / np.outer(scales, scales)), 0.0)
    return float(np.sum(values / (values + max(ridge, 1e-300))))
