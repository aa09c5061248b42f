"""Probabilities of actions: softmax policies, logit models of the logged action, importance weights and their sums.

π(a | x; θ) ∝ exp(θ · f(x, a))
"""

import numpy as np

from seachange.kernels.compiler import compiled, reordered
from seachange.kernels.lanes import LOWEST, exp_of, own_row


@compiled
def softmax_row(row, allowed, base, coefs, probs):
    """probs(a) ∝ exp(base(a) + θ_a · x_a), 0 if not ``allowed``; return log Σ exp of the scores."""
    own_row, own_block = row.shape[0] > 1, coefs.shape[0] > 1
    highest = -np.inf
    for a in range(probs.size):
        if allowed[a]:
            logit = base[a]
            for j in range(coefs.shape[1]):
                logit += coefs[a if own_block else 0, j] * row[a if own_row else 0, j]
            probs[a] = logit
            highest = max(highest, logit)
    total = 0.0
    for a in range(probs.size):
        probs[a] = np.exp(probs[a] - highest) if allowed[a] else 0.0
        total += probs[a]
    for a in range(probs.size):
        probs[a] /= total
    return highest + np.log(total)


@compiled
def softmax_advice(rows, coefs, mask, advice):
    """advice[t, z] = π(· | x_t; θ_z) for every round t and coefficient set z."""
    n_sets, n_actions = advice.shape[1:]
    own_row, own_block = rows.shape[1] > 1, coefs.shape[1] > 1
    for t in range(advice.shape[0]):
        row = rows[t if rows.shape[0] > 1 else 0]
        allowed = mask[t if mask.shape[0] > 1 else 0]
        for z in range(n_sets):
            highest = -np.inf
            for a in range(n_actions):
                logit = 0.0
                for j in range(coefs.shape[2]):
                    logit += coefs[z, a if own_block else 0, j] * row[a if own_row else 0, j]
                advice[t, z, a] = logit
                if allowed[a]:
                    highest = max(highest, logit)
            for a in range(n_actions):
                advice[t, z, a] = min(advice[t, z, a] - highest, 0.0)
        # One loop without branches, so that the compiler can vectorize it.
        every = advice[t].reshape(advice[t].size)
        for i in range(every.size):
            every[i] = exp_of(every[i]) * (1.0 if every[i] > LOWEST else 0.0)
        for z in range(n_sets):
            total = 0.0
            for a in range(n_actions):
                advice[t, z, a] = advice[t, z, a] if allowed[a] else 0.0
                total += advice[t, z, a]
            for a in range(n_actions):
                advice[t, z, a] /= total


@compiled
def choice_probs(rows, mask, rounds, base, coefs, probs):
    """Write the probabilities of rounds[i] to probs[i], (m, K)."""
    for i in range(rounds.size):
        t = rounds[i]
        softmax_row(rows[t if rows.shape[0] > 1 else 0], mask[t if mask.shape[0] > 1 else 0], base, coefs, probs[i])


@reordered
def choice_sums(rows, mask, actions, rounds, base, coefs, base_slope, coef_slope):
    """Σ -log p(a_t) over ``rounds``; adds its gradients to ``base_slope`` (K,) and ``coef_slope`` (B, D)."""
    own_row, own_block = rows.shape[1] > 1, coefs.shape[0] > 1
    probs = np.empty(base.size)
    loss = 0.0
    for i in range(rounds.size):
        t = rounds[i]
        row, chosen = rows[t if rows.shape[0] > 1 else 0], actions[t]
        level = softmax_row(row, mask[t if mask.shape[0] > 1 else 0], base, coefs, probs)
        score = base[chosen]
        for j in range(coefs.shape[1]):
            score += coefs[chosen if own_block else 0, j] * row[chosen if own_row else 0, j]
        loss += level - score
        probs[chosen] -= 1.0
        for a in range(probs.size):
            base_slope[a] += probs[a]
            for j in range(coefs.shape[1]):
                coef_slope[a if own_block else 0, j] += probs[a] * row[a if own_row else 0, j]
    return loss


@reordered
def weigh(probs, actions, propensities, unseen, rounding, weights):
    """w_t = π(a_t | x_t) / p_t.

    Returns Σ_t Σ_a π(a | x_t) ``unseen`` (a), and the first round with a negative probability or a sum that is off by
    more than ``rounding``, or -1.
    """
    missed, unsound = 0.0, -1
    for t in range(actions.size):
        total, least = 0.0, 0.0
        for a in range(probs.shape[1]):
            total += probs[t, a]
            least = min(least, probs[t, a])
            missed += probs[t, a] * unseen[a]
        # Negated so that NaN is caught too.
        if not (abs(total - 1.0) <= rounding and least >= 0.0) and unsound < 0:
            unsound = t
        weights[t] = probs[t, actions[t]] / propensities[t]
    return missed, unsound


@reordered
def add_own_features(rows, actions, shares, totals):
    """Add Σ_t s_t f(x_t, a_t) to ``totals`` (B, D)."""
    for t in range(actions.size):
        row, total = own_row(rows, t, actions[t]), totals[actions[t] if totals.shape[0] > 1 else 0]
        for j in range(row.size):
            total[j] += shares[t] * row[j]


@compiled
def clustered_products(clusters, n_clusters, first, second, fade, window):
    """(n,) Σ_g A_g(t) B_g(t), with A_g(t) = Σ u_ts first_s over the rounds s of cluster g, and B_g(t) from ``second``.

    u_ts = fade^(t - s) for the last ``window`` rounds up to t, and 0 for earlier ones.
    """
    totals = np.empty(clusters.size)
    sums, last = np.zeros((n_clusters, 2)), np.zeros(n_clusters, dtype=np.int64)
    total, leaving = 0.0, fade**window
    for t in range(clusters.size):
        total *= fade * fade
        # Add the new round, then drop the old one; both may be in the same cluster.
        for step in range(2):
            s = t - step * window
            if s < 0:
                continue
            g, share = clusters[s], leaving if step == 1 else -1.0
            if last[g] < t:
                since = fade ** (t - last[g])
                sums[g, 0] *= since
                sums[g, 1] *= since
                last[g] = t
            before = sums[g, 0] * sums[g, 1]
            sums[g, 0] -= share * first[s]
            sums[g, 1] -= share * second[s]
            total += sums[g, 0] * sums[g, 1] - before
        totals[t] = total
    return totals
