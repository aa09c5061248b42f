"""Propensities: estimate those that were not logged, and check the calibration of those that were."""

from seachange.propensities.calibration import PropensityReport, propensity_report
from seachange.propensities.estimation import estimate_logging_probs, estimate_propensities

__all__ = ["PropensityReport", "estimate_logging_probs", "estimate_propensities", "propensity_report"]
