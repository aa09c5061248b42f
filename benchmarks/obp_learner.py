"""Open Bandit Pipeline's side of learning a policy: IPWLearner on logistic regression.

obp_learner.py PROBLEM.npz OUT.npz [shipped|tuned]; see learned.py for the file contents.
"""

from __future__ import annotations

import sys
import warnings
from importlib.metadata import version

import numpy as np
from sklearn.linear_model import LogisticRegression

from learned import Problem, answer_of, write_policy
from peers import serve
from pipeline import import_pipeline

# The default base classifier, or one that stops before it converges.
WAYS: dict[str, dict[str, float]] = {"shipped": {}, "tuned": {"tol": 1e-2}}


def main(path: str, out: str, way: str) -> None:
    """Learn, write the policy, then measure on request."""
    warnings.simplefilter("ignore")
    import_pipeline()
    from obp.policy import IPWLearner

    problem = Problem.read(path)

    def learn() -> IPWLearner:
        learner = IPWLearner(n_actions=problem.n_actions, base_classifier=LogisticRegression(**WAYS[way]))
        learner.fit(problem.contexts, problem.actions, problem.rewards, problem.propensities)
        return learner

    probs = np.zeros((len(problem.test_contexts), problem.n_actions))
    classifier = learn().base_classifier_list[0]
    probs[:, classifier.classes_] = classifier.predict_proba(problem.test_contexts)
    write_policy(out, probs)
    serve(answer_of(f"obp IPWLearner, {way}", f"LogisticRegression({WAYS[way]})", out, {"obp": version("obp")}), learn)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "shipped")
