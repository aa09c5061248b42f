"""What a policy would earn, said before it is deployed, with intervals, or refused."""

from seachange.evaluation.diagnostics import Diagnostics, diagnose
from seachange.evaluation.estimators import evaluate, evaluate_logging, evaluate_states, watch
from seachange.evaluation.formulas import ESTIMATORS
from seachange.evaluation.sequences import Watched
from seachange.evaluation.value_estimate import IntervalKind, ValueEstimate

__all__ = [
    "ESTIMATORS",
    "Diagnostics",
    "IntervalKind",
    "ValueEstimate",
    "Watched",
    "diagnose",
    "evaluate",
    "evaluate_logging",
    "evaluate_states",
    "watch",
]
