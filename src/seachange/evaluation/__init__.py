"""What a policy would earn, said before it is deployed, with intervals, or refused."""

from seachange.evaluation.adaptive import OnlineEstimate, evaluate_online
from seachange.evaluation.bounds import Bound, Condition
from seachange.evaluation.diagnostics import Diagnostics, diagnose
from seachange.evaluation.estimators import evaluate, evaluate_logging, evaluate_states, watch
from seachange.evaluation.filled_bounds import ModelBounds, model_bounds
from seachange.evaluation.forecasting import Forecast, forecast
from seachange.evaluation.formulas import ESTIMATORS
from seachange.evaluation.future import FutureEstimate, evaluate_future
from seachange.evaluation.over_time import ValuesOverTime, evaluate_by_period, evaluate_over_time
from seachange.evaluation.sequences import Watched
from seachange.evaluation.value_estimate import IntervalKind, ValueEstimate

__all__ = [
    "ESTIMATORS",
    "Bound",
    "Condition",
    "Diagnostics",
    "Forecast",
    "FutureEstimate",
    "IntervalKind",
    "ModelBounds",
    "OnlineEstimate",
    "ValueEstimate",
    "ValuesOverTime",
    "Watched",
    "diagnose",
    "evaluate",
    "evaluate_by_period",
    "evaluate_future",
    "evaluate_logging",
    "evaluate_online",
    "evaluate_over_time",
    "evaluate_states",
    "forecast",
    "model_bounds",
    "watch",
]
