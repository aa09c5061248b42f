"""One round of a deployment that holds a belief over states. Exp4.S and the HMM filter differ only in their evidence.

A belief Q_t(z) is a distribution over states before round t's reward. A round is: mix the experts' advice by the
belief, draw an action, turn its reward into evidence for each state, weigh the belief by it, and let the world move.
For Exp4.S the evidence is exp(-η c̃(z)) and the world moves by (1 - β) I + β / L.
"""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled
from seachange.kernels.emission import LARGEST


@compiled
def mix_advice(belief, advice, exploration, allowed, probs):
    """probs(a) ∝ (1 - γ) Σ_z Q(z) π_z(a) + γ / (number of actions allowed), over the actions that are."""
    n_allowed = 0
    advised = 0.0
    for a in range(probs.size):
        probs[a] = 0.0
        if allowed[a]:
            n_allowed += 1
            for z in range(belief.size):
                probs[a] += belief[z] * advice[z, a]
            advised += probs[a]
    # Experts that know no masks may advise nothing that is allowed: then chance decides.
    kept = (1.0 - exploration) / advised if advised > 0.0 else 0.0
    share = (exploration if advised > 0.0 else 1.0) / n_allowed
    for a in range(probs.size):
        if allowed[a]:
            probs[a] = kept * probs[a] + share


@compiled
def draw_action(probs, uniform):
    """The first action whose cumulative probability exceeds ``uniform`` and whose own is not zero."""
    cumulative = 0.0
    last = 0
    for a in range(probs.size):
        if probs[a] > 0.0:
            last = a
            cumulative += probs[a]
            if uniform < cumulative:
                return a
    return last


@compiled
def exp4s_evidence(column, propensity, cost, learning_rate, evidence):
    """exp(-η c̃(z)) up to a factor, with c̃(z) = π_z(a) cost / 𝓔(a)."""
    scale = min(max(-learning_rate * cost / propensity, -LARGEST), LARGEST)
    # The best expert gets 1, so that exp() stays in range whatever the cost.
    highest = scale * column[0]
    for z in range(column.size):
        highest = max(highest, scale * column[z])
    for z in range(column.size):
        evidence[z] = np.exp(scale * column[z] - highest)


@compiled
def weigh(belief, evidence, weighed):
    """weighed(z) ∝ Q(z) evidence(z)."""
    total = 0.0
    for z in range(belief.size):
        weighed[z] = belief[z] * evidence[z]
        total += weighed[z]
    inverse = 1.0 / total
    for z in range(belief.size):
        weighed[z] *= inverse


@compiled
def move(weighed, transition, belief):
    """belief(z') = Σ_z weighed(z) Φ(z, z')."""
    for j in range(belief.size):
        moved = 0.0
        for i in range(belief.size):
            moved += weighed[i] * transition[i, j]
        belief[j] = moved


@compiled
def advance(belief, evidence, transition, scratch):
    """Weigh the belief by the evidence, then let the world move; in place."""
    weigh(belief, evidence, scratch)
    move(scratch, transition, belief)


@compiled
def replay(belief, evidences, transition):
    """``belief`` after rounds with these (m, L) evidences, in place."""
    scratch = np.empty(belief.size)
    for t in range(evidences.shape[0]):
        advance(belief, evidences[t], transition, scratch)
