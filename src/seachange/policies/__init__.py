"""Policies, and how they are learned from a log."""

from seachange.policies.learners import CrossEntropyLearner as CrossEntropyLearner
from seachange.policies.learners import DMLearner as DMLearner
from seachange.policies.learners import DRLearner as DRLearner
from seachange.policies.learners import IPSLearner as IPSLearner
from seachange.policies.learners import MRDRLearner as MRDRLearner
from seachange.policies.learners import POEMLearner as POEMLearner
from seachange.policies.learners import SNIPSLearner as SNIPSLearner
from seachange.policies.objective_choice import AutoLearner as AutoLearner
from seachange.policies.per_state import PolicySet as PolicySet
from seachange.policies.per_state import learn_per_state as learn_per_state
from seachange.policies.reward_models import RewardModel as RewardModel
from seachange.policies.softmax import SoftmaxPolicy as SoftmaxPolicy
from seachange.policies.tabular import TabularLearner as TabularLearner
from seachange.policies.tabular import TabularPolicy as TabularPolicy
