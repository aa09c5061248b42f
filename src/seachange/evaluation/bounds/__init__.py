"""The paper's bounds, as printed and as they can be proved, evaluated for a model and a log."""

from seachange.evaluation.bounds.model_bounds import ModelBounds, Quantities, model_bounds
from seachange.evaluation.bounds.theorems import (
    Bound,
    Condition,
    PolicyClass,
    corollary_bound,
    detector_bound,
    finite_class,
    interval_regret_bound,
    ips_error_bound,
    least_window,
    optimality_gap_bound,
    other_states_bound,
    regret_bound,
    softmax_class,
    switching_regret_bound,
    table_class,
)

__all__ = [
    "Bound", "Condition", "ModelBounds", "PolicyClass", "Quantities", "corollary_bound", "detector_bound",
    "finite_class", "interval_regret_bound", "ips_error_bound", "least_window", "model_bounds", "optimality_gap_bound",
    "other_states_bound", "regret_bound", "softmax_class", "switching_regret_bound", "table_class",
]  # fmt: skip
