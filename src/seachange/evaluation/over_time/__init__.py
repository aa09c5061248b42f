"""Values that change over time: around each round, by period, and in the future."""

from seachange.evaluation.over_time.forecasting import Forecast, forecast
from seachange.evaluation.over_time.future_values import FutureEstimate, evaluate_future
from seachange.evaluation.over_time.moving_values import ValuesOverTime, evaluate_by_period, evaluate_over_time

__all__ = [
    "Forecast", "FutureEstimate", "ValuesOverTime", "evaluate_by_period", "evaluate_future", "evaluate_over_time",
    "forecast",
]  # fmt: skip
