"""The probability with which Thompson sampling takes each action."""

import numpy as np

from seachange.kernels.compiler import compiled
from seachange.kernels.lanes import exp_of

# A normal variable is within this many deviations of its mean but for a probability of 2e-9.
REACH = 6.0
# Ends of the intervals of the quadrature, in deviations from each mean.
ENDS = np.array([-REACH, -4.5, -3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 4.5, REACH])
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
# Deviations are at least this share of the distance to the leading mean, so that rounding does not show.
LEAST_SHARE = 1e-9
LEAST = 1e-150
ROOT = 1.0 / np.sqrt(2.0 * np.pi)


@compiled
def thompson_probs(means, deviations, allowed, probs):
    """probs(a) = P(X_a is the largest) of independent X_a ~ N(means(a), deviations(a)²), over the actions allowed.

    ∫ φ_a(x) Π_{b ≠ a} Φ_b(x) dx, by Gauss-Legendre quadrature between points where some Φ_b changes.
    """
    lead = -1
    for a in range(means.size):
        probs[a] = 0.0
        above = lead < 0 or means[a] - REACH * deviations[a] > means[lead] - REACH * deviations[lead]
        if allowed[a] and above:
            lead = a
    # The largest is above ``low``; actions that stay below it have no chance.
    low = -REACH * deviations[lead]
    contenders, n = np.empty(means.size, np.int64), 0
    centers, scales = np.empty(means.size), np.empty(means.size)
    for a in range(means.size):
        center = means[a] - means[lead]
        if allowed[a] and center + REACH * deviations[a] >= low:
            contenders[n], centers[n] = a, center
            scales[n] = max(deviations[a], LEAST_SHARE * abs(center), LEAST)
            n += 1
    if n == 1:
        probs[lead] = 1.0
        return
    low, high = -REACH * max(deviations[lead], LEAST), -np.inf
    for i in range(n):
        high = max(high, centers[i] + REACH * scales[i])
    ends, n_ends = np.empty(n * ENDS.size), 0
    for i in range(n):
        for end in ENDS:
            ends[n_ends] = min(max(centers[i] + end * scales[i], low), high)
            n_ends += 1
    ends = ends[:n_ends]
    ends.sort()
    # Ends closer than half the smallest deviation hardly matter.
    apart, n_ends = 0.5 * scales[:n].min(), 1
    for end in ends[1:]:
        if end - ends[n_ends - 1] > apart:
            ends[n_ends] = end
            n_ends += 1
    ends[n_ends - 1] = high
    below, density = np.empty(n), np.empty(n)
    for e in range(n_ends - 1):
        half = 0.5 * (ends[e + 1] - ends[e])
        if half <= 0.0:
            continue
        for j in range(NODES.size):
            x = ends[e] + half * (1.0 + NODES[j])
            for i in range(n):
                z = (x - centers[i]) / scales[i]
                density[i] = ROOT * exp_of(-0.5 * z * z) if abs(z) < 8.0 else 0.0
                # Φ(z) with an error below 8e-8 (Abramowitz and Stegun 26.2.17).
                t = 1.0 / (1.0 + 0.2316419 * abs(z))
                tail = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
                below[i] = 1.0 - density[i] * tail if z > 0.0 else density[i] * tail
                density[i] /= scales[i]
            # Products of all others, from the left and then from the right.
            others = WEIGHTS[j] * half
            for i in range(n):
                density[i] *= others
                others *= below[i]
            others = 1.0
            for i in range(n - 1, -1, -1):
                probs[contenders[i]] += density[i] * others
                others *= below[i]
    total = 0.0
    for i in range(n):
        total += probs[contenders[i]]
    for i in range(n):
        probs[contenders[i]] /= total
