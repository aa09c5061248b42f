"""Logs of decisions: what was seen, what was done, what came of it, and with which probability it was done."""

from seachange.log.bandit_log import BanditLog
from seachange.log.calibration import PropensityReport, propensity_report
from seachange.log.joint import JointFeatures
from seachange.log.propensities import estimate_logging_probs, estimate_propensities
from seachange.log.readers import read_log
from seachange.log.writers import write_log

__all__ = [
    "BanditLog",
    "JointFeatures",
    "PropensityReport",
    "estimate_logging_probs",
    "estimate_propensities",
    "propensity_report",
    "read_log",
    "write_log",
]
