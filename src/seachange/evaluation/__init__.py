"""What a policy would earn, said before it is deployed, with intervals."""

from seachange.evaluation.bounds import Bound, Condition
from seachange.evaluation.estimators import ESTIMATORS, ValueEstimate, evaluate, evaluate_logging, evaluate_states
from seachange.evaluation.filled_bounds import ModelBounds, model_bounds

__all__ = [
    "ESTIMATORS",
    "Bound",
    "Condition",
    "ModelBounds",
    "ValueEstimate",
    "evaluate",
    "evaluate_logging",
    "evaluate_states",
    "model_bounds",
]
