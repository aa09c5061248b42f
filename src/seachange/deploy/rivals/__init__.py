"""Rivals: published bandit algorithms for changing worlds, with the protocol of our deployers."""

from seachange.deploy.rivals.cusum_klucb import CUSUMKLUCB
from seachange.deploy.rivals.discounted_thompson import DiscountedThompson
from seachange.deploy.rivals.discounted_ucb import DiscountedUCB
from seachange.deploy.rivals.exp3s import Exp3S
from seachange.deploy.rivals.glr_klucb import GLRKLUCB
from seachange.deploy.rivals.klucb import KLUCB
from seachange.deploy.rivals.monitored_klucb import MonitoredKLUCB
from seachange.deploy.rivals.rival import Rival, RivalState
from seachange.deploy.rivals.sliding_window_klucb import SlidingWindowKLUCB

__all__ = [
    "CUSUMKLUCB", "GLRKLUCB", "KLUCB", "DiscountedThompson", "DiscountedUCB", "Exp3S", "MonitoredKLUCB", "Rival",
    "RivalState", "SlidingWindowKLUCB",
]  # fmt: skip
