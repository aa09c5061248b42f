"""How strongly coefficients should be drawn to their centre: the ridge under which the log is most likely.

Coefficients are taken as drawn from N(centre, σ² / (ridge · unit²)); integrating them out leaves the evidence for the
ridge alone (empirical Bayes). Where the log says much about every coefficient the ridge hardly matters; where there are
more coefficients than the log can tell, it decides everything.
"""

from __future__ import annotations

import numpy as np

from seachange.protocols import Floats

# The range of ridges, in rounds: from none to so much that nothing is left of a deviation.
LEAST, MOST = 1e-4, 1e8
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


def determined(grams: Floats, ridge: float, scales: Floats) -> float:
    """How many coefficients the log determines under a ridge: Σ g / (g + ridge) over the eigenvalues of the Gram."""
    values = np.maximum(np.linalg.eigvalsh(grams / np.outer(scales, scales)), 0.0)
    return float(np.sum(values / (values + max(ridge, 1e-300))))
