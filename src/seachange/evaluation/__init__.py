"""What a policy would earn, said before it is deployed, with intervals."""

from seachange.evaluation.estimators import ESTIMATORS, ValueEstimate, evaluate, evaluate_logging, evaluate_states

__all__ = ["ESTIMATORS", "ValueEstimate", "evaluate", "evaluate_logging", "evaluate_states"]
