"""Reward predictions that are not linear in the features, for logs whose propensities are estimated."""

import numpy as np

from seachange.engine import stage
from seachange.evaluation.terms import FOLDS, Range, fit_across, slices_of
from seachange.log.bandit_log import BanditLog
from seachange.log.clusters import Clusters
from seachange.propensities.boosting import SETTINGS, boostable_rounds
from seachange.protocols import Floats, Ints


def boosted_rewards(log: BanditLog, membership: Floats, limits: Range | None) -> Floats | None:
    """(n, K) r̂ = l + b g, both fitted on other blocks of time; None if the log is too small, or if b is 0.

    l is the linear model and g are boosted trees fitted to its residuals, for each action unless actions have their own
    features. b minimizes the squared error of all blocks, each predicted by the trees of the others.
    """
    most, K = boostable_rounds(log), log.n_actions
    if most == 0:
        return None
    from sklearn.ensemble import HistGradientBoostingRegressor

    folds, rows, actions = Clusters(log).folds(FOLDS), np.arange(len(log)), log.arrays.actions
    linear, trees = fit_across(log, membership, folds), np.zeros((len(log), K))
    predicted = np.concatenate([linear.predict(rounds) for rounds in slices_of(log)])
    residuals, own = log.arrays.rewards - predicted[rows, actions], log.joint.kind == "per action"

    def features(rounds: Ints, action: Ints | int) -> Floats:
        contexts = log.contexts[rounds, action] if own else log.contexts[rounds]
        return np.column_stack([contexts, membership[rounds, 1:]])

    with stage("Predicting rewards", folds.max() + 1) as fitting:
        for fold in range(folds.max() + 1):
            inside = np.flatnonzero(folds == fold)
            for group in [range(K)] if own else [[action] for action in range(K)]:
                seen = np.flatnonzero((folds != fold) & np.isin(actions, group))
                seen = seen[:: max(len(seen) // most, 1)]
                if len(seen) > 1:
                    model = HistGradientBoostingRegressor(**SETTINGS).fit(
                        features(seen, actions[seen]), residuals[seen]
                    )
                    for action in group:
                        trees[inside, action] = model.predict(features(inside, action))
            fitting.advance()
    found = trees[rows, actions]
    share = min(float(found @ residuals) / max(float(found @ found), 1e-300), 1.0)
    if not share > 0:
        return None
    return np.clip(predicted + share * trees, *(limits or (-np.inf, np.inf)))
