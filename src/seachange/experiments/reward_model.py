"""A logistic reward model of contexts and actions, cross-fitted as in Open Bandit Pipeline's examples."""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from seachange.protocols import Floats, Ints

# What the published tables were made with.
STRENGTH, ITERATIONS = 100.0, 10_000
FOLDS, FOLD_SEED = 3, 12345


def logistic_regression() -> LogisticRegression:
    """The classifier of the published tables, for reward models and for policies."""
    return LogisticRegression(C=STRENGTH, max_iter=ITERATIONS)


def cross_fitted_rewards(
    contexts: Floats, action_features: Floats, actions: Ints, rewards: Floats, positions: Ints | None = None
) -> Floats:
    """r̂(x_t, a) (n, K) = σ(u'x_t + v'g_a + c), fitted to the folds that do not hold round t.

    ``action_features`` (K, e) are the g_a. Where there are ``positions``, each has a fit of its own.
    """
    predicted = np.empty((len(actions), len(action_features)))
    places = np.zeros(len(actions), dtype=np.int64) if positions is None else positions
    joint = np.concatenate([contexts, action_features[actions]], axis=1)
    for known, held_out in KFold(FOLDS, shuffle=True, random_state=FOLD_SEED).split(joint):
        for place in np.unique(places):
            fit, asked = known[places[known] == place], held_out[places[held_out] == place]
            predicted[asked] = _predict(joint[fit], rewards[fit], contexts[asked], action_features)
    return predicted


def _predict(joint: Floats, rewards: Floats, contexts: Floats, action_features: Floats) -> Floats:
    if rewards.min() == rewards.max():
        return np.full((len(contexts), len(action_features)), rewards[0])
    model = logistic_regression().fit(joint, rewards)
    coefs, width = model.coef_[0], contexts.shape[1]
    shared = contexts @ coefs[:width] + model.intercept_[0]
    scores: Floats = expit(shared[:, None] + action_features @ coefs[width:])
    return scores
