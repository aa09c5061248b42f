"""Logs without propensities, and the distributions that their actions were drawn from."""

import numpy as np

import seachange as sc

K, D = 4, 3
KINDS = ["none", "shared", "per action", "masked"]


def logged_by_softmax(kind, n, seed=0, sharp=1.0):
    """A log without propensities, and the (n, K) distributions its actions were drawn from."""
    generator = np.random.default_rng([seed, KINDS.index(kind)])
    given, scores = {}, np.tile(generator.normal(size=K), (n, 1))
    if kind in ("shared", "masked"):
        contexts = generator.normal(size=(n, D)) * [1.0, 50.0, 0.01] + [1000.0, 0.0, 3.0]
        scores += sharp * (contexts - [1000.0, 0.0, 3.0]) / [1.0, 50.0, 0.01] @ generator.normal(size=(D, K))
        given["contexts"] = contexts
    if kind == "per action":
        given["action_features"] = generator.normal(size=(n, K, D))
        scores += sharp * given["action_features"] @ generator.normal(size=D)
    if kind == "masked":
        mask = generator.random((n, K)) < 0.6
        mask[np.arange(n), generator.integers(K, size=n)] = True
        given["action_mask"], scores = mask, np.where(mask, scores, -np.inf)
    probs = np.exp(scores - scores.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    actions = np.minimum((probs.cumsum(axis=1) < generator.random(n)[:, None]).sum(axis=1), K - 1)
    return sc.BanditLog.from_arrays(actions, generator.random(n), n_actions=K, **given), probs
