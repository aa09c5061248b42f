"""Transfers: what consecutive rounds do to a belief, whatever the belief before them.

The transfer of round t is diag(e_t) Φ, with e_t its evidence; that of several rounds is the product of theirs. A kernel
takes it as (L, L + 1): its rows, each divided by a factor so that they do not underflow, and then the logarithms of
these factors, the largest of which is 0. A factor of 0 means that the rewards rule the state out; its row is not read.
"""

import numpy as np

from seachange.kernels.belief_updates import move, weigh
from seachange.kernels.compiler import compiled


@compiled
def rebase(logs):
    """Subtract the largest entry, in place."""
    highest = logs.max()
    if highest > -np.inf:
        logs -= highest


@compiled
def transfer_of_rounds(evidences, transition):
    """Π_t diag(e_t) Φ for evidences (m, L)."""
    n_states = transition.shape[0]
    transfer, scratch = np.zeros((n_states, n_states + 1)), np.empty(n_states)
    for z in range(n_states):
        row = transfer[z, :n_states]
        row[z] = 1.0
        for t in range(evidences.shape[0]):
            factor = weigh(row, evidences[t], scratch)
            transfer[z, n_states] += np.log(factor)
            if factor == 0.0:
                break
            move(scratch, transition, row)
    rebase(transfer[:, n_states])
    return transfer


@compiled
def pass_through(belief, transfer, after):
    """after ∝ belief · transfer; return the logarithm of the factor."""
    n_states = belief.size
    highest, total = -np.inf, 0.0
    for z in range(n_states):
        after[z] = 0.0
        if belief[z] > 0.0:
            highest = max(highest, transfer[z, n_states])
    for z in range(n_states):
        if belief[z] > 0.0 and transfer[z, n_states] > -np.inf:
            weight = belief[z] * np.exp(transfer[z, n_states] - highest)
            total += weight
            for k in range(n_states):
                after[k] += weight * transfer[z, k]
    after /= total
    return highest + np.log(total)


@compiled
def product_of_transfers(earlier, later):
    """earlier · later."""
    n_states = earlier.shape[0]
    product = np.empty((n_states, n_states + 1))
    for z in range(n_states):
        product[z, n_states] = earlier[z, n_states]
        if product[z, n_states] > -np.inf:
            product[z, n_states] += pass_through(earlier[z, :n_states], later, product[z, :n_states])
    rebase(product[:, n_states])
    return product


@compiled
def log_mean(row, logs):
    """log Σ_k row(k) exp(logs(k))."""
    highest, total = -np.inf, 0.0
    for k in range(row.size):
        if row[k] > 0.0:
            highest = max(highest, logs[k])
    if highest == -np.inf:
        return highest
    for k in range(row.size):
        if row[k] > 0.0:
            total += row[k] * np.exp(logs[k] - highest)
    return highest + np.log(total)


@compiled
def pass_back(transfer, logs):
    """log (transfer · exp(logs)) up to a constant, for ``logs`` (L,)."""
    n_states = logs.size
    before = np.empty(n_states)
    for z in range(n_states):
        before[z] = transfer[z, n_states]
        if before[z] > -np.inf:
            before[z] += log_mean(transfer[z, :n_states], logs)
    rebase(before)
    return before


@compiled
def smoothing_weights(belief, evidences, transition, logs):
    """p(z_1 | r_1:m, later rewards), given the belief before round 1, evidences (m, L), and the rounds after them.

    ``logs`` (L,) is log p(rewards after round m | z_m+1), up to a constant.
    """
    n_states = belief.size
    for t in range(evidences.shape[0] - 1, -1, -1):
        before = np.empty(n_states)
        for z in range(n_states):
            before[z] = np.log(evidences[t, z]) + log_mean(transition[z], logs)
        rebase(before)
        logs = before
    weights = np.log(belief) + logs
    rebase(weights)
    weights = np.exp(weights)
    return weights / weights.sum()
