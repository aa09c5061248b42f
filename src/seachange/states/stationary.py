"""Chains that start from the stationary distribution of their own moves, as in econometrics."""

from __future__ import annotations

import numpy as np

from seachange.protocols import Floats


def stationary_probs(transition: Floats) -> Floats:
    """π with π = π Φ."""
    return np.asarray(_fundamental(transition)[1])


def stationary_maximum(moves: Floats, firsts: Floats, start: Floats) -> Floats:
    """Φ that maximises Σ_ij moves(i, j) log Φ(i, j) + Σ_z firsts(z) log π(z), π the stationary distribution of Φ."""
    from scipy.optimize import minimize

    n_states = len(firsts)
    if n_states == 1:
        return np.ones((1, 1))

    def rows(logits: Floats) -> Floats:
        scaled = np.exp(logits.reshape(n_states, n_states) - logits.reshape(n_states, n_states).max(axis=1)[:, None])
        return np.asarray(np.maximum(scaled / scaled.sum(axis=1, keepdims=True), 1e-30))

    def loss(logits: Floats) -> tuple[float, Floats]:
        transition = rows(logits)
        deviations, probs = _fundamental(transition)
        value = float(np.sum(moves * np.log(transition)) + np.sum(firsts * np.log(probs)))
        # dπ(k) = Σ_ij π(i) dΦ(i, j) Z(j, k), for changes that leave row sums alone.
        slopes = moves / transition + probs[:, None] * (deviations @ (firsts / probs))[None, :]
        inner = transition * (slopes - np.sum(transition * slopes, axis=1, keepdims=True))
        return -value, -inner.ravel()

    logits = np.log(np.maximum(start, 1e-30)).ravel()
    found = minimize(loss, logits, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10})
    return rows(found.x if found.fun <= loss(logits)[0] else logits)


def _fundamental(transition: Floats) -> tuple[Floats, Floats]:
    """Z = (I - Φ + 1 π')⁻¹ and π."""
    n_states = len(transition)
    ones = np.ones((n_states, n_states))
    probs = np.linalg.solve((np.eye(n_states) - transition + ones).T, np.ones(n_states))
    probs = np.maximum(probs, 1e-300) / np.maximum(probs, 1e-300).sum()
    return np.linalg.inv(np.eye(n_states) - transition + np.tile(probs, (n_states, 1))), probs
