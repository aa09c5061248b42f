"""Policies, and how they are learned from a log."""

from seachange.policies.choice import AutoLearner
from seachange.policies.learners import (
    CrossEntropyLearner,
    DMLearner,
    DRLearner,
    IPSLearner,
    MRDRLearner,
    POEMLearner,
    SNIPSLearner,
)
from seachange.policies.per_state import PolicySet, learn_per_state
from seachange.policies.rewards import RewardModel
from seachange.policies.softmax import SoftmaxPolicy

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
    "learn_per_state",
]
