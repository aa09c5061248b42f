"""Policies, and how they are learned from a log."""

from seachange.policies.learners import DMLearner, DRLearner, IPSLearner, POEMLearner
from seachange.policies.per_state import PolicySet, learn_per_state
from seachange.policies.rewards import RewardModel
from seachange.policies.softmax import SoftmaxPolicy
from seachange.policies.tabular import TabularPolicy
from seachange.policies.tabular_learner import TabularLearner, TabularOptimum

__all__ = [
    "DMLearner",
    "DRLearner",
    "IPSLearner",
    "POEMLearner",
    "PolicySet",
    "RewardModel",
    "SoftmaxPolicy",
    "TabularLearner",
    "TabularOptimum",
    "TabularPolicy",
    "learn_per_state",
]
