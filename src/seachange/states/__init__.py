"""Latent states: which world was the log in at each round."""

from seachange.states.change_point import ChangePointOracle
from seachange.states.hmm import HMMOracle
from seachange.states.labels import KnownStates, SingleState, StateLabels
from seachange.states.live import LiveFilter
from seachange.states.switching import SwitchingRegression

__all__ = [
    "ChangePointOracle",
    "HMMOracle",
    "KnownStates",
    "LiveFilter",
    "SingleState",
    "StateLabels",
    "SwitchingRegression",
]
