"""A boosted model of the logging policy, for policies that are not linear in the features."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.special import logsumexp

from seachange.engine import one_thread
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Bools, Floats

if TYPE_CHECKING:
    from seachange.propensities.estimation import ChoiceSample

SETTINGS = {"learning_rate": 0.1, "max_leaf_nodes": 8, "early_stopping": False, "random_state": 0}
LEAST_IN_LEAF, MOST_IN_LEAF = 20, 100  # rounds: one in a hundred, within these limits
SIZES = (10, 20, 30, 45, 70, 100)  # numbers of boosting rounds, chosen by held-out log-loss
MOST_CELLS = 5_000_000  # limit on rounds × actions × features to learn from
LEAST_ROUNDS, LEAST_EACH = 500, 20  # rounds in all, and for each action on average
MOST_ACTIONS = 20  # each boosting round grows a tree per action


def boostable_rounds(log: BanditLog) -> int:
    """How many rounds a boosted model may learn from; 0 if it is not worth trying."""
    n_features = log.joint.n_features
    if n_features == 0 or not 2 <= log.n_actions <= MOST_ACTIONS:
        return 0
    rounds = min(MOST_CELLS // (log.n_actions * n_features), len(log))
    return rounds if rounds >= max(LEAST_ROUNDS, LEAST_EACH * log.n_actions) else 0


@dataclass(frozen=True, eq=False)
class BoostedChoice:
    """π_0(a | x) from boosted trees: a classifier of the action by the context or, if actions have their own features,
    a classifier of (round, action) pairs as taken or not, whose odds are normalized over the available actions.

    Pairs also see the linear model's log-probability, which depends on the other actions of the round.
    """

    classifier: Any

    @classmethod
    def fit(cls, sample: "ChoiceSample", linear: Floats) -> Self:
        """Learn from ``sample``; ``linear`` (m, K) are the linear model's log-probabilities."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        rows, allowed = _rows(sample, linear)
        taken = sample.log.actions[sample.rounds]
        if allowed is not None:
            taken = (taken[:, None] == np.arange(sample.log.n_actions))[allowed]
        with one_thread():
            least = min(max(len(taken) // 100, LEAST_IN_LEAF), MOST_IN_LEAF)
            model = HistGradientBoostingClassifier(max_iter=SIZES[-1], min_samples_leaf=least, **SETTINGS)
            return cls(model.fit(rows, taken))

    def log_probs(self, sample: "ChoiceSample", linear: Floats, size: int | None = None) -> Iterator[Floats]:
        """(m, K) log π_0(a | x) for each of the ``SIZES``, or for one; actions never seen have their linear ones."""
        rows, allowed = _rows(sample, linear)
        with one_thread():
            for count, probs in enumerate(self.classifier.staged_predict_proba(rows), 1):
                if count not in (SIZES if size is None else (size,)):
                    continue
                scores, logs = linear.copy(), np.log(np.maximum(probs, np.finfo(float).tiny))
                if allowed is None:
                    scores[:, self.classifier.classes_] = logs
                else:
                    scores[allowed] = logs[:, 1] - logs[:, 0]
                scores[~sample.allowed] = -np.inf
                yield scores - logsumexp(scores, axis=1, keepdims=True)
                if count == size:
                    return


def _rows(sample: "ChoiceSample", linear: Floats) -> tuple[Floats, Bools | None]:
    """Features of the rounds or, with (m, K) which actions are available, of the pairs."""
    log, contexts = sample.log, sample.log.contexts[sample.rounds]
    if log.joint.kind == "per action":
        allowed = sample.allowed
        return np.column_stack([contexts[allowed], linear[allowed]]), allowed
    return np.column_stack([contexts, log.arrays.mask[sample.rounds]]) if log.masked else contexts, None
