"""Off-policy objectives of a softmax policy: value and gradient in one pass, additive over chunks of rounds."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled
from seachange.kernels.softmax import softmax_row


@compiled
def objective_sums(rows, mask, actions, rewards, propensities, weights, modelled, coefs, clip, squares, entropies):
    """Sums over rounds of u y, u y², u H, (3,), and their gradients, (3, B, D).

    y = Σ_a π(a) m(a) + min{M, π(a_t) / p_t} (r_t - m(a_t)),  H = -Σ_a π(a) log π(a)

    u are the rounds' weights, m the modelled rewards, (n, K) or (1, K); zeros make y the clipped IPS term. The
    gradients of u y² and u H are left at 0 unless ``squares`` and ``entropies`` ask for them.
    """
    n_actions, n_features = mask.shape[1], coefs.shape[1]
    own_row, own_block = rows.shape[1] > 1, coefs.shape[0] > 1
    same_probs = rows.shape[0] == 1 and mask.shape[0] == 1
    sums = np.zeros(3)
    gradients = np.zeros((3, coefs.shape[0], n_features))
    probs = np.empty(n_actions)
    slope = np.empty(n_actions)
    entropy = 0.0
    known = False
    for t in range(actions.size):
        weight = weights[t]
        if weight == 0.0:
            continue
        row = rows[t if rows.shape[0] > 1 else 0]
        model = modelled[t if modelled.shape[0] > 1 else 0]
        if not (known and same_probs):
            softmax_row(row, coefs, mask[t if mask.shape[0] > 1 else 0], probs)
            entropy = 0.0
            if entropies:
                for a in range(n_actions):
                    if probs[a] > 0.0:
                        entropy -= probs[a] * np.log(probs[a])
            known = True
        chosen = actions[t]
        residual = rewards[t] - model[chosen]
        ratio = probs[chosen] / propensities[t]
        direct = 0.0
        for a in range(n_actions):
            direct += probs[a] * model[a]
        value = direct + min(clip, ratio) * residual
        # A clipped ratio no longer moves with the policy.
        push = ratio * residual if ratio < clip else 0.0
        sums[0] += weight * value
        sums[1] += weight * value * value
        sums[2] += weight * entropy
        for a in range(n_actions):
            slope[a] = probs[a] * (model[a] - direct - push)
        slope[chosen] += push
        for a in range(n_actions):
            r, b = a if own_row else 0, a if own_block else 0
            for j in range(n_features):
                pull = weight * slope[a] * row[r, j]
                gradients[0, b, j] += pull
                if squares:
                    gradients[1, b, j] += 2.0 * value * pull
            if entropies and probs[a] > 0.0:
                bend = -weight * probs[a] * (np.log(probs[a]) + entropy)
                for j in range(n_features):
                    gradients[2, b, j] += bend * row[r, j]
    return sums, gradients
