"""Off-policy evaluation: what a policy would earn, estimated from a log before it is deployed."""

from seachange.evaluation.deployment import DeploymentEstimate, evaluate_deployment
from seachange.evaluation.diagnostics import Diagnostics, EstimateWarning, NoEstimateError, Reason, diagnose
from seachange.evaluation.estimators import evaluate, evaluate_logging, evaluate_states, watch
from seachange.evaluation.formulas import ESTIMATORS
from seachange.evaluation.future_values import Forecast, FutureEstimate, evaluate_future, forecast
from seachange.evaluation.online import OnlineEstimate, evaluate_online
from seachange.evaluation.over_time import ValuesOverTime, evaluate_by_period, evaluate_over_time
from seachange.evaluation.theorems import Bound, Condition, ModelBounds, model_bounds
from seachange.evaluation.value_estimate import ConfidenceSequence, IntervalKind, ValueEstimate

__all__ = [
    "ESTIMATORS", "Bound", "Condition", "ConfidenceSequence", "DeploymentEstimate", "Diagnostics", "EstimateWarning",
    "Forecast", "FutureEstimate", "IntervalKind", "ModelBounds", "NoEstimateError", "OnlineEstimate", "Reason",
    "ValueEstimate", "ValuesOverTime", "diagnose", "evaluate", "evaluate_by_period", "evaluate_deployment",
    "evaluate_future", "evaluate_logging", "evaluate_online", "evaluate_over_time", "evaluate_states", "forecast",
    "model_bounds", "watch",
]  # fmt: skip
