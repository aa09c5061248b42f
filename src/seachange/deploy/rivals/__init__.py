"""Rivals: published bandit algorithms for changing worlds, with the protocol of our deployers."""

from seachange.deploy.rivals.cusum_klucb import CUSUMKLUCB
from seachange.deploy.rivals.d_linucb import DLinUCB
from seachange.deploy.rivals.discounted_linear_thompson import DiscountedLinearThompson
from seachange.deploy.rivals.discounted_thompson import DiscountedThompson
from seachange.deploy.rivals.discounted_ucb import DiscountedUCB
from seachange.deploy.rivals.dynamic_linucb import DynamicLinUCB
from seachange.deploy.rivals.exp3s import Exp3S
from seachange.deploy.rivals.fixed_state import fixed_state
from seachange.deploy.rivals.glr_klucb import GLRKLUCB
from seachange.deploy.rivals.klucb import KLUCB
from seachange.deploy.rivals.linear_thompson import LinearThompson
from seachange.deploy.rivals.linucb import LinUCB
from seachange.deploy.rivals.monitored_klucb import MonitoredKLUCB
from seachange.deploy.rivals.restarted_linear_thompson import RestartedLinearThompson
from seachange.deploy.rivals.rival import Rival, RivalState
from seachange.deploy.rivals.sliding_window_klucb import SlidingWindowKLUCB
from seachange.deploy.rivals.sw_linucb import SWLinUCB

__all__ = [
    "CUSUMKLUCB", "GLRKLUCB", "KLUCB", "DLinUCB", "DiscountedLinearThompson", "DiscountedThompson", "DiscountedUCB",
    "DynamicLinUCB", "Exp3S", "LinUCB", "LinearThompson", "MonitoredKLUCB", "RestartedLinearThompson", "Rival",
    "RivalState", "SWLinUCB", "SlidingWindowKLUCB", "fixed_state",
]  # fmt: skip
