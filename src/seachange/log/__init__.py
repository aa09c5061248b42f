"""Logs of decisions: what was seen, what was done, what came of it, and with which probability it was done."""

from seachange.log.bandit_log import BanditLog
from seachange.log.joint import JointFeatures
from seachange.log.readers import read_log

__all__ = ["BanditLog", "JointFeatures", "read_log"]
