"""Policies, and how they are learned from a log."""

from seachange.policies.learners import (
    CrossEntropyLearner,
    DMLearner,
    DRLearner,
    IPSLearner,
    MRDRLearner,
    POEMLearner,
    SNIPSLearner,
)
from seachange.policies.objective_choice import AutoLearner
from seachange.policies.per_state import PolicySet, learn_per_state
from seachange.policies.reward_models import RewardModel
from seachange.policies.softmax import SoftmaxPolicy
from seachange.policies.tabular import TabularLearner, TabularPolicy

__all__ = [
    "AutoLearner",
    "CrossEntropyLearner",
    "DMLearner",
    "DRLearner",
    "IPSLearner",
    "MRDRLearner",
    "POEMLearner",
    "PolicySet",
    "RewardModel",
    "SNIPSLearner",
    "SoftmaxPolicy",
    "TabularLearner",
    "TabularPolicy",
    "learn_per_state",
]
